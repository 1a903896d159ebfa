#!/usr/bin/env python3
"""What replays cost that the search for the operator at fault asks for: processor time, in this process, one thread.

    python bench/replay_cost.py [--layers 6 --width 64 --length 16 --rounds 5 --profile]

Records one step of a Llama-shaped net as tensors and replays every call, forward and backward, of one side:

- `same bits`: results are those of this CPU, so that the call in its own type settles it;
- `other bits`: every result is off by one unit in one place, so that each is replayed in float64 (no probes).

A line has the milliseconds per entry (at most 0.3), the seconds per 500 entries (at most 0.5), and what stage was used.
`import torch` is not counted. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from nets import Llama


def record(folder: Path, options: argparse.Namespace) -> Path:
    """One step as tensors; the path of its dump.json."""
    from msprobe.pytorch import PrecisionDebugger

    settings = {
        "task": "tensor",
        "dump_path": str(folder / "dump"),
        "rank": [],
        "step": [],
        "level": "L1",
        "tensor": {"scope": [], "list": [], "data_mode": ["all"]},
    }
    config = folder / "config.json"
    config.write_text(json.dumps(settings))
    torch.manual_seed(0)
    net = Llama(100, options.width, 2 * options.width, options.layers, 4)
    ids = torch.randint(0, 100, (2, options.length))
    debugger = PrecisionDebugger(config_path=str(config))
    debugger.start(model=net)
    logits = net(ids)
    F.cross_entropy(logits.view(-1, 100), ids.view(-1)).backward()
    debugger.stop()
    debugger.step()
    return next((folder / "dump").glob("step0/*/dump.json"))


def move_results(dump: Path) -> None:
    """Move one element of every floating result by one unit in the last place.

    One of the upper part of its binade, where a unit is near the relative roundoff: rounding explains it.
    """
    data: dict[str, Any] = json.loads(dump.read_text())["data"]
    for entry in data.values():
        outputs = entry.get("output") or []
        for leaf in outputs if isinstance(outputs, list) else []:
            if not isinstance(leaf, dict) or leaf.get("dtype") != "torch.float32" or not leaf.get("data_name"):
                continue
            file = dump.parent / "dump_tensor_data" / leaf["data_name"]
            tensor = torch.load(file, weights_only=True).contiguous()
            flat = tensor.view(-1)
            mantissa = torch.frexp(flat.abs())[0]
            place = int(mantissa.nan_to_num(0, 0, 0).argmax()) if flat.numel() else -1
            if place < 0 or mantissa[place] < 0.9:
                continue
            flat[place] = torch.nextafter(flat[place], torch.zeros(()))
            torch.save(tensor, file)


def jobs_of(dump: Path) -> tuple[str, int]:
    """All calls of a dump as the core would ask for them, and the number of entries."""
    data = json.loads(dump.read_text())["data"]
    names = [n.removesuffix(".forward") for n in data if n.endswith(".forward")]
    calls = [[name, "", True, f"{name}.backward" in data] for name in names]
    jobs = {"dump": str(dump), "other": "", "limit": 4.0, "calls": calls, "parameters": []}
    return json.dumps(jobs), sum(1 + call[3] for call in calls)


def measure(what: str, dump: Path, options: argparse.Namespace) -> None:
    """Print one line."""
    from msprobe.precheck.culprit import scores

    jobs, entries = jobs_of(dump)
    best = float("inf")
    for _ in range(options.rounds):
        start = time.process_time()
        answer = json.loads(scores(jobs))
        best = min(best, time.process_time() - start)
    replayed = [a for a in answer.values() if "leaves" in a]
    high = sum(any(leaf["score"] > 2 for leaf in a["leaves"]) for a in replayed)
    told = sum(any(leaf["score"] > 0 for leaf in a["leaves"]) for a in replayed)
    print(
        f"{what:<11} {best / entries * 1e3:.3f} ms per entry, {best / entries * 500:.3f} s per 500 entries; "
        f"{entries} entries, {len(replayed)} replayed, {told} of them in float64, {high} with probes"
    )
    if options.profile:
        profile = cProfile.Profile()
        profile.runcall(scores, jobs)
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 6), ("width", 64), ("length", 16), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--profile", action="store_true", help="also where the time goes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="msprobe-replay-"))
    try:
        dump = record(folder, options)
        measure("same bits", dump, options)
        move_results(dump)
        measure("other bits", dump, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
