"""What the fuzz targets of writers leave, read by torch, NumPy, openpyxl and Python's csv and json."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import openpyxl
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "fuzz" / "corpus"
ONCE = Path(os.environ.get("MSPROBE_FUZZ_ONCE", ROOT / "build" / "release" / "fuzz" / "fuzz_once"))
NUMBER = re.compile(r"[-+]?[0-9.]+")
PLAIN = re.compile(r"[a-z0-9 ]*")

pytestmark = pytest.mark.skipif(not ONCE.exists(), reason="the C++ tests are not built")


def inputs(target: str) -> list[Path]:
    return sorted((CORPUS / target).iterdir())


def written(target: str, source: Path, folder: Path) -> bytes:
    """Runs the target; its input."""
    subprocess.run([ONCE, target, source], env=os.environ | {"FUZZ_FOLDER": str(folder)}, check=True)
    return source.read_bytes()


def rows_of(data: bytes) -> list[list[bytes]]:
    """As fuzz/writer_targets.cc cuts its input."""
    return [row.split(b"\xff") for row in data.split(b"\xfe")]


def check_table(rows: list[list[str]], data: bytes) -> None:
    assert rows[0] == ["name", "value", "text"]
    expected = rows_of(data)
    assert len(rows) == 1 + len(expected)
    for row, cells in zip(rows[1:], expected, strict=True):
        assert row[0] == "row" and len(row) == 3
        for shown, cell in zip(row[1:], cells[:2], strict=False):
            text = cell.decode("latin-1")
            assert shown == text or not PLAIN.fullmatch(text)


@pytest.mark.parametrize("source", inputs("write_table"), ids=lambda p: p.name)
def test_csv_is_read_by_python(source: Path, tmp_path: Path) -> None:
    data = written("write_table", source, tmp_path)
    with (tmp_path / "written.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    check_table(rows, data)
    # A spreadsheet would run none of it: numbers may begin with a sign.
    assert not any(cell[:1] in set("=+-@") and not NUMBER.fullmatch(cell) for row in rows for cell in row)


@pytest.mark.parametrize("source", inputs("write_xlsx"), ids=lambda p: p.name)
def test_workbook_is_read_by_openpyxl(source: Path, tmp_path: Path) -> None:
    data = written("write_xlsx", source, tmp_path)
    sheet = openpyxl.load_workbook(tmp_path / "written.xlsx").active
    assert all(cell.data_type in "sn" for row in sheet.iter_rows() for cell in row), "a formula"
    check_table([["" if c is None else str(c) for c in row] for row in sheet.iter_rows(values_only=True)], data)


@pytest.mark.parametrize("source", inputs("write_dump"), ids=lambda p: p.name)
def test_dump_is_read_by_python(source: Path, tmp_path: Path) -> None:
    data = written("write_dump", source, tmp_path)
    pairs = json.loads((tmp_path / "written.json").read_text("ascii"), object_pairs_hook=list)
    (members,) = [value for key, value in pairs if key == "data"]
    expected = [row[:2] for row in rows_of(data) if len(row) > 1]
    assert [[k, v] for k, v in members] == [[t.decode("utf-8", "surrogateescape") for t in row] for row in expected]


@pytest.mark.parametrize("source", inputs("write_tensor"), ids=lambda p: p.name)
def test_tensors_are_read_by_torch_and_numpy(source: Path, tmp_path: Path) -> None:
    data = written("write_tensor", source, tmp_path)
    if len(data) < 4:
        return
    shape, content = (data[1] % 9, data[2] % 9), data[3:]
    tensor = torch.load(tmp_path / "written.pt", weights_only=True)
    assert tuple(tensor.shape) == shape
    raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    pattern = (content * (len(raw) // len(content) + 1))[: len(raw)]
    assert raw == pattern
    assert len(raw) == tensor.numel() * tensor.element_size()
    if (tmp_path / "written.npy").stat().st_size:
        array = np.load(tmp_path / "written.npy", allow_pickle=False)
        assert array.shape == shape and array.tobytes() == pattern
