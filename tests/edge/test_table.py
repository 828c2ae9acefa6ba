"""The routes: what is in force, in which order changes count, and what is known after a restart."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from tests.edge.pool_support import make_function

from moorage.edge.function import Function, Route
from moorage.edge.table import Table


class Retired(list[tuple[Function, Function | None]]):
    """What the table says is over, and what takes its place."""

    def __call__(self, old: Function, new: Function | None) -> None:
        self.append((old, new))


@pytest.fixture
def retired() -> Retired:
    return Retired()


@pytest.fixture
def table(tmp_path: Path, retired: Retired) -> Table:
    return Table("http://api", retired, tmp_path / "routes.json")


def route(number: int = 7, revision: int = 1, **changed: Any) -> Route:
    return make_function(**{"id": number, "name": "hello", "revision": revision, **changed}).route


def test_a_route_is_found_by_its_address_and_its_number(table: Table) -> None:
    table.put(route(org="12", name="hello"))

    found = table.find("12", "hello")
    assert found is not None
    assert table.find_by_id(7) is found
    assert (table.find("13", "hello"), table.find("12", "hello2"), table.find_by_id(8)) == (None, None, None)
    assert (len(table), table.runtimes()) == (1, {"python:3.11"})


def test_a_newer_revision_takes_over_and_the_old_one_is_retired(table: Table, retired: Retired) -> None:
    table.put(route(revision=1))
    old = table.find("1", "hello")

    table.put(route(revision=2, version=2))

    new = table.find("1", "hello")
    assert new is not None
    assert new.version == 2
    assert retired == [(old, new)]


@pytest.mark.parametrize("revision", [1, 4, 5])
def test_an_older_or_the_same_revision_changes_nothing(table: Table, retired: Retired, revision: int) -> None:
    table.put(route(revision=5))
    kept = table.find_by_id(7)

    table.put(route(revision=revision, version=9))

    assert table.find_by_id(7) is kept
    assert retired == []


def test_an_older_revision_does_not_bring_back_what_was_dropped_but_the_same_one_does(table: Table) -> None:
    table.put(route(revision=5))
    table.drop([7])

    table.put(route(revision=4))
    after_older = table.find_by_id(7)
    table.put(route(revision=5))

    assert after_older is None
    assert table.find_by_id(7) is not None


def test_dropping_retires_without_a_successor_and_is_safe_to_repeat(table: Table, retired: Retired) -> None:
    table.put(route())
    old = table.find_by_id(7)

    table.drop([7, 7, 99])

    assert retired == [(old, None)]
    assert (len(table), table.find("1", "hello")) == (0, None)


def test_replacing_everything_drops_what_is_not_named_and_keeps_what_is_the_same(
    table: Table, retired: Retired
) -> None:
    for number in (1, 2, 3):
        table.put(route(number, name=f"f-{number}"))
    kept = table.find_by_id(2)

    table.replace([route(2, name="f-2"), route(3, 2, name="f-3"), route(4, name="f-4")])

    assert [table.find_by_id(number) is not None for number in (1, 2, 3, 4)] == [False, True, True, True]
    assert table.find_by_id(2) is kept
    assert [(old.id, new is None) for old, new in retired] == [(1, True), (3, False)]


def test_a_function_of_the_same_name_can_follow_one_that_is_dropped_later(table: Table) -> None:
    table.put(route(7))
    table.put(route(8))

    table.drop([7])

    found = table.find("1", "hello")
    assert found is not None
    assert found.id == 8


def test_another_name_takes_the_place_of_the_old_one(table: Table) -> None:
    table.put(route(revision=1, name="old"))

    table.put(route(revision=2, name="new"))

    assert table.find("1", "old") is None
    assert table.find("1", "new") is not None


def test_what_was_saved_is_known_after_a_restart_and_nobody_else_can_read_it(tmp_path: Path, table: Table) -> None:
    table.put(route(org="3", env=[("KEY", "secret")], own_options=True, raw_http=True, network="none"))
    table.save()

    fresh = Table("http://api", Retired(), tmp_path / "routes.json")
    fresh.load()

    found = fresh.find("3", "hello")
    assert found is not None
    assert found.route == table.find_by_id(7).route  # type: ignore[union-attr]
    assert stat.S_IMODE((tmp_path / "routes.json").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["routes.json"]


def test_what_the_control_process_says_counts_more_than_what_was_saved(tmp_path: Path, table: Table) -> None:
    table.put(route(revision=9))
    table.save()
    fresh = Table("http://api", Retired(), tmp_path / "routes.json")
    fresh.load()

    fresh.replace([route(revision=3, version=3)])

    found = fresh.find_by_id(7)
    assert found is not None
    assert found.version == 3


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"id": 1}]', "null"])
def test_a_file_that_cannot_be_read_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "routes.json").write_text(text)
    table = Table("http://api", Retired(), tmp_path / "routes.json")

    table.load()

    assert len(table) == 0


def test_nothing_is_written_where_nothing_changed(tmp_path: Path, table: Table) -> None:
    table.save()
    table.put(route())
    table.save()
    (tmp_path / "routes.json").unlink()

    table.put(route())
    table.save()

    assert list(tmp_path.iterdir()) == []
