"""The state of one MCP server: the client, the folder it may deploy from, and the credential to mask."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from moorage.cli.assistant.masking import Guard
from moorage.cli.session.contexts import Context
from moorage.client import AsyncClient


@dataclass(frozen=True, slots=True)
class Session:
    context: Context
    client: AsyncClient
    root: Path  # resolved; folders outside of it are refused
    guard: Guard

    @classmethod
    def open(cls, context: Context, root: Path, *, retries: int) -> Session:
        client = AsyncClient(context.url, token=context.token, organization=context.organization, retries=retries)
        return cls(context, client, root.resolve(), Guard([context.token]))
