"""The blocks of a document, and how they are run.

In a page of docs/ every block marked `bash` is a command that a test runs, in the order of the page and in one folder:

    ```python title="train.py"      a file of that name, written before the next command runs (also json, yaml)
    ```bash                         commands; a status other than 0 fails the test
    ```bash status=1                commands whose last one ends with that status
    ```text prints                  lines that the commands before printed, in this order; "…" stands for anything

Commands that cannot be run everywhere stand in indented blocks, or in `bash` blocks behind a comment
`<!-- not run: why -->`. Pages other than the quick start have its train.py; examples/ is there under its name.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^(?P<before>[^\n]*\n)?```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.M | re.S)


@dataclass
class Block:
    """One fenced block."""

    kind: str  # "file", "run" or "prints"
    body: str
    name: str = ""  # of a file
    status: int = 0


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page that mean something to a test."""
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        info, body = match["info"], match["body"]
        title = re.search(r'title="([^"]+)"', info)
        if title:
            yield Block("file", body, name=title[1])
        elif info.split()[:1] == ["bash"]:
            before = text[: match.start("info") - 3].rstrip().rsplit("\n", 1)[-1]
            if re.fullmatch(r"<!-- not run: \S.* -->", before):
                continue
            status = re.search(r"status=(\d+)", info)
            yield Block("run", body, status=int(status[1]) if status else 0)
        elif info == "text prints":
            yield Block("prints", body)


def pages() -> list[Path]:
    """Every page with commands."""
    return [p for p in sorted(DOCS.rglob("*.md")) if any(b.kind == "run" for b in blocks(p))]


def environment(folder: Path) -> dict[str, str]:
    """`msprobe` and `python` are those under test, whatever is installed."""
    tools = folder / ".tools"
    tools.mkdir()
    for name, arguments in (("msprobe", " -m msprobe"), ("python", "")):
        script = tools / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}"{arguments} "$@"\n')
        script.chmod(0o755)
    paths = os.pathsep.join(str(Path(p).resolve()) for p in sys.path if p)
    return os.environ | {
        "PATH": f"{tools}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
    }


def missing(expected: str, printed: str) -> list[str]:
    """Expected lines that were not printed in that order."""
    rest = printed
    out = []
    for line in filter(str.strip, expected.splitlines()):
        pattern = ".*".join(map(re.escape, line.split("…")))
        found = re.search(rf"^[^\n]*{pattern}[^\n]*$", rest, re.M)
        if found:
            rest = rest[found.end() :]
        else:
            out.append(line)
    return out


def run_page(page: Path, folder: Path) -> list[str]:
    """Run a page in an empty folder; what went wrong."""
    env = environment(folder)
    (folder / "examples").symlink_to(ROOT / "examples")
    if page.name != "quickstart.md":
        script = next(b for b in blocks(DOCS / "quickstart.md") if b.name == "train.py")
        (folder / "train.py").write_text(script.body)
    printed, problems = "", []
    for block in blocks(page):
        if block.kind == "file":
            (folder / block.name).write_text(block.body, encoding="utf-8")
        elif block.kind == "run":
            done = subprocess.run(
                ["bash", "-eo", "pipefail", "-c", block.body],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                check=False,
            )
            printed = done.stdout
            if done.returncode != block.status:
                problems.append(f"status {done.returncode}, not {block.status}, of\n{block.body}\n{printed[-2000:]}")
                break
        else:
            problems += [f"not printed: {line}\nin\n{printed[-3000:]}" for line in missing(block.body, printed)]
    return problems
