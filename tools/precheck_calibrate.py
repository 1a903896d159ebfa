#!/usr/bin/env python3
"""What rounding alone does to clean replays: `precheck_calibrate.py [--seeds N] [--threads N ...] DUMP.json ...`.

Replays dumps on this machine's CPU with several seeds and numbers of threads and prints, for each dtype, how many
outputs were compared, the largest error in units of u (|b| + s) (docs/precheck-rules.md), the largest share of the
limit of rule Q1 that any used up, and by which call. The units are computed here in NumPy, not by the core. The limits
of src/precheck/q_rules.cc are set so that no share comes near 1.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from msprobe.precheck import judging
from msprobe.precheck.devices import choose_device
from msprobe.precheck.dump import read_dump
from msprobe.precheck.options import Options
from msprobe.precheck.replay import Replayer

# unit roundoff, smallest normal number, limit alone, limit per root of summed terms
LIMITS = {
    "torch.float32": (2.0**-24, 2.0**-126, 256, 16),
    "torch.float16": (2.0**-11, 2.0**-14, 32, 2),
    "torch.bfloat16": (2.0**-8, 2.0**-126, 32, 2),
}


@dataclass(slots=True)
class Worst:
    """Of one dtype."""

    outputs: int = 0
    units: float = 0.0
    share: float = 0.0
    name: str = ""


def units(bench: np.ndarray[Any, Any], device: np.ndarray[Any, Any], scale: float, unit: float, least: float) -> float:
    """The largest error of finite elements in rounding units."""
    finite = np.isfinite(bench) & np.isfinite(device)
    if not finite.any():
        return 0.0
    b, d = bench[finite], device[finite]
    scale = max(scale, float(np.sqrt(np.mean(b * b))))
    return float(np.max(np.abs(d - b) / (unit * (np.abs(b) + scale) + least * unit)))


def watch(found: dict[str, Worst]) -> None:
    """Look at every pair of tensors that is judged."""
    judge = judging._judge_tensors

    def watched(context: judging.Context, row: Any, bench: torch.Tensor, device: torch.Tensor, baseline: Any) -> None:
        judge(context, row, bench, device, baseline)
        limits = LIMITS.get(str(device.dtype))
        if limits is None or bench.shape != device.shape or context.amplifies or not bench.is_floating_point():
            return
        unit, least, alone, per_term = limits
        b, d = (judging.host(t).double().numpy() for t in (bench, device))
        terms = max(1.0, context.input_elements / max(1, d.size))
        largest = units(b, d, context.scale, unit, least)
        share = largest / (alone + per_term * terms**0.5)
        worst = found[str(device.dtype)]
        worst.outputs += 1
        worst.units = max(worst.units, largest)
        if share > worst.share:
            worst.share, worst.name = share, row.name

    judging._judge_tensors = watched


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dumps", nargs="+", metavar="DUMP.json")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    found: dict[str, Worst] = defaultdict(Worst)
    watch(found)
    with judging.quiet_warnings():
        for path in given.dumps:
            dump = read_dump(path)
            for seed in range(given.seeds):
                for threads in given.threads:
                    torch.set_num_threads(threads)
                    options = Options("acc_check", False, False, path, "", seed=seed)
                    replayer = Replayer(options, None, choose_device("cpu", 0), dump.data_folder, dump.has_data_files)
                    for call in dump.calls:
                        replayer.run(call)
    for dtype, worst in sorted(found.items()):
        print(
            f"{dtype:15} {worst.outputs:6} outputs, largest error {worst.units:.3g} units, "
            f"{100 * worst.share:.1f} % of the limit ({worst.name})"
        )


if __name__ == "__main__":
    main()
