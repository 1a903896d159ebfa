"""Statistics of accelerator tensors, on CPU tensors by `device_statistics: "force"` and on CUDA where there is one."""

from __future__ import annotations

import json
import math
import zlib

import capture_nets
import pytest
import torch
import torch.nn.functional as F
from capture_tools import debugger, read_step, record
from torch import nn

from msprobe.pytorch import _device


def assert_same(ours, theirs, path=""):
    """Everything equal; Mean and Norm to 1e-12 (sums in another order), of the norm where they cancel."""
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), path
        scale = abs(theirs.get("Norm") or 0.0) if theirs.get("type") == "torch.Tensor" else 0.0
        for key, value in theirs.items():
            if key in ("Mean", "Norm") and isinstance(value, float) and math.isfinite(value):
                assert ours[key] == pytest.approx(value, rel=1e-12, abs=1e-13 * scale), f"{path}.{key}"
            else:
                assert_same(ours[key], value, f"{path}.{key}")
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), path
        for i, value in enumerate(theirs):
            assert_same(ours[i], value, f"{path}.{i}")
    else:
        both_nan = isinstance(theirs, float) and isinstance(ours, float) and math.isnan(theirs) and math.isnan(ours)
        assert both_nan or (ours == theirs and type(ours) is type(theirs)), path


def both(tmp_path, level, run, model=None, **settings):
    """The same script with statistics from here and from "the device"."""
    dumps = []
    for where in ("host", "force"):
        (tmp_path / where).mkdir()
        torch.manual_seed(0)
        dumps.append(record(tmp_path / where, level, run, model, device_statistics=where, **settings))
    return dumps


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("script", ["resnet_inplace", "routing", "checkpoints"])
def test_capture_device_statistics_are_those_of_the_host(script, level, tmp_path):
    dumps = []
    for where in ("host", "force"):
        (tmp_path / where).mkdir()
        torch.manual_seed(0)
        model, step = capture_nets.SCRIPTS[script]()
        torch.manual_seed(1)
        dumps.append(record(tmp_path / where, level, step, model, device_statistics=where))
    host, force = dumps
    assert force.names == host.names
    assert_same(force.data, host.data)
    assert (force.construct, force.stack) == (host.construct, host.stack)


SPECIAL = [0.5, -2.0, math.nan, math.inf, -math.inf, 0.0]
VALUES = {
    **{str(d): torch.tensor([3, 0, 7], dtype=d) for d in (torch.uint8, torch.int8, torch.int16, torch.int32)},
    "int64 beyond 2^53": torch.tensor([2**60 + 1, -(2**61) - 3]),
    "bool": torch.tensor([[True, False]]),
    "bool 0-d": torch.tensor(False),
    **{f"{d} special": torch.tensor(SPECIAL, dtype=d) for d in (torch.float16, torch.bfloat16, torch.float32)},
    "infinite": torch.tensor([math.inf, math.inf, 1.0]),
    "only NaN": torch.tensor([math.nan, math.nan]),
    "float64": torch.linspace(-3, 5, 1001, dtype=torch.float64),
    "half that would overflow": torch.full((70000,), 60000.0, dtype=torch.float16),
    "complex": torch.tensor([3 + 4j, -1j]),
    "conjugate view": torch.tensor([3 + 4j, -1j]).conj(),
    "negative view": torch.tensor([3 + 4j, -2j]).conj().imag,
    "0-d": torch.tensor(-2.5),
    "0-d integer": torch.tensor(-3),
    "strided": torch.arange(24.0).reshape(4, 6)[::2, ::3].t(),
    "expanded": torch.tensor([2.0]).expand(3, 4),
    "empty": torch.empty(0, 3),
    "unsigned 32": torch.tensor([2**31 + 1], dtype=torch.uint32),
    "float8": torch.tensor([0.5, 448.0, -1.0]).to(torch.float8_e4m3fn),
    "sparse": torch.tensor([[0.0, 3.0], [4.0, 0.0]]).to_sparse(),
    "meta": torch.empty(3, device="meta"),
    "quantised": torch.quantize_per_tensor(torch.tensor([1.0, 2.0]), 0.5, 0, torch.qint8),
}


