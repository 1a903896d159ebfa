"""From two cheap dumps to the tensors of one place: `msprobe narrow` and `PrecisionDebugger(narrow=...)`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from capture_tools import write_config
from torch import nn

from msprobe.errors import ConfigError
from msprobe.pytorch import PrecisionDebugger


class Block(nn.Module):
    def __init__(self, wrong: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)
        self.wrong = wrong

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.gelu(self.up(self.norm(x)))
        # The fault: the same statistics, other places.
        h = torch.flip(h, [0]) if self.wrong else torch.roll(h, 0, 0)
        return x + self.down(h)


def net(wrong: bool) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(*(Block(wrong and i == 2) for i in range(4)))


def run(folder: Path, wrong: bool, narrow: Path | None = None, **settings: Any) -> None:
    """Three steps; the fault is there from the second on."""
    folder.mkdir(exist_ok=True)
    PrecisionDebugger.reset()
    level = settings.pop("level", "mix")
    config = write_config(folder, level, step=[0, 1, 2], **settings)
    debugger = PrecisionDebugger(config_path=config, narrow=None if narrow is None else str(narrow))
    try:
        for step in range(3):
            model = net(wrong and step > 0)
            torch.manual_seed(100 + step)
            x = torch.randn(8, 16)
            debugger.start(model)
            model(x).square().sum().backward()
            debugger.stop()
            debugger.step()
    finally:
        PrecisionDebugger.reset()


def msprobe(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    given = os.environ.get("MSPROBE_BIN")
    script = shutil.which("msprobe", path=os.path.dirname(sys.executable))
    command = [os.path.abspath(given)] if given else [script] if script else [sys.executable, "-m", "msprobe"]
    return subprocess.run([*command, *args], cwd=cwd, capture_output=True, text=True, check=False)


def names(folder: Path) -> list[str]:
    return list(json.loads((folder / "dump.json").read_text())["data"])


@pytest.fixture
def cheap(tmp_path: Path) -> Path:
    section = {"summary_mode": "sketch"}
    run(tmp_path / "good", False, section=section)
    run(tmp_path / "bad", True, section=section)
    return tmp_path


def test_narrow_leads_from_sketches_to_the_tensors_of_the_entry(cheap: Path) -> None:
    got = msprobe("narrow", "bad/dump", "good/dump", "-o", "next.json", cwd=cheap)
    assert got.returncode == 0, got.stderr
    # The first step agrees; in the second one side flips where the other rolls.
    written = json.loads((cheap / "next.json").read_text())
    assert written["task"] == "tensor" and written["level"] == "mix" and written["step"] == [1]
    assert "Torch.flip.0.forward" in written["tensor"]["list"]
    assert "step1" in got.stdout
    for side in ("good", "bad"):
        run(cheap / side, side == "bad", cheap / "next.json", section={"summary_mode": "sketch"})
        folder = cheap / side / "dump_narrow" / "step1" / "rank"
        assert [p.name for p in (cheap / side / "dump_narrow").iterdir()] == ["step1"]
        assert (folder / "dump_tensor_data").is_dir()
        assert 3 <= len(names(folder)) < len(names(cheap / side / "dump" / "step1" / "rank")) / 3
        assert set(names(folder)) <= set(written["tensor"]["list"])
    compared = msprobe(
        "compare", "-tp", "bad/dump_narrow/step1", "-gp", "good/dump_narrow/step1", "-o", "out", cwd=cheap
    )
    summary = json.loads(next((cheap / "out").glob("compare_summary_*.json")).read_text())
    # The call that is another one, or the first whose input is wrong for it.
    assert summary["first_bad"]["entry"] in ("Torch.flip.0.forward", "Functional.linear.5.forward"), compared.stdout


def test_narrow_says_when_there_is_nothing_to_narrow(cheap: Path) -> None:
    got = msprobe("narrow", "good/dump", "good/dump", cwd=cheap)
    assert got.returncode == 1 and "the dumps do not part" in got.stderr
    assert not (cheap / "narrow.json").exists()
    got = msprobe("narrow", "bad/dump", "good/dump", "--step", "0", cwd=cheap)
    assert got.returncode == 1 and "the dumps do not part" in got.stderr


def test_narrow_around_and_force(cheap: Path) -> None:
    assert msprobe("narrow", "bad/dump/step1", "good/dump/step1", "--around", "0", cwd=cheap).returncode == 0
    first = json.loads((cheap / "narrow.json").read_text())
    assert len(first["tensor"]["list"]) <= 4  # one call of each side, forward and backward
    again = msprobe("narrow", "bad/dump/step1", "good/dump/step1", cwd=cheap)
    assert again.returncode == 2 and "exists already" in again.stderr
    assert json.loads((cheap / "narrow.json").read_text()) == first
    wider = msprobe("narrow", "bad/dump/step1", "good/dump/step1", "--around", "9", "--force", cwd=cheap)
    assert wider.returncode == 0
    assert len(json.loads((cheap / "narrow.json").read_text())["tensor"]["list"]) > 10


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["a"], "A B"),
        (["no_such", "good/dump"], "no_such"),
        (["bad/dump/step1", "good/dump"], "good/dump"),
        (["bad/dump", "good/dump", "-o", "next.yaml"], "does not end in .json"),
        (["bad/dump", "good/dump", "-o", "no/such/folder/next.json"], "no/such/folder"),
        (["bad/dump", "good/dump", "--around", "-1"], "around"),
        (["bad/dump", "good/dump", "--step", "7"], "7"),
    ],
)
def test_narrow_refuses_what_it_cannot_use(cheap: Path, args: list[str], message: str) -> None:
    got = msprobe("narrow", *args, cwd=cheap)
    assert got.returncode in (1, 2) and message in got.stderr, got.stderr
    assert "Traceback" not in got.stderr
    assert list(cheap.rglob("next.*")) == []


def test_narrow_from_modules_goes_to_the_calls_inside(tmp_path: Path) -> None:
    section = {"summary_mode": "sketch"}
    run(tmp_path / "good", False, level="L0", section=section)
    run(tmp_path / "bad", True, level="L0", section=section)
    assert msprobe("narrow", "bad/dump", "good/dump", "--around", "0", cwd=tmp_path).returncode == 0
    written = json.loads((tmp_path / "narrow.json").read_text())
    assert written["level"] == "mix"
    run(tmp_path / "bad", True, tmp_path / "narrow.json", level="L0", section=section)
    recorded = names(tmp_path / "bad" / "dump_narrow" / "step1" / "rank")
    assert any(not name.startswith("Module.") for name in recorded), recorded


def constructed(**arguments: Any) -> Callable[[], PrecisionDebugger]:
    return lambda: PrecisionDebugger(**arguments)


def test_narrow_file_that_is_wrong_is_named(tmp_path: Path) -> None:
    PrecisionDebugger.reset()
    config = write_config(tmp_path, "L1")
    bad = tmp_path / "narrow.json"
    bad.write_text('{"task": "tensr"}')
    for make in (
        constructed(config_path=config, narrow=str(bad)),
        constructed(config_path=config, narrow=str(tmp_path / "absent.json")),
        constructed(config_path=config, narrow=3),
    ):
        with pytest.raises(ConfigError, match=r"narrow|absent\.json"):
            make()
    PrecisionDebugger.reset()
