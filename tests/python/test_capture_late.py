"""Gradients that come between stop() and step(): APIs, modules and parameters are treated alike (B13)."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from capture_tools import debugger, read_step
from torch import nn


def kinds_of_gradients(names):
    kinds = {
        "api": [n for n in names if n.endswith(".backward")],
        "module": [n for n in names if n.startswith("Module.") and ".backward." in n],
        "parameter": [n for n in names if ".parameters_grad." in n],
    }
    return {kind: sorted(found) for kind, found in kinds.items()}


def model_and_input():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), torch.randn(5, 3)


@pytest.mark.parametrize("where", ["host", "force"])
def test_capture_gradients_after_stop_are_those_before_it(where, tmp_path):
    found = []
    for late in (False, True):
        (tmp_path / str(late)).mkdir()
        model, x = model_and_input()
        with debugger(tmp_path / str(late), "mix", device_statistics=where) as tool:
            tool.start(model)
            loss = model(x).pow(2).sum()
            if not late:
                loss.backward()
            tool.stop()
            if late:
                loss.backward()
            tool.step()
        found.append(read_step(tmp_path / str(late)).data)
    early, late = found
    assert kinds_of_gradients(late) == kinds_of_gradients(early)
    assert all(kinds_of_gradients(late).values())
    for names in kinds_of_gradients(early).values():
        assert all(late[n] == early[n] for n in names)
    # And the values are right: the last layer's bias has the gradient of its output, summed over the batch.
    model, x = model_and_input()
    expected = (2 * model(x)).sum(0).double()
    bias = late["Module.2.Linear.parameters_grad.0"]["bias"][0]
    assert bias["Max"] == pytest.approx(expected.max().item(), rel=1e-6)
    assert bias["Norm"] == pytest.approx(expected.norm().item(), rel=1e-6)


def test_capture_gradients_after_stop_leave_nothing_on_the_model(tmp_path):
    model, x = model_and_input()
    untouched = [sorted(vars(m)) for m in model.modules()]
    with debugger(tmp_path, "mix") as tool:
        tool.start(model)
        loss = model(x).sum()
        tool.stop()
        for p in model.parameters():
            assert p._post_accumulate_grad_hooks is None and p._backward_hooks is None
        assert [sorted(vars(m)) for m in model.modules()] == untouched
        copied, loaded = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
        loss.backward()
        for other in (copied, loaded):  # another model is not ours
            other(x).sum().backward()
        tool.step()
    names = [n for n in read_step(tmp_path).names if ".parameters_grad." in n]
    assert sorted(names) == ["Module.0.Linear.parameters_grad.0", "Module.2.Linear.parameters_grad.0"]


def test_capture_gradients_after_step_belong_to_no_step(tmp_path):
    model, x = model_and_input()
    with debugger(tmp_path, "mix") as tool:
        for _ in range(2):
            tool.start(model)
            loss = model(x).sum()
            tool.stop()
            tool.step()
            loss.backward()
    for step in range(2):
        assert not any(kinds_of_gradients(read_step(tmp_path, step).names).values())


def test_capture_a_second_window_of_a_step_records_each_gradient_once(tmp_path):
    model, x = model_and_input()
    with debugger(tmp_path, "mix") as tool:
        tool.start(model)
        loss = model(x).sum()
        tool.stop()
        tool.start(model)
        loss.backward()
        tool.stop()
        model(x).sum().backward()  # a graph that no window saw
        tool.step()
    found = kinds_of_gradients(read_step(tmp_path).names)
    assert found["parameter"] == ["Module.0.Linear.parameters_grad.0", "Module.2.Linear.parameters_grad.0"]
    assert len(found["module"]) == 3 == len([n for n in found["api"] if "linear" in n or "tanh" in n])
