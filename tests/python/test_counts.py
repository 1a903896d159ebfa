"""The instructions that collection adds to one call, against the record (bench/counts.json)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_instructions_of_one_intercepted_call_do_not_grow():
    program = os.environ.get("MSPROBE_COUNTS", str(ROOT / "build" / "release" / "bench" / "counts_main"))
    command = [sys.executable, str(ROOT / "bench" / "counts.py"), program, "--call"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "intercepted_call" in done.stdout
