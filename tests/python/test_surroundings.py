"""Callbacks of trainers, notebooks, and the pytest plug-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from msprobe.pytorch import PrecisionDebugger

pytest_plugins = ["pytester"]
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
# An installed msprobe brings the plug-in by its entry point; from a source tree it has to be named.
INSTALLED = any(e.value == "msprobe.integrations.pytest_plugin" for e in entry_points(group="pytest11"))
LOADED = () if INSTALLED else ("-p", "msprobe.integrations.pytest_plugin")
CONFIG = {"task": "statistics", "level": "mix", "dump_path": "dump", "step": [], "rank": []}

MODULE = """
import os
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.LayerNorm(8, eps=EPS)

    def forward(self, x, scale=1.0):
        return torch.tanh(self.norm(self.first(x))) * scale

def test_net(msprobe_baseline):
    torch.manual_seed(0)
    out = msprobe_baseline.check(Net(), torch.ones(3, 4), backward=True, kwargs={"scale": 2.0})
    assert out.shape == (3, 8)
"""


def run(cwd: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(Path(p).resolve()) for p in sys.path if p)}
    return subprocess.run(
        [sys.executable, *command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def entries(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "dump.json").read_text())["data"]


@pytest.fixture
def plugin(pytester: pytest.Pytester) -> Any:
    """Runs a test file with the plug-in, in this process."""
    PrecisionDebugger.reset()

    def go(source: str, *args: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=source)
        return pytester.runpytest_inprocess(*LOADED, *args)

    yield go
    PrecisionDebugger.reset()


def test_baseline_is_written_held_and_drift_is_named(plugin: Any, pytester: pytest.Pytester) -> None:
    plain = MODULE.replace("EPS", "1e-5")
    missing = plugin(plain)
    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines(["*no baseline in *test_net*run pytest --msprobe-update*"])
    written = plugin(plain, "--msprobe-update")
    written.assert_outcomes(passed=1)
    written.stdout.fnmatch_lines(["msprobe: baseline written: *test_net*outputs"])
    stored = pytester.path / "msprobe_baselines" / "test_it" / "test_net" / "outputs"
    names = entries(stored)
    assert {"Module.tested.Net.forward.0", "Module.tested.norm.LayerNorm.backward.0"} <= set(names)
    assert str(pytester.path) not in (stored / "dump.json").read_text()  # it can be committed
    plugin(plain).assert_outcomes(passed=1)
    drift = plugin(MODULE.replace("EPS", "1e-2"))
    drift.assert_outcomes(failed=1)
    drift.stdout.fnmatch_lines(["*outputs have drifted*", "*Module.tested.norm.LayerNorm.forward.0*"])
    # What rounding explains is no drift: the same sum in another order.
    other_order = plain.replace(
        "self.norm(self.first(x))", "self.norm(self.first.bias + x @ self.first.weight.T * 1.0)"
    )
    changed = plugin(other_order)
    changed.assert_outcomes(failed=1)  # a module that is not called any more is no rounding
    changed.stdout.fnmatch_lines(["*only in the golden dump*Module.tested.first*"])


def test_baseline_refuses_what_it_cannot_do(plugin: Any) -> None:
    twice = MODULE.replace("EPS", "1e-5") + "    msprobe_baseline.check(Net(), torch.ones(3, 4))\n"
    plugin(twice, "--msprobe-update").stdout.fnmatch_lines(["*this test has used that name already*"])
    busy = MODULE.replace("EPS", "1e-5").replace(
        "    torch.manual_seed(0)\n",
        "    from msprobe.pytorch import PrecisionDebugger\n    PrecisionDebugger(dump_path='x')\n",
    )
    plugin(busy).stdout.fnmatch_lines(["*a PrecisionDebugger is in use*"])
    PrecisionDebugger.reset()


def test_a_run_without_the_fixture_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import sys\ndef test(): assert 'torch' not in sys.modules\n")
    done = run(tmp_path, "-m", "pytest", "-q", *LOADED, "test_it.py")
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("script", ["trainer.py", "lightning_module.py"])
def test_callbacks_record_steps_without_the_optimizer(tmp_path: Path, script: str) -> None:
    pytest.importorskip("transformers" if script == "trainer.py" else "lightning")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    done = run(tmp_path, str(EXAMPLES / "surroundings" / script), "config.json", "out")
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["step0", "step1"]
    for step in ("step0", "step1"):
        names = list(entries(tmp_path / "out" / step / "rank"))
        assert any(".parameters_grad." in name for name in names)
        assert any(name.startswith("Functional.cross_entropy.0.backward") for name in names)
        assert not [name for name in names if "_foreach_add" in name or "addcdiv" in name]


@pytest.mark.slow
def test_notebook_runs(tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    from nbclient import NotebookClient

    notebook = nbformat.read(EXAMPLES / "notebook" / "first_difference.ipynb", 4)
    paths = os.pathsep.join(str(Path(p).resolve()) for p in sys.path if p)
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env=os.environ | {"PYTHONPATH": paths})
    texts = "".join(o.get("text", "") for c in notebook.cells if c.cell_type == "code" for o in c.outputs)
    assert "Functional.layer_norm.0.forward" in texts
    assert "1 (LayerNorm)" in texts
