"""Proof by fault: whatever ends around a database, what was acknowledged is there, and no state is stuck.

Servers, what watches over them, and the platform are killed while databases are written to, and while they are made,
changed, backed up, restored and deleted. Everything is back by itself, once, and nothing is left over.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from bench.machine import tree_of
from tests.e2e.databases_support import (
    KINDS,
    MYSQL,
    POSTGRESQL,
    REFUSED,
    SETTLED_S,
    Databases,
    Harbor,
    Row,
    Writer,
    ask,
    new_name,
    wait_until,
)
from tests.e2e.projects_support import is_alive

pytest_plugins = ("tests.e2e.databases_fixtures",)
pytestmark = pytest.mark.group("databases")

NAMES = {POSTGRESQL: "ledger", MYSQL: "orders"}
NOTES, SMALL = "notes", "small"
GB = 2**30


@dataclass
class Fleet:
    """Databases that live through everything, and how often their servers were killed."""

    harbor: Harbor
    backups: dict[str, str] = field(default_factory=dict)  # one of each, of when it had but one number
    born: str = ""
    killed: int = 0

    @property
    def databases(self) -> Databases:
        return self.harbor.databases

    def fill(self) -> None:
        self.born = new_name("born")
        for kind, name in NAMES.items():
            self.databases.make(name, kind)
        self.databases.make(NOTES)
        self.databases.make(SMALL, instanceType="free")
        self.databases.make(self.born, MYSQL)
        self.databases.fill(*NAMES.values(), NOTES, SMALL, self.born)
        asked = {name: self.databases.back_up(name) for name in NAMES.values()}
        self.backups = {name: self.databases.backed_up(name, backup)["name"] for name, backup in asked.items()}


@pytest.fixture(scope="module")
def fleet(harbor: Harbor) -> Fleet:
    made = Fleet(harbor)
    made.fill()
    return made


# Servers.


@contextlib.contextmanager
def writing(fleet: Fleet) -> Iterator[list[Writer]]:
    """Write to a database of each kind."""
    writers = [Writer(fleet.databases.client(name), 1_000 * (fleet.killed + 1)) for name in NAMES.values()]
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(writer.at_work()) for writer in writers]


def check_all_is_back(fleet: Fleet, find: Callable[[str], int]) -> None:
    """Kill a process of each kind under writes: all that was acknowledged before and after is there."""
    doomed = [each for name in NAMES.values() for each in tree_of(find(name))]
    ports = [fleet.databases.read(name)["connectionDetails"]["port"] for name in NAMES.values()]
    with writing(fleet) as writers:
        for name in NAMES.values():
            os.kill(find(name), signal.SIGKILL)
        fleet.killed += 1
        wait_until(lambda: not any(map(is_alive, doomed)))
        for writer in writers:
            writer.wait_for_more()

    for writer, name in zip(writers, NAMES.values(), strict=True):
        print(f"{name}: nothing was acknowledged for up to {writer.longest_s:.2f} s")
        assert set(writer.acknowledged) <= set(fleet.databases.client(name).numbers())
    assert [fleet.databases.read(name)["connectionDetails"]["port"] for name in NAMES.values()] == ports
    fleet.harbor.wait_until_tidy()


def test_a_server_that_is_killed_under_writes_is_back_with_all_that_it_acknowledged(fleet: Fleet) -> None:
    check_all_is_back(fleet, fleet.harbor.server)


@pytest.mark.deep
def test_a_server_whose_shim_is_killed_dies_with_it_and_is_back_with_all_that_it_acknowledged(fleet: Fleet) -> None:
    check_all_is_back(fleet, fleet.harbor.shim)


def test_no_other_server_can_take_a_folder_that_one_runs_on(fleet: Fleet) -> None:
    opened = {name: os.open(fleet.harbor.place(name), os.O_RDONLY | os.O_DIRECTORY) for name in NAMES.values()}

    taken = {name for name, folder in opened.items() if not can_hold(folder)}

    assert taken == set(NAMES.values())


def can_hold(folder: int) -> bool:
    """Do what every shim does before it starts a server."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(folder)
    return True


# The platform.


