"""Contract tests for every kind of server."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import shutil
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from tests.runtime.database_servers.server_story import story_of_an_ordinary_user
from tests.runtime.database_servers.server_support import REFUSALS, Lab, Server, rows, until

from moorage.runtime.database_servers.ports import ADMIN, Counters, ServerFailed
from moorage.runtime.database_servers.software import templates


class ServerContract:
    """Contract of every kind of server; each test module provides a server fixture."""

    def test_what_a_user_stores_is_there_for_the_next_session(self, server: Server) -> None:
        server.ask("CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (7)")

        assert server.ask("SELECT n FROM kept") == [(7,)]

    def test_a_wrong_password_is_refused(self, server: Server) -> None:
        with pytest.raises(REFUSALS):
            server.connect(password="not-the-password")

    def test_the_platforms_own_user_cannot_come_over_the_network(self, server: Server) -> None:
        assert server.kind.version(server.access)

        with pytest.raises(REFUSALS):
            server.connect(user=ADMIN, password=server.admin, database="postgres")

    def test_providing_again_leaves_data_and_password_as_they_are(self, server: Server) -> None:
        server.ask("CREATE TABLE provided (n int)", "INSERT INTO provided VALUES (1)")

        server.kind.set_admin_password(server.software, server.access)
        server.kind.provision(server.access, server.names, None)

        assert server.ask("SELECT n FROM provided") == [(1,)]

    def test_the_password_of_the_template_is_good_for_nothing(self, server: Server) -> None:
        first = templates.password_of(server.software.template)

        with pytest.raises(ServerFailed):
            server.kind.version(dataclasses.replace(server.access, password=first))

    def test_a_new_password_takes_the_place_of_the_old_one(self, server: Server) -> None:
        old = server.names

        server.names = dataclasses.replace(old, password="another 'pass\\word")
        server.kind.set_password(server.access, server.names)

        assert server.ask("SELECT 1") == [(1,)]
        with pytest.raises(REFUSALS):
            server.connect(password=old.password)

    def test_all_sessions_end_but_the_platforms(self, server: Server) -> None:
        with contextlib.closing(server.kind.session(server.access)) as own:
            session = server.connect()

            server.kind.end_sessions(server.access)

            with pytest.raises(REFUSALS):
                rows(session, "SELECT 1")
            assert own.counters().max_connections > 0

    def test_only_what_users_do_is_counted(self, server: Server) -> None:
        with (
            contextlib.closing(server.kind.session(server.access)) as own,
            contextlib.closing(server.connect()) as used,
        ):
            before = own.counters()
            for _ in range(25):
                rows(used, "SELECT 1")
            own.counters()

            after = own.counters()

        assert before.queries is not None
        assert after.queries == before.queries + 25
        assert after.connections == 1

    def test_reading_counts_as_use_of_the_cache(self, server: Server) -> None:
        server.ask("CREATE TABLE cached (n int)", "INSERT INTO cached VALUES (1)")
        with contextlib.closing(server.kind.session(server.access)) as own:
            before = own.counters()
            server.ask(*["SELECT count(*) FROM cached"] * 20)

            after = until(lambda: _if_more(own.counters(), before), "figures that a server tells a little later")

        assert after
        assert after.cache_reads is not None

    def test_a_session_says_that_its_connection_has_broken(self, server: Server) -> None:
        own = server.kind.session(server.access)
        server.crash()

        with pytest.raises(ServerFailed):
            own.counters()

        own.close()

    def test_nothing_that_was_acknowledged_is_lost_when_the_server_is_killed(self, server: Server) -> None:
        server.ask("CREATE TABLE written (n int)")
        acknowledged = 0
        with contextlib.closing(server.connect()) as writer:
            killer = threading.Timer(0.3, server.kill)
            killer.start()
            with contextlib.suppress(*REFUSALS):
                while True:
                    rows(writer, f"INSERT INTO written VALUES ({acknowledged + 1})")
                    acknowledged += 1
        killer.join()
        server.until_back()

        kept = [n for (n,) in server.ask("SELECT n FROM written ORDER BY n")]

        assert acknowledged > 0
        assert kept[:acknowledged] == list(range(1, acknowledged + 1))

    def test_it_says_which_software_it_is(self, server: Server) -> None:
        assert server.software.version in server.kind.version(server.access)

    def test_its_files_are_told_from_an_empty_folder(self, server: Server, tmp_path: Path) -> None:
        assert server.kind.is_filled(server.folder)
        assert not server.kind.is_filled(tmp_path)

    def test_a_server_that_was_stopped_does_not_answer_and_has_everything_when_it_is_back(self, server: Server) -> None:
        server.ask("CREATE TABLE stopped (n int)", "INSERT INTO stopped VALUES (3)")

        server.stop()
        answered = server.kind.ping(server.access)
        server.start()

        assert not answered
        assert server.ask("SELECT n FROM stopped") == [(3,)]

    def test_a_server_that_is_not_open_takes_only_the_platform_in(self, lab: Lab, server: Server) -> None:
        scratch = lab.start(server.software, is_open=False)

        assert scratch.kind.version(scratch.access)
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", scratch.options.port)) == errno.ECONNREFUSED
        scratch.stop()

    def test_it_offers_tls_where_it_has_a_certificate(self, lab: Lab, server: Server) -> None:
        other = lab.new(server.software, has_tls=True)
        other.fill()
        _make_certificate(other.folder / "tls")
        other.own()
        other.start()
        other.settle()

        assert "TLSv1" in other.ask_over_tls()
        other.stop()

    @pytest.mark.parametrize(
        "is_boxed", [pytest.param(True, id="sandboxed"), pytest.param(False, id="outside", marks=pytest.mark.twin)]
    )
    def test_it_works_for_an_ordinary_user_in_a_long_path(self, server: Server, tmp_path: Path, is_boxed: bool) -> None:
        told = story_of_an_ordinary_user(server.software, is_boxed=is_boxed)

        assert told == {"rows": [[1]], "version": server.kind.version(server.access)}


def _if_more(after: Counters, before: Counters) -> Counters | None:
    assert after.cache_hits is not None
    assert before.cache_hits is not None
    return after if after.cache_hits >= before.cache_hits + 20 else None


def _make_certificate(folder: Path) -> None:
    key = ["-newkey", "rsa:2048", "-nodes", "-keyout", str(folder / "server.key"), "-out", str(folder / "server.crt")]
    argv = ["openssl", "req", "-x509", "-subj", "/CN=localhost", "-days", "2", *key]
    subprocess.run(argv, check=True, capture_output=True)
    shutil.copy(folder / "server.crt", folder / "ca.crt")
    (folder / "server.key").chmod(0o600)
