"""A real Chromium for benchmarks and tests: the browser of the system, without its own traffic in the background."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

from playwright.sync_api import Browser, sync_playwright

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    program = shutil.which("chromium")
    assert program, "Chromium is needed: tests/system-packages installs it"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, headless=True, args=FLAGS)
        yield browser
        browser.close()
