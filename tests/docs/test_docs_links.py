"""tools/check_docs.py: what it says of this tree, and that it sees broken links."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from doc_blocks import ROOT

TOOL = ROOT / "tools" / "check_docs.py"


def check(root: Path) -> tuple[int, list[str]]:
    done = subprocess.run([sys.executable, TOOL, root], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def test_every_link_of_this_tree_leads_somewhere() -> None:
    status, lines = check(ROOT)
    assert status == 0, lines


def test_broken_links_are_named(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text(
        "# A `b`: c\n[x](b.md#for-programs---json) [y](b.md#gone) [z](c.md) [w](https://example.org/none)\n"
        "[self](#a-b-c)\n\n    [code](none.md)\n\n```text\n[code](none.md)\n```\n`[code](none.md)`\n"
    )
    (docs / "b.md").write_text("## For programs: `--json`\n```text\n# gone\n```\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: x\nnav:\n  - A: a.md\n  - D: d.md\n")
    status, lines = check(tmp_path)
    assert status == 1
    assert lines == [
        "error: docs/a.md: b.md#gone: no such heading",
        "error: docs/a.md: c.md: no such file",
        "error: mkdocs.yml: b.md: not in its navigation",
        "error: mkdocs.yml: d.md: no such page",
        "docs: 2 pages, 4 errors",
    ]
