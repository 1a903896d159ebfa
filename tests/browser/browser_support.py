"""Runs comparisons and reads what they leave, for the tests of pages."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))
from cli_support import executable


@dataclass
class Report:
    """What a comparison left."""

    html: Path
    summary: dict[str, Any]
    rows: list[dict[str, str]]  # of the csv of the first rank


def compare(target: Path, golden: Path, out: Path, *options: str) -> Report:
    """Run `msprobe compare` and read everything but the page."""
    command = [*executable(), "compare", "-tp", str(target), "-gp", str(golden), "-o", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    (summary,) = out.glob("compare_summary_*.json")
    (html,) = out.glob("compare_report_*.html")
    tables = sorted(out.glob("compare_result*.csv"))
    with tables[0].open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return Report(html, json.loads(summary.read_text()), rows)
