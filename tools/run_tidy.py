#!/usr/bin/env python3
"""Run clang-tidy over our C++ files but the tests, newest changes first, within a time limit.

    tools/run_tidy.py [--seconds N] [--build DIR]

A file that was clean is not checked again until it, a header of ours that it includes, or .clang-tidy changes
(build/tidy.json remembers). With `--seconds 0` there is no limit. Files that did not get their turn are counted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MEMORY = ROOT / "build" / "tidy.json"
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def ours(path: Path, seen: dict[Path, bytes]) -> None:
    """Collect a file and every header of ours that it includes, with contents."""
    if path in seen or not path.is_file():
        return
    seen[path] = path.read_bytes()
    for header in INCLUDE.findall(seen[path].decode("utf-8", "replace")):
        for base in (ROOT / "src", ROOT, path.parent):
            if (base / header).is_file():
                ours(base / header, seen)
                break


def fingerprint(path: Path) -> str:
    seen: dict[Path, bytes] = {}
    ours(path, seen)
    digest = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
    for name in sorted(seen):
        digest.update(seen[name])
    return digest.hexdigest()[:16]


def last_change(path: Path) -> int:
    """Time of the last commit that touched the file; now, when it has uncommitted changes."""
    name = str(path.relative_to(ROOT))
    if subprocess.run(["git", "-C", str(ROOT), "diff", "--quiet", "HEAD", "--", name]).returncode:
        return int(time.time())
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct", "--", name]
    return int(subprocess.run(command, capture_output=True, text=True).stdout.strip() or time.time())


def tidy(path: Path, build: Path, deadline: float) -> tuple[Path, int | None, str]:
    if deadline and time.monotonic() > deadline:
        return path, None, ""
    # The release build leaves asserts out, and they are what tells the analyser which states cannot be.
    # The build is g++'s: clang does not know every warning option of it.
    command = ["clang-tidy", "-p", str(build), "--quiet", "--warnings-as-errors=*", "--extra-arg=-UNDEBUG"]
    command += ["--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-Wno-deprecated-declarations", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    return path, done.returncode, done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    options = parser.parse_args()
    commands = json.loads((options.build / "compile_commands.json").read_text())
    compiled = {Path(c["file"]).resolve() for c in commands}
    sources = (p for p in compiled if p.is_relative_to(ROOT / "src") or p.is_relative_to(ROOT / "bindings"))
    files = [p for p in sources if p.is_file() and not p.stem.endswith("_test")]
    known = json.loads(MEMORY.read_text()) if MEMORY.is_file() else {}
    marks = {p: fingerprint(p) for p in files}
    todo = [p for p in files if known.get(str(p.relative_to(ROOT))) != marks[p]]
    todo.sort(key=last_change, reverse=True)
    deadline = time.monotonic() + options.seconds if options.seconds else 0.0
    bad = left = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, status, output in pool.map(lambda p: tidy(p, options.build, deadline), todo):
            if status is None:
                left += 1
            elif status:
                bad += 1
                print(output)
            else:
                known[str(path.relative_to(ROOT))] = marks[path]
    MEMORY.parent.mkdir(exist_ok=True)
    MEMORY.write_text(json.dumps(known, indent=1, sort_keys=True))
    print(
        f"clang-tidy: {len(todo) - left} files checked, {len(files) - len(todo)} unchanged since they were clean, "
        f"{left} left for next time, {bad} with findings"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
