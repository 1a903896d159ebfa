"""The page of a comparison in a real browser: what it says against csv, summary and dumps."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from browser_dumps import HOSTILE, Network, add_hostile, write_many
from browser_support import Report, compare, executable
from playwright.sync_api import Browser, Page, expect

OpenPage = Callable[..., Page]
BLOCKS, FAULT = 12, 4


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A network of 12 blocks whose norm of block 4 is wrong, and three calls with hostile names."""
    folder = tmp_path_factory.mktemp("page")
    sides = {"t": Network(BLOCKS, FAULT), "g": Network(BLOCKS)}
    for name, network in sides.items():
        add_hostile(network)
        network.write(folder / name)
    return compare(folder / "t" / "dump.json", folder / "g" / "dump.json", folder / "out")


def names_shown(page: Page) -> list[str]:
    """Names of the rows that the table holds now, from the top."""
    cells = page.locator("#table .tabulator-row .tabulator-cell[tabulator-field=name]")
    return cells.all_inner_texts()


def verdicts(report: Report) -> Counter[str]:
    return Counter(row["Result"] for row in report.rows)


def relative_error(row: dict[str, str]) -> float:
    """The page's figure, by its description, from the csv."""
    t = [float(row[f"NPU {k}"]) for k in ("max", "min", "mean", "l2norm")]
    g = [float(row[f"Bench {k}"]) for k in ("max", "min", "mean", "l2norm")]
    scale = max(abs(g[0]), abs(g[1]))
    return max(*(abs(t[k] - g[k]) / scale for k in range(3)), abs(t[3] - g[3]) / g[3])


def test_answer_and_counts_are_those_of_the_summary(report: Report, open_page: OpenPage) -> None:
    page = open_page(report.html)
    first = report.summary["first_bad"]
    assert first["entry"] == f"Functional.layer_norm.{FAULT}.forward"
    expect(page.locator("#answer .sentence")).to_contain_text(f"First wrong output from right inputs: {first['entry']}")
    expect(page.locator("#answer")).to_contain_text(first["reason"])
    for word in ("error", "warning", "unmatched", "pass"):
        tile = page.locator(f"#tiles [data-verdict={word}] b")
        assert tile.inner_text() == str(report.summary["counts"][word]) == str(verdicts(report)[word])


def test_the_first_bad_row_is_open(report: Report, open_page: OpenPage) -> None:
    page = open_page(report.html)
    expect(page.locator("#detail h2")).to_have_text(report.summary["first_bad"]["row"])
    expect(page.locator("#table .tabulator-row.selected")).to_have_count(1)
    expect(page.locator("#detail .lines")).to_contain_text("x = self.norm(x)")
    expect(page.locator("#detail .command code").first).to_contain_text("msprobe diff ")


def test_filters(report: Report, open_page: OpenPage) -> None:
    page = open_page(report.html)
    count, total = page.locator("#count"), len(report.rows)
    expect(count).to_have_text(f"{total} rows")
    page.click("#filters .chip[data-verdict=error]")
    expect(count).to_have_text(f"{verdicts(report)['error']} of {total} rows")
    page.click("#filters .chip[data-verdict=warning]")
    expect(count).to_have_text(f"{verdicts(report)['error'] + verdicts(report)['warning']} of {total} rows")
    page.click("#clear")
    expect(count).to_have_text(f"{total} rows")
    page.fill("#search", "GELU backward")
    both = sum("gelu" in row["NPU Name"].lower() and "backward" in row["NPU Name"] for row in report.rows)
    assert both > 0
    expect(count).to_have_text(f"{both} of {total} rows")
    page.fill("#search", "no such name")
    expect(count).to_have_text(f"0 of {total} rows")


