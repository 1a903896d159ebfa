"""The page of a comparison as a file: when it is written, and what happens when it cannot be."""

from __future__ import annotations

import json
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

from cli_support import Run, executable

Msprobe = Callable[..., Run]


def test_page_is_written_unless_it_is_turned_off(msprobe: Msprobe, pair: Path) -> None:
    assert msprobe("compare", "-tp", "t", "-gp", "g", "-o", "with").status == 0
    (page,) = (pair / "with").glob("*.html")
    (summary,) = (pair / "with").glob("compare_summary_*.json")
    assert json.loads(summary.read_text())["html"] == f"with/{page.name}"
    assert page.name.removeprefix("compare_report_")[:14] == summary.name.removeprefix("compare_summary_")[:14]
    assert msprobe("compare", "-tp", "t", "-gp", "g", "-o", "without", "--no-html").status == 0
    assert list((pair / "without").glob("*.html")) == []
    both = msprobe("compare", "-tp", "t", "-gp", "g", "-o", "both", "--html", "--no-html")
    assert both.status == 2 and "contradicts --no-html" in both.err


def test_page_that_cannot_be_written_costs_only_itself(pair: Path) -> None:
    def small_files_only() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # the embedded libraries alone are larger

    done = subprocess.run(
        [*executable(), "compare", "-tp", "t", "-gp", "g", "-o", "out"],
        cwd=pair,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=small_files_only,
        restore_signals=False,  # a file that is too large is an error, not a signal
    )
    assert done.returncode == 1
    assert "no page was written: out/compare_report_" in done.stderr
    assert "pass 6, warning 0, error 0" in done.stderr
    assert sorted(p.suffix for p in (pair / "out").iterdir()) == [".csv", ".json"]
