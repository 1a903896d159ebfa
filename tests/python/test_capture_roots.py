"""Roots that are leaves: without children, or scripted (decisions 15)."""

from __future__ import annotations

import pytest
import torch
from capture_tools import debugger, read_step, record
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


def test_capture_traced_and_exported_models_hold_nothing_of_ours(tmp_path):
    """What capture asks of the graph must not be seen by those who record it: the traced graphs are equal."""
    model, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.ones(1, 3)

    def graphs():
        traced = torch.jit.trace(model, x)
        exported = torch.export.export(model, (x,))
        return str(traced.inlined_graph).count("aten::"), [n.op for n in exported.graph.nodes], traced(x)

    kinds, nodes, value = graphs()
    with debugger(tmp_path, "mix") as tool:
        for _ in range(2):  # a second trace must not meet anything of the first
            tool.start(model)
            found = graphs()
            tool.stop()
            tool.step()
            assert found[:2] == (kinds, nodes) and torch.equal(found[2], value)


@pytest.mark.parametrize("evidence", ["light", "full"])
def test_capture_lazy_modules(evidence, tmp_path):
    model = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    with debugger(tmp_path, "mix", evidence=evidence) as tool:
        for _ in range(2):
            tool.start(model)
            model(torch.ones(2, 5)).sum().backward()
            tool.stop()
            tool.step()
    first, second = (read_step(tmp_path, i).data for i in range(2))
    assert first["Module.0.LazyLinear.forward.0"]["output"][0]["shape"] == [2, 3]  # the class at start()
    assert first["Module.0.LazyLinear.forward.0"]["parameters"]["weight"]["shape"] == [3, 5]
    assert sorted(n for n in second if ".parameters_grad." in n) == [
        "Module.0.LazyLinear.parameters_grad.0",
        "Module.1.LazyBatchNorm1d.parameters_grad.0",
    ]