def test_sort_by_error(report: Report, open_page: OpenPage) -> None:
    page = open_page(report.html)
    page.click("#table .tabulator-col[tabulator-field=error]")
    page.locator("#table .tabulator-tableholder").evaluate("box => box.scrollTop = 0")
    errors = {row["NPU Name"]: relative_error(row) for row in report.rows}
    worst = max(errors.values())
    expect(page.locator("#table .tabulator-row").first).to_contain_text(f"{worst:.4g}")
    shown = [errors[name] for name in names_shown(page)[:20] if name in errors]
    assert shown == sorted(shown, reverse=True)


def test_drill_down_shows_what_the_dumps_hold(report: Report, open_page: OpenPage) -> None:
    page = open_page(report.html)
    page.fill("#search", "Functional.linear.2.forward.input")
    first = page.locator("#table .tabulator-row").first
    expect(first).to_contain_text("Functional.linear.2.forward.input")
    first.click()
    row = next(r for r in report.rows if r["NPU Name"].startswith("Functional.linear.2.forward.input"))
    detail = page.locator("#detail")
    expect(detail.locator("h2")).to_have_text(row["NPU Name"])
    line = detail.locator("tr", has=page.locator("th", has_text="norm")).first
    tips = [line.locator("td").nth(k).get_attribute("title") for k in range(2)]
    assert tips == [row["NPU l2norm"], row["Bench l2norm"]]
    assert line.locator("td").nth(2).inner_text() == "0"
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(detail).to_be_hidden()


def test_tree_filters_by_module(report: Report, open_page: OpenPage) -> None:
    page = open_page(report.html)
    branch = page.locator("#tree .branch", has_text="norm (LayerNorm)").first
    expect(branch).to_have_class("branch tone-bad")  # the way to the first bad entry is open
    branch.click()
    inside = sum(
        f"layers.{FAULT}.norm." in row["NPU Name"] or f"layer_norm.{FAULT}." in row["NPU Name"] for row in report.rows
    )
    expect(page.locator("#count")).to_have_text(f"{inside} of {len(report.rows)} rows")
    expect(branch).to_have_class("branch tone-bad chosen")


def test_where_errors_begin_folds_what_follows(report: Report, open_page: OpenPage) -> None:
    page = open_page(report.html)
    first = page.locator("#origins > ol > li").first
    expect(first.locator("button").first).to_have_text(report.summary["first_bad"]["row"])
    first.locator("summary").click()
    expect(first.locator(".names li").first).to_be_visible()


def test_keyboard(report: Report, open_page: OpenPage) -> None:
    page = open_page(report.html)
    selected = page.locator("#detail h2")
    wrong = [r["NPU Name"] for r in report.rows if r["Result"] in ("error", "warning")]
    expect(selected).to_have_text(wrong[0])
    page.keyboard.press("n")
    expect(selected).to_have_text(wrong[1])
    page.keyboard.press("p")
    expect(selected).to_have_text(wrong[0])
    names = [r["NPU Name"] for r in report.rows]
    page.keyboard.press("j")
    expect(selected).to_have_text(names[names.index(wrong[0]) + 1])
    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.locator("#key-help")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dark_mode_by_system_and_by_button(report: Report, open_page: OpenPage, scheme: str) -> None:
    page = open_page(report.html, color_scheme=scheme)
    paper = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}
    other = "dark" if scheme == "light" else "light"
    expect(page.locator("body")).to_have_css("background-color", paper[scheme])
    page.click("#theme")
    expect(page.locator("body")).to_have_css("background-color", paper[other])
    expect(page.locator("#table .tabulator-row").first).to_have_css("background-color", paper[other])


def test_hostile_names_stay_text(report: Report, open_page: OpenPage) -> None:
    page = open_page(report.html)
    for k, name in enumerate(HOSTILE):
        page.fill("#search", f".{k}.forward {name[:6]}")
        row = page.locator("#table .tabulator-row").first
        shown = name.replace("\u2028", "\\u2028").replace("\u202e", "\\u202e")
        expect(row).to_contain_text(shown)
        row.click()
        expect(page.locator("#detail h2")).to_contain_text(shown)
    assert page.title() == "Comparison of two dumps"
    assert page.locator("img, svg").count() == 0


