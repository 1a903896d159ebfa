"""Measure this tool beside the original package, in turn, on one machine; writes bench/RESULTS.md.

    python run_bench.py [--only PART...] [--repeats 3] [--small] [--upstream PYTHON] [--out FILE]

PART: start, step, tensors, statistics, reports. The original is installed into .venv-upstream (set TORCH_INDEX as for
`make`), or taken from the environment whose Python `--upstream` names; `--upstream none` measures ours alone. `--small`
shrinks everything to try the script out; such figures mean nothing and are not written to RESULTS.md.

Every measurement is a process of its own. Seconds are processor time (user + system, children included) and wall time,
peak memory is the largest process. Figures are medians over the repeats; ours and the original take turns.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
WORK = ROOT / "build" / "bench"
UPSTREAM = "mindstudio-probe==26.2.0"
TORCH = "torch==2.13.0"
OURS, THEIRS = "ours", "original"


@dataclass
class Sample:
    """One measured process."""

    wall: float
    cpu: float
    peak_mb: float
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class Row:
    """One line of a table: a label and, per tool, the cells."""

    label: str
    cells: dict[str, list[Sample]]
    failed: dict[str, str] = field(default_factory=dict)


class Failed(Exception):
    """A measured command did not end well; the text says how."""


def run(command: list[str]) -> Sample:
    """Run one command to its end; raises Failed with the end of its output."""
    environment = {**os.environ, "PYTHONPATH": str(HERE), "BENCH_TMP": str(WORK)}
    with (WORK / "last.log").open("w+") as log:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        log.seek(0)
        text = log.read()
    # wait4 counts the process and those of its children that it waited for.
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if status:
        raise Failed(f"exit {os.waitstatus_to_exitcode(status)}: {' | '.join(text.splitlines()[-3:])[-300:]}")
    results = [line[7:] for line in text.splitlines() if line.startswith("RESULT ")]
    return Sample(wall, cpu, usage.ru_maxrss / 1024, json.loads(results[0]) if results else {})


def in_turn(label: str, commands: dict[str, list[str]], repeats: int) -> Row:
    """Run the tools' commands in turn, `repeats` times each."""
    row = Row(label, {tool: [] for tool in commands})
    for n in range(repeats):
        for tool, command in commands.items():
            if tool in row.failed:
                continue
            try:
                row.cells[tool].append(run(command))
                print(f"  {label}: {tool} {n + 1}/{repeats}: {row.cells[tool][-1].cpu:.2f} s cpu", flush=True)
            except Failed as error:
                row.failed[tool] = str(error)
                print(f"  {label}: {tool} FAILED: {error}", flush=True)
    return row


def median(row: Row, tool: str, value: Callable[[Sample], float]) -> float | None:
    samples = row.cells.get(tool, [])
    return statistics.median(value(s) for s in samples) if samples else None


