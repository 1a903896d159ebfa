"""Statistics, pair errors and checksums of the native kernels against numpy and math in wide arithmetic.

References are computed here from the definitions (specification of dumps, section 12 and 13; of comparison, 7.3): values
promoted to float64 or Python integers, sums by math.fsum, relative errors step by step in the work type.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msprobe import _core

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
LENGTHS = [*range(131), 1000, 1023, 1024, 1025, 4097, 100003]


def to_bfloat16(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Bit patterns, truncated: any pattern will do for a test."""
    return (np.asarray(x, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def make(values: Any, name: str) -> np.ndarray[Any, Any]:
    """An array that `name` reads; bfloat16 as its bit patterns."""
    if name == "bfloat16":
        return to_bfloat16(np.atleast_1d(np.asarray(values, np.float32)))
    return np.asarray(values, name)


def wide(array: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """The same values in float64, exact."""
    if name == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def narrow_work(array: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    if name == "float64":
        return array
    return wide(array, name).astype(np.float32)


def random_array(rng: np.random.Generator, n: int, name: str) -> np.ndarray[Any, Any]:
    if name in INTEGERS:
        info = np.iinfo(name)
        return rng.integers(info.min, info.max, n, dtype=name, endpoint=True)
    return make(rng.standard_normal(n) * 10.0 ** rng.integers(-3, 3, n), name)


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


# Pairs.


def pair_reference(n: np.ndarray[Any, Any], b: np.ndarray[Any, Any], work: Any) -> dict[str, float]:
    """compare.md 7.3 NEW on finite float64 values; `work` is the type of relative errors."""
    x, y = n.astype(work), b.astype(work)
    eps = np.finfo(work).eps
    zero = y == 0
    x, y = np.where(zero, x + eps, x), np.where(zero, y + eps, y)
    with np.errstate(over="ignore"):
        rel = np.abs((x - y) / y)
    assert rel.dtype == work
    diff = n.astype(np.float64) - b.astype(np.float64)
    return {
        "dot": math.fsum(n * b),
        "a_sumsq": math.fsum(n * n),
        "b_sumsq": math.fsum(b * b),
        "diff_sumsq": math.fsum(diff * diff),
        "max_abs": np.abs(diff).max(initial=0),
        "max_rel": float(rel.max(initial=0)),
        "below_thousandth": int((rel < work(0.001)).sum()),
        "below_five_thousandths": int((rel < work(0.005)).sum()),
        "unequal": int((n != b).sum()),
    }


def check_pair(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], name_a: str, name_b: str) -> None:
    x, y = wide(a, name_a), wide(b, name_b)
    both_narrow = {name_a, name_b} <= {"float16", "bfloat16", "float32"}
    expected = pair_reference(x, y, np.float32 if both_narrow else np.float64)
    got = _core.pair_errors(a, b, name_a, name_b)["raw"]
    assert got["count"] == len(a)
    assert got["class_mismatch"] == got["both_nan"] == got["both_inf"] == got["rel_nan"] == 0
    for key in ("max_abs", "max_rel", "below_thousandth", "below_five_thousandths", "unequal"):
        assert got[key] == expected[key], key
    for key in ("a_sumsq", "b_sumsq", "diff_sumsq"):
        assert got[key] == pytest.approx(expected[key], rel=5e-14, abs=0)
    assert got["dot"] == pytest.approx(expected["dot"], rel=0, abs=5e-14 * math.fsum(np.abs(x * y)))
    if got["unequal"]:
        assert got["first_unequal"] == np.flatnonzero(x != y)[0]
        assert got["max_abs_index"] == np.abs(x - y).argmax()


def near(rng: np.random.Generator, a: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """`a` with relative changes around the two limits, some zeros and some equal elements."""
    x = wide(a, name)
    y = x * (1 + rng.standard_normal(len(x)) * 3e-3)
    y[rng.random(len(x)) < 0.1] = 0
    keep = rng.random(len(x)) < 0.2
    y[keep] = x[keep]
    return make(y, name) if len(x) else a.copy()


@pytest.mark.parametrize("name", FLOATS)
def test_pair_errors_agree_with_numpy_at_all_lengths(name: str) -> None:
    rng = np.random.default_rng(7)
    for n in LENGTHS:
        a = random_array(rng, n, name)
        check_pair(a, near(rng, a, name), name, name)


@pytest.mark.parametrize("a", FLOATS)
@pytest.mark.parametrize("b", FLOATS)
def test_pairs_of_different_floats_compare_values(a: str, b: str) -> None:
    rng = np.random.default_rng(8)
    for n in (1, 17, 1024, 2500):
        x = rng.standard_normal(n)
        check_pair(make(x, a), make(x * (1 + 2e-3 * rng.standard_normal(n)), b), a, b)


@pytest.mark.parametrize("name", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "bool"])
def test_pairs_of_integers_are_compared_in_double(name: str) -> None:
    rng = np.random.default_rng(9)
    for n in (1, 33, 3000):
        a = rng.integers(0, 2, n).astype(bool) if name == "bool" else random_array(rng, n, name)
        b = a.copy()
        b[rng.random(n) < 0.5] = a[0]
        check_pair(a, b, name, name)


def test_differences_of_64_bit_integers_are_exact() -> None:
    base = 2**62
    got = _core.pair_errors(np.array([base + 1, base, 7], np.int64), np.array([base, base, 7], np.int64))
    assert (got["max_abs"], got["raw"]["unequal"], got["raw"]["first_unequal"]) == (1.0, 1, 0)
    assert got["max_rel"] == 2.0**-62
    top = 2**64 - 1
    got = _core.pair_errors(np.array([3, top], np.uint64), np.array([4, top - 5], np.uint64))
    assert (got["max_abs"], got["raw"]["max_abs_index"]) == (5.0, 1)
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    got = _core.pair_errors(np.array([low], np.int64), np.array([high], np.int64))
    assert got["max_abs"] == 2.0**64
    got = _core.pair_errors(np.array([-1], np.int64), np.array([top], np.uint64))
    assert got["max_abs"] == 2.0**64
    got = _core.pair_errors(np.array([base + 1], np.int64), np.array([1], np.uint8))
    assert got["max_abs"] == float(base)


INF, NAN = np.inf, np.nan
NEW = {
    # N, B, dtype: cosine, euclidean, max abs, max relative (cells of 12 decimals), shares. compare.md 25.4, with D5, D6, D8.
    "half_equal": ([0, 1, 2], [0, 1, 2], "float16", 1.0, 0, 0, 0, 1, 1),
    "half_zero_golden": ([1, 1, 2], [0, 1, 2], "float16", 0.912870929175, 1, 1, 8388608.0, 2 / 3, 2 / 3),
    "bytes": ([3, 250], [4, 3], "uint8", 0.60955611354, 247.00202428320299, 247, 82.333333333333, 0, 0),
    "small": ([1e-13, 2e-13], [1e-13, 3e-13], "float64", 0.989949493661, 9.999999999999998e-14, 0.0, 1 / 3, 0.5, 0.5),
    "single_eps": ([1, 0.01], [1, 0], "float32", 0.99995, 0.009999999776482582, 0.009999999776, 83886.078125, 0.5, 0.5),
    "half_range": ([60000, 1], [-60000, 1], "float16", -0.999999999444, 120000, 120000, 2.0, 0.5, 0.5),
    "bool": ([True, False, True], [True, True, True], "bool", 0.816496580928, 1, 1, 1, 2 / 3, 2 / 3),
    "long_eps": ([0, 2, 3], [0, 0, 3], "int64", 0.832050294338, 2, 2, 9007199254740991.0, 2 / 3, 2 / 3),
    "linear_output": ([1, 2.002, 3, 0.5], [1, 2, 3, 0], "float32", 0.991194122753, 0.5000040003578462, 0.5, 4194304.0,
                      0.5, 0.75),
    "long_output": ([1, 2, 3], [1, 2, 4], "int64", 0.991460133984, 1.0, 1.0, 0.25, 2 / 3, 2 / 3),
}  # fmt: skip


@pytest.mark.parametrize("case", NEW)
def test_worked_single_pairs_of_the_specification(case: str) -> None:
    n, b, dtype, cosine, euclidean, max_abs, max_rel, one, five = NEW[case]
    got = _core.pair_errors(np.array(n, dtype), np.array(b, dtype))
    assert got["cosine_case"] == "value"
    assert _core.round_cosine(got["cosine"]) == cosine
    assert got["euclidean"] == pytest.approx(euclidean, rel=4e-16, abs=0)
    assert _core.round12(got["max_abs"]) == max_abs
    assert _core.round12(got["max_rel"]) == pytest.approx(max_rel, abs=5e-13)
    assert (got["below_thousandth"], got["below_five_thousandths"]) == (one, five)


def test_tiny_vectors_have_their_true_cosine() -> None:
    """D8: norms below 2.2e-16 are not zero."""
    got = _core.pair_errors(np.array([1e-17, 2e-17]), np.array([5e-17, -3e-17]))
    assert got["cosine"] == pytest.approx(-1 / math.sqrt(5 * 34), rel=1e-14)
    assert got["euclidean"] == pytest.approx(6.403124237432849e-17, rel=1e-15)
    assert got["max_rel"] == pytest.approx(5 / 3, rel=1e-15)


@pytest.mark.parametrize("scale_a", [1e-320, 1e-200, 1.0, 1e200, 1e307])
@pytest.mark.parametrize("scale_b", [1e-320, 1e-200, 1.0, 1e200, 1e307])
def test_cosine_of_any_float64_magnitudes(scale_a: float, scale_b: float) -> None:
    a, b = np.array([3.0, 4.0, 0.0] * 500), np.array([4.0, 3.0, 0.0] * 500)
    got = _core.pair_errors(a * scale_a, b * scale_b)
    assert got["cosine"] == pytest.approx(24 / 25, rel=2e-3 if 1e-320 in (scale_a, scale_b) else 1e-13)
    if scale_a == scale_b:
        assert got["euclidean"] == pytest.approx(math.sqrt(1000) * scale_a, rel=1e-3)


def test_tiny_difference_of_normal_vectors_keeps_its_norm() -> None:
    got = _core.pair_errors(np.array([1.0, 3e-200]), np.array([1.0, 7e-200]))
    assert got["euclidean"] == pytest.approx(4e-200, rel=1e-14)
    assert got["max_abs"] == pytest.approx(4e-200, rel=1e-14)


def test_zero_vectors_have_their_own_cases() -> None:
    zero, half = np.zeros(4, np.float32), np.full(4, 0.5, np.float32)
    got = _core.pair_errors(zero, half)
    assert (got["cosine_case"], got["euclidean"], got["max_abs"], got["max_rel"]) == ("target_zero", 1.0, 0.5, 1.0)
    assert math.isnan(got["cosine"]) and got["below_five_thousandths"] == 0
    assert _core.pair_errors(half, zero)["cosine_case"] == "golden_zero"
    got = _core.pair_errors(zero, -zero)
    assert (got["cosine_case"], got["cosine"], got["raw"]["unequal"]) == ("both_zero", 1.0, 0)
    tiny = np.array([5e-324, 0.0])
    assert _core.pair_errors(tiny, tiny)["cosine_case"] == "value"
    one = _core.pair_errors(np.array([2.0], np.float32), np.array([2.5], np.float32))
    assert one["cosine_case"] == "one_element"
    assert (one["max_abs"], _core.round12(one["max_rel"])) == (0.5, 0.20000000298)


@pytest.mark.parametrize("name", FLOATS)
def test_equal_non_finite_positions_count_as_zeros(name: str) -> None:
    a = np.linspace(1, 2, 2100)
    b = a * 1.25
    a[[3, 1500]] = b[[3, 1500]] = NAN
    a[5] = b[5] = INF
    a[2000] = b[2000] = -INF
    x, y = make(a, name), make(b, name)
    got = _core.pair_errors(x, y, name, name)
    clean = np.isfinite(a)
    expected = pair_reference(np.where(clean, wide(x, name), 0), np.where(clean, wide(y, name), 0),
                              np.float64 if name == "float64" else np.float32)  # fmt: skip
    raw = got["raw"]
    assert (raw["both_nan"], raw["both_inf"], raw["class_mismatch"], raw["count"]) == (2, 2, 0, 2100)
    for key in ("max_abs", "max_rel", "below_thousandth", "below_five_thousandths", "unequal"):
        assert raw[key] == expected[key]
    assert raw["b_sumsq"] == pytest.approx(expected["b_sumsq"], rel=1e-13)
    assert raw["first_unequal"] == 0


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("values", [(INF, -INF), (NAN, 1), (1, NAN), (INF, 1), (1, -INF), (NAN, INF)])
def test_classes_that_differ_are_a_mismatch(name: str, values: tuple[float, float]) -> None:
    """D6: opposite infinities too."""
    a, b = np.ones(1300), np.ones(1300)
    a[1100], b[1100] = values
    got = _core.pair_errors(make(a, name), make(b, name), name, name)
    raw = got["raw"]
    assert (raw["class_mismatch"], raw["unequal"], raw["first_unequal"], raw["rel_nan"]) == (1, 1, 1100, 1)
    assert (raw["below_thousandth"], raw["a_sumsq"], raw["max_abs"]) == (1299, 1299, 0)
    assert got["cosine_case"] == "nan"
    assert all(math.isnan(got[k]) for k in ("cosine", "euclidean", "max_abs", "max_rel"))


def test_complex_pairs_keep_the_imaginary_part() -> None:
    """D5: the sums see 2n reals, errors are magnitudes."""
    n, b = np.array([1 + 2j, 3 + 1j], np.complex64), np.array([1 + 2j, 3 - 1j], np.complex64)
    got = _core.pair_errors(n, b)
    assert got["cosine"] == pytest.approx((1 + 4 + 9 - 1) / 15, rel=1e-15)
    assert (got["euclidean"], got["max_abs"]) == (2.0, 2.0)
    assert got["max_rel"] == pytest.approx(2 / math.sqrt(10), rel=1e-15)
    assert (got["below_thousandth"], got["raw"]["count"], got["raw"]["unequal"]) == (0.5, 2, 1)
    rng = np.random.default_rng(10)
    for dtype in (np.complex64, np.complex128):
        x = (rng.standard_normal(1500) + 1j * rng.standard_normal(1500)).astype(dtype)
        y = (x * (1 + 3e-3 * rng.standard_normal(1500))).astype(dtype)
        wx, wy = x.astype(np.complex128), y.astype(np.complex128)
        got = _core.pair_errors(x, y)
        assert got["cosine"] == pytest.approx(np.vdot(wx, wy).real / np.linalg.norm(wx) / np.linalg.norm(wy), rel=1e-13)
        assert got["max_abs"] == pytest.approx(np.abs(wx - wy).max(), rel=1e-14)
        assert got["raw"]["below_thousandth"] == (np.abs(wx - wy) / np.abs(wy) < 0.001).sum()


def test_complex_classes_are_compared_by_part() -> None:
    a, b = np.array([complex(NAN, 1), 2]), np.array([complex(NAN, 1), 2])
    assert _core.pair_errors(a, b)["raw"]["both_nan"] == 1
    assert _core.pair_errors(a, b)["raw"]["unequal"] == 0
    b[0] = complex(1, NAN)
    assert _core.pair_errors(a, b)["raw"]["class_mismatch"] == 1
    b[0] = complex(NAN, 3)
    assert _core.pair_errors(a, b)["max_abs"] == 2.0
    big = np.array([complex(3e200, 4e200), 0])
    assert _core.pair_errors(big, 2 * big)["euclidean"] == pytest.approx(5e200, rel=1e-15)
    zero = _core.pair_errors(np.array([1 + 0j, 1]), np.array([0j, 1]))
    assert zero["max_rel"] == 2.0**52


def test_empty_pairs_are_not_a_value() -> None:
    got = _core.pair_errors(np.array([], np.float32), np.array([], np.float32))
    assert got["cosine_case"] == "nan" and got["raw"]["count"] == 0
    assert math.isnan(got["below_thousandth"]) and math.isnan(got["max_abs"])


def test_limits_are_strict_and_in_the_work_type() -> None:
    """The relative error is exactly the limit in float32, one step under it, and one over it."""
    for limit, key in ((np.float32(0.001), "below_thousandth"), (np.float32(0.005), "below_five_thousandths")):
        golden = np.float32(1)
        steps = golden + np.arange(-400, 400, dtype=np.float32) * np.float32(2**-23) + limit
        rel = np.abs((steps - golden) / golden)
        got = _core.pair_errors(steps, np.full(800, golden))
        assert got["raw"][key] == (rel < limit).sum()
        assert 0 < got["raw"][key] < 800


# Properties.

floats32 = st.floats(width=32, allow_nan=True, allow_infinity=True)


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


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(floats32, floats32), min_size=0, max_size=3000), st.integers(0, 40))
def test_interleaving_with_a_stride_changes_no_count(pairs: list[tuple[float, float]], gap: int) -> None:
    """Strided elements go through chunks and Merge, contiguous ones do not."""
    a = np.array([p[0] for p in pairs], np.float32)
    b = np.array([p[1] for p in pairs], np.float32)
    spread = np.zeros((len(pairs), gap + 2), np.float32)
    spread[:, 1] = a
    p, q = _core.pair_errors(spread[:, 1], b)["raw"], _core.pair_errors(a, b)["raw"]
    for key in p:
        if key in ("dot", "a_sumsq", "b_sumsq", "diff_sumsq"):
            size = math.sqrt(q["a_sumsq"] * q["b_sumsq"]) if key == "dot" else q[key]
            assert p[key] == pytest.approx(q[key], rel=1e-12, abs=1e-12 * size)
        else:
            assert p[key] == q[key], key


@settings(deadline=None, max_examples=300)
@given(st.floats())
def test_rounding_of_cells_is_pythons(x: float) -> None:
    expected = float(f"{x:.12f}")
    assert _core.round12(x) == expected or math.isnan(x)
    cosine = round(expected, 6) if expected > 0.9999 and math.isfinite(x) else expected
    assert _core.round_cosine(x) == cosine or math.isnan(x)


# Types that numpy lacks.


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"])
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


def test_float8_pairs_are_compared_in_float32() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(11)
    a, b = rng.integers(0, 0x7E, 3000).astype(np.uint8), rng.integers(0, 0x7E, 3000).astype(np.uint8)
    x = torch.from_numpy(a).view(torch.float8_e4m3fn).double().numpy()
    y = torch.from_numpy(b).view(torch.float8_e4m3fn).double().numpy()
    expected = pair_reference(x, y, np.float32)
    got = _core.pair_errors(a, b, "float8_e4m3fn", "torch.float8_e4m3fn")["raw"]
    for key in ("max_abs", "max_rel", "below_thousandth", "unequal"):
        assert got[key] == expected[key]


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
