"""Leaves of every kind of value: read right, or null with a reason; never a crash."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from capture_tools import debugger, read_step
from torch import nn


class Sink:
    @staticmethod
    def take(*args, **kwargs):
        return None


def describe(folder: Path, *values, **keywords) -> tuple[list, dict, dict]:
    """Leaves of the values as arguments of a registered function, keywords, and the entry."""
    with debugger(folder, "L1") as tool:
        tool.register_custom_api(Sink, "take")
        tool.start()
        Sink.take(*values, **keywords)
        tool.stop()
        tool.step()
        tool.restore_custom_api(Sink, "take")
    entry = read_step(folder).data["Sink.take.0.forward"]
    return entry["input_args"], entry["input_kwargs"], entry


def check(leaf: dict, values: torch.Tensor, dtype: torch.dtype, shape=None) -> None:
    """Max, Min, Mean and Norm against float64 arithmetic over the values."""
    assert leaf["dtype"] == str(dtype)
    assert leaf["shape"] == list(values.shape if shape is None else shape)
    wide = values.to(torch.float64).flatten().numpy()
    assert leaf["Max"] == wide.max() and leaf["Min"] == wide.min()
    assert leaf["Mean"] == pytest.approx(wide.mean(), rel=1e-12, abs=1e-15)
    assert leaf["Norm"] == pytest.approx(np.sqrt((wide * wide).sum()), rel=1e-12)


STRIDED = {
    "contiguous": lambda: torch.arange(12.0).reshape(3, 4) - 5,
    "transposed": lambda: (torch.arange(12.0).reshape(3, 4) - 5).t(),
    "sliced": lambda: (torch.arange(40.0).reshape(5, 8) - 17)[1:4, ::3],
    "expanded": lambda: torch.tensor([[2.0], [-3.0]]).expand(2, 5),
    "permuted": lambda: torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1)).permute(2, 0, 1),
    "channels_last": lambda: torch.arange(48.0).reshape(2, 3, 2, 4).to(memory_format=torch.channels_last),
    "scalar": lambda: torch.tensor(-2.5),
    "view_with_offset": lambda: torch.arange(10.0)[7:],
}


@pytest.mark.parametrize("kind", STRIDED)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int16]
)
def test_capture_leaf_of_any_layout_and_type(tmp_path, kind, dtype):
    t = STRIDED[kind]().to(dtype) if kind not in ("expanded",) else STRIDED[kind]().to(dtype)[:, :1].expand(2, 5)
    (leaf,), _, _ = describe(tmp_path, t)
    check(leaf, t, dtype)


@pytest.mark.parametrize(
    "dtype",
    [torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz, torch.float8_e8m0fnu],
)
def test_capture_leaf_of_eight_bit_floats_is_decoded(tmp_path, dtype):
    t = torch.tensor([0.5, 2.0, 1.0, 4.0]).to(dtype)
    (leaf,), _, _ = describe(tmp_path, t)
    check(leaf, t.to(torch.float32), dtype)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.uint16, torch.uint32, torch.uint64])
def test_capture_leaf_of_integers_is_exact(tmp_path, dtype):
    largest = torch.iinfo(dtype).max
    t = torch.tensor([0, largest], dtype=torch.uint64 if dtype == torch.uint64 else dtype)
    (leaf,), _, _ = describe(tmp_path, t)
    assert leaf["Max"] == largest and leaf["Min"] == 0 and leaf["dtype"] == str(dtype)


def test_capture_leaf_of_lazy_sign_and_conjugation_holds_the_value(tmp_path):
    z = torch.tensor([1 + 2j, 3 - 4j])
    negative = z.conj().imag
    assert negative.is_neg()
    (leaf, conj), _, _ = describe(tmp_path, negative, z.conj())
    check(leaf, torch.tensor([-2.0, 4.0]), torch.float32)
    assert conj["dtype"] == "torch.complex64"
    assert (conj["Max"], conj["Min"]) == (5.0, pytest.approx(5**0.5, rel=1e-7))  # of magnitudes


def test_capture_leaf_of_unusual_tensors(tmp_path):
    from torch._subclasses.fake_tensor import FakeTensorMode

    dense = torch.tensor([[0.0, 3.0], [-4.0, 0.0]])
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(dense)
    jagged = torch.nested.nested_tensor([torch.ones(2), 2 * torch.ones(3)], layout=torch.jagged)
    quantised = torch.quantize_per_tensor(torch.tensor([0.5, -1.0]), 0.5, 0, torch.qint8)
    values = {
        "sparse": dense.to_sparse(),
        "csr": dense.to_sparse_csr(),
        "fake": fake,
        "meta": torch.empty(2, 2, device="meta"),
        "jagged": jagged,
        "quantised": quantised,
        "empty": torch.empty(0, 3),
        "bool": torch.tensor([True, False]),
        "parameter": nn.Parameter(dense),
        "subclass": dense.as_subclass(type("Mine", (torch.Tensor,), {})),
    }
    leaves, _, entry = describe(tmp_path, *values.values())
    got = dict(zip(values, leaves, strict=True))
    assert "absent" not in entry
    for name in ("sparse", "csr"):  # of the stored values
        check(got[name], torch.tensor([3.0, -4.0]), torch.float32, (2, 2))
        assert got[name]["nnz"] == 2 and got[name]["layout"].startswith("torch.sparse_")
    for name in ("fake", "meta", "empty"):
        assert [got[name][k] for k in ("Max", "Min", "Mean", "Norm")] == [None] * 4
    assert got["fake"]["type"] == "torch._subclasses.fake_tensor.FakeTensor" and got["fake"]["shape"] == [2, 2]
    check(got["jagged"], torch.tensor([1.0, 1, 2, 2, 2]), torch.float32)
    assert got["jagged"]["type"].endswith("NestedTensor")
    check(got["quantised"], torch.tensor([0.5, -1.0]), torch.qint8)
    assert got["empty"]["shape"] == [0, 3]
    assert (got["bool"]["Max"], got["bool"]["Min"]) == (True, False)
    check(got["parameter"], dense, torch.float32)
    assert got["parameter"]["requires_grad"] is True and got["parameter"]["type"] == "torch.Tensor"
    check(got["subclass"], dense, torch.float32)


def test_capture_leaf_of_wrapper_subclass_and_functorch_tensors(tmp_path):
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise AssertionError("nobody asked for arithmetic")

    x = torch.tensor([[1.0, 2.0], [3.0, -5.0]])
    with debugger(tmp_path, "L1") as tool:
        tool.register_custom_api(Sink, "take")
        tool.start()
        Sink.take(Wrapper(x))
        torch.vmap(lambda a: (Sink.take(a), a * 1)[1])(x)
        torch.func.grad(lambda a: (Sink.take(a), a.sum())[1])(x)
        tool.stop()
        tool.step()
        tool.restore_custom_api(Sink, "take")
    data = read_step(tmp_path).data
    wrapped, batched, tracking = (data[f"Sink.take.{i}.forward"]["input_args"][0] for i in range(3))
    assert wrapped["Max"] is None and wrapped["shape"] == [2, 2]
    assert (batched["type"], batched["shape"]) == ("BatchedTensor", [2])
    assert (tracking["type"], tracking["Min"]) == ("GradTrackingTensor", -5.0)


def test_capture_leaf_of_other_values(tmp_path):
    Point = collections.namedtuple("Point", "x y")

    @dataclasses.dataclass
    class Options:
        size: int
        name: str

    _, got, entry = describe(
        tmp_path,
        none=None,
        yes=True,
        number=-3,
        real=0.1,
        nan=float("nan"),
        text="é\n\ud800",
        dots=...,
        part=slice(1, torch.tensor(5), None),
        size=torch.Size([2, 3]),
        dtype=torch.bfloat16,
        kind=torch.float16,
        where=torch.device("cuda", 1),
        device="cpu",
        layout=torch.strided,
        format=torch.channels_last,
        np_float=np.float32(0.5),
        np_int=np.int64(7),
        np_bool=np.bool_(True),
        np_text=np.str_("s"),
        point=Point(1, "b"),
        options=Options(4, "n"),
        options_type=Options,
        nested=[(1, [2.0]), {"k": None, 3: False}],
    )
    assert got["none"] is None
    assert got["yes"] == {"type": "bool", "value": True}
    assert got["number"] == {"type": "int", "value": -3}
    assert got["real"] == {"type": "float", "value": 0.1}
    assert got["nan"]["value"] != got["nan"]["value"]
    assert got["text"] == {"type": "str", "value": "é\n\ud800"}
    assert got["dots"] == {"type": "ellipsis", "value": "..."}
    assert got["part"] == {"type": "slice", "value": [1, 5, None]}
    assert got["size"] == {"type": "torch.Size", "value": [2, 3]}
    assert got["dtype"] == {"type": "torch.dtype", "value": "torch.bfloat16"}
    assert got["kind"] == {"type": "torch.dtype", "value": "torch.float16"}
    assert got["where"] == {"type": "torch.device", "value": "cuda:1"}
    assert got["device"] == {"type": "torch.device", "value": "cpu"}
    assert got["layout"] == {"type": "torch.layout", "value": "torch.strided"}
    assert got["format"] == {"type": "torch.memory_format", "format": "channels_last"}
    assert got["np_float"] == {"type": "float32", "value": 0.5}
    assert got["np_int"] == {"type": "int64", "value": 7}
    assert got["np_bool"] == {"type": "bool_", "value": True}
    assert got["np_text"] == {"type": "str_", "value": "s"}
    assert got["point"] == {"x": {"type": "int", "value": 1}, "y": {"type": "str", "value": "b"}}
    assert got["options"] == {"size": {"type": "int", "value": 4}, "name": {"type": "str", "value": "n"}}
    assert got["options_type"] is None and "type" in entry["absent"]["kwargs.options_type"]["reason"]
    assert got["nested"] == [
        [{"type": "int", "value": 1}, [{"type": "float", "value": 2.0}]],
        {"k": None, "3": {"type": "bool", "value": False}},
    ]


def test_capture_leaf_of_numpy_arrays(tmp_path):
    array = np.arange(6, dtype=np.float64).reshape(2, 3)[:, ::2] - 1
    (leaf, words, backwards), _, _ = describe(tmp_path, array, np.array(["a"]), np.arange(4, dtype=np.int32)[::-1])
    assert {k: leaf[k] for k in ("type", "dtype", "shape")} == {
        "type": "numpy.ndarray", "dtype": "float64", "shape": [2, 2],
    }  # fmt: skip
    assert (leaf["Max"], leaf["Min"], leaf["Mean"]) == (array.max(), array.min(), array.mean())
    assert leaf["Norm"] == pytest.approx(np.linalg.norm(array), rel=1e-15)
    assert "requires_grad" not in leaf
    assert words["Max"] is None and words["shape"] == [1]
    assert (backwards["Max"], backwards["Min"]) == (3, 0)


def test_capture_leaf_of_nesting_without_end(tmp_path):
    deep: list = []
    for _ in range(1000):
        deep = [deep]
    wide: list = [1]
    for _ in range(60):
        wide = [wide, wide]  # 2 ** 60 leaves when unfolded
    (got, _), _, entry = describe(tmp_path, deep, wide)
    depth = 0
    while isinstance(got, list) and got:
        got, depth = got[0], depth + 1
    assert got is None and 390 <= depth <= 400
    assert {v["code"] for v in entry["absent"].values()} == {"out_of_budget"}


def test_capture_leaf_outputs_of_all_shapes(tmp_path):
    Pair = collections.namedtuple("Pair", "values indices")
    one = torch.ones(1)
    results = iter([one, (one, 2), [one, 2], {"k": one}, Pair(one, 3), None, ()])

    class Source:
        @staticmethod
        def give():
            return next(results)

    with debugger(tmp_path, "L1") as tool:
        tool.register_custom_api(Source, "give")
        tool.start()
        for _ in range(7):
            Source.give()
        tool.stop()
        tool.step()
    data = read_step(tmp_path).data
    two, three = {"type": "int", "value": 2}, {"type": "int", "value": 3}
    t = data["Source.give.0.forward"]["output"][0]
    assert t["Max"] == 1.0
    assert [data[f"Source.give.{i}.forward"]["output"] for i in range(7)] == [
        [t], [t, two], [[t, two]], [{"k": t}], {"values": t, "indices": three}, [None], [],
    ]  # fmt: skip


def test_capture_leaf_without_the_exchange_table_is_the_same(tmp_path):
    """Older torch has no exchange table: memory is then found through Python attributes."""
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
import torch
from msprobe.pytorch import PrecisionDebugger
tool = PrecisionDebugger(dump_path={str(tmp_path)!r} + "/" + sys.argv[1], task="statistics", level="L1")
tool.start()
x = torch.arange(12.0).reshape(3, 4)
torch.exp(x.t()[1:]), torch.exp(x.to(torch.bfloat16)), torch.sum(torch.tensor([1 + 2j]).conj().imag)
tool.stop()
tool.step()
"""
    for name, extra in (("with", {}), ("without", {"MSPROBE_WITHOUT_EXCHANGE": "1"})):
        subprocess.run(
            [sys.executable, "-c", script, name],
            check=True, timeout=120, stdout=subprocess.DEVNULL, env={**os.environ, **extra},
        )  # fmt: skip
    data = [
        json.loads((tmp_path / n / "step0" / "rank" / "dump.json").read_text())["data"] for n in ("with", "without")
    ]
    calls = ["Tensor.t.0", "Torch.exp.0", "Tensor.to.0", "Torch.exp.1", "Torch.sum.0"]
    assert list(data[0]) == [f"{c}.forward" for c in calls]
    assert data[0]["Torch.exp.1.forward"]["input_args"][0]["from"]["entry"] == "Tensor.to.0.forward"
    assert data[0] == data[1]


class Interrupting:
    """An argument whose description is interrupted, as Ctrl-C interrupts whatever runs."""

    armed = False

    def __getattribute__(self, name: str) -> object:
        if name in ("value", "__dict__") and object.__getattribute__(self, "armed"):
            raise KeyboardInterrupt
        return object.__getattribute__(self, name)


def test_capture_lets_an_interrupt_go_on_to_the_script(tmp_path):
    @dataclasses.dataclass
    class Argument(Interrupting):
        value: int = 1

        def __post_init__(self) -> None:
            self.armed = True

    class Takes(nn.Module):
        def forward(self, x, argument):
            return x * 2

    model = nn.Sequential()
    model.inner = Takes()
    seen = 0
    with debugger(tmp_path, "L0") as tool:
        tool.start(model)
        try:
            model.inner(torch.ones(2), Argument())
            for _ in range(100):
                pass
        except KeyboardInterrupt:
            seen += 1
        tool.stop()
        tool.step()
    assert seen == 1
