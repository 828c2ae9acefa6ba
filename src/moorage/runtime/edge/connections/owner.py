"""The listener of a connection, as the connection uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from moorage.runtime.edge.connections.answers import Answer, Request
from moorage.runtime.edge.connections.flow import Guard
from moorage.runtime.edge.connections.limits import Limits

# Called before the body arrives; returns the answer if it does not depend on the body.
EarlyHandler = Callable[[Request], Answer | None]


class ConnectionOwner(Protocol):
    """Its clock is precise to a second."""

    handler: Callable[[Any, Request], Answer | None]
    early: EarlyHandler | None
    guard: Guard | None
    limits: Limits
    is_behind_gateway: bool
    is_draining: bool
    request_cache: dict[bytes, Request]
    now: float
    answered_by: float
    idle_until: float
    date: bytes
    plain_end: bytes

    def add(self, connection: Any) -> None: ...

    def remove(self, connection: Any) -> None: ...
