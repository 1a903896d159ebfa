"""What becomes of single calls: gradients of every kind, arguments rebuilt from records, functions found by name."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from precheck_golden import table
from precheck_support import Runner, call, msprobe, tensor, write_dump

from msprobe.precheck.devices import Device
from msprobe.precheck.dump import Call
from msprobe.precheck.inputs import InputMaker, fill_floats
from msprobe.precheck.options import Options
from msprobe.precheck.replay import Replayer

__all__ = ["msprobe"]  # a fixture

Rows = dict[str, list[str]]


def replay(msprobe: Runner, folder: Path, data: dict[str, Any], *args: object) -> tuple[Rows, Rows]:
    """Result and details rows of a replay of `data`."""
    write_dump(folder / "dump.json", data)
    out = f"out{len(list(folder.glob('out*')))}"
    assert msprobe("acc_check", "-api_info", "dump.json", "-o", out, "--device", "cpu", *args) in (0, 3)
    return table(folder / out, "result"), table(folder / out, "details")


def candidate(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> str:
    (folder / f"{name}.py").write_text(f"import torch\n{text}\n", "utf-8")
    monkeypatch.syspath_prepend(str(folder))
    return f"{name}:f"


GRAD = {"requires_grad": True}


def test_backward_covers_every_output(msprobe: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gradient = tensor("float32", [2, 3], 1.0, 2.0)
    data = {
        "Torch.split.0.forward": call(tensor("float32", [4, 3], -1.0, 1.0, **GRAD), 2),
        "Torch.split.0.backward": {"input": [gradient, gradient], "output": []},
    }
    results, details = replay(msprobe, tmp_path, data)
    assert results["Torch.split.0"][1:3] == ["pass", "pass"]
    assert details["Torch.split.0.backward.output.0"][3] == "(4, 3)"
    # The second output's gradient is lost on the device.
    spoiled = candidate(
        tmp_path,
        monkeypatch,
        "lose_second",
        "def f(name, real, args, kwargs):\n    a, b = real(*args, **kwargs)\n    return a, b.detach() + 0 * a.sum()",
    )
    results, _ = replay(msprobe, tmp_path, data, "--candidate", spoiled)
    assert results["Torch.split.0"][1:3] == ["pass", "error"]


def test_backward_covers_keywords_and_in_place_inputs(msprobe: Runner, tmp_path: Path) -> None:
    leaf = tensor("float32", [4], 0.5, 1.0, **GRAD)
    gradient = {"input": [tensor("float32", [4], 1.0, 2.0)], "output": []}
    data = {
        "Torch.add.0.forward": call(tensor("float32", [4], 0.5, 1.0), other=leaf),
        "Torch.add.0.backward": gradient,
        "Tensor.mul_.0.forward": call(leaf, 3.0),
        "Tensor.mul_.0.backward": gradient,
    }
    results, details = replay(msprobe, tmp_path, data)
    assert {row[2] for row in results.values()} == {"pass"}
    shown = [details[f"{name}.backward.output.{i}"][3] for name, i in (("Torch.add.0", 1), ("Tensor.mul_.0", 0))]
    assert shown == ["(4,)", "(4,)"]


def test_a_failing_backward_leaves_the_forward(msprobe: Runner, tmp_path: Path) -> None:
    data = {
        "Torch.floor_divide.0.forward": call(tensor("float32", [4], 1.0, 9.0, **GRAD), 2.0),
        "Torch.floor_divide.0.backward": {"input": [tensor("float32", [4], 1.0, 2.0)], "output": []},
    }
    results, details = replay(msprobe, tmp_path, data)
    row = results["Torch.floor_divide.0"]
    assert row[1:3] == ["pass", "SKIP"]
    assert row[3].partition(":")[0] in ("backward_failed", "no_gradient")
    assert details["Torch.floor_divide.0.forward.output.0"][21] == "pass"


def test_gradients_that_are_zero_in_exact_arithmetic_raise_nothing(msprobe: Runner, tmp_path: Path) -> None:
    # The sum over a normalised batch does not depend on the input: its gradient is rounding noise.
    data = {}
    for n, dtype in enumerate(("float32", "bfloat16")):
        source = tensor(dtype, [64, 8], -3.0, 3.0, **GRAD)
        data[f"Functional.batch_norm.{n}.forward"] = call(source, None, None, None, None, True)
        data[f"Functional.batch_norm.{n}.backward"] = {"input": [tensor(dtype, [64, 8], 1.0, 1.0)], "output": []}
    results, _ = replay(msprobe, tmp_path, data)
    assert {tuple(row[1:3]) for row in results.values()} == {("pass", "pass")}


def test_functions_are_found_by_their_recorded_path_or_by_what_fits(msprobe: Runner, tmp_path: Path) -> None:
    square = tensor("float32", [3, 3], -1.0, 1.0)
    vector = tensor("float32", [2, 3], -1.0, 1.0)
    det = call(square) | {"output": [tensor("float32", [], 0.1, 0.1)]}
    data = {
        "Torch.inv.0.forward": call(square) | {"qualified": "torch.linalg.inv"},
        "Torch.inv.1.forward": call(square) | {"output": [square]},  # an earlier release's: torch has no inv
        "Torch.linalg.det.0.forward": det,
        "Torch.fft.0.forward": call(vector) | {"qualified": "torch.fft.fft"},
        "Torch.vector_norm.0.forward": call(vector, dim=1) | {"output": [tensor("float32", [2], 0.1, 0.1)]},
        "Torch.load.0.forward": call("x.pt"),
    }
    results, details = replay(msprobe, tmp_path, data)
    assert {name: row[1] for name, row in results.items()} == {
        "Torch.inv.0": "pass",
        "Torch.inv.1": "pass",
        "Torch.linalg.det.0": "pass",
        "Torch.fft.0": "pass",
        "Torch.vector_norm.0": "pass",
        "Torch.load.0": "SKIP",
    }
    assert details["Torch.fft.0.forward.output.0"][2:4] == ["torch.complex64", "(2, 3)"]
    assert details["Torch.vector_norm.0.forward.output.0"][3] == "(2,)"


def test_positional_words_are_rebuilt(msprobe: Runner, tmp_path: Path) -> None:
    source = tensor("float32", [1, 2, 3, 4], -1.0, 1.0)
    half = {"type": "torch.dtype", "value": "torch.float16"}
    data = {
        "Torch.sum.0.forward": call(source, [0, 1], dtype={"type": "torch.dtype", "value": "torch.float64"}),
        "Tensor.type.0.forward": call(source, half),
        "Torch.full.0.forward": call([2], 1.5, device={"type": "torch.device", "value": "npu:0"}),
        "Tensor.contiguous.0.forward": call(
            source, memory_format={"type": "torch.memory_format", "value": "torch.channels_last"}
        ),
        "Torch.cat.0.forward": call([source, source], 1),
    }
    results, details = replay(msprobe, tmp_path, data)
    assert {row[1] for row in results.values()} == {"pass"}
    assert details["Torch.sum.0.forward.output.0"][2] == "torch.float64"
    assert details["Tensor.type.0.forward.output.0"][2] == "torch.float16"
    assert details["Torch.cat.0.forward.output.0"][3] == "(1, 4, 3, 4)"


def test_one_nan_or_infinity_does_not_fill_an_input() -> None:
    record = {"dtype": "torch.float32", "shape": [1000], "Max": "nan", "Min": -2.0, "Mean": "nan", "Norm": "nan"}
    x = torch.empty(1000)
    fill_floats(x, record, 7, "input_args.0")
    assert int(torch.isnan(x).sum()) == 1
    record |= {"Max": float("inf"), "Mean": float("inf"), "Norm": float("inf")}
    fill_floats(x, record, 7, "input_args.0")
    assert int(torch.isinf(x).sum()) == 1
    assert float(x[torch.isfinite(x)].min()) == -2.0


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_integers_reach_both_ends(dtype: str) -> None:
    info = torch.iinfo(getattr(torch, dtype))
    maker = InputMaker("Torch.abs.0", "abs", 1, "", False)
    made = maker.make(call(tensor(dtype, [500], info.min, info.max))).args[0]
    assert (int(made[0]), int(made[-1])) == (info.min, info.max)
    assert info.min <= int(made.min()) and int(made.max()) <= info.max
    above = int((made.double() > (info.min + info.max) / 2).sum())
    assert abs(above - 250) < 67  # six deviations of a fair coin


def test_drawn_masks_select_as_many_as_were_recorded(msprobe: Runner, tmp_path: Path) -> None:
    mask, source = tensor("bool", [5, 8], False, True), tensor("float32", [5, 8], -1.0, 1.0)
    data = {
        "Torch.nonzero.0.forward": call(mask) | {"output": [tensor("int64", [7, 2], 0, 7)]},
        "Torch.masked_select.0.forward": call(source, mask) | {"output": [tensor("float32", [33], 0.0, 1.0)]},
        "Torch.masked_select.1.forward": call(source, mask) | {"output": [tensor("float32", [0], None, None)]},
    }
    _, details = replay(msprobe, tmp_path, data)
    shapes = [row[3] for name, row in details.items() if ".forward." in name]
    assert shapes == ["(7, 2)", "(33,)", "(0,)"]


def test_every_skip_has_a_code_and_a_sentence(
    msprobe: Runner, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = {
        "Torch.abs.0.forward": call(tensor("float32", [2], None, None)),
        "Torch.abs.1.forward": call(
            {"type": "torch.Tensor", "dtype": "torch.nothing", "shape": [2], "Max": 1, "Min": 0}
        ),
        "Torch.abs.2.forward": call(tensor("float32", [2], 0, 1, data_name="x.pt")),
        "Torch.abs.3.forward": call({"key": 1}),
        "Torch.nothing.0.forward": call(1),
        "Distributed.all_reduce.0.forward": call(1),
        "NPU.npu_swiglu.0.forward": call(tensor("float32", [2], 0.0, 1.0)),
        "Torch.matmul.0.forward": call(tensor("float32", [2, 3], 0, 1), tensor("float32", [2, 3], 0, 1)),
        "Tensor.to.0.forward": call(tensor("float32", [2], 0, 1)),
    }
    results, details = replay(msprobe, tmp_path, data)
    assert {row[1] for row in results.values()} == {"SKIP"}
    for name, row in results.items():
        code, _, sentence = row[3].partition(": ")
        assert code.isidentifier() and len(sentence) > 10, f"{name}: {row[3]}"
        assert details[f"{name}.forward.output.0"][22].startswith(row[3])
    assert "forward: pass 0, warning 0, error 0, skip 9, total 9" in capfd.readouterr().err


def test_inputs_may_be_read_only_and_have_any_name(msprobe: Runner, tmp_path: Path) -> None:
    folder = tmp_path / "文件 夹+%"
    folder.mkdir()
    write_dump(folder / "dump ä.json", {"Torch.abs.0.forward": call(tensor("float32", [4], -1.0, 1.0))})
    (folder / "dump ä.json").chmod(0o444)
    folder.chmod(0o555)
    try:
        args = ("-api_info", folder / "dump ä.json", "-o", tmp_path / "out + ü", "--device", "cpu")
        assert msprobe("multi_acc_check", *args, "-n", 2) == 0
        assert os.listdir(folder) == ["dump ä.json"]
    finally:
        folder.chmod(0o755)
    (details,) = (tmp_path / "out + ü").glob("*details*.csv")
    details.chmod(0o444)
    assert msprobe("api_precision_compare", "-npu", details, "-gpu", details, "-o", tmp_path / "verdict") == 0


def test_work_per_call_is_bounded(msprobe: Runner, tmp_path: Path) -> None:
    """Tables are looked up once and no collector runs: some hundred Python calls for each."""
    n = 200
    write_dump(
        tmp_path / "dump.json", {f"Torch.abs.{i}.forward": call(tensor("float32", [4], -1.0, 1.0)) for i in range(n)}
    )
    args = ("acc_check", "-api_info", "dump.json", "--device", "cpu", "-q", "-o")
    assert msprobe(*args, "warm") == 0
    calls = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event == "call" or event == "c_call"

    sys.setprofile(count)
    try:
        assert msprobe(*args, "out") == 0
    finally:
        sys.setprofile(None)
    assert calls < 800 * n


def test_what_an_in_place_call_changed_is_its_result(
    msprobe: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tensor("int64", [2], 0, 3)
    data = {"Tensor.__setitem__.0.forward": call(tensor("float32", [4], -1.0, 1.0), index, 2.0)}
    results, details = replay(msprobe, tmp_path, data)
    assert results["Tensor.__setitem__.0"][1] == "pass"
    assert details["Tensor.__setitem__.0.forward.output.0"][3] == "(4,)"
    forgets = candidate(tmp_path, monkeypatch, "forgets_to_set", "def f(name, real, args, kwargs):\n    return None")
    assert replay(msprobe, tmp_path, data, "--candidate", forgets)[0]["Tensor.__setitem__.0"][1] == "error"


def test_recurrent_cells_are_replayed(msprobe: Runner, tmp_path: Path) -> None:
    weights = [tensor("float32", shape, -0.5, 0.5) for shape in ([16, 3], [16, 4], [16], [16])]
    state = [tensor("float32", [1, 2, 4], -1.0, 1.0)] * 2
    lstm = call(tensor("float32", [5, 2, 3], -1.0, 1.0), state, weights, True, 1, 0.0, True, False, False)
    results, details = replay(msprobe, tmp_path, {"VF.lstm.0.forward": lstm})
    assert results["VF.lstm.0"][1] == "pass"
    assert [details[f"VF.lstm.0.forward.output.{i}"][3] for i in range(3)] == ["(5, 2, 4)", "(1, 2, 4)", "(1, 2, 4)"]
    assert replay(msprobe, tmp_path, {"VF.lstm.0.forward": lstm}, "--rules", "base")[0]["VF.lstm.0"][1] == "SKIP"


def test_meta_file_holds_the_checksums_of_the_inputs(msprobe: Runner, tmp_path: Path) -> None:
    _, details = replay(msprobe, tmp_path, {"Torch.abs.0.forward": call(tensor("float32", [4], -1.0, 1.0))})
    (meta,) = (tmp_path / "out0").glob("*meta*.json")
    checksum = json.loads(meta.read_text("utf-8"))["inputs"]["Torch.abs.0"]
    assert f"inputs={checksum}" in details["Torch.abs.0.forward.output.0"][22]


class _Accelerator(Device):
    """A device whose work ends later than the calls that asked for it, as queues of accelerators do."""

    @property
    def is_cpu(self) -> bool:
        return False

    def to(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()


def test_the_reference_runs_beside_the_device() -> None:
    """The device's result is filled in by another thread, and not before the reference has begun."""
    reference_began = threading.Event()
    queue: list[threading.Thread] = []
    order: list[str] = []

    def device(x: torch.Tensor) -> torch.Tensor:
        order.append("device")
        out = torch.zeros_like(x)

        def work() -> None:
            if reference_began.wait(60):
                out.copy_(x + 1)

        queue.append(threading.Thread(target=work))
        queue[-1].start()
        return out

    def reference(x: torch.Tensor) -> torch.Tensor:
        order.append("reference")
        reference_began.set()
        queue[0].join()
        return x + 1

    record: dict[str, Any] = call(tensor("float32", [64], -1.0, 1.0))
    options = Options("acc_check", old_face=False, multi=False, api_info="", out_path="", rules="base")
    replayer = Replayer(options, None, _Accelerator("cpu", 0), "", has_data_files=False)
    prepared = replayer.prepare(Call("Torch.abs.0", record))
    prepared.functions = [(device, reference)]
    outcome, _ = replayer.judge(prepared)
    assert order == ["device", "reference"]
    assert outcome.forward == "pass", [row.message for row in outcome.rows]


def test_gradients_of_the_reference_run_beside_the_device() -> None:
    order: list[str] = []

    def doubled(who: str) -> Any:
        class Doubled(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
                return x * 2

            @staticmethod
            def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
                order.append(who)
                return gradient * 2

        return Doubled.apply

    record: dict[str, Any] = call(tensor("float32", [8], -1.0, 1.0, requires_grad=True))
    backward: dict[str, Any] = {"input": [tensor("float32", [8], -1.0, 1.0)], "output": []}
    options = Options("acc_check", old_face=False, multi=False, api_info="", out_path="", rules="base")
    replayer = Replayer(options, None, _Accelerator("cpu", 0), "", has_data_files=False)
    prepared = replayer.prepare(Call("Torch.abs.0", record, backward))
    prepared.functions = [(doubled("device"), doubled("reference"))]
    outcome, _ = replayer.judge(prepared)
    assert order == ["device", "reference"]
    assert (outcome.forward, outcome.backward) == ("pass", "pass")
