"""How much is done per call, by counting and not by time."""

from __future__ import annotations

import json
import linecache
import os
import re
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from capture_tools import debugger
from torch import nn


def python_calls(run):
    """Code objects of all Python functions that were entered, and how often."""
    counts = {}

    def note(frame, event, _):
        if event == "call":
            counts[frame.f_code] = counts.get(frame.f_code, 0) + 1

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return counts


def test_capture_equal_stacks_are_rendered_once(tmp_path):
    x = torch.ones(2)
    looked_up = linecache.getline.__code__

    def run():
        for _ in range(60):
            torch.exp(x)  # one place, 60 calls

    with debugger(tmp_path, "L1") as tool:
        counts = []
        for _ in range(2):
            tool.start()
            counts.append(python_calls(run).get(looked_up, 0))
            tool.stop()
            tool.step()
    stacks = json.loads((tmp_path / "dump/step0/rank/stack.json").read_text())
    assert len(stacks) == 1
    ((names, lines),) = stacks.values()
    assert names == [f"Torch.exp.{i}.forward" for i in range(60)]
    assert len(lines) <= counts[0] < len(lines) + 60  # once per frame, not once per call
    assert counts[1] == 0  # and never again
    assert json.loads((tmp_path / "dump/step1/rank/stack.json").read_text()).popitem()[1][1] == lines


def test_capture_stopped_debugger_runs_no_line_of_its_own(tmp_path):
    model, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True)), torch.ones(2, 3)

    def run():
        F.softmax(torch.relu(model(x) + 1), -1).sum().backward()
        return x.shape, x.T, x @ x.t()

    before = python_calls(run)
    with debugger(tmp_path, "mix") as tool:
        constructed = python_calls(run)
        tool.start(model)
        run()
        tool.stop()
        stopped = python_calls(run)
        tool.step()
        assert python_calls(run) == stopped == constructed == before


SCRIPT = """
import json, sys
sys.path[:0] = {path!r}
sys.path.insert(0, {tests!r})
from pathlib import Path
from msprobe.pytorch import _leaf
if sys.argv[1] == "without":
    _leaf.next_sequence = lambda: 0  # as on a torch whose nodes have no numbers
import capture_nets
from capture_tools import record
found = {{}}
for script in ("residual", "resnet_inplace", "checkpoints"):
    model, step = capture_nets.SCRIPTS[script]()
    folder = Path(sys.argv[2]) / script
    folder.mkdir(parents=True)
    found[script] = record(folder, "L0", step, model).data
print(json.dumps(found))
"""


def test_capture_module_gradients_need_no_private_function_of_torch(tmp_path):
    """B38: the numbers of nodes only shorten the walk through the graph; without them the gradients are the same."""
    script = SCRIPT.format(path=[p for p in sys.path if p], tests=os.path.dirname(__file__))
    answers = []
    for how in ("with", "without"):
        command = [sys.executable, "-c", script, how, str(tmp_path / how)]
        out = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
        answers.append(json.loads(out.splitlines()[-1]))
    assert answers[0] == answers[1]
    assert sum(".backward." in n for data in answers[0].values() for n in data) > 30


def test_capture_supported_releases_of_torch_have_no_upper_bound():
    """Decision 57: from 2.1 on; what a release lacks has a fallback, tested by taking the feature away."""
    project = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    wanted = re.search(r'^torch = \["(torch[^"]*)"', project, re.MULTILINE)
    assert wanted is not None and wanted[1] == "torch>=2.1"
