"""Runs the command line under attack: exit status, output, and the largest memory it had."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))

from attack_support import MEMORY_MIB, Attacked
from cli_support import executable

# A process counts the memory of the one that it was forked from: a small one stands between pytest and the command.
LAUNCHER = """
import os, sys
report, *command = sys.argv[1:]
pid = os.posix_spawnp(command[0], command, os.environ)
_, status, usage = os.wait4(pid, 0)
with open(report, "w") as file:
    print(os.waitstatus_to_exitcode(status), usage.ru_maxrss, file=file)
"""


@pytest.fixture
def attack(tmp_path: Path) -> Callable[..., Attacked]:
    """A function that runs the command in tmp_path and holds it to its memory and to an orderly end."""

    def run(*args: str, memory_mib: float = MEMORY_MIB) -> Attacked:
        out, err, report = tmp_path / ".stdout", tmp_path / ".stderr", tmp_path / ".report"
        with out.open("wb") as out_file, err.open("wb") as err_file:
            subprocess.run(
                [sys.executable, "-I", "-S", "-c", LAUNCHER, str(report), *executable(), *args],
                cwd=tmp_path,
                stdin=subprocess.DEVNULL,
                stdout=out_file,
                stderr=err_file,
                timeout=600,
                check=True,
            )
        status, kilobytes = report.read_text().split()
        said = [path.read_text("utf-8", "surrogateescape") for path in (out, err)]
        done = Attacked(int(status), *said, int(kilobytes) / 1024)
        assert done.status in {0, 1, 2, 3}, f"ended with {done.status}: {done.said[-2000:]}"
        assert done.peak_mib < memory_mib, f"used {done.peak_mib:.0f} MiB"
        assert "\x1b" not in done.said, "a terminal escape came through"
        return done

    return run
