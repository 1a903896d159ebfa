"""What every part of the benchmark shares: running a command and measuring it, the tools in turn, tables, goals."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
WORK = ROOT / "build" / "bench"
OURS, THEIRS = "ours", "original"


@dataclass
class Sample:
    """One measured process: seconds of wall clock and of processor time (children included), largest resident set."""

    wall: float
    cpu: float
    peak_mb: float
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class Row:
    """One line of a table: a label and, per tool, the samples."""

    label: str
    cells: dict[str, list[Sample]]
    failed: dict[str, str] = field(default_factory=dict)

    def median(self, tool: str, value: Callable[[Sample], float]) -> float | None:
        samples = self.cells.get(tool, [])
        return statistics.median(value(s) for s in samples) if samples else None

    def wall(self, tool: str = OURS) -> float | None:
        return self.median(tool, lambda s: s.wall)

    def cpu(self, tool: str = OURS) -> float | None:
        return self.median(tool, lambda s: s.cpu)

    def peak(self, tool: str = OURS) -> float | None:
        return self.median(tool, lambda s: s.peak_mb)

    def extra(self, key: str, tool: str = OURS) -> float | None:
        samples = self.cells.get(tool, [])
        if not samples or key not in samples[0].extra:
            return None
        return statistics.median(s.extra[key] for s in samples)


@dataclass
class Goal:
    """One line of the table at the top: what was promised and what was measured; `value` None: not measured.

    `original` is the same figure of the original, where it was measured.
    """

    what: str
    goal: str
    limit: float
    value: float | None
    unit: str = ""
    at_least: bool = False
    digits: int = 2
    original: float | None = None

    HEAD: ClassVar = ("what", "goal", "ours", "original", "ratio", "met")

    def cells(self) -> list[str]:
        theirs = "–" if self.original is None else f"{self.original:.{self.digits}f}{self.unit}"
        if self.value is None:
            return [self.what, self.goal, "–", theirs, "–", "not measured"]
        met = self.value >= self.limit if self.at_least else self.value <= self.limit
        pair = (self.value, self.original) if self.at_least else (self.original, self.value)
        ours = f"{self.value:.{self.digits}f}{self.unit}"
        return [self.what, self.goal, ours, theirs, ratio(*pair), "met" if met else "**not met**"]


@dataclass
class Section:
    """What a part hands back: its chapter of RESULTS.md (without the heading) and its goals."""

    lines: list[str]
    goals: list[Goal] = field(default_factory=list)


class Failed(Exception):
    """A measured command did not end well; the text says how."""


def run(command: Sequence[str], **environment: str) -> Sample:
    """Run one command to its end; raises Failed with the end of its output."""
    everything = {**os.environ, "PYTHONPATH": str(HERE), "BENCH_TMP": str(WORK), **environment}
    with (WORK / "last.log").open("w+") as log:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=everything, cwd=WORK)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        log.seek(0)
        output = log.read()
    # The difference counts the process and those of its children that it waited for.
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if status:
        raise Failed(f"exit {os.waitstatus_to_exitcode(status)}: {' | '.join(output.splitlines()[-3:])[-300:]}")
    results = [line[7:] for line in output.splitlines() if line.startswith("RESULT ")]
    return Sample(wall, cpu, usage.ru_maxrss / 1024, json.loads(results[0]) if results else {})


@dataclass
class Setup:
    """What the parts need to know. `pythons`: the Python of each tool's environment."""

    pythons: dict[str, Path]
    repeats: int
    small: bool
    quick: bool = False

    def commands(self, make: Callable[[Path, str], list[str]]) -> dict[str, list[str]]:
        return {tool: make(python, tool) for tool, python in self.pythons.items()}

    def ours(self) -> Setup:
        return Setup({OURS: self.pythons[OURS]}, self.repeats, self.small, self.quick)

    def msprobe(self) -> str:
        return str(self.pythons[OURS].parent / "msprobe")

    def in_turn(self, label: str, commands: dict[str, list[str]], repeats: int | None = None) -> Row:
        """Run the tools' commands in turn, so many times each."""
        row = Row(label, {tool: [] for tool in commands})
        count = repeats or self.repeats
        for n in range(count):
            for tool, command in commands.items():
                if tool in row.failed:
                    continue
                try:
                    row.cells[tool].append(run(command))
                    print(f"  {label}: {tool} {n + 1}/{count}: {row.cells[tool][-1].cpu:.2f} s cpu", flush=True)
                except Failed as error:
                    row.failed[tool] = str(error)
                    print(f"  {label}: {tool} FAILED: {error}", flush=True)
        return row


def text(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def share(above: float | None, below: float | None) -> float | None:
    return None if not above or not below else above / below


def ratio(theirs: float | None, ours: float | None) -> str:
    value = share(theirs, ours)
    return "–" if value is None else f"{value:.1f}x"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return lines + ["| " + " | ".join(cells) + " |" for cells in rows]


def failures(rows: Sequence[Row]) -> list[str]:
    found = [f"- {row.label}: {tool}: {why}" for row in rows for tool, why in row.failed.items()]
    return ["", "Failed:", "", *found] if found else []


def process_table(rows: Sequence[Row]) -> list[str]:
    """Both tools side by side: wall, processor time, peak memory, and the ratios original / ours."""
    head = ["what", *(f"{tool} {unit}" for tool in (OURS, THEIRS) for unit in ("wall s", "cpu s", "MB")), "wall", "cpu"]
    body = []
    for row in rows:
        cells = [row.label]
        for tool in (OURS, THEIRS):
            cells += [text(row.wall(tool)), text(row.cpu(tool)), text(row.peak(tool), 0)]
        body.append([*cells, ratio(row.wall(THEIRS), row.wall()), ratio(row.cpu(THEIRS), row.cpu())])
    return table(head, body) + failures(rows)


def own_table(rows: Sequence[Row]) -> list[str]:
    """Ours alone: wall, processor time, peak memory."""
    body = [[row.label, text(row.wall()), text(row.cpu()), text(row.peak(), 0)] for row in rows]
    return table(["what", "wall s", "cpu s", "peak MB"], body) + failures(rows)
