"""A coding assistant: the client of the SDK, which starts `moorage mcp` and speaks to it over its pipes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio.from_thread import BlockingPortal, start_blocking_portal
from tests.cli.live import Shell

if TYPE_CHECKING:  # Its import takes a second, which each process of the tests would spend.
    from mcp import Client
    from mcp.types import Tool


@dataclass(frozen=True, slots=True)
class Assistant:
    client: Client
    portal: BlockingPortal

    def tools(self) -> dict[str, Tool]:
        return {tool.name: tool for tool in self.portal.call(self.client.list_tools).tools}

    def text(self, tool: str, **arguments: Any) -> str:
        """Call a tool that has to succeed, and return its text."""
        is_error, text = self._call(tool, arguments)
        assert not is_error, text
        return text

    def json(self, tool: str, **arguments: Any) -> Any:
        return json.loads(self.text(tool, **arguments))

    def error(self, tool: str, **arguments: Any) -> str:
        """Call a tool that has to fail, and return its message."""
        is_error, text = self._call(tool, arguments)
        assert is_error, text
        return text

    def _call(self, tool: str, arguments: dict[str, Any]) -> tuple[bool, str]:
        result = self.portal.call(self.client.call_tool, tool, arguments)
        (content,) = result.content
        assert content.type == "text"
        return bool(result.is_error), content.text


@contextmanager
def assistant(shell: Shell, *words: str, cwd: Path | None = None, **env: str) -> Iterator[Assistant]:
    """Start the server as an assistant does; its client runs in a thread."""
    from mcp import Client, StdioServerParameters, stdio_client

    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "moorage.cli.main", "mcp", *words],
        env=shell.env | env,
        cwd=cwd or shell.home,
    )
    with start_blocking_portal() as portal:
        with portal.wrap_async_context_manager(Client(stdio_client(parameters))) as client:
            yield Assistant(client, portal)
