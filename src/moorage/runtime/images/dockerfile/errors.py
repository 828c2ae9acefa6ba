"""Errors of a Dockerfile, with the line that causes them."""

from __future__ import annotations


class DockerfileError(Exception):
    """A Dockerfile cannot be parsed or built; the message is for the user."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line = line
        self.why = why
