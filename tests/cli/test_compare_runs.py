"""What a comparison writes and says: file names, ranks and steps, summary, statuses; the Python functions."""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pytest
from cli_support import dump, entry, ok_dump, tensor, write_json

STAMP = r"\d{14}"


def summary_of(folder: Path) -> dict[str, Any]:
    (path,) = folder.glob("compare_summary_*.json")
    return json.loads(path.read_text())


def csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def bad_golden(path: Path) -> None:
    """The output of add has four times the norm, with equal inputs: rule R2s."""
    data = ok_dump()["data"]
    data["Torch.add.0.forward"]["output"] = [tensor(Max=2.0, Norm=8.0)]
    write_json(path, dump(data))


def test_new_spelling_writes_csv_and_summary(pair, msprobe):
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out/deep")
    assert run.status == 0
    report, summary = run.files("out/deep")
    assert re.fullmatch(rf"compare_result_{STAMP}\.csv", report)
    assert re.fullmatch(rf"compare_summary_{STAMP}\.json", summary)
    rows = csv_rows(pair / "out" / "deep" / report)
    assert [r["NPU Name"] for r in rows] == [
        "Torch.add.0.forward.input.0",
        "Torch.add.0.forward.input.1",
        "Torch.add.0.forward.output.0",
        "Torch.mul.0.forward.input.0",
        "Torch.mul.0.forward.input.1",
        "Torch.mul.0.forward.output.0",
    ]
    assert {r["Result"] for r in rows} == {"pass"}
    assert {r["Err_message"] for r in rows} == {"[]"}


def test_summary_holds_what_decision_3_lists(pair, msprobe):
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", "-fm")
    summary = summary_of(pair / "out")
    wanted = [
        "format_version",
        "tool_version",
        "command",
        "options",
        "inputs",
        "started",
        "seconds",
        "counts",
        "ranks",
        "messages",
        "first_bad",
        "path",
    ]
    assert [k for k in wanted if k not in summary] == []
    assert summary["command"] == "compare"
    assert summary["inputs"] == {"target": "t/dump.json", "golden": "g/dump.json"}
    assert "fuzzy_match" in summary["options"]
    assert summary["counts"] == {"pass": 6, "warning": 0, "error": 0, "unmatched": 0, "total": 6, "consequences": 0}
    closing = run.err.strip().splitlines()[-1]
    assert "pass 6, warning 0, error 0, unmatched 0, total 6, first_bad none, path out" in closing


def test_first_bad_entry_is_said_and_recorded(pair, msprobe):
    bad_golden(pair / "g" / "dump.json")
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out")
    assert run.status == 0  # verdicts alone never change the status
    assert run.out.startswith("First bad entry: Torch.add.0.forward\n")
    assert len(run.out.splitlines()) <= 20
    bad = summary_of(pair / "out")["first_bad"]
    assert (bad["entry"], bad["row"], bad["row_index"]) == ("Torch.add.0.forward", "Torch.add.0.forward.output.0", 2)


@pytest.mark.parametrize(
    ("fail_on", "status"), [("error", 3), ("warning", 3), ("unmatched", 0), ("unmatched,error", 3), (None, 0)]
)
def test_fail_on_turns_an_error_row_into_status_3(pair, msprobe, fail_on, status):
    bad_golden(pair / "g" / "dump.json")
    option = ["--fail-on", fail_on] if fail_on else []
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", *option)
    assert run.status == status
    assert len(run.files()) == 2  # the reports are there all the same


def test_fail_on_unmatched(pair, msprobe):
    data = ok_dump()["data"]
    del data["Torch.mul.0.forward"]
    write_json(pair / "g" / "dump.json", dump(data))
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", "--fail-on", "unmatched")
    assert run.status == 3
    assert "3 rows, only in the target dump: Torch.mul.0.forward" in run.out
    (rank,) = summary_of(pair / "out")["ranks"]
    assert rank["not_compared"] == [
        {"reason": "only in the target dump", "rows": 3, "entries": ["Torch.mul.0.forward"]}
    ]


def test_quiet_leaves_only_the_closing_line(pair, msprobe):
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", "-q")
    assert run.out == ""
    assert len(run.err.splitlines()) == 1


