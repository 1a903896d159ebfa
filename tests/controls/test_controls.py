"""Differences that mean nothing raise nothing, and seeded faults are found at their entry (docs/compare.md)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_support import executable
from runs import CONTROLS, FAULTS, Variant

TASKS = ("tensor", "statistics")


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All runs, recorded once; $MSPROBE_CONTROLS names a folder that holds them already."""
    given = os.environ.get("MSPROBE_CONTROLS")
    if given:
        return Path(given)
    folder = tmp_path_factory.mktemp("controls")
    command = [sys.executable, str(Path(__file__).parent / "make_dumps.py"), str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return folder


def dump_of(folder: Path, task: str, name: str) -> str:
    (path,) = [*folder.glob(f"{task}/{name}/dump.json"), *folder.glob(f"{task}/{name}/step0/*/dump.json")]
    return str(path)


def compare(folder: Path, out: Path, how: Variant, task: str, *options: str) -> dict[str, Any]:
    """The summary of one comparison."""
    command = [*executable(), "compare", "-tp", dump_of(folder, task, how.name), "-gp", dump_of(folder, task, how.net)]
    shutil.rmtree(out, ignore_errors=True)
    command += ["-o", str(out), "--no-html", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (summary,) = out.glob("compare_summary_*.json")
    return json.loads(summary.read_text())


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("how", CONTROLS, ids=lambda how: how.name)
def test_harmless_difference_raises_nothing(recorded: Path, tmp_path: Path, how: Variant, task: str) -> None:
    summary = compare(recorded, tmp_path / "out", how, task)
    counts = summary["counts"]
    assert summary["first_bad"] is None
    assert (counts["warning"], counts["error"]) == (0, 0)
    assert counts["pass"] > 60  # something was compared
    if not (how.parts or how.fused or how.recompute):
        assert counts["unmatched"] == 0


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("how", FAULTS, ids=lambda how: how.name)
def test_fault_is_found_at_its_entry(recorded: Path, tmp_path: Path, how: Variant, task: str) -> None:
    if task == "statistics" and not how.statistics:
        pytest.skip("does not show in maximum, minimum, mean and norm")
    # By the rules of the rows; who is named by the search for the operator at fault: tests/faults.
    summary = compare(recorded, tmp_path / "out", how, task, "--no-culprit")
    assert summary["first_bad"] is not None
    assert summary["first_bad"]["entry"].startswith(how.first)
    assert summary["counts"]["error"] + summary["counts"]["warning"] > 0