def test_printing_lists_what_is_not_right(report: Report, open_page: OpenPage) -> None:
    page = open_page(report.html)
    assert page.pdf(format="A4").startswith(b"%PDF")
    wrong = sum(n for word, n in verdicts(report).items() if word != "pass")
    expect(page.locator("#print tbody tr")).to_have_count(wrong)


def test_without_scripts_the_answer_is_there(report: Report, browser: Browser) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(report.html.as_uri())
    assert report.summary["first_bad"]["entry"] in page.inner_text("#answer")
    page.close()


def test_ranks_side_by_side(tmp_path: Path, open_page: OpenPage) -> None:
    faults = {0: -1, 1: 6, 2: 3}
    for rank, fault in faults.items():
        Network(BLOCKS, fault).write(tmp_path / "t" / f"rank{rank}")
        Network(BLOCKS).write(tmp_path / "g" / f"rank{rank}")
    Network(BLOCKS).write(tmp_path / "g" / "rank3")
    broken = Network(BLOCKS).write(tmp_path / "t" / "rank4")
    Network(BLOCKS).write(tmp_path / "g" / "rank4")
    broken.write_text('{"task": "statistics"')
    report = compare(tmp_path / "t", tmp_path / "g", tmp_path / "out")
    page = open_page(report.html)
    lines = page.locator("#parts tbody tr")
    expect(lines).to_have_count(5)
    by_rank = {r["rank"]: r for r in report.summary["ranks"]}
    for rank, fault in faults.items():
        line = page.locator(f"#parts tbody tr:has(button:text-is('rank{rank}'))")
        counts = by_rank[f"rank{rank}"]["counts"]
        shown = line.locator("td.number").all_inner_texts()
        assert shown == [str(counts[w]) for w in ("error", "warning", "unmatched", "pass")]
        if fault >= 0:
            expect(line).to_contain_text(f"Functional.layer_norm.{fault}.forward")
    expect(page.locator("#parts .problem", has_text="missing in the target dump")).to_have_count(1)
    expect(page.locator("#parts .problem", has_text="failed:")).to_have_count(1)
    page.click("#parts button:text-is('rank2')")
    expect(page.locator("#part-title")).to_have_text("rank2")
    expect(page.locator("#detail h2")).to_contain_text("Functional.layer_norm.3.forward")
    box = page.locator("#heat").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] * 0.3, box["y"] + 1.5 * box["height"] / 5)
    expect(page.locator("#part-title")).to_have_text("rank1")


def test_a_hundred_thousand_rows(tmp_path: Path, open_page: OpenPage) -> None:
    calls, wrong = 25_000, 21_000
    write_many(tmp_path / "t", calls, wrong)
    write_many(tmp_path / "g", calls)
    report = compare(tmp_path / "t" / "dump.json", tmp_path / "g" / "dump.json", tmp_path / "out")
    assert report.summary["counts"]["total"] == 100_000
    page = open_page(report.html)
    expect(page.locator("#count")).to_have_text("100000 rows")
    expect(page.locator("#detail h2")).to_have_text(f"Torch.op.{wrong}.forward.output.0")
    page.fill("#search", "Torch.op.24999.")
    expect(page.locator("#count")).to_have_text("4 of 100000 rows")


def test_old_spelling_on_request(tmp_path: Path, open_page: OpenPage) -> None:
    t, g = Network(3, 1).write(tmp_path / "t"), Network(3).write(tmp_path / "g")
    (tmp_path / "compare.json").write_text(json.dumps({"npu_path": str(t), "bench_path": str(g)}))
    command = [*executable(), "-f", "pytorch", "compare", "-i", "compare.json", "-o", "out"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    assert not list((tmp_path / "out").glob("*.html"))
    assert subprocess.run([*command, "--html"], cwd=tmp_path, capture_output=True, check=False).returncode == 0
    (html,) = (tmp_path / "out").glob("compare_report_*.html")
    page = open_page(html)
    expect(page.locator("#count")).to_have_text("84 rows")
