"""The shape of a starter: a small repository like those that public projects offer, and the responses that it owes."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# A status, or a text of a response of status 200.
Expected = int | str


@dataclass(frozen=True)
class Starter:
    """A repository that has to be live after its first push, with no settings."""

    name: str
    row: str  # name of the detector in the table that recognises it
    files: Mapping[str, str]
    visits: Mapping[str, Expected]
    kind: str = "container"
    lock: str = ""  # lock file that its package manager writes before the push
    settings: Mapping[str, Any] = field(default_factory=dict)  # `baseDir` of a workspace; nothing else is allowed

    @property
    def text(self) -> dict[str, str]:
        return {path: unindented(text) for path, text in self.files.items()}


@dataclass(frozen=True)
class Broken:
    """A repository that cannot run, and the sentence that its deployment has to end with."""

    name: str
    files: Mapping[str, str]
    says: tuple[str, ...]  # parts of the sentence: the file and the fix
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> dict[str, str]:
        return {path: unindented(text) for path, text in self.files.items()}


def unindented(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def package(name: str = "harbor", /, **fields: Any) -> str:
    """Return a package.json with these fields."""
    return json.dumps({"name": name, "version": "1.0.0", "private": True, **fields}, indent=2) + "\n"


def page(title: str, *, body: str = "", head: str = "") -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
        f"<title>{title}</title>{head}</head>\n<body>{body or f'<h1>{title}</h1>'}</body>\n</html>\n"
    )
