"""HTML pages of the API server: API page, setup page of the first owner, and the console for all other addresses.

The first two are rendered on the server, contain their styles and load no other resources.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable
from functools import cached_property
from importlib.resources import files
from typing import Any

from moorage.core.http.answer import Answer, html
from moorage.core.http.openapi import page
from moorage.core.http.request import Request
from moorage.settings import Settings


class Pages:
    def __init__(
        self,
        describe: Callable[[], dict[str, Any]],
        settings: Settings,
        find_console: Callable[[Request], Awaitable[Answer | None]],
    ) -> None:
        self._describe = describe
        self._settings = settings
        self._find_console = find_console

    async def find(self, request: Request) -> Answer | None:
        """Return the page at a path, or None."""
        if request.path == "/docs":
            return html(self._docs, policy=self._docs_policy)
        console = await self._find_console(request)
        if request.path == "/setup" and self._settings.is_production and (console is None or console.status != 200):
            return html(self._setup, policy=self._setup_policy)  # The first owner needs no console.
        if console is not None:
            return console
        if request.path == "/":  # for programs; browsers get the console
            return Answer(302, b"", [(b"location", b"/docs")])
        return None

    @cached_property
    def _docs(self) -> str:
        return page.render(self._describe())

    @cached_property
    def _setup(self) -> str:
        return (files("moorage.core.http.openapi") / "setup.html").read_text()

    @cached_property
    def _docs_policy(self) -> str:
        return _policy(page.script(), f"'{_hash(page.style())}'")

    @cached_property
    def _setup_policy(self) -> str:
        return _policy(self._setup.partition("<script>")[2].partition("</script>")[0], "'unsafe-inline'")


def _policy(script: str, styles: str) -> str:
    """Allow only the page's script, by its hash, and connections to this server."""
    return (
        f"default-src 'none'; style-src {styles}; connect-src 'self'; script-src '{_hash(script)}'; "
        "base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
