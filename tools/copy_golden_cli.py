#!/usr/bin/env python3
"""Copy what the golden tests of the command line need beside tools/copy_golden.py's cases.

    python tools/copy_golden_cli.py GOLDEN_FOLDER

Cases about ranks, advice and analyses go to tests/data/compare_cli; the rules by which an answer is judged,
check_golden.py and golden_rules.py with the texts behind message ids, go unchanged (but for a first line) to
tests/data/golden_rules.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

CASES = (
    "s_advisor",
    "s_diff_analyze",
    "s_overflow",
    "s_proc",
    "s_ranks_count",
    "s_ranks_shifted",
    "t_matmul_config",
    "t_thresholds",
)
RULES = ("check_golden.py", "golden_rules.py", "messages.json")
FIRST_LINE = "# ruff: noqa\n# fmt: off\n"


def main() -> int:
    source = Path(sys.argv[1])
    data = Path(__file__).resolve().parents[1] / "tests" / "data"
    shutil.rmtree(data / "compare_cli", ignore_errors=True)
    shutil.rmtree(data / "golden_rules", ignore_errors=True)
    for name in CASES:
        target = data / "compare_cli" / name
        shutil.copytree(source / name, target)
        answers = json.loads((source / name / "expected.json").read_text(encoding="utf-8"))
        compact = json.dumps(answers, ensure_ascii=False, separators=(",", ":"))
        (target / "expected.json").write_text(compact + "\n", encoding="utf-8")
    (data / "golden_rules").mkdir(parents=True)
    for name in RULES:
        text = (source / name).read_text(encoding="utf-8")
        if name.endswith(".py"):
            text = FIRST_LINE + text.removeprefix("#!/usr/bin/env python3\n")
        (data / "golden_rules" / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
