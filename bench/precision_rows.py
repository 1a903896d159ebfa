#!/usr/bin/env python3
"""Time and memory of api_precision_compare on two details files of N rows.

    python bench/precision_rows.py COMMAND [ROWS ...]

COMMAND is the msprobe to measure, ours or the original's. Prints `RESULT {"wall", "cpu", "peak_mb"}` per number of
rows. The files have eight outputs an API, all metrics filled, and the column titles that both tools read; the second
one is shuffled.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import sys
import tempfile
import time
from pathlib import Path

# As the original writes it, so that it can be measured beside.
EXAMPLE = Path(__file__).resolve().parents[1] / "tests" / "data" / "precheck" / "compare_real_new" / "npu.csv"
OPERATORS = ("matmul", "add", "softmax", "embedding", "layer_norm", "gelu", "cat", "linalg.inv")


def write(path: Path, rows: int, seed: int) -> None:
    chance = random.Random(seed)
    lines = []
    for i in range(rows):
        name = f"Torch.{OPERATORS[i // 8 % len(OPERATORS)]}.{i // 8}.forward.output.{i % 8}"
        figures = [f"{chance.random() * 1e-3:.14f}" for _ in range(5)]
        lines.append(
            f'{name},torch.float64,torch.float32,"(4, 128)",0.99999999910152,0.00010001659393, ,1.00000000000000,'
            f"1.00000000000000, ,{','.join(figures)}, , , , , , ,pass,maximum absolute error below 0.001: pass"
        )
    if seed:
        chance.shuffle(lines)
    header = EXAMPLE.read_text(encoding="utf-8-sig").splitlines()[0]
    path.write_text("\r\n".join([header, *lines, ""]), encoding="utf-8-sig", newline="")


def measure(command: list[str], rows: int) -> tuple[float, float, int]:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder, "npu.csv"), rows, 0)
        write(Path(folder, "gpu.csv"), rows, 1)
        args = [*command, "api_precision_compare", "-npu", "npu.csv", "-gpu", "gpu.csv", "-o", "out"]
        begin = time.monotonic()
        pid = os.fork()
        if pid == 0:
            os.chdir(folder)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.execvp(args[0], args)
        _, status, usage = os.wait4(pid, 0)
        seconds = time.monotonic() - begin
        cpu = usage.ru_utime + usage.ru_stime
        if status != 0:
            raise SystemExit(f"the command ended with status {status}")
        if sum(1 for _ in Path(folder, "out").glob("*_details_*.csv")) != 1:
            raise SystemExit("no details file was written")
        return seconds, cpu, int(usage.ru_maxrss)


def main() -> int:
    command = shlex.split(sys.argv[1])
    command[0] = os.path.abspath(command[0]) if os.sep in command[0] else command[0]
    for rows in [int(a) for a in sys.argv[2:]] or [4_000, 8_000, 100_000, 1_000_000]:
        wall, cpu, kib = measure(command, rows)
        print("RESULT", json.dumps({"rows": rows, "wall": wall, "cpu": cpu, "peak_mb": kib / 1024}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
