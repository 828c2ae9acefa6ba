"""The error of a move."""

from __future__ import annotations


class CannotMove(Exception):
    """The move failed and has no effect; the message says how to continue."""
