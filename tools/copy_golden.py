#!/usr/bin/env python3
"""Copy the golden cases of compare that the C++ tests read into tests/data/compare.

    python tools/copy_golden.py GOLDEN_FOLDER

GOLDEN_FOLDER holds one folder per case: the dumps, mapping files, compare.json, and expected.json with the recorded
answers of the released tools and the cells where the product must differ (`ours`). Cases about commands that the engine
has no part in, and cases over 200 kB other than the two real nets named below, stay out.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

OTHER_COMMANDS = {
    "s_advisor",
    "s_diff_analyze",
    "s_overflow",
    "s_ranks_count",
    "s_ranks_shifted",
    "t_matmul_config",
    "s_proc",
}
REAL_NETS = {"r_llama_stats_mix", "r_llama_tensor_L0"}
LARGEST = 200_000


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> int:
    source = Path(sys.argv[1])
    target = Path(__file__).resolve().parents[1] / "tests" / "data" / "compare"
    shutil.rmtree(target, ignore_errors=True)
    for expected in sorted(source.glob("*/expected.json")):
        case = expected.parent
        if case.name in OTHER_COMMANDS or (size_of(case) > LARGEST and case.name not in REAL_NETS):
            continue
        shutil.copytree(case, target / case.name)
        answers = json.loads(expected.read_text(encoding="utf-8"))
        compact = json.dumps(answers, ensure_ascii=False, separators=(",", ":"))
        (target / case.name / "expected.json").write_text(compact + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
