#!/usr/bin/env python3
"""Add up JUnit files and print `N passed, N failed` with the skipped ones, if any.

    tools/count_tests.py FILE...

A file that is missing counts as one failure: its tests never ran.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def count(path: Path) -> tuple[int, int, int]:
    """Passed, failed and skipped test cases of one file."""
    passed = failed = skipped = 0
    for case in ElementTree.parse(path).iter("testcase"):
        children = {child.tag for child in case}
        if children & {"failure", "error"}:
            failed += 1
        elif "skipped" in children or case.get("status") in ("notrun", "disabled"):
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def main(argv: list[str]) -> int:
    totals = [0, 0, 0]
    for name in argv[1:]:
        counts = count(Path(name)) if Path(name).is_file() else (0, 1, 0)
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
    passed, failed, skipped = totals
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
