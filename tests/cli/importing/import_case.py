"""A file of another platform, with the moorage.toml and leftovers that it leads to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DOCKER = {"kind": "container", "language": "docker"}


@dataclass(frozen=True, slots=True)
class Case:
    """`files` of a folder named `shop`; the first one is imported. `left` has the beginnings of the leftovers."""

    name: str
    files: dict[str, str]
    toml: dict[str, Any]
    left: tuple[str, ...] = ()
    secrets: tuple[str, ...] = field(default=())  # values that must not be in the result


def postgres(name: str, version: str = "16.4.0", **others: str) -> dict[str, str]:
    return {"name": name, "type": "postgresql", "version": version, "instance-type": "free", **others}


def mysql(name: str, version: str = "8.4.2", **others: str) -> dict[str, str]:
    return {**postgres(name, version, **others), "type": "mysql"}
