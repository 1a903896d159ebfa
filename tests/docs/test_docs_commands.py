"""Every command in the documents runs and prints what the documents say."""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_blocks import DOCS, blocks, missing, pages, run_page

QUICK = {"quickstart.md", "install.md"}  # the others are run by `make test-slow`
TRANSLATIONS = [p for p in pages() if p.parent.name == "zh"]
OWN = [p for p in pages() if p not in TRANSLATIONS]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(p, id=p.relative_to(DOCS).as_posix(), marks=[] if p.name in QUICK else pytest.mark.slow)
        for p in OWN
    ],
)
def test_commands_of_a_page(page: Path, tmp_path: Path) -> None:
    problems = run_page(page, tmp_path)
    assert not problems, "\n\n".join(problems)


@pytest.mark.parametrize("page", TRANSLATIONS, ids=lambda p: p.relative_to(DOCS).as_posix())
def test_a_translation_has_the_commands_of_the_original(page: Path) -> None:
    original = DOCS / page.relative_to(DOCS / "zh")
    kinds = ("file", "run")
    assert [b for b in blocks(page) if b.kind in kinds] == [b for b in blocks(original) if b.kind in kinds]


def test_the_runner_sees_failures(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```bash\nfalse\n```\n")
    for name, text, words in (
        ("a", "```bash\nfalse\n```\n", "status 1, not 0"),
        ("b", "```bash\necho two\necho one\n```\n\n```text prints\none\ntwo\n```\n", "not printed: two"),
        ("c", "```bash status=3\nexit 2\n```\n", "status 2, not 3"),
        ("d", "```text\nanything\n```\n\n<!-- not run: needs an NPU -->\n```bash\nfalse\n```\n", None),
        ("e", '```json title="f.json"\n{}\n```\n\n```bash\ncat f.json\n```\n\n```text prints\n{…}\n```\n', None),
    ):
        page.write_text(text)
        (tmp_path / name).mkdir()
        problems = run_page(page, tmp_path / name)
        assert bool(problems) == bool(words)
        assert not words or words in problems[0]
    assert missing("a … c", "a b c") == []


def test_reasons_of_commands_that_are_not_run() -> None:
    for page in DOCS.rglob("*.md"):
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith("<!-- not run"):
                assert line.removeprefix("<!-- not run: ").removesuffix(" -->").strip(), page
