#!/usr/bin/env python3
"""Check the documents: every relative link and every anchor leads somewhere: `check_docs.py [ROOT]`.

Looks at every Markdown file of the tree and at the navigation of mkdocs.yml. Anchors are those of the site's generator
(lower case, blanks become dashes, other signs go). Exit status 1 when a link is broken or a page cannot be reached.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
_CODE = re.compile(r"^```.*?^```|^(?: {4}|\t).*?$|`[^`\n]+`", re.M | re.S)
_FENCED = re.compile(r"^```.*?^```", re.M | re.S)
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:", re.I)


def markdown_files(root: Path) -> list[Path]:
    """Those that git tracks or would track."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z", "*.md"]
    names = subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0")
    return [root / name for name in names if name and (root / name).is_file()]


def slug(heading: str) -> str:
    """The anchor of a heading, as code hosts and mkdocs.yml make it."""
    text = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w -]", "", text.lower()).strip().replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Anchors of a page; a heading that stands twice cannot be told apart, so its second anchor is not offered."""
    out: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", _FENCED.sub("", text), re.M):
        out.add(slug(heading))
    return out | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def links(text: str) -> list[str]:
    """Targets of links outside of code."""
    return _LINK.findall(_CODE.sub("", text))


def check_page(page: Path, root: Path) -> list[str]:
    """Problems of one page."""
    problems = []
    text = page.read_text(encoding="utf-8")
    for target in links(text):
        if _OUTSIDE.match(target):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        where = page.relative_to(root)
        if not other.exists():
            problems.append(f"{where}: {target}: no such file")
        elif anchor and other.suffix == ".md" and anchor not in anchors(other.read_text(encoding="utf-8")):
            problems.append(f"{where}: {target}: no such heading")
    return problems


def check_navigation(root: Path) -> list[str]:
    """Pages of docs/ that the site does not show, and entries without a page."""
    config = root / "mkdocs.yml"
    if not config.exists():
        return []
    named = set(re.findall(r"[\w/-]+\.md", config.read_text(encoding="utf-8").split("\nnav:")[1]))
    there = {p.relative_to(root / "docs").as_posix() for p in (root / "docs").rglob("*.md")}
    problems = [f"mkdocs.yml: {name}: not in its navigation" for name in sorted(there - named)]
    return problems + [f"mkdocs.yml: {name}: no such page" for name in sorted(named - there)]


def main(argv: list[str]) -> int:
    root = Path(argv[1]).resolve() if len(argv) > 1 else Path(__file__).resolve().parent.parent
    pages = markdown_files(root)
    problems = [problem for page in pages for problem in check_page(page, root)] + check_navigation(root)
    for problem in problems:
        print(f"error: {problem}")
    print(f"docs: {len(pages)} pages, {len(problems)} errors")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
