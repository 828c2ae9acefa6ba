"""A real Chromium in front of a real platform."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Page, expect
from tests.architecture.source import ROOT
from tests.platform.running import Running

AXE = ROOT / "console" / "node_modules" / "axe-core" / "axe.min.js"
TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
DEMO = "Continue as the demo user"
Scheme = Literal["light", "dark"]
expect.set_options(timeout=30_000)  # of a busy machine


@dataclass(frozen=True)
class Console:
    """The console of a running platform, in one browser."""

    running: Running
    browser: Browser

    @property
    def url(self) -> str:
        return f"http://localhost:{self.running.ports['api']}"

    @contextlib.contextmanager
    def visit(self, *, scheme: Scheme = "light", width: int = 1440) -> Iterator[Visit]:
        """A browser profile of its own, with nobody signed in."""
        size: Any = {"width": width, "height": 900}
        context = self.browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
        page = context.new_page()
        visit = Visit(self, page, [])
        page.on("console", lambda said: visit.problems.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: visit.problems.append(str(error)))
        try:
            yield visit
        finally:
            context.close()


@dataclass(frozen=True)
class Visit:
    """One person at the console."""

    console: Console
    page: Page
    problems: list[str]  # what the browser reports: errors of scripts, and violations of the policy

    def open(self, path: str) -> None:
        self.page.goto(self.console.url + path)

    def sign_in(self) -> None:
        """Sign in as the demo user, with a token in the storage of the browser as the page itself would put it."""
        status, answer = self.console.running.call("POST", "/v1/auth/demo")
        assert status == 200, answer
        kept = {"token": answer["data"]["token"], "kind": "session", "organizationId": answer["data"]["organizationId"]}
        script = f"localStorage.setItem('moorage.session', {json.dumps(json.dumps(kept))})"
        self.page.add_init_script(f"if (!localStorage.getItem('moorage.session')) {script}")

    def settle(self, path: str) -> None:
        """Open a page, and wait until it shows its data."""
        self.open(path)
        self.page.wait_for_selector("h1")
        if path != "/components":
            # A function that is polled in the page would be refused by the policy of the console.
            expect(self.page.locator(".skeleton")).to_have_count(0)
            self.page.evaluate(TWO_FRAMES)  # Data that has come may show that more is needed.
            expect(self.page.locator(".skeleton")).to_have_count(0)

    def find_barriers(self) -> list[str]:
        """Return what axe-core calls serious or critical on this page."""
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{each['id']}: {node['target']} {node['failureSummary']}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]


def write_site(folder: Path, title: str) -> Path:
    """Write a site of two files into a folder."""
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text(f"<!doctype html><title>{title}</title><h1>{title}</h1>")
    (folder / "assets" / "style.css").write_text("h1 { color: teal; }")
    return folder
