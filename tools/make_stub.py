#!/usr/bin/env python3
"""Write python/msprobe/_core.pyi from the built extension, which has to be on PYTHONPATH: `make_stub.py [--check]`.

The text is nanobind's, made strict: generic types get arguments, submodules become plain modules, __version__ is added.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from pathlib import Path

STUB = Path(__file__).resolve().parent.parent / "python" / "msprobe" / "_core.pyi"
HEAD = """# Made by tools/make_stub.py; do not edit.
# ruff: noqa
# fmt: off
from types import ModuleType
from typing import Any

"""


def make_stub() -> str:
    """Return the stub of the importable msprobe._core."""
    from nanobind.stubgen import StubGen

    import msprobe._core

    generator = StubGen(module=msprobe._core, include_private=False)
    generator.put(msprobe._core)
    return strict(str(generator.get()))


def strict(text: str) -> str:
    """Make nanobind's text pass mypy --strict."""
    submodule = re.compile(r"^from msprobe\._core import (\w+) as \1\n", re.M)
    modules = sorted(submodule.findall(text))
    text = submodule.sub("", text)
    text = re.sub(r"\bNDArray\b(?!\[)(?=[,\]])", "NDArray[Any]", text)
    text = re.sub(r"\bdict\b(?=(:| \|))", "dict[str, Any]", text)
    text = re.sub(r"\blist\b(?=:)", "list[Any]", text)
    names = "".join(f"{name}: ModuleType\n" for name in modules)
    imports, body = split_imports(text)
    return HEAD + imports + "\n__version__: str\n" + names + "\n" + body


def split_imports(text: str) -> tuple[str, str]:
    """Split into import lines and the rest."""
    lines = text.splitlines(keepends=True)
    end = max((i for i, line in enumerate(lines) if line.startswith(("from ", "import "))), default=-1) + 1
    imports = [line for line in lines[:end] if line.strip()]
    return "".join(imports), "".join(lines[end:]).lstrip("\n")


def main() -> int:
    """Write the stub, or compare with --check."""
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
