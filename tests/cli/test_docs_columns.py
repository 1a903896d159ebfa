"""docs/compare.md and the reports agree: every column is explained, and nothing else is (D40)."""

from __future__ import annotations

import base64
import csv
import re
import zlib
from pathlib import Path

import numpy as np
import openpyxl
import pytest
from cli_support import ROOT, dump, entry, tensor, write_json

PAGE = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")


def documented() -> list[str]:
    """Names in the first cells of the tables of "Columns of a report", in order."""
    section = PAGE[PAGE.index("## Columns of a report") :]
    section = section[: section.index("\n## ", 5)]
    return [
        name
        for line in section.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([^`]+)`", line.split(" | ")[0])
    ]


def write_pair(where: Path, mode: str) -> None:
    for side in ("t", "g"):
        leaf = tensor()
        if mode == "md5":
            leaf = tensor(md5=f"{zlib.crc32(b'x'):08x}")
        if mode == "sketch":
            data = base64.b64encode(np.zeros(6, "<f4").tobytes()).decode()
            leaf = tensor(hash64="0" * 16, sketch={"k": 64, "seed": 1, "data": "f32:" + data})
        if mode == "tensor":
            folder = where / side / "dump_tensor_data"
            folder.mkdir(parents=True)
            np.save(folder / "x.npy", np.ones((2, 3), np.float32))
            leaf = tensor(data_name="x.npy")
        task = "tensor" if mode == "tensor" else "statistics"
        write_json(where / side / "dump.json", dump({"Torch.add.0.forward": entry(leaf, output=[leaf])}, task=task))
    write_json(where / "t" / "stack.json", {"0": [["Torch.add.0.forward"], ["File a.py, line 1, in f, \n x()"]]})


def columns_of(msprobe, where: Path, mode: str, face: str) -> list[str]:
    where.mkdir(exist_ok=True)
    write_pair(where, mode)
    args = ["compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", "--no-html"]
    if face == "old":
        write_json(where / "c.json", {"npu_path": "t/dump.json", "bench_path": "g/dump.json"})
        args = ["-f", "pytorch", "compare", "-i", "c.json", "-o", "out"]
    assert msprobe(*args, cwd=where).status == 0
    (path,) = (where / "out").glob("compare_result_*")
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as f:
            return next(csv.reader(f))
    return [str(cell.value) for cell in openpyxl.load_workbook(path).active[1]]


@pytest.mark.parametrize("face", ["new", "old"])
@pytest.mark.parametrize("mode", ["tensor", "statistics", "md5", "sketch"])
def test_every_column_of_a_report_is_explained_in_order(tmp_path, msprobe, mode, face):
    columns = columns_of(msprobe, tmp_path, mode, face)
    names = documented()
    assert [c for c in columns if c not in names] == []
    # Blocks stand in the order of the page; MaxRelativeErr is in two of them.
    places = [names.index(c) for c in columns if c != "MaxRelativeErr"]
    assert places == sorted(places)


def test_no_column_is_explained_that_no_report_has(tmp_path, msprobe):
    seen: set[str] = set()
    for mode in ("tensor", "statistics", "md5", "sketch"):
        for face in ("new", "old"):
            seen |= set(columns_of(msprobe, tmp_path / f"{mode}-{face}", mode, face))
    assert set(documented()) == seen


def test_the_page_names_the_default_outputs(tmp_path, msprobe):
    """csv in the newer spelling, xlsx in the older one, a summary in both (decision 35)."""
    write_pair(tmp_path, "statistics")
    write_json(tmp_path / "c.json", {"npu_path": "t/dump.json", "bench_path": "g/dump.json"})
    msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "new")
    msprobe("-f", "pytorch", "compare", "-i", "c.json", "-o", "old")
    msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "bare", "--no-html")
    assert list((tmp_path / "bare").glob("*.html")) == []
    assert len(list((tmp_path / "new").glob("compare_report_*.html"))) == 1
    assert list((tmp_path / "old").glob("*.html")) == []
    kinds = {
        face: {re.sub(r"_\d{14}", "", p.name) for p in (tmp_path / face).iterdir()} - {"compare_report.html"}
        for face in ("new", "old")
    }
    assert kinds["new"] == {"compare_result.csv", "compare_summary.json"}
    assert kinds["old"] == {"compare_result.xlsx", "compare_summary.json", "advisor.txt"}
    assert "| report | `compare_result_{time}.csv`, xlsx with `--xlsx` | `compare_result_{time}.xlsx` |" in PAGE


def test_every_option_that_the_page_names_exists(msprobe):
    compare_help = msprobe("compare", "--help").out + msprobe("-f", "pytorch", "compare", "--help").out
    known = compare_help + msprobe("inspect", "--help").out + msprobe("diff", "--help").out
    for option in set(re.findall(r"`(--[a-z_-]+)", PAGE)):
        assert option in known, option
