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
    """The whole browser, for figures and images."""
    with _started("chromium") as browser:
        yield browser


@contextlib.contextmanager
def headless_shell() -> Iterator[Browser]:
    """The same engine without the browser around it, for tests: a page takes 60 % less CPU time."""
    with _started("chromium-headless-shell") as browser:
        yield browser


@contextlib.contextmanager
def _started(name: str) -> Iterator[Browser]:
    program = shutil.which(name)
    assert program, f"{name} is needed: tests/system-packages installs it"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, headless=True, args=FLAGS)
        yield browser
        browser.close()
