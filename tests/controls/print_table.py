"""Print the table of controls and faults in docs/compare.md, from runs made now: `make controls`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import conftest  # noqa: F401 (makes the helpers of tests/cli importable)
from runs import CONTROLS, FAULTS
from test_controls import TASKS, compare


def main() -> None:
    """Record, compare, print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(
            [sys.executable, str(Path(__file__).parent / "make_dumps.py"), name], check=True, capture_output=True
        )
        print("| harmless difference | net | tensor: warnings, errors | statistics: warnings, errors |")
        print("| --- | --- | --- | --- |")
        for how in CONTROLS:
            cells = []
            for task in TASKS:
                counts = compare(folder, folder / "out", how, task)["counts"]
                cells.append(f"{counts['warning']}, {counts['error']}")
            print(f"| {how.what} | {how.net} | {' | '.join(cells)} |")
        print("\n| fault | net | first bad entry, tensor | first bad entry, statistics |\n| --- | --- | --- | --- |")
        for how in FAULTS:
            cells = []
            for task in TASKS:
                bad = compare(folder, folder / "out", how, task, "--no-culprit")["first_bad"]
                entry = bad["entry"] if bad else "none"
                cells.append(f"`{entry}`" if entry.startswith(how.first) else f"not found (`{entry}`)")
            print(f"| {how.what} | {how.net} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