@pytest.mark.parametrize(("key", "lines"), [(None, 0), (False, 0), (True, 2)])
@pytest.mark.parametrize("paths", ["files", "folders"])
def test_row_log_is_off_unless_asked_for(tmp_path, msprobe, paths, key, lines):
    """One default in both spellings and for files and folders (D38)."""
    leaf = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [3],
        "data_name": "x.npy",
        "requires_grad": False,
    }
    for side in ("t", "g"):
        folder = tmp_path / side / "rank0"
        (folder / "dump_tensor_data").mkdir(parents=True)
        np.save(folder / "dump_tensor_data" / "x.npy", np.ones(3, np.float32))
        write_json(folder / "dump.json", dump({"Torch.a.0.forward": entry(leaf, output=[leaf])}, task="tensor"))
    inside = "" if paths == "folders" else "/rank0/dump.json"
    given = {"npu_path": f"t{inside}", "bench_path": f"g{inside}"}
    write_json(tmp_path / "c.json", given if key is None else given | {"is_print_compare_log": key})
    old = msprobe("-f", "pytorch", "compare", "-i", "c.json", "-o", "out", "-v")
    assert old.err.count("Compare result:") == lines
    flag = ["-tensor_log"] if key else []
    new = msprobe("compare", "-tp", f"t{inside}", "-gp", f"g{inside}", "-o", "out", "-v", *flag)
    assert new.err.count("Compare result:") == lines


def test_closing_lines_show_a_table_of_ranks(tmp_path, msprobe):
    ranks(tmp_path / "t", ["rank0", "rank1"])
    ranks(tmp_path / "g", ["rank0", "rank1"])
    bad_golden(tmp_path / "g" / "rank1" / "dump.json")
    out = msprobe("compare", "-tp", "t", "-gp", "g", "-o", "out").out.splitlines()
    at = out.index("Ranks: 2 compared, 0 failed, 0 missing")
    assert out[at + 1].split() == ["rank", "pass", "warning", "error", "unmatched", "first", "bad"]
    # The worst rank comes first: one row of six is an error.
    assert out[at + 2].split() == ["rank1", "5", "0", "1", "0", "Torch.add.0.forward"]
    assert out[at + 3].split() == ["rank0", "6", "0", "0", "0", "none"]


def test_old_spelling_writes_workbook_advice_and_summary(pair, msprobe):
    bad_golden(pair / "g" / "dump.json")
    write_json(pair / "c.json", {"npu_path": "t/dump.json", "gpu_path": "g/dump.json"})
    run = msprobe("-f", "pytorch", "compare", "-i", "c.json", "-o", "out")
    assert run.status == 0
    advice, report, _ = run.files()
    assert re.fullmatch(rf"advisor_{STAMP}\.txt", advice)
    assert re.fullmatch(rf"compare_result_{STAMP}\.xlsx", report)
    sheet = openpyxl.load_workbook(pair / "out" / report).active
    assert sheet.title == "Sheet1"
    header = [c.value for c in sheet[1]]
    assert header[24:] == ["Requires_grad Consistent", "Result", "Err_message"]
    text = (pair / "out" / advice).read_text().splitlines()
    assert text[:2] == ["Line: 2", "Suspect Nodes: Torch.add.0.forward.output.0"]
    assert text[2].startswith("Expert Advice: ")
    assert text[3] == "Spreadsheet Row: 4"
    assert text[4].startswith("First Bad Entry: Torch.add.0.forward (row 4: ")
    assert text[5] == "Not Compared: nothing"
    assert text[6].startswith("Next: ")
    # The command that it names can be run as it stands.
    command = shlex.split(text[6][text[6].index("msprobe ") :])
    assert command[:2] == ["msprobe", "acc_check"]
    assert Path(pair / command[command.index("-api_info") + 1]).is_file()
    assert (pair / "out" / report).stat().st_mode & 0o777 == 0o640


def test_compare_only_writes_no_advice(pair, msprobe):
    write_json(pair / "c.json", {"npu_path": "t/dump.json", "bench_path": "g/dump.json"})
    run = msprobe("-f", "pytorch", "compare", "-i", "c.json", "-o", "out", "-c")
    assert [f.split("_")[0] for f in run.files()] == ["compare", "compare"]


def test_output_option_without_value_means_output(pair, msprobe):
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "--xlsx")
    assert run.status == 0
    assert [f.rsplit(".")[-1] for f in run.files("output")] == ["xlsx", "json"]


