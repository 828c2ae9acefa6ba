"""Limits of one connection to the edge."""

from __future__ import annotations

from moorage.core.kit.records import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes and timeouts of one connection."""

    header_bytes: int = 64 * 1024
    body_bytes: int = 6 * 2**20
    header_s: float = 10  # from the first byte of a request, or the connect, to the end of the headers
    body_s: float = 30  # between two parts of a body
    idle_s: float = 150  # between two requests; longer than the gateway keeps its connections
    linger_s: float = 5  # for the client to read the last answer
    answer_s: float = 86_400  # Calls have their own deadline.
