"""The names in `apps/<host>/` that say where an app listens: which is in force, and what is left behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.gateway.support import make_settings

from moorage.gateway import app_routes
from moorage.gateway.app_routes import AppRoutes
from moorage.gateway.wanted import AppRoute, Wanted
from moorage.settings import Settings

HOST = "app.localhost"
ONE, TWO = "127.0.0.1:20001", "127.0.0.1:20002"


class Table:
    """Routes on disk, with a clock and complaints that the test holds."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.now = 100.0
        self.complaints: list[tuple[str, str]] = []
        self.start()

    def start(self) -> None:
        """Begin as a process does that knows nothing of what is there."""
        self.routes = AppRoutes(self.settings, lambda host, why: self.complaints.append((host, str(why))), self._time)
        self.routes.scan()

    def _time(self) -> float:
        return self.now

    def apply(self, wanted: Wanted) -> None:
        self.routes.put(wanted)
        self.routes.clear(wanted)

    def send(self, *addresses: str, generation: int = 1) -> None:
        self.apply(Wanted(apps={HOST: AppRoute(addresses, generation)}))

    def addresses(self) -> list[str]:
        folder = self.settings.folder("apps") / HOST
        return [path.name.partition("~")[2] for path in sorted(folder.glob("*~*"))]

    def left(self) -> list[str]:
        """Return the addresses of which a file says that they are no longer in force."""
        folder = self.settings.folder("apps") / HOST
        return [path.name.partition("-left-")[2] for path in sorted(folder.glob("*-left-*"))]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(make_settings(tmp_path / "data"))


def test_a_new_address_comes_before_the_old_one_which_goes_a_while_later(table: Table) -> None:
    table.send(ONE, generation=1)
    table.send(TWO, generation=2)
    at_once = table.addresses()
    table.now += app_routes.FORMER_NAME_KEPT_S
    table.send(TWO, generation=2)

    assert at_once == [TWO, ONE]
    assert table.addresses() == [TWO]


@pytest.mark.parametrize("generation", [0, 1, 2, 7])
def test_what_is_wanted_last_is_in_force_whatever_its_generation(table: Table, generation: int) -> None:
    table.send(ONE, generation=5)
    table.send(TWO, generation=generation)
    table.send(ONE, generation=generation)

    assert table.addresses() == [ONE, TWO, ONE]


def test_an_address_that_stays_is_not_written_again(table: Table) -> None:
    table.send(ONE, generation=1)
    before = os.listdir(table.settings.folder("apps") / HOST)

    table.send(ONE, TWO, generation=2)

    assert os.listdir(table.settings.folder("apps") / HOST) == before


def test_an_app_without_a_replica_is_the_wakers(table: Table) -> None:
    table.send()

    assert table.addresses() == ["waker"]


def test_another_process_goes_on_where_the_last_one_ended(table: Table) -> None:
    table.send(ONE, generation=1)
    table.send(TWO, generation=2)

    table.start()
    table.send(ONE, generation=3)
    at_once = table.addresses()
    table.now += app_routes.FORMER_NAME_KEPT_S
    table.send(ONE, generation=3)

    assert at_once == [ONE, TWO, ONE]
    assert table.addresses() == [ONE]


def test_what_was_left_behind_by_another_process_goes_too(table: Table) -> None:
    table.send(ONE, generation=1)
    table.send(TWO, generation=2)

    table.start()
    table.now += app_routes.FORMER_NAME_KEPT_S
    table.send(TWO, generation=2)

    assert table.addresses() == [TWO]


def test_a_name_that_was_taken_away_by_others_comes_back_at_the_next_look(table: Table) -> None:
    table.send(ONE)
    folder = table.settings.folder("apps") / HOST
    (folder / os.listdir(folder)[0]).unlink()

    table.routes.scan()
    table.send(ONE)

    assert table.addresses() == [ONE]


def _gone(host: str) -> Wanted:
    return Wanted()


def _off(host: str) -> Wanted:
    return Wanted(apps={host: AppRoute((ONE,), 9)}, disabled=frozenset({host}))


@pytest.mark.parametrize("wanted_of", [_gone, _off])
def test_a_host_that_is_gone_or_off_has_no_name_and_later_no_folder(
    table: Table, wanted_of: Callable[[str], Wanted]
) -> None:
    table.send(ONE, generation=1)
    table.send(TWO, generation=2)

    table.apply(wanted_of(HOST))
    at_once, left = table.addresses(), table.left()
    table.start()
    table.apply(wanted_of(HOST))
    table.routes.prune({})

    assert (at_once, left) == ([], [TWO, ONE])
    assert os.listdir(table.settings.folder("apps")) == []
    assert table.complaints == []


def test_a_name_that_the_gateway_may_know_is_said_to_be_left_as_long_as_it_may(table: Table) -> None:
    table.send(ONE, generation=1)
    known = table.routes.names()
    table.send(TWO, generation=2)
    table.send(ONE, generation=3)

    table.routes.prune(known)
    while_known = table.left()
    table.routes.prune(table.routes.names())

    assert while_known == [ONE]
    assert table.left() == []
    assert table.addresses()[0] == ONE


def test_a_name_that_is_in_force_again_is_not_said_to_be_left(table: Table) -> None:
    table.send(ONE, generation=1)
    known = table.routes.names()
    table.apply(Wanted())

    table.send(ONE, generation=1)

    assert table.routes.names() == known
    assert table.left() == []


def test_a_host_that_has_files_instead_keeps_its_name_for_a_while(table: Table, tmp_path: Path) -> None:
    table.send(ONE)
    files = Wanted(sites={HOST: tmp_path})

    table.apply(files)
    at_once = table.addresses()
    table.now += app_routes.FORMER_NAME_KEPT_S
    table.apply(files)

    assert at_once == [ONE]
    assert table.addresses() == []


def test_what_is_no_route_of_ours_is_left_alone(table: Table) -> None:
    folder = table.settings.folder("apps")
    (folder / "Not_A_Host").mkdir()
    (folder / "file.localhost").touch()

    table.routes.scan()
    table.apply(Wanted())

    assert sorted(os.listdir(folder)) == ["Not_A_Host", "file.localhost"]


@pytest.mark.parametrize("address", ["unix//x", "../x:1", "127.0.0.1", "a~b:1", "{env.HOME}:1", "", "127.0.0.1:1\n"])
def test_an_address_that_cannot_be_one_is_refused_and_the_others_are_routed(table: Table, address: str) -> None:
    bad = AppRoute((address,), 1)

    table.apply(Wanted(apps={"bad.localhost": bad, "Bad_Host": AppRoute((ONE,), 1), HOST: AppRoute((ONE,), 1)}))

    assert [host for host, _ in table.complaints] == ["bad.localhost", "Bad_Host"]
    assert os.listdir(table.settings.folder("apps")) == [HOST]
