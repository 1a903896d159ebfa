#!/usr/bin/env python3
"""Copy the golden cases of the pre-check that the tests read into tests/data/precheck.

    python tools/copy_golden_precheck.py GOLDEN_FOLDER

GOLDEN_FOLDER holds metric_pairs/, compare_*/ and run_*/ (inputs and right answers, made by running the released
tools). Expectations become JSON, since the tests read them with the product's own reader.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import yaml

RUNS = ("conv_stats", "filter", "inputs", "lists", "llama_bf16_stats", "odd_key", "statuses", "apis_stats")


def main() -> int:
    source = Path(sys.argv[1])
    target = Path(__file__).resolve().parents[1] / "tests" / "data" / "precheck"
    shutil.rmtree(target, ignore_errors=True)
    (target / "metric_pairs").mkdir(parents=True)
    for name in ("pairs.json", "expected.json"):
        shutil.copy(source / "metric_pairs" / name, target / "metric_pairs" / name)
    for case in sorted(source.glob("compare_*")):
        folder = target / case.name
        folder.mkdir()
        for name in ("npu.csv", "gpu.csv"):
            shutil.copy(case / name, folder / name)
        for spelling in ("new", "old"):
            upstream = case / f"upstream_{spelling}_details.csv"
            if upstream.exists():
                shutil.copy(upstream, folder / upstream.name)
        expected = yaml.safe_load((case / "expected.yaml").read_text(encoding="utf-8"))
        (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=0), encoding="utf-8")
    for name in RUNS:
        folder = target / f"run_{name}"
        folder.mkdir()
        for file in ("dump.json", "expected.json", "config.json"):
            if (source / f"run_{name}" / file).exists():
                shutil.copy(source / f"run_{name}" / file, folder / file)
    tensors = target / "run_bert_tensor"
    shutil.copytree(source / "run_bert_tensor", tensors)
    for name in ("cli.yaml", "faults.yaml", "faults_dump.json"):
        shutil.copy(source / name, target / name)
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return 0


if __name__ == "__main__":
    sys.exit(main())
