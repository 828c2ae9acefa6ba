"""Databases are in a backup of the platform while they run and are written to, and lose nothing by it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from tests.command import fill, in_store
from tests.platform.backup_support import quiet, settings_for, tree
from tests.runtime.database_servers.server_support import (
    MARIADB,
    POSTGRESQL,
    Lab,
    Server,
    a_lab,
    find_software,
    until,
)

from moorage.platform.backups import backup, database_copies, freezing, restore
from moorage.platform.backups.archive import CannotRestore
from moorage.runtime.sandbox.usage import process_tree

MAPS = """
import mmap, sys
with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), 0):
    print(flush=True)
    sys.stdin.read()
"""
# Has a child that starts others all the time.
BREEDS = """
import os, sys, time
if os.fork() == 0:
    while True:
        if os.fork() == 0:
            time.sleep(0.02)
            os._exit(0)
        time.sleep(0.001)
print(flush=True)
sys.stdin.read()
"""
HOLDS = """
import sys, time
from moorage.platform.backups import freezing
with freezing.frozen([(int(sys.argv[1]), int(sys.argv[2]))]):
    print("held", flush=True)
    time.sleep(600)
"""
BOTH = pytest.mark.parametrize("name", [POSTGRESQL, pytest.param(MARIADB, marks=pytest.mark.twin)])


@pytest.fixture
def lab() -> Iterator[Lab]:
    with a_lab() as made:
        yield made


def database(lab: Lab, name: str) -> Server:
    server = lab.start(find_software(name), folder="7/s1")
    server.ask("CREATE TABLE t (n int PRIMARY KEY, filler varchar(200))")
    return server


@dataclass
class Writer:
    """Writes rows one by one, and knows which were acknowledged."""

    server: Server
    acknowledged: int = -1
    failures: list[Exception] = field(default_factory=list)
    _done: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Writer]:
        thread = threading.Thread(target=self._write)
        thread.start()
        try:
            until(lambda: self.acknowledged > 50, "rows")
            yield self
        finally:
            self._done.set()
            thread.join()

    def _write(self) -> None:
        try:
            with contextlib.closing(self.server.connect()) as connection, connection.cursor() as cursor:
                while not self._done.is_set():
                    cursor.execute(f"INSERT INTO t VALUES ({self.acknowledged + 1}, '{'x' * 150}')")
                    self.acknowledged += 1
        except psycopg.Error as error:
            self.failures.append(error)


def numbers(server: Server) -> list[int]:
    return [row[0] for row in server.ask("SELECT n FROM t ORDER BY n")]


def reborn(lab: Lab, first: Server, folder: Path) -> Server:
    """Start a server on a copy of another one's folder."""
    server = lab.new(first.software, folder="8/s1")
    server.admin, server.names = first.admin, first.names
    server.folder.parent.mkdir()
    shutil.copytree(folder, server.folder)
    server.own()
    server.start()
    return server


@BOTH
def test_a_copy_under_writes_starts_and_holds_all_that_was_acknowledged_before(lab: Lab, name: str) -> None:
    server, said = database(lab, name), list[str]()

    with Writer(server).writing() as writer:
        before = writer.acknowledged
        with database_copies.copied(settings_for(lab.home), said.append) as copies:
            assert copies is not None
            other = reborn(lab, server, copies / "7/s1")
        until(lambda: writer.acknowledged > before + 50, "rows after the copy")
    found = numbers(other)

    assert found == list(range(len(found)))
    assert len(found) > before
    assert numbers(server) == list(range(writer.acknowledged + 1))
    assert writer.failures == []
    assert any(line.startswith("database 7 was stopped for ") for line in said)
    assert not (lab.home / "databases/.backup").exists()


