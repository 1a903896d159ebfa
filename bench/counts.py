"""Instruction counts of the hot operations, held against the record in bench/counts.json.

    python bench/counts.py PROGRAM [--call] [--update]

PROGRAM is the built counts_main. Counts come from callgrind, so the load of the machine does not matter; valgrind knows
no AVX-512, so the kernels run as their AVX2 versions. With `--call` one intercepted call is counted too: `torch.add` on
64 float32, level L1, statistics, everything else as by default, with the call itself taken off (this Python needs
msprobe and torch, and it takes half a minute). `--update` writes the record.

Exit status: 0 no count grew by more than 5 %, 1 one did (or is not in the record), 77 nothing could be compared: no
valgrind, or a compiler (for `--call`: a torch) that is not that of the record.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RECORD = Path(__file__).resolve().parent / "counts.json"
ALLOWED = 1.05
NOT_COMPARED = 77
CALLS = 2000


def callgrind(folder: str, command: list[str]) -> Path:
    """Run a command under callgrind, counting only where it asks for it; returns the path of its output files."""
    out = Path(folder, "out")
    options = ["-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(["valgrind", *options, *command], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-500:]}")
    return out


def operations(program: str) -> dict[str, int]:
    """Counts of counts_main, by name."""
    counts = {}
    with tempfile.TemporaryDirectory() as folder:
        out = callgrind(folder, [program, folder])
        for path in out.parent.glob("out.*"):
            text = path.read_text()
            name = re.search(r"^desc: Trigger: Client Request: (\S+)$", text, re.M)
            total = re.search(r"^totals: (\d+)$", text, re.M)
            if name and total:
                counts[name[1]] = int(total[1])
    return counts


def add_many(collect: bool) -> None:
    """The measured process: CALLS times torch.add, counted by callgrind."""
    import torch

    torch.set_num_threads(1)
    x = torch.ones(64)

    def run(calls: int) -> None:
        for _ in range(calls):
            torch.add(x, 1.0)

    def instrumentation(state: str) -> None:
        subprocess.run(["callgrind_control", "-i", state, str(os.getpid())], check=True, capture_output=True)

    with tempfile.TemporaryDirectory() as folder:
        debugger = None
        if collect:
            from msprobe.pytorch import PrecisionDebugger

            debugger = PrecisionDebugger(dump_path=folder, level="L1", task="statistics")
            debugger.start()
        run(300)
        instrumentation("on")
        run(CALLS)
        instrumentation("off")
        if debugger:
            debugger.stop()
            debugger.step()


def one_call() -> int:
    """Instructions that collection adds to one call."""
    counts = {}
    for kind in ("collect", "plain"):
        with tempfile.TemporaryDirectory() as folder:
            out = callgrind(folder, [sys.executable, __file__, kind])
            total = re.search(r"^totals: (\d+)$", out.read_text(), re.M)
            assert total, f"{out} has no total"
            counts[kind] = int(total[1])
    return (counts["collect"] - counts["plain"]) // CALLS


def compiler_of(program: str) -> str:
    """What compiled the program, as it says itself in its .comment section."""
    found = re.search(rb"(?:GCC: \([^)]*\)|clang version) [0-9.]+", Path(program).read_bytes())
    return found[0].decode() if found else "unknown"


def measure(program: str, with_call: bool) -> dict[str, Any]:
    measured: dict[str, Any] = {"compiler": compiler_of(program), "counts": operations(program)}
    if with_call:
        import torch

        measured["torch"] = torch.__version__.split("+")[0]
        measured["counts"]["intercepted_call"] = one_call()
    measured["counts"] = dict(sorted(measured["counts"].items()))
    return measured


def compare(measured: dict[str, Any], record: dict[str, Any]) -> int:
    """Print every count beside its record; the exit status."""
    status = 0
    for name, count in measured["counts"].items():
        known = record["counts"].get(name)
        share = count / known if known else float("inf")
        word = "GREW" if share > ALLOWED else "fell: --update the record" if share < 2 - ALLOWED else ""
        print(f"{name:24} {count:>12,}  record {known or 0:>12,}  {share:6.3f}  {word}")
        status |= share > ALLOWED
    return status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--call", action="store_true")
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    if options.program in ("collect", "plain"):
        add_many(options.program == "collect")
        return 0
    if shutil.which("valgrind") is None:
        print("valgrind is not installed: nothing was counted")
        return NOT_COMPARED
    measured = measure(options.program, options.call)
    record = json.loads(RECORD.read_text())
    if options.update:  # what was not measured stays
        counts = dict(sorted({**record["counts"], **measured["counts"]}.items()))
        RECORD.write_text(json.dumps({**record, **measured, "counts": counts}, indent=2) + "\n")
        return 0
    for key in ("compiler", "torch"):
        if key in measured and measured[key] != record.get(key):
            print(f"{key} is {measured[key]}, the record is of {record.get(key)}: nothing was compared")
            return NOT_COMPARED
    return compare(measured, record)


if __name__ == "__main__":
    sys.exit(main())
