#!/usr/bin/env python3
"""What sketches add to collection: one step with statistics and with sketches, in turn, in processes of their own.

    python bench/sketch_cost.py [--rounds 5] [--level L1] [options of dump_step.py]

Prints processor seconds per step (the smallest of the rounds): without the tool, with statistics, with sketch and hash,
and the ratio of the last two, which is to stay below 1.25. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def measure(config: str, more: list[str]) -> dict[str, float]:
    command = [sys.executable, str(HERE / "dump_step.py"), config, *more]
    out = subprocess.run(command, check=True, capture_output=True, text=True, cwd=HERE).stdout
    line = next(line for line in out.splitlines() if line.startswith("RESULT "))
    result: dict[str, float] = json.loads(line.removeprefix("RESULT "))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--level", default="L1")
    options, more = parser.parse_known_args()
    best: dict[str, float] = {}
    size = {}
    for _ in range(options.rounds):
        for summary in ("statistics", "sketch"):
            result = measure(f"{options.level}:{summary}", more)
            best["plain"] = min(best.get("plain", float("inf")), result["plain"])
            best[summary] = min(best.get(summary, float("inf")), result["collect"])
            size[summary] = result["json_bytes"]
    print(f"without the tool   {best['plain']:.3f} s")
    for summary in ("statistics", "sketch"):
        share = best[summary] / best["plain"]
        print(f"{summary:<18} {best[summary]:.3f} s, {share:.2f}x, dump.json {size[summary] / 1e6:.1f} MB")
    print(f"sketch/statistics  {best['sketch'] / best['statistics']:.3f}")


if __name__ == "__main__":
    main()
