"""Statistics and checksums of the native kernels against numpy and math in wide arithmetic.

References are computed here from the definitions (dump.md 12 and 13): values promoted to float64 or Python
integers, sums by math.fsum.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_inputs import FLOAT8, FLOATS, INTEGERS, LENGTHS, make, random_array, wide

from msprobe import _core

floats32 = st.floats(width=32, allow_nan=True, allow_infinity=True)


def stats(array: np.ndarray[Any, Any], name: str) -> dict[str, Any]:
    return _core.tensor_stats(array, name)


def check_float_stats(array: np.ndarray[Any, Any], name: str) -> None:
    x = wide(array, name).ravel()
    got = stats(array, name)
    if x.size == 0:
        assert all(v is None for k, v in got.items() if k not in ("nan", "inf"))
        return
    assert got["nan"] == 0 and got["inf"] == 0
    assert got["finite_max"] is None and got["finite_min"] is None
    assert got["max"] == x.max()
    assert got["min"] == x.min()
    size = math.fsum(np.abs(x))
    assert abs(got["mean"] - math.fsum(x) / x.size) <= 1.5e-14 * size / x.size
    norm = math.sqrt(math.fsum(x * x))
    assert got["norm"] == pytest.approx(norm, rel=1.5e-14, abs=0)


@pytest.mark.parametrize("name", FLOATS)
def test_float_statistics_agree_with_fsum_at_all_lengths(name: str) -> None:
    rng = np.random.default_rng(1)
    for n in LENGTHS:
        check_float_stats(random_array(rng, n, name), name)


@pytest.mark.parametrize("name", FLOATS)
def test_float_statistics_do_not_depend_on_alignment(name: str) -> None:
    rng = np.random.default_rng(2)
    item = 2 if name in ("float16", "bfloat16") else np.dtype(name).itemsize
    for n in (1, 7, 33, 1030, 5000):
        source = random_array(rng, n, name)
        expected = stats(source, name)
        for offset in range(8):
            raw = np.zeros(n * item + 16, np.uint8)
            raw[offset : offset + n * item] = source.view(np.uint8)
            shifted = np.frombuffer(raw, source.dtype, n, offset)
            assert stats(shifted, name) == expected


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_statistics_are_exact(name: str) -> None:
    rng = np.random.default_rng(3)
    info = np.iinfo(name)
    for n in [*range(1, 131), 1024, 4097, 100003]:
        x = random_array(rng, n, name)
        x[rng.integers(n)] = info.max
        x[rng.integers(n)] = info.min
        values = [int(v) for v in x]
        got = stats(x, name)
        assert (got["max"], got["min"]) == (max(values), min(values))
        assert type(got["max"]) is int
        assert got["mean"] == pytest.approx(sum(values) / n, rel=4e-16)
        assert got["norm"] == pytest.approx(math.sqrt(sum(v * v for v in values)), rel=1e-13)


def test_integer_sums_do_not_wrap() -> None:
    x = np.full(100_000, np.iinfo(np.int64).max)
    assert stats(x, "int64")["mean"] == 2.0**63
    y = np.full(3, np.iinfo(np.uint64).max, np.uint64)
    assert stats(y, "uint64")["max"] == 2**64 - 1
    assert stats(y, "uint64")["mean"] == 2.0**64
    cancel = np.array([2**62, 2**62, 2**62, -(2**62), -(2**62), -(2**62), 6], np.int64)
    assert stats(cancel, "int64")["mean"] == 6 / 7


def test_bool_statistics_are_any_and_all() -> None:
    for values, largest, least in (([True, False], True, False), ([True, True], True, True), ([False], False, False)):
        got = stats(np.array(values), "")
        assert got["max"] is largest and got["min"] is least
        assert got["mean"] is None and got["norm"] is None
    assert stats(np.array([], bool), "")["max"] is None


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("position", [0, 1, 15, 16, 63, 1023, 1024, 2999])
def test_nan_makes_all_four_nan_and_is_counted(name: str, position: int) -> None:
    x = np.linspace(-2, 3, 3000)
    x[position] = np.nan
    x[1500] = np.inf
    array = make(x, name)
    finite = wide(array, name)
    finite = finite[np.isfinite(finite)]
    got = stats(array, name)
    assert all(math.isnan(got[k]) for k in ("max", "min", "mean", "norm"))
    assert (got["nan"], got["inf"]) == (1, 1)
    assert (got["finite_max"], got["finite_min"]) == (finite.max(), finite.min())


@pytest.mark.parametrize("name", FLOATS)
def test_infinities_follow_ieee(name: str) -> None:
    x = np.linspace(-2, 3, 2500)
    x[[7, 2000]] = np.inf
    got = stats(make(x, name), name)
    low = wide(make(x, name), name).min()
    assert (got["max"], got["min"], got["mean"], got["norm"]) == (math.inf, low, math.inf, math.inf)
    assert (got["nan"], got["inf"], got["finite_max"]) == (0, 2, 3.0)
    got = stats(make(-x, name), name)
    assert (got["min"], got["mean"], got["norm"]) == (-math.inf, -math.inf, math.inf)
    x[9] = -np.inf
    got = stats(make(x, name), name)
    assert (got["max"], got["min"], got["norm"], got["inf"]) == (math.inf, -math.inf, math.inf, 3)
    assert math.isnan(got["mean"])


@pytest.mark.parametrize("name", FLOATS)
def test_only_nan_or_only_infinity_has_no_finite_extremes(name: str) -> None:
    got = stats(make([np.nan] * 5, name), name)
    assert got["nan"] == 5 and got["finite_max"] is None and got["finite_min"] is None
    got = stats(make([np.inf] * 5, name), name)
    assert (got["max"], got["min"], got["mean"], got["inf"]) == (math.inf, math.inf, math.inf, 5)
    assert got["finite_max"] is None
    got = stats(make([-np.inf] * 5, name), name)
    assert (got["max"], got["min"]) == (-math.inf, -math.inf)


@pytest.mark.parametrize("name", FLOATS)
def test_subnormals_are_kept(name: str) -> None:
    tiny = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 5e-324}[name]
    for n in (1, 100, 1500):
        got = stats(make(np.full(n, tiny), name), name)
        assert got["max"] == got["min"] == tiny
        assert got["mean"] == tiny
        assert got["norm"] == pytest.approx(tiny * math.sqrt(n), rel=1e-12 if name != "float64" else 0.5)
        assert got["norm"] > 0


def test_norm_of_huge_and_tiny_float64_is_scaled() -> None:
    for value in (1e300, 1e-300, 1.7e308, 3e-310):
        for n in (1, 5, 2000):
            got = stats(np.full(n, value), "float64")
            assert got["norm"] == pytest.approx(math.sqrt(n) * value, rel=1e-10) or math.sqrt(n) * value == math.inf
            assert got["mean"] == pytest.approx(value, rel=1e-12)
            assert got["inf"] == 0
    mixed = np.array([1e300, -1e300, 2.0])
    got = stats(mixed, "float64")
    assert got["mean"] == pytest.approx(2 / 3, rel=1e-15)
    assert got["norm"] == pytest.approx(math.sqrt(2) * 1e300, rel=1e-15)


def test_half_precision_sums_do_not_overflow() -> None:
    got = stats(np.array([60000, 60000], np.float16), "float16")
    assert got["mean"] == 60000.0
    assert got["norm"] == pytest.approx(60000 * math.sqrt(2), rel=1e-15)


def test_float64_sum_is_compensated() -> None:
    x = np.array([1.0, 1e17, 1.0, -1e17] * 3000)  # 1e17 + 1 rounds to 1e17: a plain sum loses the ones
    assert stats(x, "float64")["mean"] == 0.5
    assert stats(x[::-1], "float64")["mean"] == 0.5


def test_rank_zero_norm_is_the_magnitude() -> None:
    got = stats(np.array(-2.5, np.float32), "float32")
    assert (got["max"], got["min"], got["mean"], got["norm"]) == (-2.5, -2.5, -2.5, 2.5)
    got = stats(np.array(-3, np.int64), "int64")
    assert (got["max"], got["mean"], got["norm"]) == (-3, -3.0, 3.0)


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_complex_statistics_are_of_magnitudes(name: str) -> None:
    rng = np.random.default_rng(4)
    for n in (1, 3, 40, 1500):
        z = (rng.standard_normal(n) + 1j * rng.standard_normal(n)).astype(name)
        m = np.abs(z.astype(np.complex128))
        got = stats(z, "")
        assert got["max"] == pytest.approx(m.max(), rel=1e-15)
        assert got["min"] == pytest.approx(m.min(), rel=1e-15)
        assert got["mean"] == pytest.approx(m.mean(), rel=1e-13)
        assert got["norm"] == pytest.approx(np.linalg.norm(m), rel=1e-13)
    assert stats(np.array([3 + 4j, 0], name), "")["max"] == 5.0
    assert stats(np.array([complex(np.nan, 1)], name), "")["nan"] == 1
    assert stats(np.array([complex(-np.inf, np.nan)], name), "")["inf"] == 1
    big = np.array([complex(3e200, 4e200)])
    assert stats(big, "")["norm"] == pytest.approx(5e200, rel=1e-15)


def test_complex32_reads_two_halves() -> None:
    halves = np.array([3, 4, -6, 8], np.float16).view(np.uint32)
    got = stats(halves, "complex32")
    assert (got["max"], got["min"], got["mean"]) == (10.0, 5.0, 7.5)


STRIDED = [
    lambda a: a[::2],
    lambda a: a[::-1],
    lambda a: a[:, ::-3],
    lambda a: a.T,
    lambda a: a[1:, 2:5],
    lambda a: a[3],
    lambda a: a[:, 3],
    lambda a: np.broadcast_to(a[:, :1], a.shape),
    lambda a: np.broadcast_to(a[0, 0], (5, 7)),
    lambda a: a.reshape(6, 4, -1).transpose(2, 0, 1),
    lambda a: a.reshape(6, 4, -1).transpose(1, 0, 2)[::-1, 1:],
    lambda a: a[:0],
    lambda a: a[5:6, 4:5],
]


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "int8", "int64", "complex128"])
@pytest.mark.parametrize("k", range(len(STRIDED)))
def test_strided_views_equal_their_copies(name: str, k: int) -> None:
    rng = np.random.default_rng(5)
    if name == "complex128":
        a = rng.standard_normal((24, 50)) + 1j * rng.standard_normal((24, 50))
    else:
        a = random_array(rng, 24 * 50, name).reshape(24, 50)
    view = STRIDED[k](a)
    copy = np.array(view, order="C")
    tag = name if name == "bfloat16" else ""
    x, y = stats(view, tag), stats(copy, tag)
    for key, value in y.items():
        if isinstance(value, float):
            assert x[key] == pytest.approx(value, rel=1e-12, abs=1e-13)
        else:
            assert x[key] == value
    assert _core.crc32(view) == zlib.crc32(copy.tobytes())
    assert _core.xor64(view) == xor_reference(copy.tobytes())
    assert _core.hash64(view) == hash_reference(copy)
    other = np.array(random_array(rng, copy.size, "float32"), np.float32).reshape(copy.shape)
    if name in ("complex128", "bfloat16"):
        other = copy[::-1].copy()
    p = _core.pair_errors(view, other, tag, tag)
    q = _core.pair_errors(copy, other, tag, tag)
    for key in ("count", "unequal", "first_unequal", "max_abs_index", "max_abs", "max_rel", "below_thousandth"):
        assert p["raw"][key] == q["raw"][key]
    for key in ("cosine", "euclidean"):
        assert p[key] == pytest.approx(q[key], rel=1e-12, nan_ok=True)


# Checksums.


def xor_reference(data: bytes) -> int:
    data += b"\0" * (-len(data) % 8)
    result = 0
    for i in range(0, len(data), 8):
        result ^= int.from_bytes(data[i : i + 8], "little")
    return result


def hash_reference(array: np.ndarray[Any, Any], first: int = 0) -> int:
    """SplitMix64's finaliser over element bits plus (index + 1) times the golden gamma, in Python integers."""
    mask = 2**64 - 1
    item = array.dtype.itemsize
    data = array.tobytes()

    def mix(z: int) -> int:
        z &= mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    total = 0
    for i in range(len(data) // item):
        bits = int.from_bytes(data[i * item : (i + 1) * item], "little")
        index = first + i + 1
        total += mix((bits & mask) + index * 0x9E3779B97F4A7C15)
        if item == 16:
            total += mix((bits >> 64) + (index + 2**63) * 0x9E3779B97F4A7C15)
    return total & mask


def test_checksum_values_of_the_specification() -> None:
    f = np.float32
    assert _core.crc32(np.array([1, 2, 3, 4], f)) == 0x8BA71454
    assert _core.crc32(np.array([1, 2, 3, 5], f)) == 0x1E2330F6
    assert _core.crc32(np.array([0, 0], f)) == 0x6522DF69
    assert _core.crc32(np.array([], f)) == 0
    assert _core.xor64(np.array([1, 2, 3, 4], f)) == 36028799162253312
    assert _core.xor64(np.array([1, 2, 3, 4, 5], f)) == 36028798082220032
    assert _core.xor64(np.ones(10, f)) != 0  # five equal words
    assert _core.xor64(np.ones(8, f)) == 0  # four: the known weakness
    for text, crc in (("3", 0x6DD28E9B), ("4", 0xF3B61B38), ("True", 0x5DCEE3B3), ("False", 0xEA0C4734),
                      ("1.5", 0x875C9BBA), ("[2, 3]", 0x3F72AC6E)):  # fmt: skip
        assert _core.crc32(np.frombuffer(text.encode(), np.uint8)) == crc


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64", "complex128"])
def test_checksums_agree_with_references_at_all_lengths(dtype: str) -> None:
    rng = np.random.default_rng(6)
    for n in [*range(70), 1000, 4099]:
        x = np.frombuffer(rng.bytes(n * np.dtype(dtype).itemsize), dtype)
        assert _core.crc32(x) == zlib.crc32(x.tobytes())
        assert _core.xor64(x) == xor_reference(x.tobytes())
        assert _core.hash64(x) == hash_reference(x)


def test_hash64_is_position_aware_where_xor_is_not() -> None:
    a, b = np.array([1, 2, 3, 4], np.int64), np.array([2, 1, 3, 4], np.int64)
    assert _core.xor64(a) == _core.xor64(b)
    assert _core.hash64(a) != _core.hash64(b)
    assert _core.hash64(np.zeros(4, np.float32)) != _core.hash64(np.zeros(5, np.float32))
    assert _core.hash64(np.zeros(0, np.float32)) == 0


# Properties.


@settings(deadline=None, max_examples=150)
@given(st.lists(floats32, min_size=1, max_size=200), st.randoms(use_true_random=False))
def test_statistics_do_not_depend_on_order(values: list[float], random: Any) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)
    x, y = stats(np.array(values, np.float32), ""), stats(np.array(shuffled, np.float32), "")
    scale = sum(abs(v) for v in values if math.isfinite(v))
    for key in x:
        if key == "mean" and x[key] is not None and math.isfinite(x[key]):
            assert abs(x[key] - y[key]) <= 1e-14 * scale
        else:
            same = x[key] == y[key] if y[key] is None else x[key] == pytest.approx(y[key], rel=1e-13, nan_ok=True)
            assert same, key


