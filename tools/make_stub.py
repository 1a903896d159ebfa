#!/usr/bin/env python3
"""Write python/msprobe/_core.pyi from the built extension, which has to be on PYTHONPATH: `make_stub.py [--check]`."""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

STUB = Path(__file__).resolve().parent.parent / "python" / "msprobe" / "_core.pyi"


def make_stub() -> str:
    import msprobe._core
    from nanobind.stubgen import StubGen

    generator = StubGen(module=msprobe._core, include_private=False)
    generator.put(msprobe._core)
    return str(generator.get())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the committed file, write nothing")
    args = parser.parse_args()
    text = make_stub()
    if not args.check:
        STUB.write_text(text, encoding="utf-8")
        return 0
    old = STUB.read_text(encoding="utf-8") if STUB.exists() else ""
    sys.stdout.writelines(
        difflib.unified_diff(old.splitlines(True), text.splitlines(True), str(STUB), "built extension")
    )
    return int(old != text)


if __name__ == "__main__":
    sys.exit(main())
