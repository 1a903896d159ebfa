"""Measure one configuration of collection in this process and print one line `RESULT {json}`.

    python dump_step.py LEVEL:SUMMARY [--layers 8 --width 512 --length 512 --rounds 7 --dtype float32]

LEVEL:SUMMARY is e.g. L1:statistics, mix:md5, L1:tensor, or `off`. Runs with whichever msprobe this Python has.
One thread; forward and backward of a Llama-shaped net, batch 1. Seconds are processor time, so that other work on the
machine disturbs them little. A machine may be a tenth faster in one second than in the next: so a round is one step of
each kind, one after the other, and ratios are those of a round. `plain`: no tool, in a process of its own that has
none; `idle`: constructed, not started; `collect`: start, step, stop, step(). Medians over the rounds: `plain`, seconds;
`idle_ratio`, `collect_ratio`; `plain_wall`, `collect_wall`, wall clock. When tensors are saved, `writer_wall` is what
one sequential writer of as many bytes takes. `relu_ns`, `shape_ns`: one small call and one property read, before the
tool and after stop. The first recorded step, which also loads what recording needs, is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
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


def training_step(options: argparse.Namespace) -> tuple[torch.nn.Module, Callable[[], None]]:
    """The model and a function that makes one step of it."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Llama(1000, options.width, options.width * 43 // 16, options.layers, 8)
    model.to(getattr(torch, options.dtype))
    ids = torch.randint(0, 1000, (1, options.length))

    def step() -> None:
        F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
        model.zero_grad()

    step()
    return model, step


class Partner:
    """A process without the tool that makes a step when it is asked for one."""

    def __init__(self, options: argparse.Namespace) -> None:
        size = [f"--{k}={getattr(options, k)}" for k in ("layers", "width", "length", "dtype")]
        self.process = subprocess.Popen(
            [sys.executable, __file__, "off", "--serve", *size],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def step(self) -> tuple[float, float]:
        """Processor and wall seconds of one step."""
        assert self.process.stdin and self.process.stdout
        print(file=self.process.stdin, flush=True)
        cpu, wall = self.process.stdout.readline().split()
        return float(cpu), float(wall)

    def close(self) -> None:
        self.process.communicate("")


def serve(step: Callable[[], None]) -> None:
    """The other end of a Partner."""
    for _ in sys.stdin:
        print(*seconds(step, 1), flush=True)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    partner = None if options.config == "off" else Partner(options)
    model, step = training_step(options)
    result: dict[str, Any] = {}
    result["relu_ns"], result["shape_ns"] = small_calls()
    if partner is None:
        result["plain"], result["plain_wall"] = seconds(step, options.rounds)
        return result
    from msprobe.pytorch import PrecisionDebugger

    level, summary = options.config.split(":")
    folder = Path(tempfile.mkdtemp(dir=os.environ.get("BENCH_TMP")))
    debugger = PrecisionDebugger(config_path=str(config_file(folder, level, summary, json.loads(options.settings))))

    def collect() -> None:
        debugger.start(model=model)
        step()
        debugger.stop()
        debugger.step()

    if summary == "tensor":
        write_sequentially(folder, WARM_UP)  # the first use of memory costs more than all that follow
    times: list[dict[str, tuple[float, float]]] = []
    for _ in range(options.rounds + 1):
        shutil.rmtree(folder / "dump", ignore_errors=True)
        times.append({"plain": partner.step(), "idle": seconds(step, 1), "collect": seconds(collect, 1)})
    partner.close()
    del times[0]
    result["plain"] = median(t["plain"][0] for t in times)
    for kind in ("idle", "collect"):
        result[f"{kind}_ratio"] = median(t[kind][0] / t["plain"][0] for t in times)
    for kind in ("plain", "collect"):
        result[f"{kind}_wall"] = median(t[kind][1] for t in times)
    result["relu_after_ns"], result["shape_after_ns"] = small_calls()
    dump = next((folder / "dump").glob("step*/*/dump.json"))
    tensors = list((dump.parent / "dump_tensor_data").glob("*"))
    result["entries"] = len(json.loads(dump.read_text())["data"])
    result["json_bytes"], result["tensor_bytes"] = dump.stat().st_size, sum(p.stat().st_size for p in tensors)
    shutil.rmtree(folder / "dump")
    if tensors:
        size = result["tensor_bytes"]
        walls = [seconds(lambda: write_sequentially(folder, size), 1)[1] for _ in range(options.rounds)]
        result["writer_wall"] = median(walls)
    shutil.rmtree(folder)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--serve", action="store_true", help="make a step for every line of standard input")
    parser.add_argument("--dtype", default="float32", help="of parameters and activations")
    parser.add_argument("--settings", default="{}", help="JSON of further keys of config.json, e.g. evidence")
    options = parser.parse_args()
    if options.serve:
        serve(training_step(options)[1])
    else:
        print("RESULT", json.dumps(measure(options)))


if __name__ == "__main__":
    main()
