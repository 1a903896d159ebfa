#!/usr/bin/env python3
"""Refuse what should not be committed: paths of one machine, registry hosts, tabs, trailing blanks, huge files.

    tools/check_hygiene.py [ROOT]

Looks at every file that git tracks or would track. Exit status 1 when anything is found.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

MAX_BYTES = 2 << 20
TEXT_LINE_LIMITS = {".py": 120, ".h": 140, ".cc": 140}
BINARY_SUFFIXES = {".pt", ".npy", ".npz", ".xlsx", ".zip", ".bin", ".safetensors", ".png", ".gz"}

# Pieces are joined here so that this file does not find itself.
FORBIDDEN = [
    (re.compile("/" + r"(work|home|root|Users)/[A-Za-z0-9_.-]+/"), "a path of one machine"),
    (re.compile(r"https?://[^\s/'\"]*(" + "py" + r"pi|pythonhosted|devpi|artifactory|nexus)[^\s]*"), "a registry host"),
    (re.compile("--" + r"(extra-)?index-url[ =]+https?:"), "a registry host"),
]


def tracked(root: Path) -> list[Path]:
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0")
    return [root / name for name in names if name and (root / name).is_file()]


def check_text(name: str, suffix: str, text: str) -> list[str]:
    """Problems of one text file, as `name:line: what`."""
    problems = []
    limit = TEXT_LINE_LIMITS.get(suffix)
    for number, line in enumerate(text.split("\n"), 1):
        for pattern, what in FORBIDDEN:
            if pattern.search(line):
                problems.append(f"{name}:{number}: {what}: {line.strip()[:80]}")
        if limit and len(line) > limit:
            problems.append(f"{name}:{number}: {len(line)} characters, the limit is {limit}")
        if suffix in {".py", ".h", ".cc", ".sh", ".md", ".yaml", ".toml"} and line != line.rstrip():
            problems.append(f"{name}:{number}: blanks at the end of the line")
        if limit and "\t" in line:
            problems.append(f"{name}:{number}: a tab")
    return problems


def check(root: Path) -> list[str]:
    """Problems of one source tree."""
    problems = []
    for path in tracked(root):
        name = path.relative_to(root).as_posix()
        data = path.read_bytes()
        if len(data) > MAX_BYTES:
            problems.append(f"{name}: {len(data)} bytes, the limit is {MAX_BYTES}")
        in_test_data = name.startswith("tests/data/")
        if path.suffix in BINARY_SUFFIXES or b"\0" in data[:8192] or in_test_data:
            continue
        problems += check_text(name, path.suffix, data.decode("utf-8", "replace"))
    return problems


def main(argv: list[str]) -> int:
    root = Path(argv[1]) if len(argv) > 1 else Path(__file__).resolve().parent.parent
    problems = check(root)
    for text in problems:
        print(f"error: {text}")
    print(f"hygiene: {len(problems)} errors")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
