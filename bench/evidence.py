"""What the evidence of an entry costs: processor seconds of one step with `evidence` none, light and full.

    python evidence.py [--rounds 5 --layers 8 --width 512 --length 512]

The step of `dump_step.py`, one thread. The three settings take turns in one process, so that what else the machine does
falls on all of them; the smallest of the rounds counts. `light` is promised to add at most 2 % to the step with `none`;
the exit status is the number of levels at which it adds more.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional as F

from dump_step import config_file, seconds
from msprobe.pytorch import PrecisionDebugger
from nets import Llama

KINDS = ("none", "light", "full")
LEVELS = ("L0", "L1", "mix")
LIMIT = 0.02


def once(model: torch.nn.Module, step: Callable[[], None], level: str, kind: str) -> float:
    """Processor seconds of one recorded step."""
    folder = Path(tempfile.mkdtemp())
    PrecisionDebugger.reset()
    PrecisionDebugger(config_path=str(config_file(folder, level, "statistics", {"evidence": kind})))

    def collect() -> None:
        PrecisionDebugger.start(model=model)
        step()
        PrecisionDebugger.stop()
        PrecisionDebugger.step()

    taken, _ = seconds(collect, 1)
    PrecisionDebugger.reset()
    shutil.rmtree(folder)
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--length", type=int, default=512)
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Llama(1000, options.width, options.width * 43 // 16, options.layers, 8)
    ids = torch.randint(0, 1000, (1, options.length))

    def step() -> None:
        F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
        model.zero_grad()

    step()
    result: dict[str, dict[str, float]] = {}
    over = 0
    for level in LEVELS:
        best = dict.fromkeys(("plain", *KINDS), float("inf"))
        for _ in range(options.rounds + 1):  # the first warms up
            best["plain"] = min(best["plain"], seconds(step, 1)[0])
            for kind in KINDS:
                best[kind] = min(best[kind], once(model, step, level, kind))
        added = best["light"] / best["none"] - 1
        over += added > LIMIT
        result[level] = {**best, "light_added": added}
        shown = "  ".join(f"{k} {v:.4f} s" for k, v in best.items())
        print(f"{level:4} {shown}  light adds {added:+.2%}", flush=True)
    print("RESULT", json.dumps(result))
    return over


if __name__ == "__main__":
    sys.exit(main())
