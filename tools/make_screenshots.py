#!/usr/bin/env python3
"""Pictures of reports for the documents, and the example report.

    tools/make_screenshots.py [--dumps output/demo] [--msprobe .venv/bin/msprobe]

Compares the dumps that `make demo` left and a made-up run of eight ranks, opens the pages in Debian's Chromium and
writes docs/images/*.png and examples/report/digits.html. Needs the packages of tools/packages/*-test.txt.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "browser"))
from browser_dumps import Network  # noqa: E402

IMAGES = ROOT / "docs" / "images"


def compare(msprobe: str, target: Path, golden: Path, out: Path, cwd: Path) -> Path:
    """Compare and return the page. Paths are relative to `cwd`, so that pages do not show where they were made."""
    command = [msprobe, "compare", "-tp", str(target), "-gp", str(golden), "-o", str(out)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    (html,) = (cwd / out).glob("compare_report_*.html")
    return html


def open_page(browser: Browser, html: Path, scheme: str = "light", height: int = 1000) -> Page:
    """The page with its rows."""
    page = browser.new_page(viewport={"width": 1440, "height": height}, color_scheme=scheme)
    page.goto(html.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    page.wait_for_timeout(300)
    return page


def save(page: Page, name: str, selector: str = "", full: bool = False) -> None:
    """One picture: of an element, of what is seen, or of everything."""
    path = str(IMAGES / f"{name}.png")
    if selector:
        page.locator(selector).screenshot(path=path)
    else:
        page.screenshot(path=path, full_page=full)
    print(path)


def demo_pictures(browser: Browser, html: Path) -> None:
    """Forward: from the first line to the guilty operator."""
    page = open_page(browser, html, height=700)
    save(page, "report-top")
    save(page, "report-plot", "#plot-section")
    save(page, "report-begins", "#origins")
    page.locator("#explore").scroll_into_view_if_needed()
    save(page, "report-rows", "#explore")
    page.select_option("#filters select[aria-label='any place']", "backward out")
    save(page, "report-backward", "#explore")
    page.close()
    page = open_page(browser, html, scheme="dark", height=1000)
    save(page, "report-dark", full=True)
    page.close()


def ranks_pictures(browser: Browser, html: Path) -> None:
    """Many ranks: the heat map."""
    page = open_page(browser, html)
    save(page, "report-ranks", "#parts")
    page.close()


def without_machine(text: str) -> str:
    """Stack lines that begin in the repository or in a package, not at the root of somebody's disk."""
    return re.sub(r"File /[^ ,]*?/(?=(site-packages|examples)/)", "File ", text)


def made_up_ranks(folder: Path, ranks: int = 8, blocks: int = 40) -> None:
    """One rank with a wrong norm, one with NaN, one that is missing."""
    for rank in range(ranks):
        fault = {3: 12, 5: 25}.get(rank, -1)
        if rank != 6:
            Network(blocks, fault, size=0.02, nan=rank == 5).write(folder / "t" / f"rank{rank}")
        Network(blocks).write(folder / "g" / f"rank{rank}")


def main() -> None:
    """Make all pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dumps", type=Path, default=ROOT / "output" / "demo")
    parser.add_argument("--msprobe", default=str(ROOT / ".venv" / "bin" / "msprobe"))
    args = parser.parse_args()
    IMAGES.mkdir(parents=True, exist_ok=True)
    msprobe = str(Path(args.msprobe).resolve())
    chromium = shutil.which("chromium") or "/usr/bin/chromium"
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        work = Path(name)
        shutil.copytree(args.dumps / "digits", work / "digits")
        for stack in (work / "digits").rglob("stack.json"):
            stack.write_text(without_machine(stack.read_text()))
        made_up_ranks(work)
        digits = compare(msprobe, Path("digits/changed/step0"), Path("digits/as_it_is/step0"), Path("out_digits"), work)
        ranks = compare(msprobe, Path("t"), Path("g"), Path("out_ranks"), work)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        demo_pictures(browser, digits)
        ranks_pictures(browser, ranks)
        page = open_page(browser, ranks)
        page.click("#parts button:text-is('rank5')")
        page.wait_for_timeout(500)
        save(page, "report-nan", "#plot-section")
        browser.close()
        example = ROOT / "examples" / "report"
        example.mkdir(parents=True, exist_ok=True)
        shutil.copy(digits, example / "digits.html")


if __name__ == "__main__":
    main()
