"""docs/rules.md is what the program says of its rules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cli_support import ROOT, executable

TOOL = ROOT / "tools" / "make_rules_page.py"


def test_the_page_of_rules_is_what_the_program_says(tmp_path: Path) -> None:
    program = tmp_path / "msprobe"
    program.write_text("#!/bin/sh\nexec " + " ".join(f'"{word}"' for word in executable()) + ' "$@"\n')
    program.chmod(0o755)
    done = subprocess.run([sys.executable, TOOL, program, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
