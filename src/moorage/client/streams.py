"""Server-sent events: a parser for bytes as they arrive, and the state that resumes a stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from moorage.client.errors import BY_CODE, ApiError

FINAL_EVENTS: Final = frozenset(("done", "exit"))
MAX_LOST_CONNECTIONS: Final = 5  # in a row, without an event in between


@dataclass(slots=True, frozen=True)
class Event:
    """One event of a stream: `name` is `log`, `status`, `done`, …, and `data` is its decoded JSON."""

    name: str
    data: Any
    id: str | None = None


@dataclass(slots=True)
class Parser:
    """Splits a stream of bytes into events; comments are dropped."""

    rest: bytes = b""
    fields: dict[str, str] = field(default_factory=dict)

    def feed(self, chunk: bytes) -> Iterator[Event]:
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        for line in lines:
            if line.strip(b"\r"):
                self._take(line.rstrip(b"\r").decode("utf-8", "replace"))
            elif (event := self._finish()) is not None:
                yield event

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        if name:  # a comment has no name
            self.fields[name] = value.removeprefix(" ")

    def _finish(self) -> Event | None:
        fields, self.fields = self.fields, {}
        if "data" not in fields:
            return None
        return Event(fields.get("event", "message"), msgspec.json.decode(fields["data"]), fields.get("id"))


@dataclass(slots=True)
class Progress:
    """State of a followed stream over several connections."""

    last_id: str | None = None
    is_over: bool = False
    lost: int = 0

    def take(self, event: Event) -> Event:
        """Record an event; raises ApiError for the event that says why the server ended the stream."""
        if event.name == "closed":
            kind = BY_CODE.get(event.data.get("code", ""), ApiError)
            raise kind(403, event.data.get("message", "the platform ended the stream"), {}, "")
        self.lost = 0
        self.last_id = event.id or self.last_id
        self.is_over = event.name in FINAL_EVENTS
        return event

    def headers(self) -> dict[str, str]:
        return {"last-event-id": self.last_id} if self.last_id else {}
