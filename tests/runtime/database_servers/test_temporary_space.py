"""Limits of temporary files: the statement fails, the server keeps running."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from tests.runtime.database_servers.server_support import (
    MARIADB,
    POSTGRESQL,
    REFUSALS,
    Lab,
    Server,
    a_lab,
    find_software,
    rows,
)

DISK_MB = 96
SORTS = {
    POSTGRESQL: "SELECT count(*) FROM (SELECT repeat(md5(n::text), 30) AS filling FROM generate_series(1, 200000) n"
    " ORDER BY filling OFFSET 0) sorted",
    # A derived table is not sorted unless its rows are counted from somewhere on.
    MARIADB: "SELECT repeat(md5(seq), 30) AS filling FROM seq_1_to_200000 ORDER BY filling LIMIT 199999, 1",
}
TABLES = {
    POSTGRESQL: "CREATE TEMPORARY TABLE heap AS SELECT repeat(md5(n::text), 30) FROM generate_series(1, 10) n",
    MARIADB: "CREATE TEMPORARY TABLE heap ENGINE=InnoDB AS SELECT repeat(md5(seq), 30) AS filling FROM seq_1_to_200000",
}
RAISES = {
    POSTGRESQL: "SET temp_file_limit = '10GB'",
    MARIADB: "SET GLOBAL innodb_temp_data_file_path = 'ibtmp1:4M:autoextend'",
}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with a_lab() as made:
        yield made


@pytest.fixture(scope="module", params=[POSTGRESQL, MARIADB])
def server(lab: Lab, request: pytest.FixtureRequest) -> Server:
    return lab.start(find_software(request.param), disk_mb=DISK_MB)


def name_of(server: Server) -> str:
    return POSTGRESQL if server.software.type == "postgresql" else MARIADB


@pytest.mark.boundary("tenant-to-tenant", "A sort of a database session cannot take more disk than its tier has.")
def test_a_sort_beyond_the_disk_of_the_tier_fails_and_its_session_and_server_go_on(server: Server) -> None:
    with contextlib.closing(server.connect()) as session:
        with pytest.raises(REFUSALS):
            rows(session, SORTS[name_of(server)])
        after = rows(session, "SELECT 41 + 1")

    assert after == [(42,)]
    assert server.look().restarts == 0


def test_a_sort_within_the_disk_of_the_tier_works(server: Server) -> None:
    small = SORTS[name_of(server)].replace("200000", "20000").replace("199999", "19999")

    assert len(server.ask(small)) == 1


@pytest.mark.boundary("tenant-to-tenant", "A user of a database cannot raise the bound of its temporary files.")
def test_a_user_cannot_raise_the_bound(server: Server) -> None:
    with pytest.raises(REFUSALS):
        server.ask(RAISES[name_of(server)])


def test_temporary_tables_of_mariadb_have_an_end_as_well(lab: Lab, server: Server) -> None:
    if name_of(server) == POSTGRESQL:  # Such tables are part of the database there, and count like others.
        assert server.ask("SHOW temp_file_limit") == [("96MB",)]
        return
    with pytest.raises(REFUSALS):
        server.ask(TABLES[MARIADB])

    [(_, most)] = server.ask("SET SESSION tmp_disk_table_size = 1 << 40", "SHOW VARIABLES LIKE 'tmp_disk_table_size'")
    assert int(most) == DISK_MB << 20
    assert server.look().restarts == 0
