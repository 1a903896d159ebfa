#!/usr/bin/env python3
"""Write docs/rules.md from what the program says of its rules: `make_rules_page.py MSPROBE [--check]`.

MSPROBE is the executable. With --check nothing is written; the exit status is 1 when the page differs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "rules.md"
HEAD = """# Rules and thresholds

Made by `tools/make_rules_page.py` from `msprobe compare --explain-rules` and `msprobe acc_check --explain-rules`; a
test holds the page and the program together. The program reads the same tables when it judges.

## Where the limits come from

- R1 to R8 and the limits of the older and the newer standard: documents and measured behaviour of mindstudio-probe 8.x
  and 26.x; where they contradict each other, the document.
- Unit roundoff, smallest values, NaN and infinity: IEEE 754-2019; the OCP formats of 8-bit floats.
- What rounding of a dtype explains (Q3, Q4, Q6; Q1 and Q2 of the pre-check): the error of a sum of K terms grows like
  the square root of K: N. Higham and T. Mary, *A New Approach to Probabilistic Rounding Error Analysis*, SIAM J. Sci.
  Comput. 41 (2019).
- The constants in front of it: calibrated on harmless changes (order of sums, threads, fused kernels, layouts) so that
  none of them is reported: `tests/controls/calibrate.py` and `tools/precheck_calibrate.py` in the repository.
- Random operators: sign tests at 5.1 standard deviations, one false alarm in three million comparisons.

How they act is explained in [compare.md](compare.md) and [precheck-rules.md](precheck-rules.md).
"""


def explained(executable: str, *command: str) -> str:
    """What the program prints of the rules of a command."""
    return subprocess.run([executable, *command, "--explain-rules"], check=True, capture_output=True, text=True).stdout


def fenced(text: str) -> str:
    lines = (line.rstrip() for line in text.rstrip().splitlines())
    return "\n".join(["```text", *lines, "```\n"])


def page(executable: str) -> str:
    """The whole page."""
    compare = explained(executable, "compare")
    parts = [HEAD, "\n## Comparison\n\n" + compare.strip() + "\n", "\n## Pre-check\n"]
    for standard in ("new", "old"):
        parts.append(f"\n### Standard {standard}\n\n")
        parts.append(fenced(explained(executable, "acc_check", "--standard", standard)))
    return "".join(parts)


def main(argv: list[str]) -> int:
    text = page(argv[1])
    if "--check" in argv:
        if PAGE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{PAGE.name} is not what the program says; run tools/make_rules_page.py")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
