"""`--json` of the commands that compare: every row and cell of the report that the same run wrote."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from cli_support import DATA, dump, entry, ok_dump, tensor, write_json

ULP = DATA / "precheck" / "compare_ulp"


def read_lines(text: str) -> list[dict[str, Any]]:
    """Strict JSON lines: a bare NaN or Infinity is an error."""

    def refuse(word: str) -> float:
        raise AssertionError(word)

    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def same(value: Any, cell: str) -> bool:
    """Is a JSON value what a csv cell says?"""
    if isinstance(value, (int, float)):
        return float(cell) == value
    return bool(value == cell.strip())


def write_reports(folder: Path) -> None:
    """Two tensor reports with a number, an infinity and a name of one rank only."""
    titles = ["NPU Name", "Bench Name", "Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr"]
    titles += ["One Thousandth Err Ratio", "Five Thousandth Err Ratio"]
    for rank, cosine in enumerate(("0.9", "0.8")):
        path = folder / "in" / f"compare_result_rank{rank}_20260101000000.csv"
        path.parent.mkdir(exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as f:
            out = csv.writer(f)
            out.writerow(titles)
            for n in range(1 + rank):
                name = f"Torch.mul.{n}.forward.output.0"
                out.writerow([name, name, cosine, "2.5", "0.5", " inf", "1.0", "unsupported"])
    (folder / "c.yaml").write_text("api: [Torch.mul]\n", "utf-8")


MERGE = ("merge_result", "-i", "in", "-o", "out", "-config", "c.yaml", "--json")


def test_merge_result(tmp_path: Path, msprobe) -> None:
    write_reports(tmp_path)
    done = msprobe(*MERGE, "ci/rows.jsonl")
    assert done.status == 0, done.err
    rows = read_lines((tmp_path / "ci" / "rows.jsonl").read_text("utf-8"))
    (path,) = (tmp_path / "out").glob("*.xlsx")
    expected = []
    for sheet in openpyxl.load_workbook(path):
        titles, *values = sheet.iter_rows(values_only=True)
        for n, line in enumerate(values):
            cells = {str(t): "" if v is None else v for t, v in zip(titles, line, strict=True)}
            expected.append({"sheet": sheet.title, "row": n, "entry": line[0]} | cells)
    assert len(rows) >= 10
    assert [row | {k: v.strip() for k, v in row.items() if isinstance(v, str)} for row in rows] == [
        row | {k: v.strip() for k, v in row.items() if isinstance(v, str)} for row in expected
    ]


def test_overflow_check(tmp_path: Path, msprobe) -> None:
    infinite = tensor(Max=float("inf"))
    data = {
        "Torch.add.0.forward": entry(tensor(), output=[tensor()]),
        "Torch.exp.0.forward": entry(tensor(), output=[infinite]),
        "Torch.mul.0.forward": entry(infinite, output=[tensor()]),
    }
    write_json(tmp_path / "step0" / "rank0" / "dump.json", dump(data))
    write_json(tmp_path / "step0" / "rank1" / "dump.json", ok_dump())
    done = msprobe("overflow_check", "-i", "step0", "-o", "out", "--json", "rows")
    assert done.status == 0, done.err
    reasons = {"exp": "output.0 has Max inf", "mul": "input.0 has Max inf"}
    assert read_lines((tmp_path / "rows").read_text("utf-8")) == [
        {
            "rank": "rank0",
            "row": n,
            "entry": f"Torch.{api}.0.forward",
            "bad_input": api == "mul",
            "bad_output": api == "exp",
            "source": api == "exp",
            "first": api == "exp",
            "reason": reasons[api],
        }
        for n, api in enumerate(("exp", "mul"))
    ]


def test_first_difference(pair: Path, msprobe) -> None:
    changed = ok_dump()
    changed["data"]["Torch.mul.0.forward"]["output"][0] |= {"Max": 9.0, "Norm": float("inf")}
    write_json(pair / "t" / "dump.json", changed)
    done = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", "-da", "--json", "rows")
    assert done.status == 0, done.err
    rows = read_lines((pair / "rows").read_text("utf-8"))
    (path,) = (pair / "out").glob("compare_result_*.json")
    report = json.loads(path.read_text("utf-8"))
    items = [(name, call, item) for name, call in report.items() for item in call["op_items"]]
    assert [r["row"] for r in rows] == list(range(len(items)))
    ruled = {"Result", "Err_message", "NPU_Stack_Info", "api_origin_name"}
    for row, (name, call, item) in zip(rows, items, strict=True):
        assert (row["entry"], row["is_same"], row["reason"]) == (name, call["is_same"], call.get("reason", ""))
        figures = {k: v for k, v in item.items() if k not in ruled and "P2POp" not in k}
        assert figures.keys() <= row.keys()
        for key, value in figures.items():
            finite = not isinstance(value, float) or value - value == 0
            assert row[key] == (value if finite else str(value)), key
    assert [r["entry"] for r in rows if not r["is_same"]] == ["Torch.mul.0.forward"] * 3


PRECISION = ("api_precision_compare", "-npu", str(ULP / "npu.csv"), "-gpu", str(ULP / "gpu.csv"), "-o", "out", "--json")


@pytest.mark.parametrize("titles", [["--english"], []])
def test_api_precision_compare(tmp_path: Path, msprobe, titles: list[str]) -> None:
    done = msprobe(*PRECISION, "rows", *titles)
    assert done.status == 0, done.err
    rows = read_lines((tmp_path / "rows").read_text("utf-8"))
    (path,) = (tmp_path / "out").glob("*_details_*.csv")
    with path.open(encoding="utf-8-sig", newline="") as f:
        header, *lines = csv.reader(f)
    assert len(rows) == len(lines) > 3
    for n, (row, line) in enumerate(zip(rows, lines, strict=True)):
        assert (row.pop("row"), row.pop("entry"), row.pop("verdict")) == (n, line[0], line[25].lower())
        assert all(key.isascii() for key in row)
        if titles:
            assert list(row) == header
        assert all(same(v, cell) for v, cell in zip(row.values(), line, strict=True)), (row, line)
        assert all(
            isinstance(row[key], (int, float)) or row[key] in ("", "nan", "inf")
            for key in ("Mean ULP error", "RMSE ratio")
        )


@pytest.mark.parametrize("command", ["merge_result", "overflow_check", "compare", "api_precision_compare"])
def test_files_that_cannot_be_rows(pair: Path, msprobe, command: str) -> None:
    write_reports(pair)
    write_json(pair / "step0" / "rank0" / "dump.json", ok_dump())
    arguments = {
        "merge_result": MERGE,
        "overflow_check": ("overflow_check", "-i", "step0", "-o", "out", "--json"),
        "compare": ("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", "-da", "--json"),
        "api_precision_compare": PRECISION,
    }[command]
    os.mkfifo(pair / "pipe")
    (pair / "plain").write_text("")
    for name in ("pipe", "plain/rows", "."):
        done = msprobe(*arguments, name)
        assert done.status == 2, (name, done.err)
        assert done.files() == []
    assert (pair / "pipe").is_fifo()
    # "-": the rows, and nothing but the rows, on standard output; no file of that name.
    assert msprobe(*arguments, "rows").status == 0
    shown = msprobe(*arguments, "-")
    assert shown.status == 0
    assert shown.out == (pair / "rows").read_text("utf-8")
    assert not (pair / "-").exists()


def test_rows_of_compare_on_standard_output(pair: Path, msprobe) -> None:
    arguments = ("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", "--json")
    assert msprobe(*arguments, "rows").status == 0
    shown = msprobe(*arguments, "-")
    assert shown.status == 0
    assert shown.out == (pair / "rows").read_text("utf-8")
    assert len(read_lines(shown.out)) == 6  # two inputs and an output of each call
