"""Constant cost of collection: time and memory per 20,000 calls of one long step, and over 10,000 steps.

    python bench/long_run.py [--calls 200000] [--steps 10000] [--out FILE]

Prints two tables in Markdown. Time is processor time of this process, memory its resident size.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path

import torch

from msprobe.pytorch import PrecisionDebugger

BLOCK = 20_000


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def long_step(folder: str, calls: int) -> list[tuple[int, float, float]]:
    """One step of so many calls; rows of (calls, microseconds per call, MiB)."""
    tool = PrecisionDebugger(dump_path=folder, level="L1", task="statistics")
    x = torch.ones(64)
    rows = []
    tool.start()
    for first in range(0, calls, BLOCK):
        begin = time.process_time()
        for _ in range(min(BLOCK, calls - first)):
            torch.add(x, 1.0)
        spent = time.process_time() - begin
        rows.append((first + BLOCK, spent / BLOCK * 1e6, resident_mib()))
    tool.stop()
    tool.step()
    PrecisionDebugger.reset()
    return rows


def many_steps(folder: str, steps: int) -> list[tuple[int, float, float]]:
    """Steps of ten calls; rows of (steps, microseconds per step, MiB)."""
    tool = PrecisionDebugger(dump_path=folder, level="L1", task="statistics")
    x = torch.ones(64)
    rows = []
    block = max(1, steps // 10)
    for first in range(0, steps, block):
        begin = time.process_time()
        for step in range(first, min(first + block, steps)):
            tool.start()
            for _ in range(10):
                torch.add(x, 1.0)
            tool.stop()
            tool.step()
            shutil.rmtree(Path(folder) / f"step{step}")  # the disk is not what is measured
        spent = time.process_time() - begin
        rows.append((first + block, spent / block * 1e6, resident_mib()))
    PrecisionDebugger.reset()
    return rows


def table(title: str, rows: list[tuple[int, float, float]]) -> str:
    lines = [f"| {title} | µs each | resident MiB |", "| ---: | ---: | ---: |"]
    return "\n".join(lines + [f"| {n:,} | {cost:.1f} | {mib:.1f} |" for n, cost, mib in rows])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=200_000)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--out", help="write the tables there too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    parts = []
    for title, run, count in (("calls so far", long_step, options.calls), ("steps so far", many_steps, options.steps)):
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
            rows = run(folder, count)
        parts.append(table(title, rows))
        print(parts[-1] + "\n", flush=True)
    if options.out:
        Path(options.out).write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