@pytest.fixture
def ballast(fleet: Fleet) -> Iterator[None]:
    """More on the disk of a database than its tier has, put there while nobody looks."""
    path = fleet.harbor.place(SMALL) / "data" / "ballast"
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, GB)
    yield
    path.unlink()


@pytest.mark.deep
@pytest.mark.usefixtures("ballast")
def test_connections_outlive_the_platform_and_who_is_full_is_told_so(fleet: Fleet) -> None:
    harbor = fleet.harbor
    before, exchanged = harbor.shims(), harbor.row(NOTES)
    with contextlib.ExitStack() as stack:
        clients = [fleet.databases.client(name) for name in NAMES.values()]
        open_ = [stack.enter_context(contextlib.closing(client.connect())) for client in clients]

        harbor.stop()
        alone = [ask(each, "SELECT min(n) FROM numbers") for each in open_]
        disown(harbor.data, exchanged)
        harbor.start()
        harbor.kill_control()
        after = [ask(each, "SELECT min(n) FROM numbers") for each in open_]

    assert alone == after == [[(1,)], [(1,)]]
    check_is_exchanged(fleet, exchanged, before)
    check_restarts_are_counted(fleet)
    check_takes_no_more(fleet)


def disown(data: Path, row: Row) -> None:
    """Let a row ask for another process than the one that runs, as it does where a restore was cut off."""
    with contextlib.closing(sqlite3.connect(data / "store" / "moorage.db")) as store, store:
        assert store.execute("UPDATE database_server SET token = 'another' WHERE id = ?", (row.id,)).rowcount == 1


def check_is_exchanged(fleet: Fleet, row: Row, before: dict[str, list[int]]) -> None:
    """See that one server was ended and started anew, without a word, and that all others were taken over."""
    fleet.harbor.wait_until_tidy()
    after = fleet.harbor.shims()
    assert after.pop(row.key) != before.pop(row.key)
    assert after == before
    assert fleet.databases.up(NOTES)["statusReason"] is None
    assert fleet.databases.client(NOTES).numbers() == [1]


def check_restarts_are_counted(fleet: Fleet) -> None:
    """Each kill counts, and being taken over does not."""
    names = NAMES.values()
    wait_until(lambda: all(fleet.databases.metrics(name)["restarts"] >= fleet.killed for name in names))
    wait_until(lambda: all(fleet.databases.metrics(name)["available"] for name in names))
    assert [fleet.databases.metrics(name)["restarts"] for name in names] == [fleet.killed] * 2
    assert fleet.killed > 0


def check_takes_no_more(fleet: Fleet) -> None:
    wait_until(lambda: fleet.databases.read(SMALL)["statusReason"])
    found, client = fleet.databases.read(SMALL), fleet.databases.client(SMALL)
    assert (found["status"], "no more data can be added" in found["statusReason"]) == ("running", True)
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        client.add(2)
    assert client.numbers() == [1]


@dataclass(frozen=True)
class Asked:
    """What was asked for, and acknowledged, just before the platform was killed."""

    created: str
    deleted: str
    deleted_id: int
    changed: str
    tier: str
    backup: str
    restored: str


def ask_for_everything(fleet: Fleet, turn: int) -> Asked:
    """Have a database made, one deleted, one changed, one backed up and one restored, all at once."""
    databases = fleet.databases
    restored, changed = (NAMES[kind] for kind in (KINDS if turn % 2 == 0 else reversed(KINDS)))
    asked = Asked(
        created=new_name("born"),
        deleted=fleet.born,
        deleted_id=databases.read(fleet.born)["id"],
        changed=changed,
        tier="mini" if databases.read(changed)["instanceType"] == "micro" else "micro",
        backup="",
        restored=restored,
    )
    databases.client(restored).ask("INSERT INTO numbers VALUES (2)")
    databases.restore(restored, fleet.backups[restored])
    databases.make(asked.created, KINDS[turn % 2])
    databases.call("DELETE", f"/v1/databases/{asked.deleted}")
    databases.change_tier(changed, asked.tier)
    fleet.born = asked.created
    return Asked(**{**vars(asked), "backup": databases.back_up(NOTES)})


