"""How an install fails. It stands apart, so that an installer loads nothing of the store it has no business with."""

from __future__ import annotations


class InstallFailed(Exception):
    """The dependencies could not be installed; the text is the end of what the installer said."""

    def __init__(self, tail: str) -> None:
        super().__init__(tail)
        self.tail = tail
