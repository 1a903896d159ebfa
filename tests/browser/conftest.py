"""A browser for the tests, and pages that must stay quiet."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, without a window."""
    chromium = shutil.which("chromium") or "/usr/bin/chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a report, waits for its rows, and fails the test on any message or request."""
    noise: list[str] = []
    pages: list[Page] = []

    def open_it(html: Path, **options: Any) -> Page:
        page = browser.new_page(viewport={"width": 1440, "height": 1000}, **options)
        page.set_default_timeout(20_000)
        pages.append(page)
        page.on("console", lambda m: noise.append(f"console: {m.text}"))
        page.on("pageerror", lambda e: noise.append(f"error: {e}"))
        page.on("request", lambda r: None if r.url == html.as_uri() else noise.append(f"request: {r.url}"))
        page.on("dialog", lambda d: noise.append(f"dialog: {d.message}"))
        page.goto(html.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        return page

    yield open_it
    for page in pages:
        page.close()
    assert noise == []
