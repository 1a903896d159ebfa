"""Measure one configuration of collection in this process and print one line `RESULT {json}`.

    python dump_step.py LEVEL:SUMMARY [--layers 8 --width 512 --length 512 --repeat 1]

LEVEL:SUMMARY is e.g. L1:statistics, mix:md5, L1:tensor, or `off`. Runs with whichever msprobe this Python has.
One thread; forward and backward of a Llama-shaped net, batch 1, float32. Seconds are processor time of the process,
so that other work on the machine disturbs them little. `plain`: no tool; `idle`: constructed, not started; `collect`:
start, step, stop, step(). `relu_ns`, `shape_ns`: one small call and one property read, before the tool and after stop.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from nets import Llama


def cpu_seconds(work: Callable[[], None], repeat: int) -> float:
    """Smallest processor time of `repeat` runs."""
    best = float("inf")
    for _ in range(repeat):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def small_calls() -> tuple[float, float]:
    """Nanoseconds of `torch.relu` on 16 x 16 and of one read of `shape`."""
    x, n = torch.randn(16, 16), 20_000

    def relu() -> None:
        for _ in range(n):
            torch.relu(x)

    def shape() -> None:
        for _ in range(n):
            x.shape  # noqa: B018

    return cpu_seconds(relu, 7) / n * 1e9, cpu_seconds(shape, 7) / n * 1e9


def config_file(folder: Path, level: str, summary: str, more: dict[str, Any]) -> Path:
    task = "tensor" if summary == "tensor" else "statistics"
    section: dict[str, Any] = {"scope": [], "list": [], "data_mode": ["all"]}
    if task == "statistics":
        section["summary_mode"] = summary
    settings = {"task": task, "dump_path": str(folder / "dump"), "rank": [], "step": [], "level": level, task: section}
    settings |= more
    path = folder / "config.json"
    path.write_text(json.dumps(settings))
    return path


def measure(options: argparse.Namespace) -> dict[str, Any]:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Llama(1000, options.width, options.width * 43 // 16, options.layers, 8)
    ids = torch.randint(0, 1000, (1, options.length))

    def step() -> None:
        F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
        model.zero_grad()

    step()
    result: dict[str, Any] = {"plain": cpu_seconds(step, options.repeat)}
    result["relu_ns"], result["shape_ns"] = small_calls()
    if options.config == "off":
        return result
    from msprobe.pytorch import PrecisionDebugger

    level, summary = options.config.split(":")
    folder = Path(tempfile.mkdtemp(dir=os.environ.get("BENCH_TMP")))
    debugger = PrecisionDebugger(config_path=str(config_file(folder, level, summary, json.loads(options.settings))))
    result["idle"] = cpu_seconds(step, options.repeat)

    def collect() -> None:
        debugger.start(model=model)
        step()
        debugger.stop()
        debugger.step()

    result["collect"] = cpu_seconds(collect, options.repeat)
    result["relu_after_ns"], result["shape_after_ns"] = small_calls()
    dump = next((folder / "dump" / "step0").glob("*/dump.json"))
    tensors = list((dump.parent / "dump_tensor_data").glob("*"))
    result["entries"] = len(json.loads(dump.read_text())["data"])
    result["json_bytes"], result["tensor_bytes"] = dump.stat().st_size, sum(p.stat().st_size for p in tensors)
    shutil.rmtree(folder)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--settings", default="{}", help="JSON of further keys of config.json, e.g. evidence")
    print("RESULT", json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
