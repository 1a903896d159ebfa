#!/usr/bin/env python3
"""Run the fuzz targets and add what was run to fuzz/RECORD.md.

python tools/run_fuzz.py SECONDS [--until CPU_SECONDS] [TARGET ...]

Each target runs for SECONDS of wall time. With `--until`, targets are run again, the one with the least processor time
first, until each has that much in the record: minutes add up over days and machines. A finding stays in
build/fuzz/findings/TARGET; put it into fuzz/corpus/TARGET together with its repair. Exit status 1 when something was
found or did not run.
"""

from __future__ import annotations

import argparse
import datetime
import fcntl
import os
import re
import resource
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "fuzz"
CORPUS = ROOT / "fuzz" / "corpus"
RECORD = ROOT / "fuzz" / "RECORD.md"
ROW = re.compile(r"^\| ([a-z_0-9]+) \| (\d+) \| (\d+) \| (\d+) \| ([0-9-]+) \|$", re.MULTILINE)
# yaml-cpp and the C++ library are not instrumented: a container that crosses the border would be a false report.
ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_container_overflow=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


@dataclass
class Row:
    """One target: user seconds, inputs tried and findings since the record began."""

    seconds: int = 0
    executions: int = 0
    findings: int = 0
    last: str = "-"

    def __str__(self) -> str:
        return f"{self.seconds} | {self.executions} | {self.findings} | {self.last}"


def read_record(text: str) -> dict[str, Row]:
    return {m[1]: Row(int(m[2]), int(m[3]), int(m[4]), m[5]) for m in ROW.finditer(text)}


def add_to_record(target: str, seconds: float, executions: int, findings: int) -> Row:
    """Several runs may write at once: the file is locked, read and written anew."""
    with open(RECORD, "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = file.read()
        rows = read_record(text)
        row = rows.setdefault(target, Row())
        row.seconds += round(seconds)
        row.executions += executions
        row.findings += findings
        row.last = datetime.date.today().isoformat()
        table = "\n".join(f"| {name} | {rows[name]} |" for name in sorted(rows))
        head, tail = re.split(r"(?<=\| --- \|\n)(?:\|[^\n]*\|\n)*", text, maxsplit=1)
        file.seek(0)
        file.write(f"{head}{table}\n{tail}")
        file.truncate()
    return row


def run(target: str, wall: int, fuzzer: Path) -> bool:
    work, findings, log = BUILD / "corpus" / target, BUILD / "findings" / target, BUILD / f"{target}.log"
    work.mkdir(parents=True, exist_ok=True)
    findings.mkdir(parents=True, exist_ok=True)
    before = set(findings.iterdir())
    user = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with log.open("w") as out:
        subprocess.run(
            [
                fuzzer,
                work,
                CORPUS / target,
                f"-max_total_time={wall}",
                "-timeout=20",
                "-rss_limit_mb=2048",
                "-malloc_limit_mb=1024",
                "-print_final_stats=1",
                f"-artifact_prefix={findings}/",
            ],
            env={**os.environ, **ENVIRONMENT, "FUZZ_TARGET": target},
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        )
    user = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - user
    stats = re.search(r"^stat::number_of_executed_units: *(\d+)", log.read_text(errors="replace"), re.MULTILINE)
    new = sorted(set(findings.iterdir()) - before)
    if stats is None and not new:
        print(f"{target:<20} did not run: see {log}")
        return False
    row = add_to_record(target, user, int(stats[1]) if stats else 0, len(new))
    kept = sum(1 for _ in work.iterdir())
    tried = int(stats[1]) if stats else 0
    print(f"{target:<20} {tried:>12} {len(new):>8} {kept:>8} {row.seconds:>12}", flush=True)
    for path in new:
        print(f"  found: {path}")
    return not new


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("seconds", type=int)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--until", type=int, default=0)
    parser.add_argument("--fuzzer", type=Path, default=BUILD / "fuzz" / "msprobe_fuzz")
    arguments = parser.parse_intermixed_args()
    targets = arguments.targets or sorted(path.name for path in CORPUS.iterdir() if path.is_dir())
    if unknown := [name for name in targets if not (CORPUS / name).is_dir()]:
        parser.error(f"no such target: {' '.join(unknown)}")
    if shutil.which(arguments.fuzzer) is None:
        parser.error(f"{arguments.fuzzer} is not built")
    print(f"{'target':<20} {'executions':>12} {'findings':>8} {'corpus':>8} {'user seconds':>12}", flush=True)
    good = True
    if not arguments.until:
        for target in targets:
            good = run(target, arguments.seconds, arguments.fuzzer) and good
        return 0 if good else 1
    while True:
        rows = read_record(RECORD.read_text(encoding="utf-8"))
        open_targets = [name for name in targets if rows.get(name, Row()).seconds < arguments.until]
        if not open_targets:
            return 0 if good else 1
        target = min(open_targets, key=lambda name: rows.get(name, Row()).seconds)
        if not run(target, arguments.seconds, arguments.fuzzer):
            good = False
            targets = [name for name in targets if name != target]  # first comes its repair


if __name__ == "__main__":
    sys.exit(main())
