"""The operator at fault from Python, and the same facts in everything that a comparison writes."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from culprit_runs import RELATIVE, WRONG, line_of_gelu, record_pair

import msprobe
from msprobe.errors import ConfigError
from msprobe.precheck.culprit import scores


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return record_pair(tmp_path_factory.mktemp("pair"))


def from_python(pair: tuple[Path, Path], out: Path, **options: Any) -> Any:
    return msprobe.compare({"npu_json_path": str(pair[0]), "bench_json_path": str(pair[1])}, out, **options)


def command(*args: Any, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "msprobe", *map(str, args)], capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def test_culprit_of_a_comparison_from_python(pair: tuple[Path, Path], tmp_path: Path) -> None:
    result = from_python(pair, tmp_path / "out", culprit=True)
    culprit, search = result.culprit, result.culprit_search
    assert (culprit.kind, culprit.entry, culprit.golden_entry, culprit.leaf) == ("introduced", WRONG, WRONG, "output.0")
    # The kernel's result is 1.001 times what it should be, its inputs are those of the golden run to the bit.
    assert culprit.introduced == pytest.approx(RELATIVE, rel=1e-3)
    assert culprit.inherited == 0
    assert culprit.score > 4 > culprit.golden_score
    assert culprit.p_value == pytest.approx(0.0036 * culprit.score**-3.47, rel=1e-12)
    assert culprit.code == f"{Path(__file__).parent / 'culprit_runs.py'}:{line_of_gelu()}"
    assert WRONG in culprit.sentence
    assert str(culprit) == f"introduced: {culprit.sentence}"
    assert culprit.numbers["score"] == culprit.score
    assert culprit.deviation is None
    assert (search.verdict, search.mode, len(search.findings), search.discoveries) == ("found", "tensor", 1, 1)
    # What comes behind is a consequence; what comes before is not.
    followers = set(search.followers)
    assert culprit.consequences == search.consequences == len(search.followers) == len(followers)
    assert {"Functional.linear.5.forward", "Functional.gelu.3.forward"} <= followers
    assert not {WRONG, "Functional.gelu.1.forward", "Functional.linear.4.forward"} & followers
    (rank,) = result.ranks
    assert rank.culprit.sentence == culprit.sentence
    assert result.first_bad["kind"] == "introduced"


def test_effect_on_the_loss_from_python(pair: tuple[Path, Path], tmp_path: Path) -> None:
    result = from_python(pair, tmp_path / "out", culprit=True, loss_impact=True)
    impact = result.culprit_search.loss_impact
    losses = [json.loads(p.read_text())["data"]["Tensor.mean.0.forward"]["output"][0]["Max"] for p in pair]
    assert impact["difference"] == losses[0] - losses[1]
    assert impact["unexplained"] == impact["difference"] - impact["sum"]
    assert result.culprit.loss_impact == pytest.approx(impact["difference"], rel=0.01)


def test_without_the_option_python_searches_nothing(pair: tuple[Path, Path], tmp_path: Path) -> None:
    result = from_python(pair, tmp_path / "out")
    assert result.culprit is None
    assert result.culprit_search is None
    assert result.first_bad is not None
    assert "kind" not in result.first_bad
    with pytest.raises(ConfigError, match="culprit should be a bool, got 'yes'"):
        from_python(pair, tmp_path / "out", culprit="yes")


def test_equal_dumps_have_no_culprit(pair: tuple[Path, Path], tmp_path: Path) -> None:
    result = from_python((pair[1], pair[1]), tmp_path / "out", culprit=True)
    assert result.culprit is None
    assert (result.culprit_search.verdict, result.culprit_search.reason) == ("none", None)
    assert result.culprit_search.findings == result.culprit_search.followers == []


def test_a_search_ends_when_it_should_stop(pair: tuple[Path, Path]) -> None:
    jobs = {"dump": str(pair[0]), "other": "", "limit": 4, "parameters": []}
    names = ["Functional.gelu.1", "Functional.gelu.2", "Functional.gelu.3"]
    asked: list[int] = []

    def stop() -> bool:
        asked.append(len(asked))
        return len(asked) == 2

    with pytest.raises(KeyboardInterrupt):
        scores(json.dumps(jobs | {"calls": [[n, "", True, False] for n in names]}), stop)
    assert len(asked) == 2


def test_without_torch_the_search_says_what_is_missing(pair: tuple[Path, Path], tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['torch'] = None; import msprobe; "
        f"r = msprobe.compare({{'npu_path': {str(pair[0])!r}, 'bench_path': {str(pair[1])!r}}}, "
        f"{str(tmp_path / 'out')!r}, culprit=True); "
        "print(r.culprit.entry); print(r.culprit.kind); print(*r.culprit_search.notes)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    entry, kind, note = done.stdout.splitlines()
    assert (entry, kind) == (WRONG, "output")
    assert "need PyTorch" in note
    assert "pip install torch" in note
    assert "judged by growth" in note


# ---- one set of facts


class Answer(HTMLParser):
    """The texts of the coloured box at the top of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.depth, self.text, self.lines = 0, "", []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "section" and ("id", "answer") in attrs:
            self.depth = 1
        if self.depth and tag == "li":
            self.lines.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "section":
            self.depth = 0

    def handle_data(self, data: str) -> None:
        if self.depth:
            self.text += data
            if self.lines:
                self.lines[-1] += data


def name_in_workbook(path: Path, row: int) -> str:
    """The first cell of a row, counted from 0 behind the header."""
    sheet = openpyxl.load_workbook(path, read_only=True).worksheets[0]
    return str(next(sheet.iter_rows(min_row=row + 2, max_row=row + 2, values_only=True))[0])


