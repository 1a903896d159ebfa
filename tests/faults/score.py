"""What `compare` says of a pair of dumps, and whether it is right."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECONDS = 300  # after which a comparison is given up
ENTRY = re.compile(r"(.*?\.(?:forward|backward|parameters_grad)(?:\.\d+(?=\.|$))?)")


@dataclass
class Outcome:
    """The answer of one tool to one pair of dumps."""

    findings: list[dict[str, Any]] = field(default_factory=list)  # in order; each has at least "entry"
    source: str = ""  # "culprit" or "first_bad"
    verdict: str = ""
    error: str = ""  # why there is no answer

    def place(self, truth: set[str]) -> int:
        """Position of the first finding in the truth, from 0; -1: none of them."""
        for at, finding in enumerate(self.findings):
            if {finding.get("entry"), finding.get("golden_entry")} & truth:
                return at
        return -1

    def word(self, truth: set[str], clean: bool) -> str:
        """One word for a table."""
        if self.error:
            return "ERROR"
        if clean:
            return "silent" if self.silent else "ALARM"
        if not self.findings:
            return "missed"
        at = self.place(truth)
        return "first" if at == 0 else "in three" if 0 < at < 3 else "detected"

    @property
    def silent(self) -> bool:
        """Whether nothing was said; a comparison that judged nothing is not silence."""
        return not self.error and not self.findings and self.verdict == "none"


def run_compare(target: Path, golden: Path, out: Path) -> Outcome:
    """Run our `compare` on two folders of steps: the command line of the package, or of $MSPROBE_BIN."""
    arguments = ["compare", "-tp", str(target), "-gp", str(golden), "-o", str(out), "--no-html"]
    out.mkdir(parents=True, exist_ok=True)
    given = os.environ.get("MSPROBE_BIN")
    if given:
        with (out / "log").open("w") as log:
            status = subprocess.run([given, *arguments], stdout=log, stderr=log, check=False).returncode
    else:
        status = forked(arguments, out / "log")
    summaries = sorted(out.glob("compare_summary_*.json"))
    if status != 0 or len(summaries) != 1:
        last = (out / "log").read_text().strip().splitlines()[-1:]
        return Outcome(error=f"compare ended with {status}: {' '.join(last)}")
    return read_summary(json.loads(summaries[0].read_text()))


def forked(arguments: list[str], log: Path) -> int:
    """The exit status of the command line, run in a process of the fork server, which has torch already."""
    process = multiprocessing.get_context("forkserver").Process(target=command_line, args=(arguments, str(log)))
    process.start()
    process.join(SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
    return -1 if process.exitcode is None else process.exitcode


def command_line(arguments: list[str], log: str) -> None:
    """`msprobe` with these arguments; what it prints goes to a file."""
    from msprobe.__main__ import main

    file = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv = ["msprobe", *arguments]
    sys.exit(main())


def read_summary(summary: dict[str, Any]) -> Outcome:
    """The findings of a summary; without the analysis of culprits, its first bad entry."""
    if summary.get("counts", {}).get("total", 0) == 0:
        return Outcome(error="compare compared nothing")
    parts = [summary["culprit"]] if summary.get("culprit") else []
    if not parts:
        parts = [rank["culprit"] for rank in summary.get("ranks", []) if rank.get("culprit")]
    if parts:
        findings = [finding for part in parts for finding in part.get("findings", [])]
        verdicts = {part.get("verdict") for part in parts}
        verdict = "found" if findings else "none" if verdicts == {"none"} else "not_judged"
        return Outcome(findings, "culprit", verdict)
    bad = summary.get("first_bad")
    return Outcome([bad] if bad else [], "first_bad", "found" if bad else "none")


def flagged(rows: list[dict[str, str]], words: tuple[str, ...]) -> list[dict[str, Any]]:
    """The entries of rows with one of these verdicts, in order, each once."""
    entries: dict[str, None] = {}
    for row in rows:
        if row.get("Result", "").strip() in words:
            name = row["NPU Name"] if row["NPU Name"] not in ("", "N/A") else row["Bench Name"]
            match = ENTRY.match(name)
            entries[match.group(1) if match else name] = None
    return [{"entry": entry} for entry in entries]
