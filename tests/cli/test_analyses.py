"""merge_result, overflow_check, -da, --config, --json, --junit: what they write, the smallest bad input of each."""

from __future__ import annotations

import csv
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pytest
from cli_support import dump, entry, ok_dump, tensor, write_json

HEADER = ["NPU Name", "Bench Name", "NPU Dtype", "Bench Dtype", "NPU Tensor Shape", "Bench Tensor Shape"]
TENSOR = [
    "Cosine",
    "EucDist",
    "MaxAbsErr",
    "MaxRelativeErr",
    "One Thousandth Err Ratio",
    "Five Thousandths Err Ratio",
    "NPU max",
    "Bench max",
]


def report_csv(path: Path, columns: list[str], rows: dict[str, list[Any]]) -> None:
    """A report with these figures; the other cells are empty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f)
        writer.writerow([*HEADER, *columns])
        for name, cells in rows.items():
            writer.writerow([name, name, "", "", "", "", *cells])


def sheets(folder: Path) -> dict[str, list[list[Any]]]:
    (path,) = folder.glob("multi_ranks_compare_merge_*.xlsx")
    book = openpyxl.load_workbook(path)
    return {s.title: [[c.value for c in row] for row in s.iter_rows()] for s in book.worksheets}


def one(folder: Path, pattern: str) -> Any:
    (path,) = folder.glob(pattern)
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """in/: tensor reports of ranks 0 and 1 as csv, among files of other kinds; c.yaml."""
    figures = {
        "Torch.mul.0.forward.output.0": [0.9, 1.5, 0.5, "inf", 0, 1, 3, 4],
        "Torch.mul_.0.forward.output.0": [1, 0, 0, 0, 1, 1, 3, 4],
        "Torch.shape.0.forward.output.0": [
            "unsupported",
            "unsupported",
            "N/A",
            "Nan",
            "N/A",
            "N/A",
            "[0, 1]",
            "[0, 2]",
        ],
    }
    report_csv(tmp_path / "in" / "compare_result_rank0_20260101000000.csv", TENSOR, figures)
    figures["Torch.mul.0.forward.output.0"] = [0.8, 2.5, 0.25, 3, 0, 1, 3, 4]
    figures["Torch.new.0.forward.output.0"] = [1, 0, 0, 0, 1, 1, 3, 4]
    report_csv(tmp_path / "in" / "compare_result_rank1_20260101000000.csv", TENSOR, figures)
    for name in ("multi_ranks_compare_merge_20260101000000.xlsx", "notes.xlsx", "advisor_rank0_20260101000000.txt"):
        (tmp_path / "in" / name).write_text("not a report")
    (tmp_path / "c.yaml").write_text("api: [Torch.mul, 'Torch.s*', Torch.new]\n")
    return tmp_path


def merge(msprobe: Any, *more: str) -> Any:
    return msprobe("merge_result", "-i", "in", "-o", "out", "-config", "c.yaml", *more)


def test_merge_reads_csv_among_other_files_and_names_the_worst_rank(reports, msprobe):
    run = merge(msprobe)
    assert run.status == 0
    got = sheets(reports / "out")
    assert list(got) == TENSOR[:6]  # Requires_grad Consistent is not in these reports
    assert got["Cosine"] == [
        ["NPU Name", "rank0", "rank1", "worst rank", "worst value"],
        ["Torch.mul.0.forward.output.0", 0.9, 0.8, "rank1", 0.8],
        ["Torch.new.0.forward.output.0", None, 1, None, None],
        [
            "Torch.shape.0.forward.output.0",
            "NPU:[0, 1]  Bench:[0, 2]",
            "NPU:[0, 1]  Bench:[0, 2]",
            None,
            None,
        ],
    ]
    assert got["MaxAbsErr"][1] == ["Torch.mul.0.forward.output.0", 0.5, 0.25, "rank0", 0.5]
    assert got["MaxRelativeErr"][1][1:] == ["inf", 3, "rank0", "inf"]
    summary = one(reports / "out", "merge_result_summary_*.json")
    assert summary["counts"] == {"ranks": 2, "rows": 3, "sheets": 6}
    assert "Cosine: Torch.mul.0.forward.output.0 on rank1: 0.8" in summary["worst"]


def test_merge_keeps_report_order_in_the_older_spelling(reports, msprobe):
    (reports / "c.yaml").write_text("api: [Torch]\ncompare_index: Cosine\n")
    run = msprobe("-f", "pytorch", "merge_result", "-i", "in", "-o", "out", "-config", "c.yaml")
    assert run.status == 0
    (rows,) = sheets(reports / "out").values()
    assert [r[0] for r in rows[1:]] == [
        "Torch.mul.0.forward.output.0",
        "Torch.mul_.0.forward.output.0",
        "Torch.shape.0.forward.output.0",
        "Torch.new.0.forward.output.0",
    ]


def test_merge_of_checksum_reports(tmp_path, msprobe):
    for rank, word in (("0", "pass"), ("1", "error")):
        path = tmp_path / "in" / f"compare_result_rank{rank}_20260101000000.csv"
        report_csv(path, ["NPU MD5", "BENCH MD5", "Result"], {"Torch.a.0.forward.output.0": ["aa", "bb", word]})
    (tmp_path / "c.yaml").write_text("api: Torch.a\n")
    assert merge(msprobe).status == 0
    assert sheets(tmp_path / "out") == {
        "Result": [
            ["NPU Name", "rank0", "rank1", "worst rank", "worst value"],
            ["Torch.a.0.forward.output.0", "pass", "error", "rank1", "error"],
        ]
    }


SKETCH = ["Sketch EucDist", "Sketch RelativeErr", "Sketch RelativeErr Bar", "Sketch Cosine", "Bit Equal"]


@pytest.mark.parametrize("mode", [["Max diff"], ["NPU MD5", "BENCH MD5"]], ids=["statistics", "md5"])
def test_merge_has_sheets_of_sketches(tmp_path, msprobe, mode):
    empty = [""] * len(mode)
    figures = {
        "0": {"a": [*empty, 0.5, 0.25, 0.02, 0.9, False], "b": [*empty, 0, "< 1.5e-7", "N/A", 1, True]},
        "1": {"a": [*empty, 0.1, 0.05, 0.004, 0.99, False], "b": [*empty, 0.3, 0.1, 0.01, 0.95, False]},
    }
    for rank, rows in figures.items():
        named = {f"Torch.{k}.0.forward.output.0": v for k, v in rows.items()}
        report_csv(tmp_path / "in" / f"compare_result_rank{rank}_20260101000000.csv", [*mode, *SKETCH], named)
    (tmp_path / "c.yaml").write_text("api: Torch\n")
    assert merge(msprobe).status == 0
    got = sheets(tmp_path / "out")
    a, b = "Torch.a.0.forward.output.0", "Torch.b.0.forward.output.0"
    assert [name for name in got if "Sketch" in name or name == "Bit Equal"] == [c for c in SKETCH if "Bar" not in c]
    assert got["Sketch RelativeErr"][1:] == [[a, 0.25, 0.05, "rank0", 0.25], [b, "< 1.5e-7", 0.1, "rank1", 0.1]]
    assert got["Sketch Cosine"][1:] == [[a, 0.9, 0.99, "rank0", 0.9], [b, 1, 0.95, "rank1", 0.95]]
    assert got["Bit Equal"][1:] == [[a, False, False, None, None], [b, True, False, "rank1", False]]


def test_merge_has_error_bars_when_they_are_asked_for(tmp_path, msprobe):
    for rank in "01":
        rows = {"Torch.a.0.forward.output.0": [0, 0.5, 0.25, 0.02, 0.9, False]}
        report_csv(tmp_path / "in" / f"compare_result_rank{rank}_20260101000000.csv", ["Max diff", *SKETCH], rows)
    (tmp_path / "c.yaml").write_text("api: Torch\ncompare_index: [Sketch RelativeErr Bar]\n")
    assert merge(msprobe).status == 0
    assert sheets(tmp_path / "out")["Sketch RelativeErr Bar"][1] == [
        "Torch.a.0.forward.output.0",
        0.02,
        0.02,
        None,
        None,
    ]


def test_merge_joins_part_sheets_and_takes_the_newest_report(reports, msprobe):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for part, name in enumerate(("Torch.mul.0.forward.output.0", "Torch.mul.1.forward.output.0")):
        sheet = book.create_sheet(f"part_{part}")
        sheet.append([*HEADER, *TENSOR])
        sheet.append([name, name, "", "", "", "", 0.5, 0, 0, 0, 1, 1, 3, 4])
    book.save(reports / "in" / "compare_result_rank1_20260101000001.xlsx")
    run = merge(msprobe)
    assert run.status == 0
    assert "rank1: 2 reports, the newest is taken: compare_result_rank1_20260101000001.xlsx" in run.err
    rows = sheets(reports / "out")["Cosine"]
    assert rows[2] == ["Torch.mul.1.forward.output.0", None, 0.5, None, None]
    assert rows[1][3:] == ["rank1", 0.5]


def test_merge_leaves_a_damaged_report_out(reports, msprobe):
    (reports / "in" / "compare_result_rank2_20260101000000.xlsx").write_text("torn")
    run = merge(msprobe)
    assert run.status == 1
    assert "rank2 is left out: in/compare_result_rank2_20260101000000.xlsx" in run.err
    assert sheets(reports / "out")["Cosine"][0][:3] == ["NPU Name", "rank0", "rank1"]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["-i", "in", "-o", "out"], 2, "-config: is required"),
        (["-i", "in", "-config", "c.yaml"], 2, "-o: is required"),
        (["-i", "gone", "-o", "out", "-config", "c.yaml"], 2, "gone: does not exist"),
        (["-i", "c.yaml", "-o", "out", "-config", "c.yaml"], 2, "c.yaml: is not a folder"),
        (["-i", "in", "-o", "out", "-config", "gone.yaml"], 2, "gone.yaml"),
        (["-i", ".", "-o", "out", "-config", "c.yaml"], 2, "no report of a rank inside"),
        (["-i", "in", "-o", "out", "-config", "none.yaml"], 1, "no report has a row of any name in `api`"),
        (["-i", "in", "-o", "out", "-config", "column.yaml"], 2, "no report has any of the columns"),
    ],
)
def test_merge_refusals(reports, msprobe, arguments, status, words):
    (reports / "none.yaml").write_text("api: [Torch.mu]\n")
    (reports / "column.yaml").write_text("api: [Torch.mul]\ncompare_index: [Max diff]\n")
    run = msprobe("merge_result", *arguments)
    assert run.status == status
    assert words in "\n".join(run.errors())
    assert not list(reports.glob("out/*.xlsx"))


def test_overflow_works_without_construct_and_stack(tmp_path, msprobe):
    infinite = tensor(Max=float("inf"))
    data = {
        "Torch.add.0.forward": entry(tensor(), output=[tensor()]),
        "Torch.exp.0.forward": entry(tensor(), output=[[tensor(), infinite]]),
        "Torch.mul.0.forward": entry(infinite, output=[infinite]),
    }
    write_json(tmp_path / "step0" / "rank0" / "dump.json", dump(data))
    write_json(tmp_path / "step0" / "rank1" / "dump.json", ok_dump())
    run = msprobe("overflow_check", "-i", "step0", "-o", "out")
    assert run.status == 0
    found = one(tmp_path / "out", "anomaly_analyze_*.json")
    assert list(found) == ["rank_0"]
    (node,) = found["rank_0"]
    assert node["op_name"] == "Torch.exp.0.forward"
    assert node["data_info"]["output"][0][1]["Max"] == float("inf")
    assert node["construct_info"] == ["Torch.exp.0.forward"]
    assert node["stack_info"] == {}
    summary = one(tmp_path / "out", "overflow_check_summary_*.json")
    assert summary["ranks"][0]["sources"] == ["Torch.exp.0.forward"]
    assert summary["ranks"][0]["first_consumer"] == {"entry": "Torch.mul.0.forward", "reason": "input.0 has Max inf"}
    assert summary["ranks"][1]["source_count"] == 0


def test_overflow_of_a_clean_dump_writes_no_finding(tmp_path, msprobe):
    write_json(tmp_path / "step0" / "rank" / "dump.json", ok_dump())
    run = msprobe("-f", "pytorch", "nan_analyze", "-i", "step0", "-o", "out")
    assert run.status == 0
    assert "No entry with clean inputs gave NaN or infinity." in run.out
    (name,) = run.files()
    assert re.fullmatch(r"nan_analyze_summary_\d{14}\.json", name)


def test_overflow_leaves_a_broken_rank_out(tmp_path, msprobe):
    write_json(tmp_path / "step0" / "rank0" / "dump.json", ok_dump())
    (tmp_path / "step0" / "rank1").mkdir()
    run = msprobe("overflow_check", "-i", "step0", "-o", "out")
    assert run.status == 1
    assert "rank1 is left out: step0/rank1/dump.json" in run.err


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([], 2, "-i: is required"),
        (["-i", "gone"], 2, "gone: does not exist"),
        (["-i", "step0/rank0/dump.json"], 2, "step0/rank0/dump.json: is not a folder"),
        (["-i", "empty"], 2, "empty: no rank folder inside"),
        (["-i", "."], 2, "holds steps, not ranks"),
        (["-i", "step0"], 2, "framework: a dump of mindspore"),
    ],
)
def test_overflow_refusals(tmp_path, msprobe, arguments, status, words):
    write_json(tmp_path / "step0" / "rank0" / "dump.json", dump(ok_dump()["data"], framework="mindspore"))
    (tmp_path / "empty").mkdir()
    run = msprobe("overflow_check", *arguments)
    assert run.status == status
    assert words in "\n".join(run.errors())
    assert not (tmp_path / "output").exists()


def steps_with_a_difference(root: Path) -> None:
    """t/ and g/: step0 equal, in step1 rank1 gives another maximum from the second call on."""
    changed = ok_dump()
    changed["data"]["Torch.mul.0.forward"]["output"] = [tensor(Max=0.0)]
    for side in ("t", "g"):
        for step in ("step0", "step1"):
            for rank in ("rank0", "rank1"):
                bad = (side, step, rank) == ("g", "step1", "rank1")
                write_json(root / side / step / rank / "dump.json", changed if bad else ok_dump())


def test_first_difference_of_dump_roots(tmp_path, msprobe):
    steps_with_a_difference(tmp_path)
    run = msprobe("compare", "-tp", "t", "-gp", "g", "-o", "out", "-da", "--fail-on", "error")
    assert run.status == 3
    found = one(tmp_path / "out", "diff_analyze_step1_*.json")  # none of step0
    assert [n["op_name"] for n in found["rank_1"]] == ["Torch.mul.0.forward"]
    assert found["rank_1"][0]["data_info"]["output"]["Torch.mul.0.forward.output.0"]["NPU max"] == 3.0
    assert len([f for f in run.files() if re.fullmatch(r"compare_result_step\d_rank\d_\d{14}\.json", f)]) == 4
    summary = one(tmp_path / "out", "diff_analyze_summary_*.json")
    # A golden 0 counts as a difference (D12).
    assert summary["first"] == [
        {
            "step": "step1",
            "rank": 1,
            "entry": "Torch.mul.0.forward",
            "reason": "Torch.mul.0.forward.output.0: max 3.0 against 0.0",
        }
    ]


def test_first_difference_of_rank_folders_and_equal_dumps(pair, msprobe):
    run = msprobe("compare", "-tp", "t", "-gp", "g", "-o", "out", "-da")
    assert run.status == 0
    assert "No compared output differs." in run.out
    assert not list((pair / "out").glob("diff_analyze_1*"))
    assert one(pair / "out", "compare_result_*.json")["Torch.mul.0.forward"]["is_same"] is True


def test_first_difference_says_what_was_not_compared(pair, msprobe):
    write_json(pair / "t" / "dump.json", dump(ok_dump()["data"] | {"Torch.x.0.forward": entry(output=[tensor()])}))
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", "-da")
    assert run.status == 0
    assert "1 entries have no output that could be compared" in run.out
    assert one(pair / "out", "compare_result_*.json")["Torch.x.0.forward"]["compared"] is False


@pytest.mark.parametrize("option", ["--junit"])
def test_first_difference_refuses_row_outputs(pair, msprobe, option):
    run = msprobe("compare", "-tp", "t", "-gp", "g", "-o", "out", "-da", option, "f")
    assert run.status == 2
    assert run.errors()[0].startswith(f"{option}: has no rows to write beside -da")


def test_first_difference_of_a_broken_dump_leaves_nothing(pair, msprobe):
    (pair / "t" / "dump.json").write_text("[]")
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", "-da")
    assert run.status == 2
    assert "t/dump.json" in run.errors()[0]
    assert not (pair / "out").exists()


def test_first_difference_needs_calls(pair, msprobe):
    for side in ("t", "g"):
        (pair / side / "dump.json").rename(pair / side / "debug.json")
    run = msprobe("compare", "-tp", "t", "-gp", "g", "-o", "out", "-da")
    assert run.status == 2
    assert "only debug.json" in run.errors()[0]


def test_json_rows_and_junit(pair, msprobe):
    data = ok_dump()["data"]
    data["Torch.add.0.forward"]["output"] = [tensor(Max=2.0, Norm=8.0)]  # R2s: an error
    data['Torch.<&"\x01>.0.forward'] = entry(output=[tensor(Max=float("inf"))])  # no partner
    write_json(pair / "t" / "dump.json", dump(data))
    run = msprobe(
        "compare",
        "-tp",
        "t/dump.json",
        "-gp",
        "g/dump.json",
        "-o",
        "out",
        "--json",
        "ci/r.jsonl",
        "--junit",
        "ci/j.xml",
    )
    assert run.status == 0

    def refuse(text: str) -> float:
        raise AssertionError(text)

    lines = (pair / "ci" / "r.jsonl").read_text().splitlines()
    rows = [json.loads(line, parse_constant=refuse) for line in lines]
    assert [(r["row"], r["state"], r["verdict"]) for r in rows[:3]] == [
        (0, "input", "pass"),
        (1, "input", "pass"),
        (2, "output", "error"),
    ]
    assert rows[2]["entry"] == "Torch.add.0.forward"
    assert rows[2]["Err_message"][0].startswith("error: The NormRelativeErr")
    odd = [r for r in rows if r["entry"] not in ok_dump()["data"]]
    assert [(r["verdict"], r["NPU max"]) for r in odd] == [("unmatched", "inf")]

    suites = ElementTree.parse(pair / "ci" / "j.xml").getroot()
    assert {k: suites.get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
    }
    cases = {c.get("name"): c for c in suites.iter("testcase")}
    assert set(cases) == {"Torch.add.0.forward", "Torch.mul.0.forward", 'Torch.<&"\\x01>.0.forward'}
    assert "output.0" in (cases["Torch.add.0.forward"].find("failure").get("message") or "")
    assert len(cases["Torch.mul.0.forward"]) == 0


def test_junit_shows_a_missing_rank_as_an_error(tmp_path, msprobe):
    for rank in ("t/rank0", "t/rank1", "g/rank0"):
        write_json(tmp_path / rank / "dump.json", ok_dump())
    run = msprobe("compare", "-tp", "t", "-gp", "g", "-o", "out", "--junit", "j.xml")
    assert run.status == 1
    suites = ElementTree.parse(tmp_path / "j.xml").getroot()
    assert [(s.get("name"), s.get("errors")) for s in suites] == [("rank0", "0"), ("rank1", "1")]


def test_row_outputs_that_cannot_be_written_are_refused_before_work(pair, msprobe):
    (pair / "taken").write_text("")
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", "--json", "taken/r.jsonl")
    assert run.status == 2
    assert "taken" in run.errors()[0]
    assert run.files() == []


def tensor_dump(folder: Path, values: np.ndarray) -> None:
    leaf = tensor(shape=list(values.shape), data_name="x.npy")
    write_json(folder / "dump.json", dump({"Torch.add.0.forward": entry(output=[leaf])}, task="tensor"))
    (folder / "dump_tensor_data").mkdir()
    np.save(folder / "dump_tensor_data" / "x.npy", values)


def test_config_multiplies_the_golden_side(tmp_path, msprobe):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    m = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], dtype=np.float32)
    tensor_dump(tmp_path / "t", x @ m)
    tensor_dump(tmp_path / "g", x)
    np.save(tmp_path / "m.npy", m)
    (tmp_path / "p.yaml").write_text("right_matmul:\n  golden_tensor_map:\n    m.npy: [x.npy]\n")
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", "--config", "p.yaml")
    assert run.status == 0
    (report,) = (tmp_path / "out").glob("compare_result_*.csv")
    with report.open(newline="") as f:
        (row,) = csv.DictReader(f)
    assert (row["MaxAbsErr"], row["Cosine"]) == ("0.0", "1.0")
    assert not list((tmp_path / "out").glob(".*"))


def test_config_with_a_missing_matrix_is_a_warning(tmp_path, msprobe):
    for side in ("t", "g"):
        tensor_dump(tmp_path / side, np.ones((2, 2), dtype=np.float32))
    (tmp_path / "p.yaml").write_text("left_matmul: {target_tensor_map: {gone.npy: [x.npy]}}\n")
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", "--config", "p.yaml")
    assert run.status == 0
    assert "1 tensors are compared as they are: gone.npy" in run.err


def test_valid_length_clears_the_tail_of_a_named_operator(tmp_path, msprobe):
    """The second row is behind the valid length 1: what stands there does not count."""
    for side, tail in (("t", 7.0), ("g", -7.0)):
        data = tmp_path / side / "dump_tensor_data"
        data.mkdir(parents=True)
        np.save(data / "n.npy", np.array([1], dtype=np.int64))
        np.save(data / "y.npy", np.array([[1.0, 2.0], [tail, tail]], dtype=np.float32))
        call = entry(output=[tensor(shape=[2, 2], data_name="y.npy")])
        call["input_kwargs"] = {"lengths": tensor(dtype="torch.int64", shape=[1], data_name="n.npy")}
        write_json(tmp_path / side / "dump.json", dump({"Torch.my_op.0.forward": call}, task="tensor"))
    (tmp_path / "p.yaml").write_text("valid_length: {target: {my_op: lengths}, golden: {my_op: lengths}}\n")
    for extra, largest in ((["--config", "p.yaml"], 0.0), ([], 14.0)):
        folder = f"out{len(extra)}"
        run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", folder, "--json", "r", *extra)
        assert run.status == 0
        rows = [json.loads(line) for line in (tmp_path / "r").read_text().splitlines()]
        assert rows[-1]["MaxAbsErr"] == largest


def test_config_errors_name_their_place(pair, msprobe):
    (pair / "p.yaml").write_text("right_matmul:\n  target_tensor_mapp: {}\n")
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", "--config", "p.yaml")
    assert run.status == 2
    assert "p.yaml:2:" in run.errors()[0]
    assert "did you mean target_tensor_map?" in run.errors()[0]
    assert run.files() == []