def test_a_second_run_in_the_same_second_moves_its_stamp_on(pair, msprobe):
    for _ in range(3):
        assert msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", "--no-html").status == 0
    names = [p.name for p in (pair / "out").iterdir()]
    assert len(names) == 6
    assert all(re.fullmatch(rf"compare_(result|summary)_{STAMP}\.(csv|json)", n) for n in names)


# ---- ranks and steps


def ranks(root: Path, names: list[str]) -> None:
    for name in names:
        write_json(root / name / "dump.json", ok_dump())


def test_ranks_pair_by_number_and_missing_ones_are_named(tmp_path, msprobe):
    ranks(tmp_path / "t", ["rank0", "rank1", "rank10", "notes"])
    ranks(tmp_path / "g", ["rank1", "rank10", "rank2"])
    run = msprobe("compare", "-tp", "t", "-gp", "g", "-o", "out")
    assert run.status == 1
    assert [re.sub(STAMP, "T", f) for f in run.files()] == [
        "compare_result_rank10_T.csv",
        "compare_result_rank1_T.csv",
        "compare_summary_T.json",
    ]
    assert "rank0: not compared: missing in the golden dump" in run.err
    assert "rank2: not compared: missing in the target dump" in run.err
    assert "2 of 4 ranks not compared" in run.err
    status = {(r["rank"], r["status"]) for r in summary_of(tmp_path / "out")["ranks"]}
    assert status == {("rank1", "compared"), ("rank10", "compared"), ("rank0", "missing"), ("rank2", "missing")}


def test_ranks_without_a_common_number_pair_by_position_with_a_warning(tmp_path, msprobe):
    ranks(tmp_path / "t", ["rank0", "rank1"])
    ranks(tmp_path / "g", ["rank4", "rank5"])
    run = msprobe("compare", "-tp", "t", "-gp", "g", "-o", "out")
    assert run.status == 0
    assert "no rank number is common to both sides (rank0, rank1 against rank4, rank5)" in run.err
    pairs = [(r["rank"], r["golden_rank"]) for r in summary_of(tmp_path / "out")["ranks"]]
    assert pairs == [("rank0", "rank4"), ("rank1", "rank5")]


def test_a_broken_rank_does_not_stop_the_others(tmp_path, msprobe):
    ranks(tmp_path / "t", ["rank0", "rank1"])
    ranks(tmp_path / "g", ["rank0", "rank1"])
    (tmp_path / "t" / "rank0" / "dump.json").write_text("{")
    run = msprobe("compare", "-tp", "t", "-gp", "g", "-o", "out")
    assert run.status == 1
    assert [f.split("_")[2] for f in run.files() if f.endswith(".csv")] == ["rank1"]
    assert len(run.errors()) == 1
    assert run.errors()[0].startswith("[rank0] not compared: t/rank0/dump.json")


def test_one_process_folder_a_side_is_one_rank(tmp_path, msprobe):
    ranks(tmp_path / "t", ["proc11"])
    ranks(tmp_path / "g", ["proc29"])
    run = msprobe("compare", "-tp", "t", "-gp", "g", "-o", "out")
    assert run.status == 0
    assert run.files()[0].startswith("compare_result_proc11_")
    assert "warning:" not in run.err


def test_several_process_folders_are_refused(tmp_path, msprobe):
    ranks(tmp_path / "t", ["proc11", "proc12"])
    ranks(tmp_path / "g", ["proc29", "proc30"])
    run = msprobe("compare", "-tp", "t", "-gp", "g", "-o", "out")
    assert run.status == 2
    assert run.errors()[0].startswith("t: several process folders (proc11, proc12)")
    assert run.files() == []


def test_dump_roots_compare_their_common_steps(tmp_path, msprobe):
    for step in ("step0", "step2", "step10"):
        ranks(tmp_path / "t" / step, ["rank0"])
    for step in ("step2", "step10"):
        ranks(tmp_path / "g" / step, ["rank0"])
    run = msprobe("compare", "-tp", "t", "-gp", "g", "-o", "out")
    assert run.status == 1  # step0 has no partner
    assert "step0 is only in the target dump" in run.err
    assert [re.sub(STAMP, "T", f) for f in run.files() if f.endswith("csv")] == [
        "compare_result_step10_rank0_T.csv",
        "compare_result_step2_rank0_T.csv",
    ]
    assert [r["step"] for r in summary_of(tmp_path / "out")["ranks"]] == ["step2", "step10", "step0"]


