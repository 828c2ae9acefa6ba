"""Counts the received bytes that the parser of a connection may hold.

The parser reports a header, a trailer or the size of a chunk only when it is complete, so one without an end shows only
in the length of the reads.
"""

from __future__ import annotations


class Unparsed:
    """Bytes of one connection, counted per read."""

    __slots__ = ("_rest", "endless", "held")

    def __init__(self) -> None:
        self.endless = 0  # since the last read in which the headers, a part of the body or a request ended
        self.held = 0  # upper limit of what the parser holds
        self._rest = 0  # bytes of the current read that are not a body

    def add_read(self, length: int, *, is_receiving: bool) -> None:
        """Count a read before it is parsed; without an incomplete request the parser holds nothing."""
        self.endless += length
        self.held = self.held + length if is_receiving else length
        self._rest = length

    def add_parsed(self, body_bytes: int = 0) -> None:
        """Count the end of headers or of a request, or a part of a body.

        Its place in the read is unknown, so the parser may hold all of the read, without bodies.
        """
        self._rest -= body_bytes
        self.held = self._rest
        self.endless = 0
