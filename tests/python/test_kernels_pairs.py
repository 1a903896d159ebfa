"""Errors between pairs of arrays by the native kernels, against the definitions of compare.md 7.3 (NEW) in numpy.

Values are promoted to float64, sums made by math.fsum, relative errors step by step in the work type.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_inputs import FLOATS, LENGTHS, make, random_array, wide

from msprobe import _core

floats32 = st.floats(width=32, allow_nan=True, allow_infinity=True)


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
    # N, B, dtype: cosine, euclidean, max abs, max relative (cells of 12 decimals), shares. compare.md 25.1 and 25.4.
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