def test_two_rank_folders_compare_their_files(pair, msprobe):
    run = msprobe("compare", "-tp", "t", "-gp", "g", "-o", "out")
    assert run.status == 0
    assert [re.sub(STAMP, "T", f) for f in run.files()] == ["compare_result_T.csv", "compare_summary_T.json"]


def test_a_rank_with_both_kinds_of_dump_has_a_report_of_each(tmp_path, msprobe):
    debug = dump({"x.0.debug": tensor()}, level="debug")
    for side in ("t", "g"):
        ranks(tmp_path / side, ["rank0"])
        write_json(tmp_path / side / "rank0" / "debug.json", debug)
    write_json(tmp_path / "c.json", {"npu_path": "t", "bench_path": "g"})
    run = msprobe("-f", "pytorch", "compare", "-i", "c.json", "-o", "out")
    assert run.status == 0
    assert [re.sub(STAMP, "T", f) for f in run.files()] == [
        "advisor_rank0_T.txt",
        "compare_result_rank0_T.xlsx",
        "compare_summary_T.json",
        "debug_advisor_rank0_T.txt",
        "debug_compare_result_rank0_T.xlsx",
    ]


def test_names_with_blanks_and_letters_of_any_script(tmp_path, msprobe):
    for side in ("ziel 目标=+", "größe"):
        write_json(tmp_path / side / "dump.json", ok_dump())
    run = msprobe("compare", "-tp", "ziel 目标=+/dump.json", "-gp", "größe/dump.json", "-o", "aus gabe")
    assert run.status == 0
    assert len(run.files("aus gabe")) == 2


def test_rank_and_step_choose_folders(tmp_path, msprobe):
    for side in ("t", "g"):
        for step in ("step0", "step1"):
            ranks(tmp_path / side / step, ["rank0", "rank1", "rank2"])
    run = msprobe("compare", "-tp", "t", "-gp", "g", "-o", "out", "--rank", "0,2", "--step", "1")
    assert run.status == 0
    compared = [(r["step"], r["rank"]) for r in summary_of(tmp_path / "out")["ranks"]]
    assert compared == [("step1", "rank0"), ("step1", "rank2")]
    write_json(tmp_path / "c.json", {"npu_path": "t", "bench_path": "g", "rank_id": [1], "step_id": [0]})
    run = msprobe("-f", "pytorch", "compare", "-i", "c.json", "-o", "old", "-c")
    assert run.status == 0
    compared = [(r["step"], r["rank"]) for r in summary_of(tmp_path / "old")["ranks"]]
    assert compared == [("step0", "rank1")]


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--rank", "7", "rank 7 is wanted and is on neither side; the target has rank0"),
        ("--step", "7", "step 7 is wanted and is on neither side"),
        ("--rank", "one", "--rank"),
        ("--rank", "-1", "--rank"),
    ],
)
def test_ranks_that_are_not_there_are_refused(tmp_path, msprobe, option, value, words):
    ranks(tmp_path / "t" / "step0", ["rank0"])
    run = msprobe("compare", "-tp", "t", "-gp", "t", "-o", "out", option, value)
    assert run.status == 2
    assert words in run.err
    assert run.files() == []


def test_a_wanted_rank_of_one_side_only_is_named(tmp_path, msprobe):
    ranks(tmp_path / "t", ["rank0", "rank1"])
    ranks(tmp_path / "g", ["rank0", "rank2"])
    run = msprobe("compare", "-tp", "t", "-gp", "g", "-o", "out", "--rank", "0,1")
    assert run.status == 1
    status = {(r["rank"], r["status"]) for r in summary_of(tmp_path / "out")["ranks"]}
    assert status == {("rank0", "compared"), ("rank1", "missing")}


# ---- Python


