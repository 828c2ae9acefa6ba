"""A repository and the plan that it should get."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    row: str
    files: dict[str, Any]
    build: str = ""
    output: str = ""
    start: str = ""  # the beginning of the start command
    server: str = ""
    refusal: str = ""  # part of the sentence
    wanted: str = "auto"
    more: dict[str, Any] = field(default_factory=dict)


def js(*names: str, **more: Any) -> dict[str, Any]:
    """Return a repository with a package.json that has a build script."""
    scripts = more.pop("scripts", {"build": "make"})
    return {"package.json": {"dependencies": dict.fromkeys(names, "^9.0.0"), "scripts": scripts}, **more}
