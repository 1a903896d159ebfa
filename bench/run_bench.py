"""Measure this tool beside the original package, in turn, on one machine; writes bench/RESULTS.md.

    python run_bench.py [--only PART...] [--repeats 3] [--quick] [--small] [--upstream PYTHON] [--out FILE]

PART: start, step, call, tensors, statistics, rows, replay, workers, verdict, kernels. Parts that are not measured keep
what an earlier run found (bench/results.json), each with its own date. The original is installed into .venv-upstream
(set TORCH_INDEX as for `make`), or taken from the environment whose Python `--upstream` names; `--upstream none`
measures ours alone. `--quick`: ours alone, once, without the long parts, in three minutes; `--small` shrinks everything
to try the script out. Neither of the two is written to RESULTS.md.

Every measurement is a process of its own. Seconds are processor time (user + system, children included) and wall time,
peak memory is the largest process. Figures are medians over the repeats; ours and the original take turns.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import part_collect
import part_compare
import part_kernels
import part_precheck
from harness import HERE, OURS, ROOT, THEIRS, WORK, Goal, Section, Setup, table

UPSTREAM = "mindstudio-probe==26.2.0"
TORCH = "torch==2.13.0"
RECORD = HERE / "results.json"

PARTS: dict[str, tuple[str, Callable[[Setup], Section]]] = {
    "start": ("Start-up", part_collect.start),
    "step": ("Collection: a step", part_collect.step),
    "call": ("Collection: a call", part_collect.call),
    "tensors": ("Comparison: tensors", part_compare.tensors),
    "statistics": ("Comparison: statistics", part_compare.statistics),
    "rows": ("Comparison: many ranks and rows", part_compare.many_rows),
    "replay": ("Pre-check: replay", part_precheck.replay),
    "workers": ("Pre-check: workers", part_precheck.workers),
    "verdict": ("Pre-check: final verdict", part_precheck.verdict),
    "kernels": ("Kernels", part_kernels.kernels),
}
LONG = ("rows", "workers")


def upstream_python(choice: str | None) -> Path | None:
    """The Python of the environment with the original package; made when absent."""
    if choice == "none":
        return None
    if choice:
        return Path(choice)
    folder = ROOT / ".venv-upstream"
    python = folder / "bin" / "python"
    if not (folder / "complete").is_file():
        print("installing the original package into .venv-upstream", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        index = ["--index-url", os.environ["TORCH_INDEX"]] if os.environ.get("TORCH_INDEX") else []
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, *index, TORCH], check=True)
        subprocess.run([*pip, UPSTREAM], check=True)
        (folder / "complete").touch()
    return python


def version_of(python: Path, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def machine(pythons: dict[str, Path]) -> str:
    """Machine and versions, in one line."""
    cpu = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    tools = f"ours {version_of(pythons[OURS], 'msprobe-native')} (commit {commit.stdout.strip() or 'unknown'})"
    if THEIRS in pythons:
        tools += f", original mindstudio-probe {version_of(pythons[THEIRS], 'mindstudio-probe')}"
    return (
        f"{cpu}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}; {tools}; Python "
        f"{platform.python_version()}, torch {version_of(pythons[OURS], 'torch')}"
    )


def measure(name: str, setup: Setup, about: str) -> dict[str, Any]:
    print(f"== {name}", flush=True)
    now = datetime.datetime.now(datetime.timezone.utc)
    load = os.getloadavg()[0]
    section = PARTS[name][1](setup)
    head = f"{now:%Y-%m-%d %H:%M} UTC, load {load:.1f} before; {about}; `--only {name}`, median of {setup.repeats}."
    return {"head": head, "lines": section.lines, "goals": [asdict(g) for g in section.goals]}


def render(record: dict[str, Any]) -> str:
    lines = [
        "# Results",
        "",
        "Written by `make bench` (`python bench/run_bench.py`). Each chapter says when, where and of what it was",
        "measured.",
        "Ratios say how many times better ours is, from one run in which the tools took turns.",
        "",
    ]
    goals = [Goal(**goal) for name in PARTS for goal in record.get(name, {}).get("goals", [])]
    lines += table(Goal.HEAD, [goal.cells() for goal in goals])
    absent = [title for name, (title, _) in PARTS.items() if name not in record]
    if absent:
        lines += ["", f"Not measured yet: {'; '.join(absent)}."]
    for name, (title, _) in PARTS.items():
        if name in record:
            lines += ["", f"## {title}", "", record[name]["head"], "", *record[name]["lines"]]
    notes = HERE / "NOTES.md"
    if notes.is_file():
        lines += ["", notes.read_text().rstrip()]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), metavar="PART")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--upstream", metavar="PYTHON")
    parser.add_argument("--ours", metavar="PYTHON", default=sys.executable, help="environment with this tool")
    parser.add_argument("--out", type=Path, help="write the report there and leave the record alone")
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    if options.quick:
        options.upstream, options.repeats = "none", 1
    aside = options.quick or options.small
    if aside and not options.out:
        options.out = WORK / "RESULTS.md"
    pythons = {OURS: Path(options.ours)}
    if theirs := upstream_python(options.upstream):
        pythons[THEIRS] = theirs
    setup = Setup(pythons, options.repeats, options.small, options.quick)
    about = machine(pythons)
    record = json.loads(RECORD.read_text()) if RECORD.is_file() and not aside else {}
    for name in options.only or [n for n in PARTS if not (options.quick and n in LONG)]:
        record[name] = measure(name, setup, about)
        if not options.out:
            RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
            (HERE / "RESULTS.md").write_text(render(record))
    if options.out:
        options.out.write_text(render(record))
    print(f"written: {options.out or HERE / 'RESULTS.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
