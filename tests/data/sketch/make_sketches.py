#!/usr/bin/env python3
"""Sketches of small tensors, by the formulas of docs/sketch.md in NumPy: `sketches.json`.

    python tests/data/sketch/make_sketches.py

Written without a look at the C++ code: one element at a time, in Python integers and float64. Elements stand as
base64 of their bytes, slots as float64.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np

MASK = (1 << 64) - 1


def mix(state: int) -> int:
    """One step of SplitMix64 (Steele, Lea & Flood 2014) from this state."""
    z = (state + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def slot(i: int, k: int, seed: int) -> int:
    block = i // k
    return (i + mix((block + seed + 77) & MASK) % k) % k


def sign(i: int, seed: int) -> int:
    word = mix((i // 64) ^ ((seed * 0x5851F42D4C957F2D) & MASK))
    return -1 if word >> (i % 64) & 1 else 1


def sketch(values: np.ndarray, indices: np.ndarray, k: int, seed: int) -> tuple[list[float], dict[str, int]]:
    slots = np.zeros(k)
    left = {"nan": 0, "inf": 0, "huge": 0}
    for i, x in zip(indices.tolist(), values.astype(np.float64).tolist(), strict=True):
        if np.isnan(x):
            left["nan"] += 1
        elif np.isinf(x):
            left["inf"] += 1
        elif abs(x) >= 1e30:
            left["huge"] += 1
        else:
            slots[slot(i, k, seed)] += sign(i, seed) * x
    return slots.tolist(), left


def case(
    name: str, dtype: str, raw: np.ndarray, values: np.ndarray, k: int, seed: int, shape: list[int] | None = None
) -> dict[str, object]:
    slots, left = sketch(values, np.arange(values.size), k, seed)
    return {
        "name": name,
        "dtype": dtype,
        "shape": shape if shape is not None else [int(raw.size)],
        "elements": base64.b64encode(raw.tobytes()).decode(),
        "k": k,
        "seed": seed,
        "slots": slots,
        **left,
    }


def main() -> None:
    rng = np.random.default_rng(15)
    f32 = rng.normal(size=700).astype(np.float32)
    wild = f32.copy()
    wild[[3, 64, 65, 127, 600]] = [np.nan, np.inf, -np.inf, 3e38, -1e30]
    bf16 = (f32.view(np.uint32) >> 16).astype(np.uint16)
    bf16_values = (bf16.astype(np.uint32) << 16).view(np.float32)
    f16 = f32.astype(np.float16)
    f16[100] = np.float16(np.inf)
    f64 = rng.normal(size=300) * 10.0 ** rng.integers(-20, 20, size=300)
    f64[5] = 1e300
    # All finite patterns of float8_e5m2 are the upper halves of float16.
    e5m2 = np.arange(256, dtype=np.uint8)
    e5m2_values = (e5m2.astype(np.uint16) << 8).view(np.float16)
    i64 = rng.integers(-(2**62), 2**62, size=200)
    i32 = rng.integers(-(2**31), 2**31, size=200).astype(np.int32)
    u8 = rng.integers(0, 256, size=200).astype(np.uint8)
    flags = rng.integers(0, 2, size=200).astype(np.bool_)
    u64 = rng.integers(0, 2**64, size=100, dtype=np.uint64)
    c64 = (rng.normal(size=90) + 1j * rng.normal(size=90)).astype(np.complex64)
    cases = [
        case("float32", "torch.float32", f32, f32, 256, 1),
        case("float32, other k and seed", "torch.float32", f32, f32, 64, 987654321),
        case("float32, k no power of two", "torch.float32", f32, f32, 192, 2**63 - 1),
        case("float32, seed 0", "torch.float32", f32[:130], f32[:130], 64, 0),
        case("left out", "torch.float32", wild, wild, 64, 1),
        case("fewer than k", "torch.float32", f32[:100], f32[:100], 256, 1),
        case("one", "torch.float32", f32[:1], f32[:1], 64, 1, []),
        case("none", "torch.float32", f32[:0], f32[:0], 64, 1, [0, 3]),
        case("bfloat16", "torch.bfloat16", bf16, bf16_values, 64, 1),
        case("float16", "torch.float16", f16, f16, 64, 1),
        case("float64", "torch.float64", f64, f64, 64, 1),
        case("float8", "torch.float8_e5m2", e5m2, e5m2_values, 64, 1),
        case("int64", "torch.int64", i64, i64, 64, 1),
        case("int32", "torch.int32", i32, i32, 64, 1),
        case("uint8", "torch.uint8", u8, u8, 64, 1),
        case("bool", "torch.bool", flags, flags, 64, 1),
        case("uint64", "torch.uint64", u64, u64, 64, 1),
        case("complex", "torch.complex64", c64, c64.view(np.float32), 64, 1),
    ]
    path = Path(__file__).with_name("sketches.json")
    path.write_text(json.dumps(cases, indent=0) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
