"""The rule sets of `compare` as a user meets them: options, rule files, the page of all rules, both spellings."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from cli_support import ROOT, dump, entry, tensor, write_json

NORM = "Functional.layer_norm.0.forward"


def norm_dumps(folder: Path, off: float) -> None:
    """One layer norm whose maximum is off by `off` of its value; the inputs are equal."""
    for side, value in (("t", 1.0 + off), ("g", 1.0)):
        data = {NORM: entry(tensor(), output=[tensor(Max=value)])}
        write_json(folder / side / "dump.json", dump(data))


def compared(msprobe: Any, *options: str) -> tuple[list[dict[str, str]], dict[str, Any]]:
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", *options)
    assert run.status == 0, run.err
    out = run.cwd / "out"
    (report,) = out.glob("compare_result_*.csv")
    (summary,) = out.glob("compare_summary_*.json")
    with report.open(newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    answer = json.loads(summary.read_text())
    for path in out.iterdir():
        path.unlink()
    return rows, answer


def test_explained_rules_are_the_ones_in_the_documents(msprobe):
    run = msprobe("compare", "--explain-rules")
    assert run.status == 0
    page = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
    assert run.out.strip() in page


def test_default_rules_see_what_base_rules_do_not(tmp_path, msprobe):
    norm_dumps(tmp_path, 1e-3)
    rows, summary = compared(msprobe)
    assert rows[1]["Result"] == "error"
    assert json.loads(rows[1]["Err_message"])[0].startswith("error: Q3 off by 0.0005")  # 1e-3 / (1 + rms 0.82)
    assert summary["first_bad"]["entry"] == NORM
    assert summary["options"]["rules"] == "default"
    for rules in ("base", "upstream"):
        rows, summary = compared(msprobe, "--rules", rules)
        assert rows[1]["Result"] == "pass"
        assert summary["first_bad"] is None


def test_rounding_raises_nothing(tmp_path, msprobe):
    norm_dumps(tmp_path, 1e-6)
    rows, summary = compared(msprobe)
    assert {row["Result"] for row in rows} == {"pass"}
    assert {row["Err_message"] for row in rows} == {"[]"}
    assert summary["first_bad"] is None


def test_rule_file_changes_limits(tmp_path, msprobe):
    norm_dumps(tmp_path, 1e-3)
    (tmp_path / "rules.yaml").write_text("limits:\n- {api: layer_norm, rounding: 1e5}\n")
    rows, _ = compared(msprobe, "--rules", "rules.yaml")
    assert rows[1]["Result"] == "pass"
    (tmp_path / "rules.yaml").write_text("limits:\n- {name: '*.output.0', off: [Q3]}\n")
    rows, _ = compared(msprobe, "--rules", "rules.yaml")
    assert rows[1]["Result"] == "pass"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty"),
        ("limits: 5", "limits: not a list"),
        ("limit: []", "did you mean limits?"),
        ("limits: [{api: linear}]", "limits[0]: changes nothing"),
        ("limits: [{noise: 0}]", "rules.yaml:1:18 limits[0].noise: not a number above 0"),
        ("limits: [{off: [R9]}]", "'R9' is no rule"),
        ("limits: [{noisy: 1}]", "did you mean noise?"),
        ("limits: [", "not valid YAML"),
    ],
)
def test_bad_rule_files_are_refused(tmp_path, msprobe, text, words):
    norm_dumps(tmp_path, 0)
    (tmp_path / "rules.yaml").write_text(text)
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", "--rules", "rules.yaml")
    assert run.status == 2
    assert words in "\n".join(run.errors())
    assert run.files() == []


def test_unknown_rule_set_is_refused(tmp_path, msprobe):
    norm_dumps(tmp_path, 0)
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "--rules", "strict")
    assert run.status == 2
    assert "default" in run.errors()[0]


def test_older_spelling_keeps_its_verdict_and_says_the_finding(tmp_path, msprobe):
    norm_dumps(tmp_path, 1e-3)
    write_json(tmp_path / "c.json", {"npu_path": "t/dump.json", "bench_path": "g/dump.json"})
    run = msprobe("-f", "pytorch", "compare", "-i", "c.json", "-o", "out")
    assert run.status == 0
    (report,) = (tmp_path / "out").glob("*.xlsx")
    sheet = openpyxl.load_workbook(report).active
    header, *rows = [list(row) for row in sheet.iter_rows(values_only=True)]
    output = dict(zip(header, rows[1], strict=True))
    assert output["Result"] in (None, "")
    assert "error: Q3" in output["Err_message"]
    (summary,) = (tmp_path / "out").glob("compare_summary_*.json")
    assert json.loads(summary.read_text())["first_bad"]["entry"] == NORM


def test_consequences_are_marked_and_counted(tmp_path, msprobe):
    for side, value in (("t", 2.0), ("g", 1.0)):
        data = {
            "Torch.exp.0.forward": entry(tensor(), output=[tensor(Max=value)]),
            "Torch.tanh.0.forward": entry(tensor(Max=value), output=[tensor(Max=value, Norm=3.0)]),
        }
        write_json(tmp_path / side / "dump.json", dump(data))
    rows, summary = compared(msprobe)
    assert [row["Result"] for row in rows] == ["pass", "error", "warning", "warning"]
    assert "follows from Torch.exp.0.forward.output.0" in rows[2]["Err_message"]
    assert summary["counts"]["consequences"] == 2
    assert summary["first_bad"]["entry"] == "Torch.exp.0.forward"


def test_dumps_of_different_kinds_meet_in_their_statistics(tmp_path, msprobe):
    data = {NORM: entry(tensor(), output=[tensor()])}
    summed = {NORM: entry(tensor(md5="8ba71454"), output=[tensor(md5="8ba71454")])}
    for target, words in (
        (dump(data, task="tensor"), "a dump of task tensor against one of task statistics"),
        (dump(summed), "only one dump has checksums"),
    ):
        write_json(tmp_path / "t" / "dump.json", target)
        write_json(tmp_path / "g" / "dump.json", dump(data))
        rows, summary = compared(msprobe)
        assert [row["Result"] for row in rows] == ["pass", "pass"]
        assert "Max diff" in rows[0]
        assert any(words in note for note in summary["ranks"][0]["notes"])
        run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "no", "--rules", "base")
        assert run.status == 2


def test_what_was_never_recorded_is_counted(tmp_path, msprobe):
    data = {
        NORM: entry({"type": "torch.Tensor"}, output=[tensor()]),
        "Torch.a.0.forward": {"input_args": 5},
        "Torch.b.0.forward": None,
    }
    for side in ("t", "g"):
        write_json(tmp_path / side / "dump.json", dump(data))
    rows, summary = compared(msprobe)
    assert [row["Result"] for row in rows] == ["unmatched", "pass", "unmatched", "unmatched"]
    assert all("Nothing was recorded to compare" in row["Err_message"] for row in rows if row["Result"] == "unmatched")
    assert "target: 3 records are malformed and cannot be compared" in summary["ranks"][0]["notes"]


def test_dumps_of_two_frameworks_are_compared_by_values(tmp_path, msprobe):
    name = "Module.fc.Linear.forward.0"
    ours = tensor(dtype="Float32", Max=1.0)
    del ours["requires_grad"]
    for side, leaf in (("t", ours), ("g", tensor())):
        write_json(tmp_path / side / "dump.json", dump({name: entry(leaf, output=[leaf])}))
    rows, _ = compared(msprobe)
    assert [row["Result"] for row in rows] == ["pass", "pass"]
    ours["Max"] = 2.0
    write_json(tmp_path / "t" / "dump.json", dump({name: entry(tensor(), output=[ours])}))
    rows, _ = compared(msprobe)
    assert [row["Result"] for row in rows] == ["pass", "error"]