class Sink:
    @staticmethod
    def take(value):
        return None


@pytest.mark.parametrize("kind", VALUES)
def test_capture_device_every_kind_of_tensor_is_that_of_the_host(kind, tmp_path):
    leaves = []
    for where in ("host", "force"):
        (tmp_path / where).mkdir()
        with debugger(tmp_path / where, "L1", device_statistics=where) as tool:
            tool.register_custom_api(Sink, "take")
            tool.start()
            Sink.take([VALUES[kind]])
            tool.stop()
            tool.restore_custom_api(Sink, "take")
            tool.step()
        leaves.append(read_step(tmp_path / where).data["Sink.take.0.forward"]["input_args"])
    assert_same(leaves[1], leaves[0])


def test_capture_device_results_are_fetched_in_batches(tmp_path, monkeypatch):
    """No reading inside a call: with 1,500 tensors the results come in a few batches and at stop()."""
    sizes = []
    original = _device._fetched
    monkeypatch.setattr(_device, "_fetched", lambda vectors: sizes.append(len(vectors)) or original(vectors))

    def run():
        x = torch.ones(3)
        for _ in range(500):
            x = torch.relu(x + 1)

    data = record(tmp_path, "L1", run, device_statistics="force").data
    assert len(data) == 1000 and all(e["output"][0]["Max"] is not None for e in data.values())
    assert data["Torch.relu.499.forward"]["output"][0]["Max"] == 501
    assert len(sizes) <= 5 and sum(sizes) == 2000


def test_capture_device_later_writes_do_not_reach_a_queued_reduction(tmp_path):
    """C16: the reduction works on what the call saw, also when a write passes the version counter by."""

    def run():
        x = torch.ones(4)
        torch.relu(x)
        x.data.add_(5)
        x.numpy()[:] = 100

    leaf = record(tmp_path, "L1", run, device_statistics="force").data["Torch.relu.0.forward"]["input_args"][0]
    assert (leaf["Max"], leaf["Mean"], leaf["Norm"]) == (1, 1, 2)


def test_capture_device_calls_that_raise_leave_nothing_in_the_queue(tmp_path):
    def run():
        for _ in range(3):
            with pytest.raises(RuntimeError):
                torch.matmul(torch.ones(2, 3), torch.ones(2, 3))
            torch.relu(torch.tensor([7.0]))

    data = record(tmp_path, "L1", run, device_statistics="force").data
    assert list(data) == [f"Torch.relu.{i}.forward" for i in range(3)]
    assert all(e["input_args"][0]["Max"] == 7 for e in data.values())


ELEMENTS = {
    "tensor": {"task": "tensor"},
    "md5": {"section": {"summary_mode": "md5"}},
    "xor": {"section": {"summary_mode": "xor"}},
    "hash64": {"section": {"summary_mode": "hash64"}},
    "sketch": {"section": {"summary_mode": "sketch"}},
    "slice": {"section": {"slice": [{"dim": 0, "begin": 1}]}},
    "tensor and md5": {"task": "tensor", "section": {"summary_mode": "md5"}},
    "full evidence": {"evidence": "full"},
}


class LateDevice:
    """Stands for a device: copies that were queued are made when it is waited for, and not before."""

    def __init__(self, monkeypatch):
        self.queued = []
        self.waits = 0
        monkeypatch.setattr(_device, "_start_copy", lambda host, x: self.queued.append((host, x.clone())))
        monkeypatch.setattr(_device, "_synchronise", self.synchronise)

    def synchronise(self, device):
        self.waits += 1
        for host, x in self.queued:
            host.copy_(x)
        self.queued.clear()


