#!/usr/bin/env python3
"""Check docs/promises.md against the tests that exist.

    tools/check_promises.py [ROOT]

Every numbered promise stands on exactly one line:

    - D5: complex values are compared whole. Tests: `metrics.Complex.BothParts`, `tests/python/test_x.py::test_y`

Above the heading "Not yet" a line must name at least one test, below it none is needed. Tests are named as
`folder.Suite.Name` (C++) or `path::function` / `path::Class::function` (pytest, without parameters). A promise that
is missing, stands twice or names a test that does not exist is an error (exit status 1).
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

FAMILIES = {"": 57, "B": 40, "D": 47, "P": 38, "C": 16, "U": 13}
LINE = re.compile(r"^- ([A-Z]?)(\d+): (\S.*)$")
TEST_NAME = re.compile(r"`([^`]+)`")
GTEST = re.compile(r"^\s*(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)


def all_items() -> list[str]:
    return [f"{family}{n}" for family, last in FAMILIES.items() for n in range(1, last + 1)]


def cpp_tests(root: Path) -> set[str]:
    """Names as CMake registers them: the folder of src/ is the prefix."""
    found = set()
    for path in (root / "src").glob("*/*.cc"):
        for suite, name in GTEST.findall(path.read_text(encoding="utf-8")):
            found.add(f"{path.parent.name}.{suite}.{name}")
    return found


def python_tests(root: Path) -> set[str]:
    found = set()
    for top in ("tests/python", "tests/cli", "tests/browser", "tests/controls"):
        for path in (root / top).rglob("test_*.py"):
            name = path.relative_to(root).as_posix()
            for node in ast.parse(path.read_text(encoding="utf-8"), str(path)).body:
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
                    found.add(f"{name}::{node.name}")
                elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                    for inner in node.body:
                        if isinstance(inner, ast.FunctionDef) and inner.name.startswith("test"):
                            found.add(f"{name}::{node.name}::{inner.name}")
    return found


def check(text: str, tests: set[str], items: list[str]) -> tuple[list[str], int]:
    """Problems of the page and the number of promises that are kept."""
    problems: list[str] = []
    seen: dict[str, int] = {}
    kept, not_yet = 0, False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            not_yet = not_yet or line.lstrip("# ").strip() == "Not yet"
            continue
        match = LINE.match(line)
        if match is None:
            if line.startswith("- "):
                problems.append(f"line {number}: not of the form '- D5: words. Tests: `…`'")
            continue
        item = match[1] + match[2]
        if item not in items:
            problems.append(f"line {number}: no promise has the number {item}")
        if item in seen:
            problems.append(f"line {number}: {item} stands already on line {seen[item]}")
        seen[item] = number
        _, marker, named = match[3].partition(" Tests: ")
        names = TEST_NAME.findall(named) if marker else []
        problems += [f"line {number}: {item}: no such test: {name}" for name in names if name not in tests]
        if not not_yet:
            kept += 1
            if not names:
                problems.append(f"line {number}: {item} stands as kept and names no test")
    problems += [f"missing: {item}" for item in items if item not in seen]
    return problems, kept


def main(argv: list[str]) -> int:
    root = Path(argv[1]) if len(argv) > 1 else Path(__file__).resolve().parent.parent
    page = root / "docs" / "promises.md"
    items = all_items()
    problems, kept = check(page.read_text(encoding="utf-8"), cpp_tests(root) | python_tests(root), items)
    for text in problems:
        print(f"error: docs/promises.md: {text}")
    print(f"promises: {kept} of {len(items)} kept, {len(problems)} errors")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
