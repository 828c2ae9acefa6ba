"""Limits of one connection of the function gateway."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may take up."""

    header_bytes: int = 64 * 1024
    body_bytes: int = 6 * 2**20
    header_s: float = 10  # from the first byte of a request, or the connection, to the end of its headers
    body_s: float = 30  # between two pieces of a body
    idle_s: float = 150  # between two requests; more than the public gateway keeps its connections
    linger_s: float = 5  # for the client to take a last answer
    answer_s: float = 86_400  # a call has a deadline of its own