# Types that numpy lacks.


@pytest.mark.parametrize("name", FLOAT8)
def test_all_float8_codes_decode_as_torch_does(name: str) -> None:
    torch = pytest.importorskip("torch")
    codes = np.arange(256, dtype=np.uint8)
    expected = torch.from_numpy(codes).view(getattr(torch, name)).to(torch.float32).double().tolist()
    for code, value in zip(codes, expected, strict=True):
        got = stats(np.array([code]), name)["max"]
        assert got == value or (math.isnan(got) and math.isnan(value)), int(code)
        if value == 0:
            assert math.copysign(1, got) == math.copysign(1, value)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_all_half_and_bfloat16_codes_decode_as_torch_does(name: str) -> None:
    torch = pytest.importorskip("torch")
    codes = np.arange(65536, dtype=np.uint16)
    expected = torch.from_numpy(codes.view(np.int16)).view(getattr(torch, name)).float().numpy()
    got = _core.pair_errors(codes, expected, name, "float32")["raw"]
    assert (got["unequal"], got["class_mismatch"], got["count"]) == (0, 0, 65536)
    finite = expected[np.isfinite(expected)].astype(np.float64)
    s = stats(codes, name)
    assert (s["nan"], s["inf"]) == (np.isnan(expected).sum(), 2)
    assert (s["finite_max"], s["finite_min"]) == (finite.max(), finite.min())
    mask = np.isfinite(expected)
    assert stats(codes[mask], name)["norm"] == pytest.approx(np.linalg.norm(finite), rel=1e-13)


def test_torch_tensors_are_read_without_numpy() -> None:
    torch = pytest.importorskip("torch")
    t = torch.tensor([1.5, -2.0, 3.0], dtype=torch.bfloat16)
    assert stats(t, "")["min"] == -2.0
    assert _core.crc32(t) == zlib.crc32(t.view(torch.int16).numpy().tobytes())


def test_wrong_arguments_are_refused() -> None:
    x = np.zeros(3, np.float32)
    with pytest.raises(ValueError, match="unknown dtype: float33"):
        _core.tensor_stats(x, "float33")
    with pytest.raises(ValueError, match="item size"):
        _core.tensor_stats(x, "float64")
    with pytest.raises(ValueError, match="different numbers of elements"):
        _core.pair_errors(x, np.zeros(4, np.float32))
    with pytest.raises(ValueError, match="complex"):
        _core.pair_errors(x, np.zeros(3, np.complex64))
    with pytest.raises(TypeError):
        _core.tensor_stats([1.0, 2.0])


def test_active_target_is_a_compiled_one() -> None:
    assert _core.active_target() in {"AVX3", "AVX2", "SSE4", "NEON", "EMU128"}
