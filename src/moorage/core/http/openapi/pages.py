"""HTML pages of the API server: API page, setup page of the first owner, and the console for all other addresses.

The first two are rendered on the server, contain their styles and load no other resources.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cached_property
from importlib.resources import files
from typing import Any

from moorage.core.http.answer import Answer
from moorage.core.http.openapi import page
from moorage.core.http.pages import style
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
            return style.answer(self._docs, page.sheet(), page.script())
        console = await self._find_console(request)
        if request.path == "/setup" and self._settings.is_production and (console is None or console.status != 200):
            return self._setup  # The first owner needs no console.
        if console is not None:
            return console
        if request.path == "/":  # for programs; browsers get the console
            return Answer(302, b"", [(b"location", b"/docs")])
        return None

    @cached_property
    def _docs(self) -> str:
        return page.render(self._describe())

    @cached_property
    def _setup(self) -> Answer:
        sheet = style.sheet("moorage.core.http.openapi", "setup.css")
        text = (files("moorage.core.http.openapi") / "setup.html").read_text().replace("{style}", sheet)
        return style.answer(text, sheet, text.partition("<script>")[2].partition("</script>")[0])
