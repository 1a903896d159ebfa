"""Runs the command line as a user does: the native executable, in a folder of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_support import Run, executable, ok_dump, write_json


@pytest.fixture
def msprobe(tmp_path: Path) -> Callable[..., Run]:
    """A function that runs the command in tmp_path."""

    def run(*args: str, cwd: Path | None = None) -> Run:
        where = cwd or tmp_path
        done = subprocess.run(
            [*executable(), *args],
            cwd=where,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        return Run(done.returncode, done.stdout, done.stderr, where)

    return run


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """tmp_path with two equal dumps: t/dump.json and g/dump.json."""
    for side in ("t", "g"):
        write_json(tmp_path / side / "dump.json", ok_dump())
    return tmp_path
