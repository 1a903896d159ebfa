"""Level debug: `PrecisionDebugger.save` (dump.md 2.2, 14.3)."""

from __future__ import annotations

import copy
import json
import pickle
import warnings

import pytest
import torch
from capture_tools import debugger
from torch import nn

from msprobe.errors import MsprobeError
from msprobe.pytorch import PrecisionDebugger


def read(folder, step=0):
    return json.loads((folder / "dump" / f"step{step}" / "rank" / "debug.json").read_text())


def means(value):
    """The structure with the mean of each leaf."""
    if isinstance(value, dict) and "type" in value:
        return value["Mean"] if value["type"] == "torch.Tensor" else value["value"]
    if isinstance(value, dict):
        return {k: means(v) for k, v in value.items()}
    return [means(v) for v in value] if isinstance(value, list) else value


def test_debug_save_records_variables_and_their_gradients(tmp_path):
    with debugger(tmp_path, "debug") as tool:
        x = torch.tensor([1.0, 3.0], requires_grad=True)
        y = x * 2  # dL/dy = 5, 15
        tool.save({"x": x, "rest": [y, (7, "text"), 0.5], "no": torch.ones(2)}, "values")
        tool.save(y, "values", save_backward=False)
        (y * torch.tensor([5.0, 15.0])).sum().backward()
        tool.step()
    dump = read(tmp_path)
    assert dump["level"] == "debug" and dump["task"] == "statistics"
    assert list(dump["data"]) == ["values.0.debug", "values.1.debug", "values_grad.0.debug"]
    assert means(dump["data"]["values.0.debug"]) == {"x": 2.0, "rest": [4.0, [7, "text"], 0.5], "no": 1.0}
    assert means(dump["data"]["values.1.debug"]) == 4.0
    assert means(dump["data"]["values_grad.0.debug"]) == {"x": 20.0, "rest": [10.0, [None, None], None], "no": None}
    assert not (tmp_path / "dump" / "step0" / "rank" / "dump.json").exists()


def test_debug_save_of_tensors_writes_files_that_hold_the_values(tmp_path):
    with debugger(tmp_path, "debug", task="tensor") as tool:
        x = torch.tensor([1.0, 3.0], requires_grad=True)
        tool.save([x], "v")
        (x * x).sum().backward()
        tool.step()
    data = read(tmp_path)["data"]
    folder = tmp_path / "dump" / "step0" / "rank" / "dump_tensor_data"
    assert torch.load(folder / data["v.0.debug"][0]["data_name"]).tolist() == [1, 3]
    assert torch.load(folder / data["v_grad.0.debug"][0]["data_name"]).tolist() == [2, 6]


def test_debug_numbers_start_anew_with_each_step_and_hooks_end_with_it(tmp_path):
    weight = nn.Parameter(torch.ones(2))
    with debugger(tmp_path, "debug") as tool:
        for k in range(3):
            tool.save(weight, "w")
            (weight * (k + 1)).sum().backward()
            tool.step()
        assert not weight._backward_hooks
        (weight * 9).sum().backward()  # nobody listens any more
    for k in range(3):
        data = read(tmp_path, k)["data"]
        assert list(data) == ["w.0.debug", "w_grad.0.debug"] and means(data["w_grad.0.debug"]) == k + 1


def test_debug_gradients_that_never_come_are_null(tmp_path):
    with debugger(tmp_path, "debug") as tool:
        tool.save([torch.ones(1, requires_grad=True), 1], "v")
    assert read(tmp_path)["data"]["v_grad.0.debug"] == [None, None]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.ones(1), 3), "name: a str was expected, got int"),
        ((torch.ones(1), "v", 1), "save_backward: a bool was expected, got int"),
        (({1, 2}, "v"), "variable: a set was found"),
        (({1: 2}, "v"), "variable: the keys of a dict have to be str, 1 is not"),
        (([None], "v"), "variable: a NoneType was found"),
    ],
)
def test_debug_save_skips_wrong_arguments_with_a_warning(arguments, message, tmp_path, capsys):
    with debugger(tmp_path, "debug") as tool:
        tool.save(*arguments)
        out = capsys.readouterr().out
        assert f"[WARNING] save() is skipped: {message}" in out
    assert not (tmp_path / "dump").exists()


def test_debug_save_takes_nesting_to_depth_400_and_no_further(tmp_path, capsys):
    def nested(depth):
        value = 5
        for _ in range(depth):
            value = [value]
        return value

    with debugger(tmp_path, "debug") as tool:
        tool.save(nested(400), "fits")
        tool.save(nested(401), "deep")
        cyclic: list = []
        cyclic.append(cyclic)
        tool.save(cyclic, "cyclic")
        assert capsys.readouterr().out.count("nested deeper than 400") == 2
        tool.step()
    assert [n for n in read(tmp_path)["data"] if "_grad" not in n] == ["fits.0.debug"]


def test_debug_save_is_silent_at_other_levels_and_needs_a_debugger(tmp_path, capsys):
    with debugger(tmp_path, "L1") as tool:
        capsys.readouterr()
        tool.save(3, 4)
        assert capsys.readouterr().out == ""
    assert not (tmp_path / "dump").exists()
    with pytest.raises(MsprobeError, match="no PrecisionDebugger instance exists"):
        PrecisionDebugger.save(1, "x")


def test_debug_saved_tensors_can_be_copied_and_pickled_and_train_the_same(tmp_path):
    def train(save):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.randn(3, 4)
        for _ in range(5):
            hidden = model[0](x)
            save(hidden, model[0].weight)
            loss = model[2](model[1](hidden)).pow(2).mean()
            save(loss, model[2].weight)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return [p.detach().clone() for p in model.parameters()]

    with debugger(tmp_path, "debug") as tool:
        got = train(lambda tensor, weight: tool.save([tensor, weight], "t"))
        weight = torch.ones(2, requires_grad=True)
        tool.save(weight, "w")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for other in (pickle.loads(pickle.dumps(weight)), copy.deepcopy(weight)):
                (other * 3).sum().backward()
                assert other.grad.tolist() == [3, 3]
        assert all(torch.equal(a, b) for a, b in zip(got, train(lambda *_: None), strict=True))
    assert read(tmp_path)["data"]["w_grad.0.debug"] is None


def test_debug_monitor_says_that_it_is_not_offered(tmp_path, capsys):
    with debugger(tmp_path, "L1") as tool:
        tool.monitor(nn.Linear(1, 1))
    assert "[ERROR] monitor(): the task grad_probe is not part of this tool" in capsys.readouterr().out
