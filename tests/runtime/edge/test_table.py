"""Routes: current revisions, order of changes, and restarts from the file."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.runtime.edge.pool_support import make_function

from moorage.runtime.edge.calls.function import AnyFunction, Route
from moorage.runtime.edge.route_file import RouteFile, rewrite
from moorage.runtime.edge.routes import Table

OLD, NEW = "aa" * 32, "bb" * 32


class Retired(list[tuple[AnyFunction, AnyFunction | None]]):
    """Retired functions and their replacements."""

    def __call__(self, old: AnyFunction, new: AnyFunction | None) -> None:
        self.append((old, new))


@pytest.fixture
def retired() -> Retired:
    return Retired()


@pytest.fixture
def table(tmp_path: Path, retired: Retired) -> Table:
    return Table("http://api", retired, RouteFile(tmp_path / "routes.json", OLD))


def loaded(path: Path, keys: str = OLD) -> Table:
    """Return the table of an edge that has just started."""
    table = Table("http://api", Retired(), RouteFile(path, keys))
    table.load()
    return table


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

    fresh = loaded(tmp_path / "routes.json")

    found = fresh.find("3", "hello")
    assert found is not None
    assert found.route == table.find_by_id(7).route  # type: ignore[union-attr]
    assert stat.S_IMODE((tmp_path / "routes.json").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["routes.json"]


def test_what_the_control_process_says_counts_more_than_what_was_saved(tmp_path: Path, table: Table) -> None:
    table.put(route(revision=9))
    table.save()
    fresh = loaded(tmp_path / "routes.json")

    fresh.replace([route(revision=3, version=3)])

    found = fresh.find_by_id(7)
    assert found is not None
    assert found.version == 3


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"id": 1}]', "null"])
def test_a_file_that_cannot_be_read_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "routes.json").write_text(text)

    table = loaded(tmp_path / "routes.json")

    assert len(table) == 0


def test_nothing_is_written_where_nothing_changed(tmp_path: Path, table: Table) -> None:
    table.save()
    table.put(route())
    table.save()
    (tmp_path / "routes.json").unlink()

    table.put(route())
    table.save()

    assert list(tmp_path.iterdir()) == []


@pytest.mark.boundary("tenant-to-tenant", "The edge's route file shows no value of a variable.")
def test_variables_are_encrypted_in_the_file(tmp_path: Path, table: Table) -> None:
    table.put(route(1, name="one", env=[("KEY", "of-the-harbor")]))
    table.put(route(2, name="two"))
    table.save()

    text = (tmp_path / "routes.json").read_text()

    assert "of-the-harbor" not in text
    assert "KEY" not in text
    assert loaded(tmp_path / "routes.json").find_by_id(1).route.env == [("KEY", "of-the-harbor")]  # type: ignore[union-attr]


def test_a_file_of_an_earlier_release_is_read_and_written_anew(tmp_path: Path, table: Table) -> None:
    path = tmp_path / "routes.json"
    path.write_bytes(msgspec.json.encode([route(env=[("KEY", "of-the-harbor")])]))

    table.load()
    table.save()

    assert table.find_by_id(7).route.env == [("KEY", "of-the-harbor")]  # type: ignore[union-attr]
    assert "of-the-harbor" not in path.read_text()


def test_variables_under_an_old_key_are_written_under_the_new_one(tmp_path: Path, table: Table) -> None:
    path = tmp_path / "routes.json"
    table.put(route(env=[("KEY", "secret")]))
    table.save()

    loaded(path, f"{NEW},{OLD}").save()

    assert loaded(path, NEW).find_by_id(7).route.env == [("KEY", "secret")]  # type: ignore[union-attr]
    assert len(loaded(path, OLD)) == 0  # Never without its variables: the control process sends the complete route.


def test_the_file_of_a_stopped_edge_is_brought_to_the_new_key(tmp_path: Path, table: Table) -> None:
    path = tmp_path / "routes.json"
    table.put(route(env=[("KEY", "secret")]))
    table.save()

    for _ in range(2):
        rewrite(path, f"{NEW},{OLD}")
    rewrite(tmp_path / "none.json", NEW)

    assert loaded(path, NEW).find_by_id(7).route.env == [("KEY", "secret")]  # type: ignore[union-attr]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["routes.json"]


def test_without_a_key_functions_with_variables_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "routes.json"
    table = Table("http://api", Retired(), RouteFile(path, ""))
    table.put(route(1, name="one", env=[("KEY", "secret")]))
    table.put(route(2, name="two"))

    table.save()

    fresh = loaded(path, "")
    assert (fresh.find_by_id(1), fresh.find_by_id(2) is not None) == (None, True)
