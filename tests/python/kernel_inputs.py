"""Arrays of every element type for the tests of the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
FLOAT8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
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


def random_array(rng: np.random.Generator, n: int, name: str) -> np.ndarray[Any, Any]:
    if name in INTEGERS:
        info = np.iinfo(name)
        return rng.integers(info.min, info.max, n, dtype=name, endpoint=True)
    return make(rng.standard_normal(n) * 10.0 ** rng.integers(-3, 3, n), name)
