"""Records compare, hash and print as dataclasses of the standard library do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from moorage.core.kit import records

DECORATORS = [dataclasses.dataclass, records.dataclass]


def make(decorator: Callable[..., Any], **options: Any) -> tuple[Any, Any]:
    """Return a class with each kind of field, and one without fields."""

    @decorator(**options)
    class Ship:
        name: str
        cargo: list[str] = dataclasses.field(default_factory=list)
        token: str = dataclasses.field(default="t", repr=False)
        seen: int = dataclasses.field(default=0, compare=False)

    @decorator(**options)
    class Empty:
        pass

    return Ship, Empty


@pytest.mark.parametrize("options", [{}, {"frozen": True}, {"slots": True}, {"frozen": True, "slots": True}])
def test_records_behave_as_classes_of_the_standard_library(options: dict[str, bool]) -> None:
    behaviours = []
    for decorator in DECORATORS:
        ship, empty = make(decorator, **options)
        first = ship("a")
        behaviours.append(
            [
                first == ship("a", seen=4),
                first == ship("a", token="other"),
                first == ship("b"),
                first == empty(),
                empty() == empty(),
                repr(first).rpartition(".")[2],
                repr(empty()).rpartition(".")[2],
                ship.__hash__ is None,
                dataclasses.replace(first, name="b") == ship("b"),
                dataclasses.asdict(first),
            ]
        )

    assert behaviours[0] == behaviours[1]
    assert behaviours[1][:5] == [True, False, False, False, True]


def test_equal_records_have_equal_hashes() -> None:
    @records.dataclass(frozen=True)
    class Port:
        number: int
        note: str = dataclasses.field(default="", compare=False)

    assert len({Port(1), Port(1, "other"), Port(2)}) == 2


def test_methods_of_the_class_are_kept() -> None:
    @records.dataclass(frozen=True)
    class Named:
        name: str

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "named"

    assert (Named("a") == Named("b"), hash(Named("a")), repr(Named("a"))) == (True, 7, "named")


def test_a_record_that_contains_itself_is_printed() -> None:
    @records.dataclass
    class Node:
        other: Any = None

    node = Node()
    node.other = node

    assert repr(node).endswith("Node(other=...)")


def test_records_without_comparison_are_compared_by_identity() -> None:
    @records.dataclass(eq=False)
    class Link:
        name: str

    link = Link("a")

    assert link == link
    assert link != Link("a")
    assert hash(link) == object.__hash__(link)
