"""A real Chromium in front of a real platform."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, ConsoleMessage, Error, Page, expect
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
        page = self.new_page(scheme, width)
        try:
            with Visit(self, page).listening() as visit:
                yield visit
        finally:
            page.context.close()

    def new_page(self, scheme: Scheme = "light", width: int = 1440) -> Page:
        """Open a page in a browser profile of its own."""
        size: Any = {"width": width, "height": 900}
        return self.browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce").new_page()


@dataclass(frozen=True)
class Visit:
    """One person at the console."""

    console: Console
    page: Page
    problems: list[str] = field(default_factory=list)  # errors of scripts, and violations of the policy
    _scripts: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @contextlib.contextmanager
    def listening(self) -> Iterator[Visit]:
        """Note the problems that the browser reports."""

        def note_message(said: ConsoleMessage) -> None:
            if said.type == "error":
                self.problems.append(said.text)

        def note_error(error: Error) -> None:
            self.problems.append(str(error))

        self.page.on("console", note_message)
        self.page.on("pageerror", note_error)
        try:
            yield self
        finally:
            self.page.remove_listener("console", note_message)
            self.page.remove_listener("pageerror", note_error)

    def leave(self) -> None:
        """Make the page as it was before the visit, with nobody signed in and nothing stored."""
        for page in self.page.context.pages:
            if page != self.page:
                page.close()
        self._scripts.close()
        self.page.unroute_all()
        self.page.context.clear_cookies()
        self.page.goto(f"{self.console.url}/health")  # without scripts that could store something again
        self.page.evaluate("localStorage.clear(); sessionStorage.clear()")

    def run_first(self, script: str) -> None:
        """Run a script before those of each page."""
        self._scripts.enter_context(self.page.add_init_script(script))

    def open(self, path: str) -> None:
        self.page.goto(self.console.url + path)

    def sign_in(self) -> None:
        """Sign in as the demo user, with a token in the storage of the browser as the page itself would put it."""
        status, answer = self.console.running.call("POST", "/v1/auth/demo")
        assert status == 200, answer
        kept = {"token": answer["data"]["token"], "kind": "session", "organizationId": answer["data"]["organizationId"]}
        script = f"localStorage.setItem('moorage.session', {json.dumps(json.dumps(kept))})"
        self.run_first(f"if (!localStorage.getItem('moorage.session')) {script}")

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
