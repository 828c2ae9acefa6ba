"""State machines as tables of transitions, which `db.tx.move` applies."""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import StrEnum
from typing import Generic, TypeVar

S = TypeVar("S", bound=StrEnum)


class Machine(Generic[S]):
    """The states of one kind of row, and the allowed transitions from each."""

    def __init__(self, name: str, moves: Mapping[S, Set[S]]) -> None:
        self.name = name
        self.moves: dict[S, frozenset[S]] = {state: frozenset(targets) for state, targets in moves.items()}
        unknown = {target for targets in self.moves.values() for target in targets} - self.moves.keys()
        missing = set(type(next(iter(self.moves)))) - self.moves.keys()
        if unknown or missing:
            raise ValueError(f"{name}: states without a row of moves: {sorted(unknown | missing)}")

    @property
    def states(self) -> frozenset[S]:
        return frozenset(self.moves)

    @property
    def terminal(self) -> frozenset[S]:
        return frozenset(state for state, targets in self.moves.items() if not targets)

    def sources(self, to: S) -> frozenset[S]:
        """Return the states with a transition to `to`."""
        return frozenset(state for state, targets in self.moves.items() if to in targets)

    def allows(self, at: S, to: S) -> bool:
        return to in self.moves[at]

    def diagram(self) -> str:
        """Return the table as a Mermaid state diagram, for the documentation."""
        lines = ["stateDiagram-v2"]
        for state, targets in self.moves.items():
            lines += [f"    {state} --> {target}" for target in sorted(targets)]
            lines += [] if targets else [f"    {state} --> [*]"]
        return "\n".join(lines)