def test_python_compare_accepts_both_spellings_and_returns_the_result(pair):
    import msprobe

    bad_golden(pair / "g" / "dump.json")
    for keys in (("npu_json_path", "bench_json_path"), ("npu_path", "bench_path")):
        params = dict(zip(keys, (str(pair / "t" / "dump.json"), str(pair / "g" / "dump.json")), strict=True))
        result = msprobe.compare(params, str(pair / "out"), keep_rows=True)
        assert result.counts["total"] == 6
        assert result.first_bad["row"] == "Torch.add.0.forward.output.0"
        (rank,) = result.ranks
        rows = [dict(zip(rank.columns, row, strict=True)) for row in rank.rows()]
        assert rows[2]["Result"] == "Warning"
        assert rows[2]["L2norm diff"] == -6.0
        assert Path(result.summary_path).exists()
        assert [Path(p).suffix for p in rank.reports] == [".xlsx"]
        assert params["npu_dump_data_dir"] == str(pair / "t" / "dump_tensor_data")


def test_python_result_has_columns_as_arrays(pair):
    import msprobe

    bad_golden(pair / "g" / "dump.json")
    params = {"npu_path": pair / "t" / "dump.json", "bench_path": pair / "g" / "dump.json"}
    (rank,) = msprobe.compare(params, pair / "out", keep_rows=True).ranks
    arrays = rank.arrays()
    assert list(arrays) == rank.columns
    assert {len(a) for a in arrays.values()} == {6}
    figures = arrays["L2norm diff"]
    assert figures.dtype == np.float64
    assert figures[2] == -6.0
    assert arrays["NormRelativeErr"][2] == 75.0  # 2 against 8, in percent
    assert arrays["NPU l2norm"][:2].tolist() == [2.0, 2.0]
    names = arrays["NPU Name"]
    assert names.dtype == object
    assert names[2] == "Torch.add.0.forward.output.0"
    assert arrays["Requires_grad Consistent"].tolist() == [True] * 6
    (bare,) = msprobe.compare(params, pair / "bare").ranks
    with pytest.raises(msprobe.CompareError, match="keep_rows=True"):
        bare.arrays()


def test_python_search_of_the_first_difference(tmp_path):
    import msprobe

    ranks(tmp_path / "t", ["rank0", "rank1"])
    ranks(tmp_path / "g", ["rank0", "rank1"])
    bad_golden(tmp_path / "g" / "rank1" / "dump.json")
    found = msprobe.compare_distributed(tmp_path / "t", tmp_path / "g", tmp_path / "out", first_diff_analyze=True)
    assert [(f["rank"], f["entry"]) for f in found.first] == [(1, "Torch.add.0.forward")]
    assert [Path(p).exists() for p in [*found.reports, found.summary_path]] == [True, True]
    assert not found.partial
    same = msprobe.compare_distributed(tmp_path / "t", tmp_path / "t", tmp_path / "same", first_diff_analyze=True)
    assert (same.first, same.reports) == ([], [])


def test_python_compare_chooses_ranks(tmp_path):
    import msprobe

    ranks(tmp_path / "t", ["rank0", "rank1", "rank2"])
    result = msprobe.compare_distributed(tmp_path / "t", tmp_path / "t", tmp_path / "out", ranks=[0, 2])
    assert [r.rank for r in result.ranks] == ["rank0", "rank2"]
    for wrong in ("0", [-1], [True], 1.5):
        with pytest.raises(msprobe.ConfigError, match="ranks should be numbers"):
            msprobe.compare_distributed(tmp_path / "t", tmp_path / "t", tmp_path / "out", ranks=wrong)
    with pytest.raises(msprobe.ConfigError, match="backend should be"):
        msprobe.compare_distributed(tmp_path / "t", tmp_path / "t", tmp_path / "out", consistent_check=True)


def test_python_compare_distributed(tmp_path):
    import msprobe

    ranks(tmp_path / "t", ["rank0", "rank1"])
    ranks(tmp_path / "g", ["rank0"])
    result = msprobe.compare_distributed(str(tmp_path / "t"), str(tmp_path / "g"), str(tmp_path / "out"))
    assert result.partial
    assert [r.rank for r in result.ranks] == ["rank0"]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"stack_mode": 1}, "stack_mode"),
        ({"auto_analyze": "yes"}, "auto_analyze"),
        ({"fuzzy_match": None}, "fuzzy_match"),
        ({"highlight": 0}, "highlight"),
        ({"is_print_compare_log": 1}, "is_print_compare_log"),
        ({"data_mapping": 3}, "data_mapping"),
        ({"fuzzy": True}, "fuzzy"),
        ({"workers": "two"}, "workers"),
        ({"workers": -1}, "workers"),
        ({"keep_rows": 1}, "keep_rows"),
        ({"suffix": 3}, "suffix"),
        ({"first_diff_analyze": 1}, "first_diff_analyze"),
        ({"api_mapping": 3}, "api_mapping"),
        ({"layer_mapping": True, "fuzzy_match": True}, "layer_mapping"),
    ],
)
def test_python_arguments_are_checked(pair, change, word):
    import msprobe

    params = {"npu_path": str(pair / "t" / "dump.json"), "bench_path": str(pair / "g" / "dump.json")}
    with pytest.raises(msprobe.ConfigError, match=word):
        msprobe.compare(params, str(pair / "out"), **change)
    assert not (pair / "out").exists()