def text(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def ratio(theirs: float | None, ours: float | None) -> str:
    return "–" if not theirs or not ours else f"{theirs / ours:.1f}x"


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


@dataclass
class Setup:
    """What the parts need to know."""

    pythons: dict[str, Path]
    repeats: int
    small: bool

    def commands(self, make: Callable[[Path, str], list[str]]) -> dict[str, list[str]]:
        return {tool: make(python, tool) for tool, python in self.pythons.items()}

    def supports(self, option: str) -> bool:
        """Whether our `compare` has an option (the original refuses what it does not know)."""
        command = [str(self.pythons[OURS].parent / "msprobe"), "compare", "--help"]
        return option in subprocess.run(command, capture_output=True, text=True, check=False).stdout


def part_start(setup: Setup) -> list[str]:
    """Start-up: help and imports."""
    rows = [
        in_turn("`msprobe --help`", setup.commands(lambda p, _: [str(p.parent / "msprobe"), "--help"]), setup.repeats),
        in_turn("`import msprobe`", setup.commands(lambda p, _: [str(p), "-c", "import msprobe"]), setup.repeats),
        in_turn(
            "`import msprobe.pytorch` (with torch)",
            setup.commands(lambda p, _: [str(p), "-c", "import msprobe.pytorch"]),
            setup.repeats,
        ),
        in_turn("`import torch` alone", setup.commands(lambda p, _: [str(p), "-c", "import torch"]), setup.repeats),
    ]
    return ["## Start-up", "", *process_table(rows)]


def process_table(rows: list[Row]) -> list[str]:
    lines = [
        "| what | ours wall s | ours cpu s | ours MB | original wall s | original cpu s | original MB | wall | cpu |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        cells = [row.label]
        values = {}
        for tool in (OURS, THEIRS):
            wall, cpu, peak = (
                median(row, tool, lambda s, name=name: getattr(s, name)) for name in ("wall", "cpu", "peak_mb")
            )
            values[tool] = (wall, cpu)
            cells += [text(wall), text(cpu), text(peak, 0)]
        cells += [ratio(values[THEIRS][n], values[OURS][n]) for n in (0, 1)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines + failures(rows)


def failures(rows: list[Row]) -> list[str]:
    found = [f"- {row.label}: {tool}: {why}" for row in rows for tool, why in row.failed.items()]
    return ["", "Failed:", "", *found] if found else []


def part_step(setup: Setup) -> list[str]:
    """Collection: step time against a step without the tool."""
    size = ["--layers", "2", "--width", "64", "--length", "32"] if setup.small else []
    rows = []
    for config in ("off", "L0:statistics", "L1:statistics", "mix:statistics", "mix:md5", "L1:tensor"):
        command = setup.commands(lambda p, _, c=config: [str(p), str(HERE / "dump_step.py"), c, *size])
        rows.append(in_turn(config, command, setup.repeats))
    lines = [
        "## Collection",
        "",
        "Llama-shaped net (hidden 512, 8 layers, sequence 512, batch 1, float32), forward and backward, one thread.",
        "Ratios are processor time of a step with collection to one without, within one process; idle: the debugger",
        "exists and is stopped. Relu and shape: nanoseconds of one small call, before the tool and after `stop()`.",
        "",
        "| configuration | tool | plain s | idle | collecting | entries | dump MB | relu ns | shape ns | peak MB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        for tool in (OURS, THEIRS):
            if row.cells.get(tool):
                lines.append(step_line(row, tool))
    return lines + failures(rows)


def step_line(row: Row, tool: str) -> str:
    def of(key: str) -> float | None:
        return median(row, tool, lambda s: s.extra[key]) if key in row.cells[tool][0].extra else None

    def times(key: str) -> str:
        return text(median(row, tool, lambda s: s.extra[key] / s.extra["plain"])) + "x" if of(key) else "–"

    size = None
    if of("json_bytes") is not None:
        size = ((of("json_bytes") or 0) + (of("tensor_bytes") or 0)) / 1e6
    calls = [
        text(of(f"{name}_ns"), 0) + (f" / {text(of(f'{name}_after_ns'), 0)}" if of(f"{name}_after_ns") else "")
        for name in ("relu", "shape")
    ]
    peak = text(median(row, tool, lambda s: s.peak_mb), 0)
    cells = [row.label, tool, text(of("plain")), times("idle"), times("collect"), text(of("entries"), 0), text(size, 1)]
    return "| " + " | ".join([*cells, *calls, peak]) + " |"


def make_inputs(setup: Setup, names: list[str]) -> Path:
    folder = WORK / ("inputs_small" if setup.small else "inputs")
    missing = [n for n in names if not any((folder / n / "golden").rglob("construct.json"))]
    if missing:
        small = ["--small"] if setup.small else []
        print(f"  making inputs: {' '.join(missing)}", flush=True)
        run([str(setup.pythons[OURS]), str(HERE / "gen_inputs.py"), str(folder), *missing, *small])
    return folder


def compare_command(setup: Setup, pair: Path, *options: str) -> dict[str, list[str]]:
    no_html = ["--no-html"] if setup.supports("--no-html") else []

    def make(python: Path, tool: str) -> list[str]:
        command = [str(python.parent / "msprobe"), "compare", "-tp", str(pair / "target" / "dump.json")]
        command += ["-gp", str(pair / "golden" / "dump.json"), "-o", str(WORK / "reports" / tool), *options]
        return command + (no_html if tool == OURS else [])

    return setup.commands(make)


def report_line(row: Row) -> str:
    """A row without a ratio: wall time, processor time, peak memory."""
    wall, cpu = (median(row, OURS, lambda s, n=n: getattr(s, n)) for n in ("wall", "cpu"))
    return f"| {row.label} | {text(wall)} | {text(cpu)} | {text(median(row, OURS, lambda s: s.peak_mb), 0)} |"


def part_reports(setup: Setup) -> list[str]:
    """Many ranks, and reports of more rows than a sheet holds; ours alone."""
    folder = make_inputs(setup, ["ranks", "long"])
    only = Setup({OURS: setup.pythons[OURS]}, setup.repeats, setup.small)

    def command(name: str, path: str, *options: str) -> dict[str, list[str]]:
        """The newer spelling; `path` is below each side."""

        def make(python: Path, tool: str) -> list[str]:
            sides = ["-tp", str(folder / name / "target" / path), "-gp", str(folder / name / "golden" / path)]
            out = ["-o", str(WORK / "reports" / tool), "--no-html"]
            return [str(python.parent / "msprobe"), "compare", *sides, *out, *options]

        return only.commands(make)

    rows = [
        in_turn("8 ranks of 7,500 rows, csv", command("ranks", ""), setup.repeats),
        in_turn("8 ranks of 7,500 rows, xlsx", command("ranks", "", "--xlsx"), setup.repeats),
        in_turn("1,200,000 rows, csv (2 files)", command("long", "dump.json"), setup.repeats),
        in_turn("1,200,000 rows, xlsx (2 sheets)", command("long", "dump.json", "--xlsx"), setup.repeats),
    ]
    return [
        *("## Comparison, many rows", "", "Statistics dumps; `--no-html`.", ""),
        *("| what | wall s | cpu s | peak MB |", "| --- | --- | --- | --- |"),
        *(report_line(row) for row in rows),
        *failures(rows),
    ]


def part_tensors(setup: Setup) -> list[str]:
    """Comparison with tensors: bytes of both sides per second."""
    labels = {
        "big": "4 pairs of 100 MB float32",
        "half": "200 pairs of 2 MB bfloat16",
        "many": "3,000 pairs of 4 kB float32",
    }
    folder, rows, speeds = make_inputs(setup, list(labels)), [], []
    for name, label in labels.items():
        size = sum(p.stat().st_size for p in (folder / name).glob("*/dump_tensor_data/*"))
        row = in_turn(label, compare_command(setup, folder / name), setup.repeats)
        rows.append(row)
        for tool in setup.pythons:
            cpu, wall = (median(row, tool, lambda s, n=n: getattr(s, n)) for n in ("cpu", "wall"))
            if cpu and wall:
                speeds.append(f"| {label} | {tool} | {size / cpu / 1e9:.3f} | {size / wall / 1e9:.3f} |")
    return [
        *("## Comparison, tensors", "", "Files in the page cache; start-up included.", ""),
        *process_table(rows),
        *("", "| what | tool | GB per cpu second (a core) | GB per second |", "| --- | --- | --- | --- |", *speeds),
    ]


def part_statistics(setup: Setup) -> list[str]:
    """Comparison of statistics: 60,000 rows."""
    pair = make_inputs(setup, ["stats"]) / "stats"
    rows = [
        in_turn("60,000 rows, csv", compare_command(setup, pair), setup.repeats),
        in_turn("60,000 rows, xlsx", compare_command(setup, pair, "--xlsx"), setup.repeats),
    ]
    return ["## Comparison, statistics", "", *process_table(rows)]


PARTS = {
    "start": part_start,
    "step": part_step,
    "tensors": part_tensors,
    "statistics": part_statistics,
    "reports": part_reports,
}


def version_of(python: Path, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def machine(pythons: dict[str, Path]) -> list[str]:
    """Date, machine and versions, as a list."""
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
    lines = [
        f"- Date: {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC",
        f"- Machine: {cpu}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}",
        f"- Load before the run (1, 5, 15 min): {' '.join(f'{x:.2f}' for x in os.getloadavg())}",
        f"- Ours: {version_of(pythons[OURS], 'msprobe-native')}, commit {commit.stdout.strip() or 'unknown'}",
    ]
    if THEIRS in pythons:
        lines.append(f"- Original: mindstudio-probe {version_of(pythons[THEIRS], 'mindstudio-probe')}")
    torches = ", ".join(f"{tool} {version_of(python, 'torch')}" for tool, python in pythons.items())
    return [*lines, f"- Python {platform.python_version()}; torch: {torches}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), metavar="PART")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--upstream", metavar="PYTHON")
    parser.add_argument("--ours", metavar="PYTHON", default=sys.executable, help="environment with this tool")
    parser.add_argument("--out", type=Path, default=HERE / "RESULTS.md")
    options = parser.parse_args()
    if options.small and options.out == HERE / "RESULTS.md":
        options.out = WORK / "RESULTS_small.md"
    WORK.mkdir(parents=True, exist_ok=True)
    pythons = {OURS: Path(options.ours)}
    if theirs := upstream_python(options.upstream):
        pythons[THEIRS] = theirs
    setup = Setup(pythons, options.repeats, options.small)
    command = " ".join(["python bench/run_bench.py", *(a for a in sys.argv[1:] if not a.startswith("/"))])
    lines = ["# Results", "", *machine(pythons), f"- Command: `{command}`"]
    lines += [f"- Medians of {options.repeats} runs, the tools in turn; ratios are original / ours.", ""]
    for name in options.only:
        print(f"== {name}", flush=True)
        lines += [*PARTS[name](setup), ""]
    options.out.write_text("\n".join(lines).rstrip() + "\n")
    print(f"written: {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
