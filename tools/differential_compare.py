#!/usr/bin/env python3
"""Compare generated dumps with the original and with this tool, and explain every cell that differs.

    python tools/differential_compare.py UPSTREAM_MSPROBE OUR_MSPROBE [--seed N] [--entries N]

Dumps of three kinds (statistics, tensors, checksums) are made at random: dtypes, shapes, non-finite values, Python
values, missing and extra calls, other shapes and dtypes. Both programs compare them in the newer spelling; this one
with `--rules base`. A cell that differs must fit one of the corrections D1 … of docs/promises.md; anything else is
printed and makes the exit status 1.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

FLOATS = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
OTHERS = [torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64]
APIS = ["Torch.add", "Functional.linear", "Tensor.mul", "Torch.matmul", "Functional.softmax", "Tensor.to"]


class Maker:
    """Random pairs of leaves; the golden side is the target with something changed."""

    def __init__(self, seed: int, task: str, folder: Path) -> None:
        self.random = np.random.default_rng(seed)
        self.task = task
        self.folder = folder

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def pair(self) -> tuple[torch.Tensor, torch.Tensor]:
        shape = tuple(int(n) for n in self.random.integers(1, 5, self.random.integers(0, 4)))
        pool = OTHERS if self.chance(0.2) else FLOATS
        dtype = pool[int(self.random.integers(len(pool)))]
        values = torch.tensor(self.random.normal(size=shape) * 10.0 ** self.random.integers(-6, 4))
        other = values * (1 + torch.tensor(self.random.normal(size=shape)) * 10.0 ** self.random.integers(-8, 1))
        if self.chance(0.4):
            other = values.clone()
        golden, target = values.to(dtype), other.to(dtype)
        if dtype in FLOATS and values.numel() > 1 and self.chance(0.1):
            bad = [math.nan, math.inf, -math.inf][int(self.random.integers(3))]
            for side in ([target], [golden], [target, golden])[int(self.random.integers(3))]:
                side.view(-1)[0] = bad
        if self.chance(0.05) and len(shape) > 1:
            golden = golden.flatten()
        if self.chance(0.05):
            golden = golden.to(torch.float32 if dtype != torch.float32 else torch.float64)
        return target, golden

    def leaf(self, value: torch.Tensor, name: str, side: str) -> dict[str, Any]:
        out: dict[str, Any] = {"type": "torch.Tensor", "dtype": str(value.dtype), "shape": list(value.shape)}
        real = value.real if value.is_complex() else value
        wide = real.double()
        exact = not value.is_floating_point() and not value.is_complex()
        out["Max"], out["Min"] = (int(wide.max()), int(wide.min())) if exact else (float(wide.max()), float(wide.min()))
        if value.dtype == torch.bool:
            out["Max"], out["Min"], out["Mean"], out["Norm"] = bool(wide.max()), bool(wide.min()), None, None
        else:
            out["Mean"], out["Norm"] = float(wide.mean()), float(wide.norm())
        out["requires_grad"] = bool(self.chance(0.02))
        if self.task == "tensor":
            out["data_name"] = f"{name}.pt"
            torch.save(value, self.folder / side / "dump_tensor_data" / out["data_name"])
        if self.task == "md5":
            data = value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            out["md5"] = f"{__import__('zlib').crc32(data):08x}"
        return out

    def scalar(self) -> tuple[Any, Any]:
        kinds: list[Any] = [1, 2.5, True, "sum", "npu:0"]
        value = kinds[int(self.random.integers(len(kinds)))]
        other = kinds[int(self.random.integers(len(kinds)))] if self.chance(0.3) else value

        def leaf(v: Any) -> dict[str, Any]:
            return {"type": type(v).__name__, "value": v}

        return leaf(value), leaf(other)

    def dumps(self, entries: int) -> None:
        sides: dict[str, dict[str, Any]] = {"target": {}, "golden": {}}
        for side in sides:
            (self.folder / side / "dump_tensor_data").mkdir(parents=True)
        for n in range(entries):
            name = f"{APIS[n % len(APIS)]}.{n // len(APIS)}.forward"
            entry: dict[str, dict[str, Any]] = {s: {"input_args": [], "input_kwargs": {}, "output": []} for s in sides}
            for part, count in (("input_args", 2), ("output", 1)):
                for k in range(count):
                    place = f"{name}.{'input' if part == 'input_args' else 'output'}.{k}"
                    target, golden = self.pair()
                    entry["target"][part].append(self.leaf(target, place, "target"))
                    entry["golden"][part].append(self.leaf(golden, place, "golden"))
            if self.chance(0.5):
                entry["target"]["input_kwargs"]["k"], entry["golden"]["input_kwargs"]["k"] = self.scalar()
            for side in sides:
                if not self.chance(0.03):
                    sides[side][name] = entry[side]
        for side, data in sides.items():
            task = "tensor" if self.task == "tensor" else "statistics"
            head = {"task": task, "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": data}
            (self.folder / side / "dump.json").write_text(json.dumps(head))


def report(command: list[str], folder: Path, out: str, extra: list[str]) -> list[dict[str, str]]:
    paths = ["-tp", str(folder / "target" / "dump.json"), "-gp", str(folder / "golden" / "dump.json")]
    done = subprocess.run(
        [*command, "compare", *paths, "-o", str(folder / out), *extra], capture_output=True, text=True, timeout=900
    )
    found = list((folder / out).glob("compare_result_*.csv"))
    if not found:
        raise SystemExit(f"no report: {done.stderr[-1000:]}")
    with found[0].open(newline="", encoding="utf-8-sig") as f:
        return list(csv.DictReader(f))


def number(text: str) -> float | None:
    try:
        return float(text.rstrip("%"))
    except ValueError:
        return None


def same(a: str, b: str) -> bool:
    x, y = number(a), number(b)
    if a == b:
        return True
    if x is None or y is None or a.endswith("%") != b.endswith("%"):
        return False
    return (math.isnan(x) and math.isnan(y)) or x == y or abs(x - y) <= 1e-9 * max(abs(x), abs(y))


def reason(column: str, up: dict[str, str], our: dict[str, str], up_rows: list[dict[str, str]]) -> str | None:
    """The D number that explains one cell, or None."""
    complex_row = "complex" in our["NPU Dtype"]
    integers = "int" in our["NPU Dtype"] or "bool" in our["NPU Dtype"]
    nonfinite = any(
        c in our and (v := number(our[c])) is not None and not math.isfinite(v)
        for c in ("NPU max", "NPU min", "Bench max", "Bench min")
    )
    if column == "Err_message":
        return reason("Result", up, our, up_rows) if up["Result"] != our["Result"] else "texts of D1"
    if column == "Result":
        if our["Result"] == "unmatched":
            return "D1"
        if nonfinite:
            return "D1, D6"
        if complex_row:
            return "D5"
        if our["Result"] == "error" and "0.6" in our["Err_message"]:
            return "D4"
        if "npu:" in our["NPU max"] or "npu:" in our["Bench max"]:
            return "D18"
        return None
    if our["Bench Name"] != up["Bench Name"] and up["Bench Name"] == "N/A":
        return "D1 (both sides of a parted pair are shown)"
    if complex_row:
        return "D5"
    if nonfinite:
        return "D6"
    if integers:
        return "D18"
    if column in ("Cosine", "MaxAbsErr", "MaxRelativeErr", "EucDist"):
        return "D8"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("upstream")
    parser.add_argument("ours")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--entries", type=int, default=300)
    options = parser.parse_args()
    counts: Counter[tuple[str, str, str]] = Counter()
    cells = unexplained = 0
    for task in ("statistics", "tensor", "md5"):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            Maker(options.seed, task, folder).dumps(options.entries)
            upstream = report([options.upstream], folder, "up", [])
            ours = report([options.ours], folder, "our", ["--rules", "base", "--no-html"])
            golden_only = [row for row in ours if row["NPU Name"] == "N/A"]
            counts[(task, "rows", "D2")] += len(golden_only)
            by_name = {row["NPU Name"]: row for row in ours}
            for up in upstream:
                our = by_name.get(up["NPU Name"])
                for column in up:
                    cells += 1
                    if our is not None and same(up[column], our.get(column, "")):
                        continue
                    why = None if our is None else reason(column, up, our, upstream)
                    if why is None:
                        unexplained += 1
                        mine = "no row" if our is None else our.get(column, "no column")
                        print(f"unexplained: {task} {up['NPU Name']} {column}: {up[column]} against {mine}")
                    else:
                        counts[(task, column, why)] += 1
    print(f"\n{cells} cells, {sum(counts.values())} explained differences, {unexplained} unexplained\n")
    print("| mode | cells | explained by | number |\n| --- | --- | --- | --- |")
    for (task, column, why), n in sorted(counts.items()):
        print(f"| {task} | {column} | {why} | {n} |")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