@dataclass
class Told:
    """What an output says of the culprit; None: it does not say so."""

    kind: str | None = None
    entry: str | None = None
    sentence: str | None = None
    consequences: int | None = None
    row: str | None = None  # the name in the row that row_index points at


def told_by_page(html: str) -> tuple[Told, list[str]]:
    """What the box at the top says, and the consequences that are folded below."""
    answer = Answer(html)
    lines = [line for line in answer.text.splitlines() if line.strip()]
    found = re.search(r"(\d+) consequences: ", answer.text)
    kind = re.search(r"<dt>kind</dt><dd>(\w+)</dd>", html)
    told = Told(
        kind[1] if kind else "",
        lines[0].removeprefix("Wrong result from right inputs: "),
        lines[1],
        int(found[1]) if found else -1,
    )
    return told, [line.strip() for line in answer.lines]


def facts_of_everything(pair: tuple[Path, Path], out: Path) -> tuple[dict[str, Any], dict[str, Told]]:
    """The summary of the newer spelling, and what all outputs of both spellings say."""
    target, golden = pair
    new = command(
        "compare",
        "-tp",
        target,
        "-gp",
        golden,
        "-o",
        out / "new",
        "--json",
        out / "rows.jsonl",
        "--junit",
        out / "j.xml",
    )
    command("compare", "-tp", target, "-gp", golden, "-o", out / "xlsx", "--xlsx", "--no-html")
    (out / "c.json").write_text(
        json.dumps({"npu_path": str(target), "bench_path": str(golden), "is_print_compare_log": False})
    )
    old = command("-f", "pytorch", "compare", "-i", out / "c.json", "-o", out / "old", "--culprit")
    result = from_python(pair, out / "python", culprit=True, keep_rows=True)
    summaries = {
        n: json.loads(next((out / n).glob("compare_summary_*.json")).read_text())
        for n in ("new", "xlsx", "old", "python")
    }
    summary = summaries["new"]
    at = summary["first_bad"]["row_index"]
    told: dict[str, Told] = {}
    for name, s in summaries.items():
        finding = s["culprit"]["findings"][0]
        told[f"summary of {name}"] = Told(
            finding["kind"], finding["entry"], finding["sentence"], s["culprit"]["consequences"], s["first_bad"]["row"]
        )
        bad = s["first_bad"]
        told[f"first_bad of {name}"] = Told(bad["kind"], bad["entry"], bad["reason"], None, bad["row"])
        assert bad["row_index"] == at
    for name, text in (("new", new.stdout), ("old", old.stdout)):
        found = re.search(r"^Culprit: (\w+): (.*)\n  .* (\d+) consequences;", text)
        assert found, text
        told[f"terminal of {name}"] = Told(found[1], found[2].split()[0], found[2], int(found[3]))
    for done in (new, old):
        assert f"first_bad {summary['first_bad']['entry']}," in done.stderr
    c = result.culprit
    told["Python"] = Told(c.kind, c.entry, c.sentence, c.consequences, result.ranks[0].rows()[at][0])
    suite = ET.parse(out / "j.xml").getroot()[0]
    test = next(t for t in suite if t.get("name") == "culprit")
    failure = test.find("failure")
    assert failure is not None
    count = re.search(r"^consequences: (\d+)$", failure.text or "", re.M)
    told["junit"] = Told(failure.get("type"), None, failure.get("message"), int(count[1]) if count else None)
    failed = sum(t.find("failure") is not None for t in suite)
    assert (int(suite.get("tests", 0)), int(suite.get("failures", 0))) == (len(suite), failed)
    told["page"], followers = told_by_page(next((out / "new").glob("compare_report_*.html")).read_text())
    assert followers == result.culprit_search.followers
    with next((out / "new").glob("compare_result_*.csv")).open(newline="") as file:
        told["csv"] = Told(row=list(csv.DictReader(file))[at]["NPU Name"])
    told["json rows"] = Told(row=json.loads((out / "rows.jsonl").read_text().splitlines()[at])["NPU Name"])
    for name in ("xlsx", "old", "python"):
        book = next((out / name).glob("compare_result_*.xlsx"))
        told[f"workbook of {name}"] = Told(row=name_in_workbook(book, at))
    advice = next((out / "old").glob("advisor_*.txt")).read_text()
    found = re.search(r"^Culprit \((\w+)\): (\S+) \(row (\d+): (.*)\)$", advice, re.M)
    assert found
    assert int(found[3]) == at + 2
    told["advice"] = Told(found[1], found[2], found[4])
    return summary, told


def test_all_outputs_say_the_same(pair: tuple[Path, Path], tmp_path: Path) -> None:
    summary, told = facts_of_everything(pair, tmp_path)
    sentence = summary["culprit"]["findings"][0]["sentence"]
    count = summary["culprit"]["consequences"]
    assert count > 3
    for name, t in told.items():
        assert t.kind in (None, "introduced"), name
        assert t.entry in (None, WRONG), name
        assert t.sentence in (None, sentence), name
        assert t.consequences in (None, count), name
        assert t.row in (None, f"{WRONG}.output.0"), name
    assert len(told) == 19


@pytest.mark.parametrize(("option", "status"), [("culprit", 3), ("error,culprit", 3), ("unmatched", 0)])
def test_fail_on_culprit(pair: tuple[Path, Path], tmp_path: Path, option: str, status: int) -> None:
    both = ("compare", "-tp", pair[0], "-gp", pair[1], "-o", tmp_path / "out", "--no-html", "--fail-on", option)
    command(*both, status=status)
    command(*both[:2], pair[1], *both[3:])
    refused = command(*both, "--no-culprit", status=2 if "culprit" in option else 0)
    assert ("--fail-on culprit: contradicts --no-culprit" in refused.stderr) == ("culprit" in option)
