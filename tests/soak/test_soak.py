"""Long collection holds what it held at the start: memory, descriptors, threads; time per call is printed."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHILD = Path(__file__).with_name("soak_child.py")
MEMORY = 0.05  # after warm-up


def soak(folder: Path, kind: str, blocks: int, cycles: int, calls: int) -> list[dict[str, Any]]:
    """What the child held after each block; every call that it made was recorded and read back."""
    command = [sys.executable, str(CHILD), kind, str(folder / "dump"), *map(str, (blocks, cycles, calls))]
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert "[ERROR]" not in run.stdout and "[WARNING]" not in run.stdout
    held = [json.loads(line[5:]) for line in run.stdout.splitlines() if line.startswith("HELD ")]
    assert len(held) == blocks + (kind == "window")
    assert held[-1]["made"] == held[-1]["read"] == blocks * cycles * calls
    return held[:blocks]


def check_flat(name: str, held: list[dict[str, Any]], calls_per_block: int) -> None:
    """The first fifth is warm-up; processor time is printed, memory and counts are held to their bounds."""
    warm = max(1, len(held) // 5)
    start, later = held[warm - 1], held[warm:]
    growth = max(h["resident"] for h in later) / start["resident"] - 1
    quarter = max(1, len(later) // 4)
    first, last = (
        1e6 * statistics.median(h["cpu"] for h in part) / calls_per_block
        for part in (later[:quarter], later[-quarter:])
    )
    print(
        f"\nsoak, {name}: {held[-1]['made']} calls, all read back; memory {growth:+.2%} after warm-up "
        f"({start['resident'] >> 20} MiB); descriptors {start['descriptors']}, threads {start['threads']}; "
        f"processor time of a call {first:.2f} us at first, {last:.2f} us at last"
    )
    assert growth <= MEMORY
    for count in ("descriptors", "threads"):
        assert {h[count] for h in later} == {start[count]}, count


SIZES = {  # blocks, cycles, calls: 1,000,000 calls in 10,000 steps, as many in one step, and 24 threads
    "cycles": (100, 100, 100),
    "window": (50, 20, 1000),
    "threads": (20, 20, 960),
}
SMALL = {"cycles": (5, 40, 20), "window": (5, 4, 500), "threads": (5, 4, 240)}


@pytest.mark.parametrize("kind", SMALL)
def test_soak_small(tmp_path: Path, kind: str) -> None:
    blocks, cycles, calls = SMALL[kind]
    check_flat(kind, soak(tmp_path, kind, blocks, cycles, calls), cycles * calls)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SIZES)
def test_soak_of_two_million_calls(tmp_path: Path, kind: str) -> None:
    blocks, cycles, calls = SIZES[kind]
    check_flat(kind, soak(tmp_path, kind, blocks, cycles, calls), cycles * calls)
