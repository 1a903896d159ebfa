"""A pytest plug-in: the fixture `msprobe_baseline` fails when a module's outputs drift from a stored baseline.

    def test_block(msprobe_baseline):
        torch.manual_seed(0)
        msprobe_baseline.check(Block(8), torch.ones(2, 8))

`pytest --msprobe-update` writes the baselines; commit them. A baseline is a small dump, judged by the rules of
`msprobe compare`: what rounding explains does not fail. Nothing is imported before a test asks for the fixture.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

_WRITTEN = pytest.StashKey[list[str]]()
_FOLDER = "msprobe_baselines"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --msprobe-update."""
    group = parser.getgroup("msprobe")
    group.addoption("--msprobe-update", action="store_true", help="write the baselines of msprobe_baseline")


def pytest_configure(config: pytest.Config) -> None:
    """Begin the list of what was written."""
    config.stash[_WRITTEN] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was written."""
    for name in config.stash.get(_WRITTEN, []):
        terminalreporter.write_line(f"msprobe: baseline written: {name}")


@pytest.fixture
def msprobe_baseline(request: pytest.FixtureRequest, tmp_path: Path) -> Baseline:
    """The stored baselines of this test, in a folder beside its file."""
    folder = request.path.parent / _FOLDER / request.path.stem / _safe(request.node.name)
    update = bool(request.config.getoption("--msprobe-update"))
    return Baseline(folder, tmp_path, request.config.stash[_WRITTEN] if update else None)


def _safe(name: str) -> str:
    return re.sub(r"[^\w.-]", lambda m: f"%{ord(m[0]):02X}", name)


class Baseline:
    """Baselines of one test."""

    def __init__(self, folder: Path, scratch: Path, written: list[str] | None) -> None:
        self._folder = folder
        self._scratch = scratch
        self._written = written  # None: compare
        self._used: set[str] = set()

    def check(
        self,
        module: Any,
        *args: Any,
        name: str = "outputs",
        level: str = "L0",
        backward: bool = False,
        rules: str = "default",
        fail_on: Sequence[str] = ("error", "unmatched"),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call the module and compare inputs and outputs of it and all its modules with the baseline.

        Args:
            module: A torch.nn.Module.
            *args: Its positional arguments.
            name: Of the baseline, when a test has several.
            level: `L0` modules, `mix` also API calls (which may differ between releases of PyTorch).
            backward: Also the gradients of the sum of its outputs. They add to `.grad` of the parameters.
            rules: As of `msprobe compare --rules`.
            fail_on: Verdicts that fail the test: `error`, `unmatched`, `warning`.
            kwargs: Keyword arguments of the module.

        Returns:
            What the module returned.
        """
        __tracebackhide__ = True
        if name in self._used:
            pytest.fail(f"msprobe_baseline.check(name={name!r}): this test has used that name already", pytrace=False)
        self._used.add(name)
        recorded = self._scratch / f"msprobe_{_safe(name)}"
        output = _record(recorded, module, args, kwargs or {}, level, backward)
        stored = self._folder / _safe(name)
        if self._written is not None:
            _store(recorded, stored)
            self._written.append(str(stored))
        elif not (stored / "dump.json").is_file():
            pytest.fail(f"no baseline in {stored}; run pytest --msprobe-update once, and commit it", pytrace=False)
        else:
            _compare(_rank_folder(recorded), stored, recorded / "report", rules, fail_on)
        return output


def _rank_folder(dump: Path) -> Path:
    found = sorted(dump.glob("dump/step0/*/dump.json"))
    if not found:
        pytest.fail("nothing was recorded: has the module any call in its forward pass?", pytrace=False)
    return found[0].parent


def _record(
    folder: Path, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], level: str, backward: bool
) -> Any:
    import torch

    from msprobe.doctor.trial import differentiable_sum
    from msprobe.pytorch import PrecisionDebugger

    class Subject(torch.nn.Module):
        """Children are recorded, roots are not."""

        def __init__(self) -> None:
            super().__init__()
            self.tested = module

        def forward(self) -> Any:
            return self.tested(*args, **kwargs)

    if PrecisionDebugger._recorder is not None:
        pytest.fail("msprobe_baseline: a PrecisionDebugger is in use; call PrecisionDebugger.reset()", pytrace=False)
    folder.mkdir(parents=True)
    config = folder / "config.json"
    settings = {"task": "tensor", "level": level, "dump_path": str(folder / "dump"), "extra_info": False}
    config.write_text(json.dumps(settings), encoding="utf-8")
    subject = Subject()
    try:
        debugger = PrecisionDebugger(config_path=str(config))
        debugger.start(model=subject)
        output = subject()
        if backward:
            with torch._C.DisableTorchFunction():
                total = differentiable_sum(output)
                if total is not None:
                    total.backward()
        debugger.stop()
        debugger.step()
    finally:
        PrecisionDebugger.reset()
    return output


def _store(recorded: Path, stored: Path) -> None:
    """Copy what a comparison reads, without paths of this machine."""
    source = _rank_folder(recorded)
    dump = json.loads((source / "dump.json").read_text(encoding="utf-8"))
    dump["dump_data_dir"] = None
    dump["msprobe"] = {key: dump["msprobe"][key] for key in ("format_version", "tool_version", "complete")}
    fresh = stored.with_name(stored.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(source / "dump_tensor_data", fresh / "dump_tensor_data")
    (fresh / "dump.json").write_text(json.dumps(dump, indent=1), encoding="utf-8")
    shutil.rmtree(stored, ignore_errors=True)
    fresh.rename(stored)


def _compare(recorded: Path, stored: Path, report: Path, rules: str, fail_on: Sequence[str]) -> None:
    __tracebackhide__ = True
    from msprobe import _core

    options = _core.CompareOptions(str(recorded / "dump.json"), str(stored / "dump.json"), str(report))
    options.old_face = False
    options.rules = rules
    result = _core.compare(options)
    if any(result.counts[verdict] for verdict in fail_on):
        pytest.fail(f"outputs have drifted from {stored}\n{result}", pytrace=False)
