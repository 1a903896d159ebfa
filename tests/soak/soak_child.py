"""Collects for a long time and prints, block by block, what the process holds: JSON lines on stdout.

python soak_child.py KIND FOLDER BLOCKS CYCLES CALLS

KIND `cycles`: each block is CYCLES of start, CALLS calls, stop, step. `window`: one start for the whole run, each block
is CYCLES times CALLS calls in it. `threads`: as `cycles`, with the calls made by 24 threads of the cycle.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path

import torch

from msprobe.pytorch import PrecisionDebugger

THREADS = 24


def resident() -> int:
    """Bytes of memory of this process alone: without pages of files, which come and go as the kernel likes."""
    pages = Path("/proc/self/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")


def entries_and_room(step: Path) -> int:
    """Entries of a finished step, which is removed: disks are small, soaks are long."""
    text = (step / "rank" / "dump.json").read_bytes()
    count = text.count(b'.forward": {')
    shutil.rmtree(step)
    return count


class Soak:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tool = PrecisionDebugger(dump_path=str(folder), level="L1", task="statistics")
        self.x = torch.ones(64)
        self.made = self.read = self.steps = 0

    def call(self, n: int) -> None:
        for _ in range(n):
            torch.add(self.x, 1.0)

    def cycle(self, calls: int, threads: int) -> None:
        self.tool.start()
        if threads:
            workers = [threading.Thread(target=self.call, args=(calls // threads,)) for _ in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            self.made += calls // threads * threads
        else:
            self.call(calls)
            self.made += calls
        self.tool.stop()
        self.tool.step()
        self.read += entries_and_room(self.folder / f"step{self.steps}")
        self.steps += 1

    def report(self, spent: float) -> None:
        gc.collect()
        held = {
            "resident": resident(),
            "descriptors": len(os.listdir("/proc/self/fd")),
            "threads": len(os.listdir("/proc/self/task")),
            "cpu": spent,
            "made": self.made,
            "read": self.read,
        }
        print("HELD " + json.dumps(held), flush=True)


def main() -> None:
    kind, folder = sys.argv[1], Path(sys.argv[2])
    blocks, cycles, calls = (int(a) for a in sys.argv[3:6])
    torch.set_num_threads(1)
    soak = Soak(folder)
    if kind == "window":
        soak.tool.start()
    for _ in range(blocks):
        begin = time.process_time()
        for _ in range(cycles):
            if kind == "window":
                soak.call(calls)
                soak.made += calls
            else:
                soak.cycle(calls, THREADS if kind == "threads" else 0)
        soak.report(time.process_time() - begin)
    if kind == "window":
        soak.tool.stop()
        soak.tool.step()
        soak.read += entries_and_room(folder / "step0")
        soak.report(0.0)


main()