@pytest.mark.deep
@BOTH
def test_a_backup_of_a_running_database_comes_back_with_its_owners(lab: Lab, name: str, tmp_path: Path) -> None:
    in_store(lab.home, fill)
    server = database(lab, name)
    copy = lab.home / "copy"
    server.ask("INSERT INTO t VALUES (0, 'kept')")

    backup.back_up(settings_for(lab.home), tmp_path / "b", snapshot=None, report=quiet)
    restore.restore(settings_for(copy), tmp_path / "b", force=False, running=False, report=quiet)

    other = reborn(lab, server, copy / "databases/7/s1")
    assert other.ask("SELECT * FROM t") == [(0, "kept")]
    assert (copy / "databases/7/s1/data").stat().st_uid == (server.folder / "data").stat().st_uid
    assert list((copy / "databases/7/s1/run").iterdir()) == []


@pytest.mark.deep
def test_nothing_is_restored_under_a_server_that_outlived_its_platform(lab: Lab, tmp_path: Path) -> None:
    in_store(lab.home, fill)
    server = database(lab, POSTGRESQL)
    backup.back_up(settings_for(lab.home), tmp_path / "b", snapshot=None, report=quiet)

    with pytest.raises(CannotRestore, match="database servers run"):
        restore.restore(settings_for(lab.home), tmp_path / "b", force=True, running=False, report=quiet)

    assert numbers(server) == []


def test_only_what_has_changed_is_copied_while_a_server_is_held(lab: Lab) -> None:
    server = database(lab, POSTGRESQL)
    server.stop()
    copy = database_copies._Copy(server.folder.parent, lab.home / "copy")
    first = copy.refresh()
    _make_old(server.folder)
    copy.refresh()  # Their times have changed.

    (server.folder / "data/PG_VERSION").write_text("16\n")
    (server.folder / "data/global/new").write_text("12345")
    (server.folder / "data/pg_hba.conf").unlink()
    taken = copy.refresh()

    assert taken == len("16\n" + "12345") < first
    assert tree(lab.home / "copy/s1", "data") == tree(server.folder, "data")


def _make_old(folder: Path) -> None:
    """Wait until no file has changed just now."""
    newest = max(path.lstat().st_ctime_ns for path in folder.rglob("*"))
    until(lambda: time.time_ns() - newest > database_copies.RECENT_NS, "old files")


def test_what_a_process_writes_by_its_memory_is_always_copied(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/mapped").write_bytes(b"before")
    (tmp_path / "d/plain").write_bytes(b"12")
    copy = database_copies._Copy(tmp_path / "d", tmp_path / "copy")
    _make_old(tmp_path / "d")
    copy.refresh()
    argv = [sys.executable, "-c", MAPS, str(tmp_path / "d/mapped")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()

        mapped = database_copies._mapped(frozenset({process.pid}))
        process.communicate()

    assert mapped is not None
    assert (tmp_path / "d/mapped").stat().st_ino in mapped
    assert copy.refresh(mapped) == len(b"before")


def test_servers_go_on_when_who_held_them_is_killed(lab: Lab) -> None:
    server = database(lab, POSTGRESQL)
    (found,), _ = database_copies.running(settings_for(lab.home))
    argv = [sys.executable, "-c", HOLDS, *map(str, found.shim)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        stopped = freezing.descendants([found.shim])
        were_still = [freezing.is_stopped(pid) for pid in stopped]

        os.kill(holder.pid, signal.SIGKILL)

    assert len(stopped) > 5
    assert all(were_still)
    assert numbers(server) == []


def test_processes_that_are_started_all_the_time_are_all_held() -> None:
    with subprocess.Popen([sys.executable, "-c", BREEDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        started = process_tree.started(process.pid)
        assert started is not None
        shims = [(process.pid, started)]
        until(lambda: len(freezing.descendants(shims)) > 3, "forks")

        with freezing.frozen(shims) as stopped:
            seen = freezing.descendants(shims)
            are_still = all(map(freezing.is_stopped, seen))
        until(lambda: not freezing.descendants(shims) <= stopped, "others")

        assert are_still
        assert seen <= stopped
        for pid in freezing.descendants(shims):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


def test_a_data_folder_without_databases_has_nothing_to_copy(tmp_path: Path) -> None:
    with database_copies.copied(settings_for(tmp_path), quiet) as copies:
        assert copies is None
