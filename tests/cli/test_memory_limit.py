"""--memory-limit: what it bounds, what becomes of pairs beyond it, and which sizes it takes."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_support import dump, entry, executable, write_json

ROWS, COLUMNS = 4096, 4096  # 64 MiB of float32


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """A pair that lies in the files row by row, and one of which the target lies column by column."""
    values = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
    for side in ("t", "g"):
        folder = tmp_path / side / "dump_tensor_data"
        folder.mkdir(parents=True)
        np.save(folder / "Torch.rows.0.forward.output.0.npy", values)
        np.save(folder / "Torch.columns.0.forward.output.0.npy", np.asfortranarray(values) if side == "t" else values)
        leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [ROWS, COLUMNS], "requires_grad": False}
        data = {
            f"Torch.{name}.0.forward": entry(output=[leaf | {"data_name": f"Torch.{name}.0.forward.output.0.npy"}])
            for name in ("rows", "columns")
        }
        write_json(tmp_path / side / "dump.json", dump(data, task="tensor", dump_data_dir=str(folder)))
    return tmp_path


LAUNCHER = """
import os, sys
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(pid, 0)
print("PEAK", os.waitstatus_to_exitcode(status), usage.ru_maxrss // 1024)
"""


def compare(where: Path, *more: str) -> tuple[dict[str, dict[str, str]], int, int, str]:
    """Rows by name, exit status, peak memory in MiB, and what was said."""
    line = [*executable(), "compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", "--no-html", *more]
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", LAUNCHER, *line], cwd=where, capture_output=True, text=True, check=True
    )
    _, status, peak = next(x for x in run.stdout.splitlines() if x.startswith("PEAK ")).split()
    rows = {}
    for report in (where / "out").glob("compare_result_*.csv"):
        with report.open(newline="", encoding="utf-8") as file:
            rows = {row["NPU Name"]: row for row in csv.DictReader(file)}
        report.unlink()
    return rows, int(status), int(peak), run.stderr


@pytest.mark.no_sanitizer
def test_memory_limit_of_tensors_that_are_read_whole(dumps: Path) -> None:
    rows, status, peak, _ = compare(dumps, "--memory-limit", "16M")
    assert status in {0, 1}
    assert rows["Torch.rows.0.forward.output.0"]["Result"] == "pass"
    beyond = rows["Torch.columns.0.forward.output.0"]
    assert beyond["Result"] == "unmatched"
    assert "must be read whole needs 67108864 bytes, the limit is 16777216" in beyond["Err_message"]
    assert peak < 96  # neither side of 64 MiB was in memory at once with the other

    rows, status, peak, said = compare(dumps, "--memory-limit", "1G")
    assert status == 0, said
    assert [row["Result"] for row in rows.values()] == ["pass", "pass"]
    assert peak < 64 + 96


@pytest.mark.parametrize("size", ["0", "1023K", "x", "-1G", "5X", "2T", "1.5G", "99999999999999999999"])
def test_memory_limit_sizes_that_are_refused(dumps: Path, size: str) -> None:
    _, status, _, said = compare(dumps, f"--memory-limit={size}")
    assert status == 2
    assert "--memory-limit" in said and "from 1M to 1T" in said
