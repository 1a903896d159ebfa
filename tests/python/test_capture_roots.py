"""Roots that are leaves: without children, or scripted (decisions 15)."""

from __future__ import annotations

import torch
from capture_tools import record
from torch import nn


def test_capture_scripted_root_is_one_module_and_its_inside_is_not_seen(tmp_path):
    torch.manual_seed(0)
    script = torch.jit.script(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))
    x = torch.ones(4, 3)
    expected = script(x)
    got = []
    data = record(tmp_path, "L0", lambda: got.append(script(x)), script).data
    assert torch.equal(got[0], expected)
    assert list(data) == ["Module.Sequential.forward.0"]
    entry = data["Module.Sequential.forward.0"]
    assert (entry["input_args"][0]["shape"], entry["output"][0]["shape"]) == ([4, 3], [4, 2])
    assert not script._forward_hooks and not script._forward_pre_hooks


def test_capture_scripted_child_is_skipped_with_a_warning(tmp_path, capsys):
    model = nn.Sequential(torch.jit.script(nn.Linear(3, 2)), nn.ReLU())
    names = record(tmp_path, "L0", lambda: model(torch.ones(4, 3)), model).names
    assert names == ["Module.1.ReLU.forward.0"]
    assert "module 0 is a ScriptModule: not recorded" in capsys.readouterr().out