@pytest.mark.parametrize("kind", ELEMENTS)
def test_capture_device_what_needs_the_bytes_is_that_of_the_host(kind, tmp_path, monkeypatch):
    """Checksums, hashes, sketches, files: taken when the batch is fetched, and the same to the last byte."""
    device = LateDevice(monkeypatch)
    model = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2))

    def run():
        model.zero_grad()
        F.relu(model(torch.ones(4, 3).t().contiguous().t()) + 1).sum().backward()

    host, force = both(tmp_path, "mix", run, model, **ELEMENTS[kind])
    assert device.waits > 0 and not device.queued
    assert json.dumps(host.data) == json.dumps(force.data)
    files = [{f.name: f.read_bytes() for f in (tmp_path / where).rglob("*.pt")} for where in ("host", "force")]
    assert files[0] == files[1] and bool(files[0]) == ("tensor" in kind)


@pytest.mark.parametrize("kind", ["md5", "tensor"])
def test_capture_device_checksums_do_not_wait_for_the_device(kind, tmp_path, monkeypatch):
    """B23: 1,500 tensors, and the device is waited for a few times, not once per tensor."""
    device = LateDevice(monkeypatch)

    def run():
        x = torch.ones(3)
        for _ in range(300):
            x = torch.relu(x + 1)
        assert device.waits <= 3

    data = record(tmp_path, "L1", run, device_statistics="force", **ELEMENTS[kind]).data
    assert len(data) == 600 and device.waits <= 4
    leaf = data["Torch.relu.299.forward"]["output"][0]
    assert leaf["Max"] == 301 and (leaf["md5"] if kind == "md5" else leaf["data_name"])
    if kind == "md5":
        expected = zlib.crc32(torch.full((3,), 301.0).numpy().tobytes())
        assert leaf["md5"] == f"{expected:08x}"


def test_capture_device_later_writes_do_not_reach_a_queued_checksum(tmp_path, monkeypatch):
    LateDevice(monkeypatch)

    def run():
        x = torch.ones(4)
        torch.relu(x)
        x.data.add_(5)

    data = record(tmp_path, "L1", run, device_statistics="force", **ELEMENTS["md5"]).data
    leaf = data["Torch.relu.0.forward"]["input_args"][0]
    assert leaf["md5"] == f"{zlib.crc32(torch.ones(4).numpy().tobytes()):08x}" and leaf["Max"] == 1


@pytest.mark.slow
def test_capture_device_copies_that_wait_are_bounded(tmp_path, monkeypatch):
    """256 MiB of copies are fetched, also while an outer module is still being described."""
    device = LateDevice(monkeypatch)

    class Net(nn.Module):
        def forward(self, x):
            for _ in range(3):
                x = torch.relu(x)
            assert device.waits >= 1
            return x

    model = nn.Sequential(Net())
    x = torch.ones(24 << 20)
    data = record(tmp_path, "mix", lambda: model(x), model, device_statistics="force", **ELEMENTS["md5"]).data
    checksums = {e["output"][0]["md5"] for e in data.values()}
    assert checksums == {f"{zlib.crc32(x.numpy().tobytes()):08x}"}


def test_capture_device_backward_after_stop_is_kept(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    with debugger(tmp_path, "mix", device_statistics="force") as tool:
        tool.start(model)
        loss = model(torch.ones(1, 2)).sum()
        tool.stop()
        loss.backward()
        tool.step()
    data = read_step(tmp_path).data
    assert data["Functional.linear.0.backward"]["input"][0]["Max"] is not None
    assert "Module.1.Tanh.backward.0" in data


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("kind", ["statistics", *ELEMENTS])
def test_capture_device_cuda_does_not_synchronise_in_a_call(kind, tmp_path):
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).cuda()
    x = torch.ones(4, 8, device="cuda")
    with debugger(tmp_path, "mix", **ELEMENTS.get(kind, {})) as tool:
        tool.start(model)
        torch.cuda.set_sync_debug_mode("error")
        try:
            model(x).sum().backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        tool.stop()
        tool.step()
    leaf = read_step(tmp_path).data["Functional.linear.0.forward"]["input_args"][0]
    assert (leaf.get("Max", 1), leaf.get("Mean", 1)) == (1, 1)
    if kind == "md5":
        assert leaf["md5"] == f"{zlib.crc32(torch.ones(4, 8).numpy().tobytes()):08x}"
