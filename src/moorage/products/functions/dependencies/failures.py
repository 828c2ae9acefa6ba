"""Failure of an install; a module of its own, so that installers import little."""

from __future__ import annotations


class InstallFailed(Exception):
    """The dependencies could not be installed; `tail` is the end of the output."""

    def __init__(self, tail: str) -> None:
        super().__init__(tail)
        self.tail = tail
