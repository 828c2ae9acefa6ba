"""Replication between real servers of both kinds, with kills at critical points."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
from tests.runtime.database_servers.server_support import (
    MARIADB,
    POSTGRESQL,
    Lab,
    Server,
    a_lab,
    find_software,
    until,
)

from moorage.runtime.database_servers.mariadb import dumps as mariadb_dumps
from moorage.runtime.database_servers.ports import Primary, ServerFailed, Software
from moorage.runtime.database_servers.postgres import dumps as postgres_dumps
from moorage.runtime.database_servers.replication import Replication, replication_of
from moorage.runtime.engines.ports import Address

PASSWORD = "a-password-of-the-replica"


@dataclass
class Pair:
    """A primary with one row in a table, and its replica."""

    primary: Server
    replica: Server

    @property
    def replication(self) -> Replication:
        return replication_of(self.primary.software.type)

    @property
    def number(self) -> int:
        return self.replica.options.number

    def make(self) -> None:
        """Copy the primary and start the replica on the copy."""
        replica, software = self.replica, self.replica.software
        replica.folder.mkdir(mode=0o700)
        replica.own()
        self.replication.copy(software, self.primary.access, replica.folder, self.number)
        replica.own()
        if self.replication.needs_loading:
            self._load()
        replica.start()
        until(self.is_following, "the replica to follow")

    def _load(self) -> None:
        target = self.replica.options.primary
        scratch = replace(self.replica, options=replace(self.replica.options, primary=None, is_open=False))
        scratch.start()
        scratch.kind.set_admin_password(scratch.software, scratch.access)
        assert target is not None
        self.replication.load(scratch.software, scratch.access, target)
        scratch.stop()

    def is_following(self) -> bool:
        self.replication.follow(self.replica.access)
        return self.replication.is_following(self.primary.access, self.replica.access, self.number)

    def join(self) -> None:
        self.replication.await_replica(self.primary.access, self.replica.access, self.number)

    def add(self, number: int) -> None:
        self.primary.ask(f"INSERT INTO t VALUES ({number})")

    def begin_to_add(self, number: int) -> threading.Thread:
        thread = threading.Thread(target=self.add, args=(number,), daemon=True)
        thread.start()
        return thread

    def numbers(self, server: Server) -> list[int]:
        return [number for (number,) in server.ask("SELECT n FROM t ORDER BY n")]


@pytest.fixture(scope="module", params=[POSTGRESQL, MARIADB])
def software(request: pytest.FixtureRequest) -> Software:
    return find_software(request.param)


@pytest.fixture
def lab() -> Iterator[Lab]:
    with a_lab() as made:
        yield made
        for key in made.engine.states():
            made.run(made.engine.stop(key, 0.0))


@pytest.fixture
def pair(lab: Lab, software: Software) -> Pair:
    return new_pair(lab, software)


def new_pair(lab: Lab, software: Software) -> Pair:
    primary = lab.new(software, is_replicated=True, number=11)
    primary.fill()
    primary.start()
    primary.settle(PASSWORD)
    primary.ask("CREATE TABLE t (n int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    follows = Primary(Address(primary.options.port), PASSWORD)
    replica = lab.new(software, is_replicated=True, number=12, primary=follows)
    replica.uid, replica.admin, replica.names = primary.uid, primary.admin, primary.names
    return Pair(primary, replica)


def kill(server: Server) -> None:
    """Kill a server and its shim."""
    state = server.look()
    os.kill(state.pid, signal.SIGKILL)
    until(lambda: server.key not in server.lab.engine.states(), "the end of a server")


def test_a_replica_has_what_was_there_before_it_and_what_comes_after(pair: Pair) -> None:
    pair.make()

    pair.add(2)

    assert until(lambda: pair.numbers(pair.replica) == [1, 2], "the second row")


# The client program sees the end of two statements where the server sees a comment.
HIDDEN = "--\x01 ;; GRANT ALL ON *.* TO keeper_1@'%' WITH GRANT OPTION ;; SELECT 1\n"


@pytest.mark.boundary("code-to-host", "A copy to a replica runs no part of a tenant's programs as the superuser.")
def test_programs_of_the_tenant_are_the_same_on_a_replica_and_gain_no_rights(lab: Lab) -> None:
    pair = new_pair(lab, find_software(MARIADB))
    pair.primary.ask(
        f"CREATE PROCEDURE p() SELECT 1 {HIDDEN}, 2",
        f"CREATE TRIGGER double_it BEFORE INSERT ON t FOR EACH ROW SET NEW.n = NEW.n {HIDDEN} * 2",
        "CREATE TRIGGER add_one BEFORE INSERT ON t FOR EACH ROW SET NEW.n = NEW.n + 1",
        "SET time_zone = '+05:00', sql_mode = 'ANSI_QUOTES', collation_connection = latin1_swedish_ci",
        f"CREATE EVENT yearly ON SCHEDULE EVERY 1 YEAR STARTS '2030-01-01' DO DELETE FROM t WHERE n = 5 {HIDDEN} + 1",
    )
    programs = ("PROCEDURE p", "TRIGGER double_it", "TRIGGER add_one", "EVENT yearly")

    def state(server: Server) -> list[object]:
        texts = [server.ask(f"SHOW CREATE {each}")[0][:-1] for each in programs]
        order = server.ask("SELECT trigger_name, action_order FROM information_schema.triggers ORDER BY 2")
        return [server.ask("SHOW GRANTS"), order, *texts]

    pair.make()

    assert state(pair.replica) == state(pair.primary)
    assert pair.replica.ask("CALL p()") == [(1, 2)]


def test_a_commit_waits_for_a_replica_that_is_away_until_it_is_back(pair: Pair) -> None:
    pair.make()
    pair.join()
    pair.replica.stop()

    waiting = pair.begin_to_add(2)
    waiting.join(1.0)
    waits = waiting.is_alive()
    pair.replica.start()
    until(pair.is_following, "the replica to follow")
    waiting.join(20.0)

    assert (waits, waiting.is_alive()) == (True, False)
    assert until(lambda: pair.numbers(pair.replica) == [1, 2], "the second row")


def test_a_primary_that_is_told_to_go_alone_lets_the_commits_through_that_wait(pair: Pair) -> None:
    pair.make()
    pair.join()
    pair.replica.stop()
    waiting = pair.begin_to_add(2)
    waiting.join(1.0)

    pair.replication.go_alone(pair.primary.access)
    waiting.join(20.0)

    assert not waiting.is_alive()
    assert not pair.replication.is_awaited(pair.primary.access, pair.number)


@pytest.mark.deep
def test_whether_a_primary_waits_survives_its_death(pair: Pair) -> None:
    pair.make()
    pair.join()

    kill(pair.primary)
    pair.primary.start()

    assert pair.replication.is_awaited(pair.primary.access, pair.number)


@pytest.mark.deep
def test_a_replica_that_does_not_follow_is_not_waited_for(pair: Pair) -> None:
    pair.make()
    pair.replica.stop()

    with pytest.raises(ServerFailed):
        pair.join()


def test_a_promoted_replica_takes_changes(pair: Pair) -> None:
    pair.make()
    pair.join()
    kill(pair.primary)

    pair.replication.promote(pair.replica.access)
    pair.replication.promote(pair.replica.access)
    pair.replica.ask("INSERT INTO t VALUES (3)")

    assert pair.numbers(pair.replica) == [1, 3]


@pytest.mark.deep
def test_what_a_replica_received_and_had_not_applied_when_both_died_is_there_after_its_promotion(pair: Pair) -> None:
    pair.make()
    pair.join()
    for number in range(2, 30):
        pair.add(number)
    until(lambda: len(pair.numbers(pair.replica)) == 29, "what was written first")
    with held_back(pair.replica):
        for number in range(30, 40):
            pair.add(number)
        before = pair.numbers(pair.replica)
        kill(pair.primary)
        kill(pair.replica)

    pair.replica.start()
    pair.replication.promote(pair.replica.access)

    assert before == list(range(1, 30))
    assert pair.numbers(pair.replica) == list(range(1, 40))


def test_a_replica_that_is_killed_while_changes_come_in_goes_on_where_it_was(pair: Pair) -> None:
    pair.make()
    pair.join()
    for number in range(2, 30):
        pair.add(number)

    kill(pair.replica)
    waiting = pair.begin_to_add(30)
    pair.replica.start()
    until(pair.is_following, "the replica to follow")
    waiting.join(20.0)

    assert not waiting.is_alive()
    assert until(lambda: pair.numbers(pair.replica) == list(range(1, 31)), "the last row")


@contextmanager
def held_back(replica: Server) -> Iterator[None]:
    """Stop a replica from applying the changes that it receives."""
    if replica.software.type == "postgresql":
        with postgres_dumps.connected(replica.access, "postgres") as connection:
            connection.execute("SELECT pg_wal_replay_pause()")
        yield
        return
    with mariadb_dumps.connected(replica.access, replica.names.database) as entered, entered.cursor() as cursor:
        cursor.execute("LOCK TABLES t READ")
        yield
