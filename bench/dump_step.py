"""Measure one configuration of collection in this process and print one line `RESULT {json}`.

    python dump_step.py LEVEL:SUMMARY [--layers 8 --width 512 --length 512 --repeat 1 --dtype float32]

LEVEL:SUMMARY is e.g. L1:statistics, mix:md5, L1:tensor, or `off`. Runs with whichever msprobe this Python has.
One thread; forward and backward of a Llama-shaped net, batch 1. Seconds are processor time of the process, so that
other work on the machine disturbs them little. `plain`: no tool; `idle`: constructed, not started; `collect`: start,
step, stop, step(); `plain_wall`, `collect_wall`: wall clock. When tensors are saved, `writer_wall` is what one
sequential writer of as many bytes takes. `relu_ns`, `shape_ns`: one small call and one property read, before the tool
and after stop.
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

WARM_UP = 3 << 30  # bytes


def seconds(work: Callable[[], None], repeat: int) -> tuple[float, float]:
    """Smallest processor time and smallest wall clock of `repeat` runs."""
    best = (float("inf"), float("inf"))
    for _ in range(repeat):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        best = min(best[0], time.process_time() - cpu), min(best[1], time.perf_counter() - wall)
    return best


def write_sequentially(folder: Path, size: int) -> None:
    """One writer, one file, blocks of 4 MiB."""
    block = os.urandom(4 << 20)
    path = folder / "sequential"
    with path.open("wb", buffering=0) as file:
        for _ in range(size // len(block)):
            file.write(block)
    path.unlink()


def small_calls() -> tuple[float, float]:
    """Nanoseconds of `torch.relu` on 16 x 16 and of one read of `shape`."""
    x, n = torch.randn(16, 16), 20_000

    def relu() -> None:
        for _ in range(n):
            torch.relu(x)

    def shape() -> None:
        for _ in range(n):
            x.shape  # noqa: B018

    return seconds(relu, 7)[0] / n * 1e9, seconds(shape, 7)[0] / n * 1e9


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
    model.to(getattr(torch, options.dtype))
    ids = torch.randint(0, 1000, (1, options.length))

    def step() -> None:
        F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
        model.zero_grad()

    step()
    result: dict[str, Any] = {}
    result["plain"], result["plain_wall"] = seconds(step, options.repeat)
    result["relu_ns"], result["shape_ns"] = small_calls()
    if options.config == "off":
        return result
    from msprobe.pytorch import PrecisionDebugger

    level, summary = options.config.split(":")
    folder = Path(tempfile.mkdtemp(dir=os.environ.get("BENCH_TMP")))
    debugger = PrecisionDebugger(config_path=str(config_file(folder, level, summary, json.loads(options.settings))))
    result["idle"], _ = seconds(step, options.repeat)

    def collect() -> None:
        debugger.start(model=model)
        step()
        debugger.stop()
        debugger.step()

    if summary == "tensor":
        write_sequentially(folder, WARM_UP)  # the first use of memory costs more than all that follow
    result["collect"], result["collect_wall"] = seconds(collect, options.repeat)
    result["relu_after_ns"], result["shape_after_ns"] = small_calls()
    dump = next((folder / "dump" / "step0").glob("*/dump.json"))
    tensors = list((dump.parent / "dump_tensor_data").glob("*"))
    result["entries"] = len(json.loads(dump.read_text())["data"])
    result["json_bytes"], result["tensor_bytes"] = dump.stat().st_size, sum(p.stat().st_size for p in tensors)
    shutil.rmtree(folder / "dump")
    if tensors:
        _, result["writer_wall"] = seconds(lambda: write_sequentially(folder, result["tensor_bytes"]), options.repeat)
    shutil.rmtree(folder)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--dtype", default="float32", help="of parameters and activations")
    parser.add_argument("--settings", default="{}", help="JSON of further keys of config.json, e.g. evidence")
    print("RESULT", json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
