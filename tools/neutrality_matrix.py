#!/usr/bin/env python3
"""Print the neutrality matrix: every kind of training x level x task, 20 steps each, with collection and without.

A cell says "same" when parameters, buffers, gradients, optimizer and random states, versions, flags, hooks and
attributes are bit-identical, else what differs first. The exit status is the number of cells that differ, at most 100.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "python"))
os.environ.setdefault("MSPROBE_LOG_LEVEL", "3")


def main() -> int:
    import neutrality

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", action="append", help="part of a kind's name; may be repeated; default: all")
    wanted = parser.parse_args().kind or [""]
    cells = neutrality.CELLS
    names = [*neutrality.KINDS, *neutrality.DISTRIBUTED]
    width = max(map(len, names))
    print(f"{'':{width}}  " + "  ".join(f"{level + ' ' + task:14}" for level, task in cells))
    different = 0
    started = time.monotonic()
    for name in names:
        if not any(w in name for w in wanted):
            continue
        if name in neutrality.TRANSFORMERS and importlib.util.find_spec("transformers") is None:
            print(f"{name:{width}}  not run: the package transformers is missing")
            continue
        with tempfile.TemporaryDirectory(prefix="neutrality_") as folder:
            if name in neutrality.DISTRIBUTED:
                found = neutrality.run_distributed(name, cells, Path(folder))
            else:
                found = neutrality.run_kind(neutrality.KINDS[name], cells, Path(folder))
        different += sum(d is not None for d in found.values())
        print(f"{name:{width}}  " + "  ".join(f"{found[c] or 'same':14}" for c in cells), flush=True)
    print(f"{different} cells differ; {neutrality.STEPS} steps per cell; {time.monotonic() - started:.0f} s")
    return min(different, 100)


if __name__ == "__main__":
    sys.exit(main())
