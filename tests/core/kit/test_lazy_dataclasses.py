"""Dataclasses with methods that are compiled at their first call behave like others."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import pytest

from moorage.core.kit import lazy_dataclasses

IS_LAZY = sys.version_info < lazy_dataclasses.FIRST_FAST_VERSION


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make dataclasses lazy within the test, and return the names of the compiled methods."""
    names: list[str] = []
    if IS_LAZY:
        create = dataclasses._create_fn  # type: ignore[attr-defined]

        def count(name: str, *args: Any, **options: Any) -> Any:
            names.append(name)
            return create(name, *args, **options)

        monkeypatch.setattr(dataclasses, "_create_fn", count)
    lazy_dataclasses.install()
    return names


def make_class(**options: Any) -> Any:
    @dataclasses.dataclass(**options)
    class Ship:
        name: str
        berths: list[int] = dataclasses.field(default_factory=list, compare=False)

    return Ship


@pytest.mark.parametrize("options", [{}, {"frozen": True}, {"frozen": True, "slots": True}, {"kw_only": True}])
def test_a_class_compiles_nothing_until_it_is_used(compiled: list[str], options: dict[str, Any]) -> None:
    ship = make_class(**options)
    before = list(compiled)

    first, second = ship(name="Sound"), ship(name="Sound", berths=[1])

    assert before == []
    assert compiled.count("__init__") == IS_LAZY
    assert (first.berths, second.berths) == ([], [1])


def test_instances_compare_hash_print_and_are_frozen_as_usual() -> None:
    ship = make_class(frozen=True, slots=True)

    same, other = ship("Sound", [1]), ship("Harbor")

    assert (same == ship("Sound", [2]), same == other, same == "Sound") == (True, False, False)
    assert hash(same) == hash(ship("Sound"))
    assert repr(same).endswith("Ship(name='Sound', berths=[1])")
    with pytest.raises(dataclasses.FrozenInstanceError):
        same.name = "Reef"
    assert dataclasses.replace(same, name="Reef").name == "Reef"


def test_a_subclass_and_its_base_have_their_own_methods() -> None:
    base = make_class()

    @dataclasses.dataclass
    class Ferry(base):  # type: ignore[misc, valid-type]
        cars: int = 0

        def __post_init__(self) -> None:
            self.cars += 1

    ferry, ship = Ferry("Sound", [], 2), base("Sound")

    assert (ferry.cars, ferry.name, ship.name) == (3, "Sound", "Sound")
    assert ferry != ship


def test_wrong_arguments_are_refused() -> None:
    ship = make_class()

    with pytest.raises(TypeError, match="missing 1 required positional argument: 'name'"):
        ship()
