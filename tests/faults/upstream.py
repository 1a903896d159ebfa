"""The original package on the same dumps, run as its users do; a process of its own that imports it once."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import subprocess
import threading
from pathlib import Path
from typing import IO

from score import Outcome, flagged

# Runs in the interpreter of the original package: one forked child per comparison, so that imports are paid once.
SERVER = """
import json, os, sys
from importlib.metadata import entry_points
(point,) = [p for p in entry_points(group="console_scripts") if p.name == "msprobe"]
main = point.load()
try:
    import msprobe.pytorch, pandas
except Exception:
    pass
for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if child == 0:
        sys.stdin = open(os.devnull)
        os.dup2(os.open(job["log"], os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644), 1)
        os.dup2(1, 2)
        sys.argv = ["msprobe", "compare", "-tp", job["target"], "-gp", job["golden"], "-o", job["out"]]
        code = 1
        try:
            code = main() or 0
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            import traceback
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps({"status": status}), flush=True)
"""


class Upstream:
    """`msprobe compare` of the original; `path` is its command."""

    def __init__(self, path: Path) -> None:
        python = path.parent / "python"
        self.lock = threading.Lock()
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}  # not our package of that name
        self.process = subprocess.Popen(
            [str(python), "-c", SERVER],
            env=clean,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def close(self) -> None:
        """End its process."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        self.process.wait(30)

    def compare(self, target: Path, golden: Path, out: Path) -> tuple[Outcome, Outcome]:
        """Its answer to two folders of steps, with warnings as claims and with errors only."""
        rows: list[dict[str, str]] = []
        for where in sorted(target.glob("step*/*/dump.json")):
            other = golden / where.relative_to(target)
            part = out / f"{where.parent.parent.name}-{where.parent.name}"
            part.mkdir(parents=True)
            problem = self.one(where, other, part)
            if problem:
                return Outcome(error=problem), Outcome(error=problem)
            (report,) = part.glob("compare_result_*.csv")
            with report.open(encoding="utf-8-sig", newline="") as file:
                rows.extend(csv.DictReader(file))
        if not rows:
            return Outcome(error="no rows"), Outcome(error="no rows")
        both = flagged(rows, ("warning", "error")), flagged(rows, ("error",))
        loud, quiet = (Outcome(found, "upstream", "found" if found else "none") for found in both)
        return loud, quiet

    def one(self, target: Path, golden: Path, out: Path) -> str:
        """One comparison; what went wrong, or nothing."""
        log = out / "log"
        job = {"target": str(target), "golden": str(golden), "out": str(out), "log": str(log)}
        with self.lock:
            to, back = self.process.stdin, self.process.stdout
            answer = ask(to, back, job) if to is not None and back is not None else ""
        if not answer:
            return "the original's process ended"
        if not list(out.glob("compare_result_*.csv")):
            return f"the original wrote no report: {log.read_text()[-200:]}"
        return ""


def ask(to: IO[str], back: IO[str], job: dict[str, str]) -> str:
    """Send one job and wait for its end; lines that the imports print are skipped."""
    try:
        to.write(json.dumps(job) + "\n")
        to.flush()
    except BrokenPipeError:
        return ""
    for line in back:
        if line.startswith('{"status"'):
            return line
    return ""
