"""Objects of the extension are gone when the interpreter ends: nanobind names what is left, and says nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from msprobe import _core

# Leaks are told of only when the interpreter takes its modules apart; a leaked object shows that it would be told.
USE_ALL = """
import sys, torch
import msprobe
from msprobe import _core
from msprobe.pytorch import PrecisionDebugger
tool = PrecisionDebugger(dump_path="dump", task="statistics", level="mix")
net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
for step in range(2):
    tool.start(net)
    net(torch.ones(2, 3)).sum().backward()
    tool.stop()
    tool.step()
folder = "dump/step0/rank/dump.json"
assert _core.main(["msprobe", "compare", "-tp", folder, "-gp", folder, "-o", "out"]) == 0
assert _core.main(["msprobe", "acc_check", "-api_info", folder, "-o", "pre", "--device", "cpu"]) in (0, 1)
PrecisionDebugger.reset()
del tool, net
"""


def run(code: str, folder: Path) -> str:
    """What the interpreter says on stderr, its end included."""
    paths = [str(Path(_core.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "MSPROBE_LEAK_WARNINGS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.no_sanitizer
def test_no_object_of_the_extension_is_left_at_exit(tmp_path: Path) -> None:
    said = run(USE_ALL, tmp_path)
    assert "nanobind: leaked" not in said, said


@pytest.mark.no_sanitizer
def test_a_leaked_object_would_be_told_of(tmp_path: Path) -> None:
    """Without this the test above could not fail."""
    leak = (
        "import ctypes\n"
        "from msprobe import _core\n"
        "row = _core.PrecheckRow('Torch.add.0', 'pass', '')\n"
        "ctypes.pythonapi.Py_IncRef(ctypes.py_object(row))\n"
    )
    assert "nanobind: leaked 1 instances" in run(leak, tmp_path)