@pytest.mark.parametrize(
    ("params", "word"),
    [
        ([], "dict"),
        (None, "dict"),
        (b"t/dump.json", "dict"),
        ({}, "npu_json_path"),
        ({"npu_path": "t/dump.json"}, "bench_json_path"),
        ({"npu_path": 3, "bench_path": "g/dump.json"}, "npu_path should be a path, got int"),
    ],
)
def test_python_input_param_is_checked(tmp_path, params, word):
    import msprobe

    with pytest.raises(msprobe.ConfigError, match=word):
        msprobe.compare(params, str(tmp_path))


@pytest.mark.parametrize("output", [None, 3, [""]])
def test_python_paths_are_checked(pair, output):
    import msprobe

    params = {"npu_path": str(pair / "t" / "dump.json"), "bench_path": str(pair / "g" / "dump.json")}
    with pytest.raises(msprobe.ConfigError, match="output_path should be a path"):
        msprobe.compare(params, output)
    with pytest.raises(msprobe.ConfigError, match="the target path should be a path"):
        msprobe.compare_distributed(output, str(pair / "g"), str(pair / "out"))
    assert not (pair / "out").exists()


def test_python_paths_may_be_bytes_or_path_objects(pair):
    import msprobe

    params = {"npu_path": pair / "t" / "dump.json", "bench_path": bytes(pair / "g" / "dump.json")}
    assert msprobe.compare(params, bytes(pair / "out")).counts["pass"] == 6


def test_python_suffix_is_for_single_comparisons(tmp_path, pair):
    import msprobe

    with pytest.raises(msprobe.ConfigError, match="suffix"):
        msprobe.compare_distributed(str(pair), str(pair), str(tmp_path / "out"), suffix="_x")
    params = {"npu_path": str(pair / "t" / "dump.json"), "bench_path": str(pair / "g" / "dump.json")}
    with pytest.raises(msprobe.CompareError, match="slash"):
        msprobe.compare(params, str(tmp_path / "out"), suffix="/../../elsewhere")
    result = msprobe.compare(params, str(tmp_path / "out"), suffix="_rank7")
    assert re.search(r"compare_result_rank7_\d{14}\.xlsx$", result.ranks[0].reports[0])


def test_python_errors_have_code_message_and_path(tmp_path):
    import pickle

    import msprobe

    gone = str(tmp_path / "gone" / "dump.json")
    with pytest.raises(msprobe.CompareError) as caught:
        msprobe.compare({"npu_path": gone, "bench_path": gone}, str(tmp_path / "out"))
    error = caught.value
    assert (error.code, error.path) == (msprobe.ErrorCode.NOT_FOUND, gone)
    assert "does not exist" in error.message
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.code, again.message, again.path) == (type(error), error.code, error.message, gone)


def test_python_data_mapping_as_dict(tmp_path):
    import msprobe

    call = entry(tensor(), output=[tensor()])
    write_json(tmp_path / "t" / "dump.json", dump({"Torch.new_name.0.forward": call}))
    write_json(tmp_path / "g" / "dump.json", dump({"Torch.old_name.0.forward": call}))
    mapping = {f"Torch.new_name.0.forward.{p}.0": f"Torch.old_name.0.forward.{p}.0" for p in ("input", "output")}
    params = {"npu_path": str(tmp_path / "t" / "dump.json"), "bench_path": str(tmp_path / "g" / "dump.json")}
    result = msprobe.compare(params, str(tmp_path / "out"), data_mapping=mapping)
    assert (result.counts["pass"], result.counts["unmatched"]) == (2, 0)
