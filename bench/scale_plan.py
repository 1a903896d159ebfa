"""Plan of a comparison of many ranks on a cluster, from what an item costs on this machine.

    python bench/scale_plan.py [--ranks 4096] [--entries 100000] [--sample 2000] [--driver 64] [--json FILE]

Makes two dumps of statistics of `--sample` calls, measures processor seconds and bytes of an item, scales them to
`--entries`, and simulates the order that the engine hands items out in. `--driver N` also runs a comparison of N
ranks on a Ray cluster of this machine and samples the memory of the driver while it runs.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "ray"))
from ray_support import write_pair

AHEAD = 2  # msprobe.scale.engine: results that may wait, per place


def child_seconds() -> float:
    """User and system seconds of the children that ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def folder_bytes(folder: Path) -> int:
    """Bytes of all files."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def compare(folder: Path, out: str, *args: str) -> tuple[float, float]:
    """Processor and wall seconds of a comparison in one thread."""
    before, begin = child_seconds(), time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "msprobe", "compare", "-tp", "target", "-gp", "golden", "-o", out, "-q", *args],
        cwd=folder, check=False, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return child_seconds() - before, time.monotonic() - begin


def measure(sample: int) -> dict[str, float]:
    """Cost of a call of one pair of ranks, from dumps of one and of five times as many calls."""
    points = []
    for entries in (sample, 5 * sample):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_pair(folder, 1, entries=entries)
            read = folder_bytes(folder)
            cpu = min(compare(folder, f"out{i}", "--workers", "1", "--no-html")[0] for i in range(3))
            written = folder_bytes(folder / "out0")
            points.append((entries, cpu, read, written))
    (n0, c0, r0, w0), (n1, c1, r1, w1) = points
    per = lambda a, b: (b - a) / (n1 - n0)  # noqa: E731
    return {
        "fixed_seconds": max(0.0, c0 - per(c0, c1) * n0),
        "seconds_per_entry": per(c0, c1),
        "read_per_entry": per(r0, r1),
        "written_per_entry": per(w0, w1),
    }


def simulate(costs: list[float], places: int, writer_seconds: float) -> tuple[float, float]:
    """Makespan with in-order delivery to one writer, and the share of time that places wait.

    Items start in order, `places` at a time, at most AHEAD * places of them undelivered; the writer takes one result
    after the other in order.
    """
    running: list[tuple[float, int]] = []
    ended: dict[int, float] = {}
    delivered, clock, writer, following = 0, 0.0, 0.0, 0
    free = places
    while delivered < len(costs):
        while free and following < len(costs) and following - delivered <= AHEAD * places:
            heapq.heappush(running, (clock + costs[following], following))
            following += 1
            free -= 1
        if running and delivered not in ended:
            clock, item = heapq.heappop(running)
            clock = max(clock, 0.0)
            ended[item] = clock
            free += 1
        while delivered in ended:
            writer = max(writer, ended[delivered]) + writer_seconds
            del ended[delivered]
            delivered += 1
            clock = max(clock, writer if following - delivered > AHEAD * places else clock)
    return writer, 1 - sum(costs) / (places * writer)


def driver_memory(ranks: int, entries: int) -> dict[str, Any]:
    """Memory of the driver over a comparison of generated ranks, beside the bytes of its reports."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pair(folder, ranks, entries=entries)
        process = subprocess.Popen(
            [sys.executable, "-m", "msprobe", "compare", "-tp", "target", "-gp", "golden", "-o", "out", "-q",
             "--engine", "ray", "--no-html"],
            cwd=folder, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        curve = []
        while process.poll() is None:
            try:
                fields = Path(f"/proc/{process.pid}/smaps_rollup").read_text().split()
                private = sum(int(fields[i + 1]) for i, f in enumerate(fields) if f.startswith("Private_"))
            except (OSError, ValueError, ProcessLookupError):
                break
            curve.append(
                (len(list((folder / "out").glob("*.csv"))) if (folder / "out").exists() else 0, private // 1024)
            )
            time.sleep(0.2)
        process.wait()
        done: dict[int, int] = {}
        for count, mib in curve:
            done[count] = max(done.get(count, 0), mib)
        return {
            "ranks": ranks,
            "entries": entries,
            "report_mib": folder_bytes(folder / "out") >> 20,
            "private_mib_by_reports_written": sorted(done.items()),
            "status": process.returncode,
        }


def main() -> None:
    """Measure, plan, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4096)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--sample", type=int, default=4000)
    parser.add_argument("--driver", type=int, default=0, help="ranks of a run whose driver is watched; 0: none")
    parser.add_argument("--driver-entries", type=int, default=2000)
    parser.add_argument("--json")
    args = parser.parse_args()
    cost = measure(args.sample)
    item = cost["fixed_seconds"] + cost["seconds_per_entry"] * args.entries
    read, written = cost["read_per_entry"] * args.entries, cost["written_per_entry"] * args.entries
    writer = written / 1.0e9  # one stream to storage at 1 GB/s
    out: dict[str, Any] = {
        "cost": cost, "item_seconds": item, "read_bytes_per_item": read, "written_bytes_per_item": written,
        "cores": os.cpu_count(), "plans": [],
    }  # fmt: skip
    print(
        f"one call: {cost['seconds_per_entry'] * 1e6:.1f} us, read {cost['read_per_entry']:.0f} B, "
        f"written {cost['written_per_entry']:.0f} B; fixed {cost['fixed_seconds']:.2f} s"
    )
    print(
        f"one pair of ranks, {args.entries} calls: {item:.1f} s of one core, read {read / 1e6:.0f} MB, "
        f"written {written / 1e6:.0f} MB"
    )
    print(
        f"{args.ranks} pairs: {item * args.ranks / 3600:.1f} core hours, read {read * args.ranks / 1e12:.2f} TB, "
        f"written {written * args.ranks / 1e12:.2f} TB"
    )
    print("| places | makespan | read | written | writer alone | places idle |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for places in (64, 256, 1024, 4096):
        # A rank in eight has a tenth more to do: ranks of a pipeline are not alike.
        costs = [item * (1.1 if i % 8 == 7 else 1.0) for i in range(args.ranks)]
        makespan, idle = simulate(costs, places, writer)
        plan = {
            "places": places, "makespan_seconds": makespan, "read_gb_per_second": read * args.ranks / makespan / 1e9,
            "written_gb_per_second": written * args.ranks / makespan / 1e9, "writer_seconds": writer * args.ranks,
            "idle": idle,
        }  # fmt: skip
        out["plans"].append(plan)
        print(
            f"| {places} | {makespan / 60:.1f} min | {plan['read_gb_per_second']:.2f} GB/s "
            f"| {plan['written_gb_per_second']:.2f} GB/s | {writer * args.ranks / 60:.1f} min | {idle:.0%} |"
        )
    if args.driver:
        out["driver"] = driver_memory(args.driver, args.driver_entries)
        print(json.dumps(out["driver"], indent=1))
    if args.json:
        Path(args.json).write_text(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
