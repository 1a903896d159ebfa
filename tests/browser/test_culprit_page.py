"""The operator at fault on the page: what the box says, what is folded, and names that try to leave their place."""

from __future__ import annotations

import base64
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from browser_dumps import HOSTILE, tensor
from browser_support import Report, compare
from playwright.sync_api import Browser, Page, expect

OpenPage = Callable[..., Page]
CALLS, AT = 30, 10


def chain(folder: Path, *, wrong: bool, calls: int = CALLS, name: str = "op") -> Path:
    """Calls that each take the result of the one before and a number; call AT gets another number when `wrong`."""
    folder.mkdir(parents=True)
    rng, rows = random.Random(3), []
    made = tensor(rng)
    for i in range(calls):
        given, made = made, tensor(rng, 0.3 if wrong and i >= AT else 0.0)
        number = 4 if wrong and i == AT else 3
        entry = f"Torch.{name if i == AT else 'op'}.{i}.forward"
        inputs = [given, {"type": "int", "value": number}]
        rows.append(f"{json.dumps(entry)}: {json.dumps({'input_args': inputs, 'input_kwargs': {}, 'output': [made]})}")
    head = '{"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": null, "data": {'
    (folder / "dump.json").write_text(head + ",\n".join(rows) + "}}")
    return folder / "dump.json"


def report_of(folder: Path, **options: object) -> Report:
    t, g = (chain(folder / side, wrong=side == "t", **options) for side in ("t", "g"))  # type: ignore[arg-type]
    return compare(t, g, folder / "out", "--culprit")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return report_of(tmp_path_factory.mktemp("culprit"))


def test_the_box_names_the_culprit_with_its_numbers(report: Report, open_page: OpenPage) -> None:
    page = open_page(report.html)
    (finding,) = report.summary["culprit"]["findings"]
    assert (finding["kind"], finding["entry"]) == ("argument", f"Torch.op.{AT}.forward")
    expect(page.locator("#answer .sentence")).to_have_text(f"Called with another argument: Torch.op.{AT}.forward")
    expect(page.locator("#answer")).to_contain_text(finding["sentence"])
    figures = dict(
        zip(page.locator(".figures dt").all_inner_texts(), page.locator(".figures dd").all_inner_texts(), strict=True)
    )
    assert figures == {"kind": "argument", "value": "4", "in the golden run": "3"}
    expect(page.locator("#answer .certainty")).to_contain_text("arguments are compared exactly")


def test_consequences_are_counted_and_folded(report: Report, open_page: OpenPage) -> None:
    page = open_page(report.html)
    count = CALLS - AT - 1
    assert report.summary["culprit"]["consequences"] == count
    fold = page.locator("#answer details")
    expect(fold.locator("summary")).to_have_text(f"{count} consequences: calls that deviate because of it")
    expect(fold.locator("li").first).to_be_hidden()
    fold.locator("summary").click()
    assert fold.locator("li").all_inner_texts() == [f"Torch.op.{i}.forward" for i in range(AT + 1, CALLS)]


def test_rows_begin_at_the_culprit_and_follow_from_it(report: Report, open_page: OpenPage) -> None:
    page = open_page(report.html)
    origins = page.locator("#origins > ol > li")
    expect(origins).to_have_count(1)
    expect(origins.first).to_contain_text(report.summary["culprit"]["findings"][0]["sentence"])
    expect(page.locator("#detail h2")).to_have_text(f"Torch.op.{AT}.forward.input.1")
    page.select_option("#filters select[aria-label='any cause']", "passed on")
    wrong = [r["NPU Name"] for r in report.rows if r["Result"] in ("error", "warning")]
    follow = [name for name in wrong if not name.startswith(f"Torch.op.{AT}.")]
    expect(page.locator("#count")).to_have_text(f"{len(follow)} of {len(report.rows)} rows")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_in_the_sentence_stay_text(name: str, tmp_path: Path, open_page: OpenPage) -> None:
    report = report_of(tmp_path, name=name)
    page = open_page(report.html)
    shown = name.replace("\u2028", "\\u2028").replace("\u202e", "\\u202e")
    expect(page.locator("#answer .sentence")).to_contain_text(shown)
    expect(page.locator("#answer")).to_contain_text("was called with input.1 = 4")
    expect(page.locator("#origins li").first).to_contain_text(shown)
    assert page.title() == "Comparison of two dumps"
    assert page.locator("#answer img, #answer svg, #answer script").count() == 0


def test_without_scripts_the_fold_is_there(report: Report, browser: Browser) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(report.html.as_uri())
    page.locator("#answer summary").click()
    expect(page.locator("#answer li").first).to_be_visible()
    page.close()


@pytest.mark.parametrize("width", [1440, 420])
def test_the_box_fits_the_window(report: Report, browser: Browser, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(report.html.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def sketched(value: float, bits: str) -> dict[str, object]:
    """A tensor of four elements with its sketch, which is exact: both sides have the same places and signs."""
    data = base64.b64encode(struct.pack("<4f", value, 0.0, 0.0, 0.0)).decode()
    leaf = tensor(random.Random(1), shape=(4,)) | {"Max": value, "Min": 0.0, "Mean": value / 4, "Norm": value}
    return leaf | {"hash64": bits * 16, "sketch": {"k": 64, "seed": 1, "data": f"f32:{data}"}}


def test_sketches_have_a_column_and_a_block_of_the_details(tmp_path: Path, report: Report, open_page: OpenPage) -> None:
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    for side, value, bits in (("t", 1.25, "a"), ("g", 1.0, "b")):
        (tmp_path / side).mkdir()
        given = sketched(1.0, "c")
        call = {"input_args": [given], "input_kwargs": {}, "output": [sketched(value, bits)]}
        (tmp_path / side / "dump.json").write_text(json.dumps(head | {"data": {"Torch.op.0.forward": call}}))
    made = compare(tmp_path / "t" / "dump.json", tmp_path / "g" / "dump.json", tmp_path / "out")
    page = open_page(made.html)
    expect(page.locator("#table .tabulator-col[tabulator-field=sketch]")).to_have_count(1)
    page.locator("#table .tabulator-row", has_text="output.0").click()
    block = page.locator("#detail section", has=page.locator("h3", has_text="By their sketches"))
    lines = {line.split("\t")[0]: line.split("\t")[1] for line in block.locator("tbody tr").all_inner_texts()}
    assert lines["relative distance"] == lines["Euclidean distance"] == "0.25"
    assert lines["all bits equal"] == "False"
    assert float(lines["cosine"]) == pytest.approx(1, abs=1e-6)  # the same direction
    # A run without sketches has no empty column.
    expect(open_page(report.html).locator("#table .tabulator-col[tabulator-field=sketch]")).to_have_count(0)


def test_a_hundred_thousand_rows_behind_a_culprit(tmp_path: Path, open_page: OpenPage) -> None:
    calls = 33_400
    report = report_of(tmp_path, calls=calls)
    count = calls - AT - 1
    assert report.summary["culprit"]["consequences"] == count
    page = open_page(report.html)
    expect(page.locator("#answer summary")).to_contain_text(f"{count} consequences")
    page.locator("#answer summary").click()
    expect(page.locator("#answer li")).to_have_count(1001)
    expect(page.locator("#answer li").last).to_have_text(f"and {count - 1000} more")