Moment = Callable[[Harbor, str], None]


def after_ms(delay_ms: int) -> Moment:
    def wait(harbor: Harbor, restored: str) -> None:
        time.sleep(delay_ms / 1000)

    return wait


def is_building(harbor: Harbor, restored: str) -> None:
    """Return when what is restored is loaded beside the database."""
    root = harbor.root(restored)
    wait_for_moment(lambda: any(root.glob("restore-*/data")))


def is_switched(harbor: Harbor, restored: str) -> None:
    """Return when it is written down that another folder counts: what runs is on the one before."""
    before = harbor.row(restored)
    wait_for_moment(lambda: before not in harbor.rows())


def wait_for_moment(has_come: Callable[[], bool]) -> None:
    """Return as soon as something is so, without a pause in between."""
    deadline = time.monotonic() + SETTLED_S
    while not has_come():
        assert time.monotonic() < deadline, "the moment never came"


MOMENTS = [after_ms(50), is_building, is_switched]


@pytest.mark.deep
@pytest.mark.parametrize("turn", range(len(MOMENTS)), ids=["50 ms", "building", "switched"])
def test_whatever_is_under_way_when_the_control_process_is_killed_comes_to_its_end(fleet: Fleet, turn: int) -> None:
    harbor, databases = fleet.harbor, fleet.databases
    asked = ask_for_everything(fleet, turn)
    MOMENTS[turn](harbor, asked.restored)

    harbor.kill_control()

    databases.fill(asked.created)
    check_changed(databases, asked)
    check_restored(fleet, asked.restored)
    assert databases.backed_up(NOTES, asked.backup)["status"] == "completed"
    databases.wait_until_gone(asked.deleted)
    assert harbor.trash_of(asked.deleted_id).is_dir()
    assert not (harbor.data / "databases" / str(asked.deleted_id)).exists()
    harbor.wait_until_tidy()
    assert harbor.leftovers() == []


def check_changed(databases: Databases, asked: Asked) -> None:
    found, client = databases.up(asked.changed), databases.client(asked.changed)
    statement = {POSTGRESQL: "SHOW max_connections", MYSQL: "SELECT @@max_connections"}[client.engine]
    assert (found["instanceType"], found["statusReason"]) == (asked.tier, None)
    assert client.numbers()[0] == 1
    ((most,),) = client.ask(statement)
    assert (int(most) > 100) == (asked.tier == "mini")


def check_restored(fleet: Fleet, name: str) -> None:
    found = fleet.databases.up(name)
    assert (found["status"], found["statusReason"]) == ("running", None)
    assert fleet.databases.client(name).numbers() == [1]


def test_who_was_full_takes_data_again_once_there_is_room(fleet: Fleet) -> None:
    wait_until(lambda: fleet.databases.read(SMALL)["statusReason"] is None)

    fleet.databases.client(SMALL).add(2)

    assert fleet.databases.client(SMALL).numbers() == [1, 2]


# Folders.


@pytest.mark.deep
def test_a_database_whose_folder_vanished_fails_and_never_comes_up_empty(fleet: Fleet) -> None:
    harbor, databases, client = fleet.harbor, fleet.databases, fleet.databases.client(NOTES)
    place, shim = harbor.place(NOTES), harbor.shim(NOTES)

    elsewhere = harbor.data / "elsewhere"
    place.rename(elsewhere)
    os.kill(shim, signal.SIGKILL)
    wait_until(lambda: databases.read(NOTES)["status"] == "failed")
    failed = databases.read(NOTES)
    was_made_anew = place.exists()
    with pytest.raises(REFUSED):
        client.connect()
    elsewhere.rename(place)
    databases.operate("start", NOTES)
    found = databases.up(NOTES)

    assert "data folder is gone" in failed["statusReason"]
    assert not was_made_anew
    assert (found["statusReason"], client.numbers()) == (None, [1])


def test_after_all_of_it_no_job_has_met_what_it_did_not_expect(fleet: Fleet) -> None:
    fleet.harbor.wait_until_tidy()

    assert fleet.databases.crashes() == []
