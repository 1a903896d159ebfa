"""Two models, each run once as it is and once with one wrong layer; then find the place where the runs part.

    python run_demo.py [--out FOLDER] [--collect-only]

Each model is run in processes of its own, exactly as a user would: script, dump, script, dump, `msprobe compare`.
What is printed at the end is read from the reports. The last check compares it with the layer that was changed; it
is the only place that knows which one that was. Exit status 0: both were found; 1: something else was named.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Case:
    """One model of the demo: its script and the layer that the second run gets wrong."""

    name: str
    script: str
    what: str
    layer: str
    eps: float


CASES = [
    Case("digits", "digits.py", "a small convolution net trained on digits, statistics", "blocks.1.norm", 1e-3),
    Case(
        "sentences",
        "sentences.py",
        "the MiniLM sentence encoder, tensors",
        "encoder.layer.2.attention.output.LayerNorm",
        1e-3,
    ),
]


class DemoError(Exception):
    """A step of the demo failed; the text says which."""


def run(command: list[str], log: Path) -> None:
    """Run one command and keep what it prints in `log`."""
    printable = " ".join(os.path.relpath(c) if c.startswith("/") else c for c in command)
    print(f"  $ {printable}", flush=True)
    with log.open("w") as out:
        status = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False).returncode
    if status:
        tail = "\n".join("    " + line for line in log.read_text(errors="replace").splitlines()[-15:])
        raise DemoError(f"exit status {status}; the end of {log}:\n{tail}")


def find_dump(folder: Path) -> Path:
    """The dump.json of the first step; the rank folder's name depends on how the run was launched."""
    found = sorted(folder.glob("step0/*/dump.json"))
    if not found:
        raise DemoError(f"no dump.json below {folder / 'step0'}")
    return found[0]


def collect(case: Case, out: Path) -> tuple[Path, Path]:
    """Run the script as it is and with the changed layer; returns both dump.json files."""
    script = str(HERE / case.script)
    golden, target = out / "as_it_is", out / "changed"
    run([sys.executable, script, str(golden)], out / "as_it_is.log")
    run([sys.executable, script, str(target), "--eps", f"{case.layer}={case.eps}"], out / "changed.log")
    return find_dump(golden), find_dump(target)


def compare(golden: Path, target: Path, out: Path) -> tuple[dict[str, Any], list[Path]]:
    """Compare in both spellings; returns the summary of the new one and all report files."""
    msprobe = [str(Path(sys.executable).parent / "msprobe")]
    new, old = out / "report", out / "report_old_spelling"
    run([*msprobe, "compare", "-tp", str(target), "-gp", str(golden), "-o", str(new)], out / "compare.log")
    paths = {"npu_path": str(target), "bench_path": str(golden), "stack_path": str(target.parent / "stack.json")}
    job = out / "compare.json"
    job.write_text(json.dumps({**paths, "is_print_compare_log": False}, indent=1))
    run([*msprobe, "-f", "pytorch", "compare", "-i", str(job), "-o", str(old), "-s"], out / "compare_old.log")
    summaries = sorted(new.glob("compare_summary_*.json"))
    if not summaries:
        raise DemoError(f"no summary below {new}")
    reports = sorted(p for folder in (new, old) for p in folder.iterdir() if p.is_file())
    return json.loads(summaries[-1].read_text()), reports


def parents(entry: str, dump: Path) -> list[str]:
    """The entry and the modules around it, from the inside out, by construct.json."""
    construct = json.loads((dump.parent / "construct.json").read_text())
    chain = [entry]
    while isinstance(parent := construct.get(chain[-1]), str) and parent not in chain:
        chain.append(parent)
    return chain


def belongs_to(entry: str, layer: str, dump: Path) -> bool:
    """Whether the entry is a call of that module, or an API call made directly inside it."""
    own = next((name for name in parents(entry, dump) if name.startswith("Module.")), "")
    return own.startswith(f"Module.{layer}.")


def show(case: Case, summary: dict[str, Any], reports: list[Path], target: Path) -> bool:
    """Print what the comparison found; returns whether it named the layer that was changed."""
    counts, bad = summary["counts"], summary["first_bad"]
    words = ", ".join(f"{key} {counts[key]}" for key in ("pass", "warning", "error", "unmatched", "total"))
    print(f"\n  {words}")
    if bad:
        print(f"  The runs part at  {bad['entry']}\n      row {bad['row']}\n      {bad['reason']}")
        chain = parents(bad["entry"], target)
        if len(chain) > 1:
            print("      inside " + " < ".join(chain[1:]))
    print("  Reports:")
    for path in reports:
        print(f"      {os.path.relpath(path)}")
    if bad and belongs_to(bad["entry"], case.layer, target):
        print(f"  Right: {case.layer} is the layer that ran with another epsilon.\n")
        return True
    named = bad["entry"] if bad else "no entry"
    print(f"  WRONG: the changed layer was {case.layer}, but the comparison names {named}.\n")
    return False


def main() -> int:
    """Run every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("output/demo"))
    parser.add_argument("--collect-only", action="store_true", help="make the dumps, do not compare them")
    options = parser.parse_args()
    started, good = time.monotonic(), True
    if options.out.exists():
        shutil.rmtree(options.out)
    try:
        for case in CASES:
            print(f"== {case.name}: {case.what}; wrong on purpose: eps of {case.layer} is {case.eps:g}")
            out = options.out.resolve() / case.name
            out.mkdir(parents=True)
            golden, target = collect(case, out)
            if not options.collect_only:
                summary, reports = compare(golden, target, out)
                good = show(case, summary, reports, target) and good
    except DemoError as error:
        print(f"  FAILED: {error}")
        return 1
    print(f"== done in {time.monotonic() - started:.0f} s; everything is in {options.out}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
