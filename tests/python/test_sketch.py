"""Sketches: estimates against distances in float64, and what collection records (culprit.md 5, docs/sketch.md)."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from capture_tools import record
from torch import nn

from msprobe import _core

sys.path.insert(0, str(Path(__file__).parents[1] / "data" / "sketch"))
from make_sketches import sign, slot

K = 256
Array = np.ndarray[Any, Any]


def distance(x: Array, y: Array, **setting: int) -> dict[str, Any]:
    return _core.sketch_distance(_core.sketch_record(x, **setting), _core.sketch_record(y, **setting))


def truth(x: Array, y: Array) -> tuple[float, float, float]:
    a, b = x.astype(np.float64).ravel(), y.astype(np.float64).ravel()
    d = float(np.linalg.norm(a - b))
    norms = float(np.linalg.norm(a)), float(np.linalg.norm(b))
    return d, d / norms[1], float(a @ b) / (norms[0] * norms[1])


def pairs(rng: np.random.Generator, count: int) -> list[tuple[Array, Array]]:
    """Tensors as models have them: of any size, and different in all, some or one of their elements."""
    out = []
    for i in range(count):
        n = int(10 ** rng.uniform(0, 4.3))
        y = (rng.normal(size=n) * 10.0 ** rng.uniform(-3, 3) + rng.normal()).astype(np.float32)
        relative = 10.0 ** rng.uniform(-4.9, 0.5)
        noise = rng.normal(size=n) * np.linalg.norm(y) / np.sqrt(n) * relative
        if i % 3 == 1:
            noise *= rng.random(n) < 10.0 ** rng.uniform(-4, 0)
        if i % 3 == 2:
            noise[np.arange(n) % 64 != rng.integers(64)] = 0  # one channel of 64
        x = (y + noise).astype(np.float32)
        if not np.array_equal(x, y):
            out.append((x, y))
    return out


def test_sketch_distances_of_pairs_are_within_their_bounds() -> None:
    errors, covered, cosines = [], [], []
    for x, y in pairs(np.random.default_rng(15), 1500):
        d, relative, cosine = truth(x, y)
        if relative < 1e-5:
            continue
        got = distance(x, y)
        assert not got["below_floor"] and not got["own_norms"]
        errors.append(abs(got["distance"] / d - 1))
        assert got["relative"] / relative == pytest.approx(got["distance"] / d, rel=1e-6)
        covered.append(abs(got["distance"] - d) <= got["distance_bar"] + 1e-6 * np.linalg.norm(y))
        cosines.append(abs(got["cosine"] - cosine) <= got["cosine_bar"] * 1.6 + 1e-6)
    assert len(errors) > 1000
    # Normal errors of at most 1/sqrt(2k): 1.96, 2.58 and 3.29 of them, the last with what so few pairs allow.
    assert np.quantile(errors, 0.95) < 1.96 / np.sqrt(2 * K)
    assert np.quantile(errors, 0.99) < 2.58 / np.sqrt(2 * K)
    assert np.quantile(errors, 0.999) < 3.6 / np.sqrt(2 * K)
    assert np.mean(covered) > 0.95
    assert np.mean(cosines) > 0.99


def test_sketch_of_tensors_of_a_model_is_within_12_percent() -> None:
    """The population of the specification: tensors of a network, weights changed a little."""
    torch.manual_seed(0)
    x = torch.randn(16, 3, 16, 16)
    errors = []
    for trial in range(24):
        torch.manual_seed(trial)
        net = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.GELU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
            nn.Flatten(), nn.Linear(256, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 10), nn.Softmax(-1),
        )  # fmt: skip
        runs = []
        for _ in range(2):
            values: list[Array] = []
            h = x
            for layer in net:
                h = layer(h)
                values.append(h.detach().numpy().copy())
            net.zero_grad()
            h.square().sum().backward()
            values += [p.grad.numpy().copy() for p in net.parameters()]  # type: ignore[union-attr]
            runs.append(values)
            with torch.no_grad():
                weight = net[0].weight
                weight.add_(torch.randn_like(weight) * weight.std() * 10.0 ** -(trial % 4 + 1))
        for a, b in zip(*runs, strict=True):
            d, relative, _ = truth(a, b)
            if relative > 1e-5:
                errors.append(abs(distance(a, b)["distance"] / d - 1))
    assert len(errors) > 300
    assert np.mean(np.array(errors) < 0.12) >= 0.995  # 99.9 % of 924 pairs in the specification


@pytest.mark.parametrize("k", [64, 128, 512, 1024])
def test_sketch_error_falls_with_the_root_of_its_size(k: int) -> None:
    rng = np.random.default_rng(k)
    errors = []
    for _ in range(200):
        x, y = rng.normal(size=(2, 8192)).astype(np.float32)
        errors.append(distance(x, y, k=k)["distance"] / truth(x, y)[0] - 1)
    # Rayleigh's law: 1/sqrt(2k), here within what 200 samples allow.
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(1 / np.sqrt(2 * k), rel=0.2)


def test_sketch_slots_are_those_of_the_formulas() -> None:
    x = np.random.default_rng(1).normal(size=1000)
    sketch = json.loads(_core.sketch_record(x, k=128, seed=9))["sketch"]
    assert sketch["data"].startswith("f32:")
    slots = np.frombuffer(base64.b64decode(sketch["data"][4:]), "<f4")
    expected = np.zeros(128)
    for i, v in enumerate(x):
        expected[slot(i, 128, 9)] += sign(i, 9) * v
    first = slot(0, 128, 9)
    np.testing.assert_allclose(slots, np.roll(expected, -first).astype(np.float32), rtol=1e-6, atol=1e-6)


def test_sketch_of_any_strides_is_that_of_the_values() -> None:
    x = np.random.default_rng(2).normal(size=(40, 30, 20))
    plain = json.loads(_core.sketch_record(np.ascontiguousarray(x.transpose(2, 0, 1)[::2, 1:, ::-3])))
    assert json.loads(_core.sketch_record(x.transpose(2, 0, 1)[::2, 1:, ::-3])) == plain


def test_sketch_settings_that_differ_are_refused() -> None:
    x = np.ones(1000, np.float32)
    record_of = _core.sketch_record
    for other in (record_of(x, k=128), record_of(x, seed=2), record_of(x[1:])):
        with pytest.raises(ValueError, match=r"another (size k|seed|number of elements)"):
            _core.sketch_distance(record_of(x), other)
    for k in (0, 32, 100, 8192):
        with pytest.raises(ValueError, match="multiple of 64"):
            record_of(x, k=k)


def values_of(tensor: torch.Tensor) -> Array:
    """Values as real float64, as the sketch counts them."""
    tensor = tensor.detach().resolve_conj().contiguous()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.double().numpy().ravel()


def check_leaf(leaf: dict[str, Any], tensor: torch.Tensor) -> None:
    """Slots, sum by sum, and the hash of the same bytes in order."""
    x = values_of(tensor)
    sketch = leaf["sketch"]
    finite = np.isfinite(x) & (np.abs(x) < 1e30)
    assert sketch.get("nan", 0) == int(np.isnan(x).sum())
    assert sketch.get("inf", 0) == int(np.isinf(x).sum())
    assert sketch.get("huge", 0) == int((np.isfinite(x) & ~finite).sum())
    slots = np.frombuffer(base64.b64decode(sketch["data"][4:]), "<f4")
    assert slots.size == min(K, x.size)
    expected = np.zeros(K)
    for i in np.flatnonzero(finite).tolist():
        expected[slot(i, K, 1)] += sign(i, 1) * x[i]
    first = slot(0, K, 1)
    size = max(1.0, float(np.abs(x[finite]).max(initial=0)))
    np.testing.assert_allclose(slots, np.roll(expected, -first)[: slots.size], rtol=1e-6, atol=1e-6 * size)


TENSORS = {
    "float32": torch.arange(600, dtype=torch.float32) / 7,
    "transposed": torch.arange(600, dtype=torch.float32).reshape(20, 30).t(),
    "expanded": torch.arange(5, dtype=torch.float32).reshape(5, 1).expand(5, 200),
    "strided": torch.arange(1200, dtype=torch.float64)[1::3],
    "bfloat16": torch.arange(600).to(torch.bfloat16),
    "float16": torch.arange(600).to(torch.float16),
    "float8": torch.arange(-64, 64).to(torch.float8_e4m3fn),
    "int64": torch.arange(-300, 300),
    "bool": torch.arange(600) % 3 == 0,
    "complex": torch.complex(torch.arange(200.0), -torch.arange(200.0)),
    "conjugate": torch.complex(torch.arange(200.0), -torch.arange(200.0)).conj(),
    "special": torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), 3e38, -2.0]),
    "scalar": torch.tensor(2.5),
    "empty": torch.zeros(0, 4),
}


@pytest.mark.parametrize("where", ["host", "force"])
def test_sketch_is_recorded_of_every_kind_of_tensor(tmp_path: Path, where: str) -> None:
    def run() -> None:
        for tensor in TENSORS.values():
            torch.clone(tensor)

    dump = record(tmp_path, "L1", run, section={"summary_mode": "sketch"}, device_statistics=where)
    entries = [dump.data[f"Torch.clone.{i}.forward"] for i in range(len(TENSORS))]
    for entry, tensor in zip(entries, TENSORS.values(), strict=True):
        leaf = entry["input_args"][0]
        assert list(leaf)[:3] == ["type", "dtype", "shape"]
        assert "Max" in leaf and len(leaf["hash64"]) == 16 and "md5" not in leaf
        check_leaf(leaf, tensor)


def test_sketch_beside_a_checksum_and_tensors(tmp_path: Path) -> None:
    x = torch.randn(300)
    section = {"summary_mode": ["md5", "sketch"], "sketch_size": 64, "sketch_seed": 7}
    dump = record(tmp_path, "L1", lambda: torch.relu(x), task="tensor", section=section)
    leaf = dump.data["Torch.relu.0.forward"]["input_args"][0]
    assert (leaf["sketch"]["k"], leaf["sketch"]["seed"]) == (64, 7)
    assert len(leaf["md5"]) == 8 and leaf["data_name"] and "Norm" in leaf
    config = dump.header["msprobe"]["config"]["tensor"]
    assert config["summary_mode"] == ["md5", "sketch"]
    assert (config["sketch_size"], config["sketch_seed"]) == (64, 7)


def test_sketch_of_tensors_without_such_memory(tmp_path: Path) -> None:
    sparse = torch.eye(30).to_sparse()
    dump = record(tmp_path, "L1", lambda: torch.clone(sparse), section={"summary_mode": "sketch"})
    leaf = dump.data["Torch.clone.0.forward"]["input_args"][0]
    assert leaf["shape"] == [30, 30] and "sketch" not in leaf
    dump = record(tmp_path, "L1", lambda: torch.relu(torch.ones(3, device="meta")), section={"summary_mode": "sketch"})
    assert "sketch" not in dump.data["Torch.relu.0.forward"]["input_args"][0]
