"""Path patterns of other platforms as sources and destinations of Moorage."""

from __future__ import annotations

import re

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_REST = re.compile(rf":({_NAME})(?:\*|\+|\(\.\*\)|\(\.\+\))")  # `:path*`, `:path(.*)`
_UNNAMED = re.compile(r"\((?:\.\*|\.\+)\)")  # `(.*)`
_PLAIN = re.compile(rf"(?:/(?:[^/:*()?+\\{{}}\[\]|^$]*|:{_NAME}(?:\.[A-Za-z0-9]+)*|\*))+")


class NoPattern(ValueError):
    """A pattern that Moorage cannot express; the message says why."""


def source(pattern: str) -> tuple[str, str]:
    """Return a source, and the name of the wildcard for the rest of the path ("" for an unnamed one).

    `/blog/:path*` and `/blog/(.*)` become `/blog/*`; `:name` stays. Raises NoPattern for other expressions.
    """
    text = pattern if pattern.startswith("/") else f"/{pattern}"
    text = text.removeprefix("/^").removesuffix("$") if text.startswith("/^") else text
    name = ""
    if found := _REST.search(text):
        name, text = found[1], _REST.sub("*", text)
    text = _UNNAMED.sub("*", text)
    if text.count("*") > 1 or ("*" in text and not text.endswith("*")):
        raise NoPattern("only the last part of a path may match several parts")
    if not _PLAIN.fullmatch(text):
        raise NoPattern("regular expressions are not supported")
    return text, name


def destination(pattern: str, rest: str, *, has_rest: bool) -> str:
    """Return a destination for a source; `$1`, `:rest` and `:splat` become `*`."""
    text = pattern
    if rest:
        text = re.sub(rf":{rest}\b[*+]?", "*", text)
    if has_rest:
        text = re.sub(r"\$1\b|:splat\b", "*", text)
    if re.search(r"\$\d|\(|\{", text):
        raise NoPattern("the destination uses groups of a regular expression")
    return text


def convert(from_: str, to: str) -> tuple[str, str]:
    """Return source and destination of a redirect. Raises NoPattern."""
    text, name = source(from_)
    return text, destination(to, name, has_rest="*" in text)
