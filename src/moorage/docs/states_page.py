"""The page of all state machines."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import moorage
from moorage.core.kit.machine import Machine
from moorage.docs import source
from moorage.docs.markdown import code, table
from moorage.docs.markdown import page as join


def page() -> str:
    """Return the page: the states of every machine, and the moves between them."""
    return join(
        "# States",
        "Each resource is always in one of these states and changes its state only as drawn. Any other move is refused "
        "with 409 `conflict`.",
        *(block for machine in machines() for block in _machine(machine)),
    )


def machines() -> Iterator[Machine[StrEnum]]:
    """Return the state machines of all packages, ordered by module."""
    root = Path(moorage.__path__[0])
    for path in sorted(root.rglob("states.py")):
        states = importlib.import_module(".".join(("moorage", *path.relative_to(root).with_suffix("").parts)))
        yield from (value for value in vars(states).values() if isinstance(value, Machine))


def meanings(machine: Machine[StrEnum]) -> dict[StrEnum, str]:
    comments = source.meanings(type(next(iter(machine.moves))))
    return {state: comments.get(state.name, "") for state in machine.moves}


def _machine(machine: Machine[StrEnum]) -> Iterator[str]:
    yield f"## {machine.name.replace('_', ' ').capitalize()}"
    rows = [
        (code(state), meaning, ", ".join(map(code, sorted(machine.moves[state]))) or "final")
        for state, meaning in meanings(machine).items()
    ]
    yield table(("State", "Meaning", "May become"), rows)
    yield f"```mermaid\n{machine.diagram()}\n```"
