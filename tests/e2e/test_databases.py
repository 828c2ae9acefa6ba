"""Databases of both kinds, over the API: real clients connect to real servers, whatever becomes of those."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from tests.e2e.databases_support import (
    KIND_PARAMS,
    MYSQL,
    POSTGRESQL,
    REFUSED,
    Client,
    Databases,
    Harbor,
    Writer,
    ask,
    new_name,
    wait_until,
)

pytest_plugins = ("tests.e2e.databases_fixtures",)
pytestmark = pytest.mark.group("databases")

NAMES = {POSTGRESQL: "shop", MYSQL: "blog"}
SCHEMES = {POSTGRESQL: "postgresql", MYSQL: "mysql"}
STRANGERS = [{"password": "a wrong one"}, {"password": ""}, {"user": "moorage"}, {"user": "root"}]
EATEN_MB = 700  # more than the tier has


@pytest.fixture(scope="module", autouse=True)
def shop_and_blog(harbor: Harbor) -> Iterator[None]:
    """One database of each kind, with a number in it."""
    for kind, name in NAMES.items():
        harbor.databases.make(name, kind)
    harbor.databases.fill(*NAMES.values())
    yield
    for name in NAMES.values():
        harbor.databases.call("DELETE", f"/v1/databases/{name}")


@pytest.fixture
def authority(databases: Databases, tmp_path: Path) -> str:
    """The certificate that those of public databases can be checked with."""
    path = tmp_path / "ca.crt"
    path.write_text(databases.call("GET", "/v1/databases/shop/connection-strings")["caCertificate"])
    return str(path)


@pytest.mark.parametrize("kind", KIND_PARAMS)
def test_a_database_says_where_it_is_and_what_runs_but_not_its_password(databases: Databases, kind: str) -> None:
    client = databases.client(NAMES[kind])

    found = databases.read(NAMES[kind])
    strings = databases.call("GET", f"/v1/databases/{NAMES[kind]}/connection-strings")
    ((version,),) = client.ask("SELECT version()")

    masked = f"{SCHEMES[kind]}://{client.user}:****@127.0.0.1:{client.port}/{client.database}"
    assert (found["status"], found["statusReason"], found["version"]) == (
        "running",
        None,
        ["16.4.0", "8.4.2"][kind == MYSQL],
    )
    assert found["engineVersion"] == version
    assert found["engineExact"] == (found["engineNote"] is None)
    assert (found["publicUrl"], found["privateUrl"]) == (masked, masked)
    assert (strings["publicUrl"], strings["privateUrl"]) == (masked, masked)
    assert client.password not in repr((found, strings))


def test_only_the_password_route_shows_it_and_nobody_keeps_the_answer(databases: Databases) -> None:
    answer = databases.send("GET", "/v1/databases/shop/password")

    told = answer.json["data"]
    assert re.fullmatch("[A-Za-z0-9]{32}", told["password"])
    assert told["publicUrl"] == databases.read("shop")["publicUrl"].replace("****", told["password"])
    assert answer.header("cache-control") == "no-store"


def test_a_client_of_postgresql_can_check_whom_it_talks_to(databases: Databases, authority: str) -> None:
    client = databases.client("shop")

    with client.connect(sslmode="verify-full", sslrootcert=authority) as connection:
        is_encrypted = connection.pgconn.ssl_in_use
        numbers = ask(connection, "SELECT n FROM numbers")

    assert (is_encrypted, numbers) == (True, [(1,)])
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        client.connect(sslmode="verify-full", sslrootcert="system")


def test_a_client_of_mysql_can_check_whom_it_talks_to(databases: Databases, authority: str) -> None:
    checked = {"ssl_ca": authority, "ssl_verify_cert": True, "ssl_verify_identity": True}

    with contextlib.closing(databases.client("blog").connect(**checked)) as connection:
        ((_, cipher),) = ask(connection, "SHOW STATUS LIKE 'Ssl_cipher'")
        numbers = ask(connection, "SELECT n FROM numbers")

    assert cipher
    assert numbers == [(1,)]


@pytest.mark.parametrize("kind", KIND_PARAMS)
@pytest.mark.parametrize(
    "other", [{"password": "a wrong one"}, {"password": ""}, {"user": "moorage"}, {"user": "root"}]
)
def test_nobody_comes_in_without_the_password(databases: Databases, kind: str, other: dict[str, Any]) -> None:
    client = databases.client(NAMES[kind], **other)

    with pytest.raises((psycopg.OperationalError, pymysql.err.OperationalError)):
        client.connect()


@pytest.mark.parametrize("kind", KIND_PARAMS)
def test_what_a_server_uses_is_measured(databases: Databases, kind: str) -> None:
    wait_until(lambda: databases.metrics(NAMES[kind])["memoryMiB"])

    found = databases.metrics(NAMES[kind])

    assert (found["available"], found["phase"], found["ready"], found["restarts"]) == (True, "Running", True, 0)
    assert 1 < found["memoryMiB"] < 512
    assert found["startedAt"] is not None
    assert len(found["containers"]) == 1


@pytest.mark.parametrize("kind", KIND_PARAMS)
def test_another_tier_has_other_limits_and_the_same_data(databases: Databases, kind: str) -> None:
    client = databases.client(NAMES[kind])
    before = most_connections(client)

    databases.change_tier(NAMES[kind], "small")
    found = databases.up(NAMES[kind])

    assert (found["instanceType"], found["statusReason"], found["serverDetails"]["memory"]) == ("small", None, 2)
    assert most_connections(client) > before
    assert client.numbers() == [1]
    databases.change_tier(NAMES[kind], "micro")
    databases.up(NAMES[kind])
    assert most_connections(client) == before


def most_connections(client: Client) -> int:
    statement = {POSTGRESQL: "SHOW max_connections", MYSQL: "SELECT @@max_connections"}[client.engine]
    ((found,),) = client.ask(statement)
    return int(found)


def test_a_server_does_not_get_more_memory_than_its_tier_has_and_loses_nothing(databases: Databases) -> None:
    client = databases.client("shop")
    text = f"repeat(repeat('x', 1 << 20), {EATEN_MB})"
    eat = f"DO $$ DECLARE eaten text; BEGIN eaten := {text}; PERFORM pg_sleep(60); END $$"

    with pytest.raises(psycopg.OperationalError):
        client.ask(eat)

    databases.up("shop")
    assert client.numbers() == [1]


@pytest.mark.parametrize("kind", KIND_PARAMS)
def test_another_password_counts_from_now_on_and_who_is_in_stays_in(databases: Databases, kind: str) -> None:
    before = databases.client(NAMES[kind])

    with contextlib.closing(before.connect()) as inside:
        databases.call("POST", f"/v1/databases/{NAMES[kind]}/rotate-password")
        databases.up(NAMES[kind])
        seen = ask(inside, "SELECT n FROM numbers")

    after = databases.client(NAMES[kind])
    assert [number for (number,) in seen] == after.numbers() == [1]
    assert after.password != before.password
    with pytest.raises(REFUSED):
        before.connect()


@pytest.mark.parametrize("kind", KIND_PARAMS)
def test_a_restore_brings_the_state_of_a_backup_back_while_the_database_serves(databases: Databases, kind: str) -> None:
    name, client = NAMES[kind], databases.client(NAMES[kind])
    backup = databases.backed_up(name, databases.back_up(name))
    client.add(2)

    with Writer(client, 1000).at_work() as writer:
        databases.restore(name, backup["name"])
        found = databases.up(name)
        writer.wait_for_more()
    left = client.numbers()

    print(f"{kind}: nothing was acknowledged for up to {writer.longest_s:.2f} s while it was restored")
    assert (backup["status"], backup["reason"]) == ("completed", None)
    assert (found["status"], found["statusReason"]) == ("running", None)
    assert left[0] == 1
    assert 2 not in left
    # Whatever was acknowledged after the last that is missing is there: the state before was left behind as a whole.
    kept = [number for number in writer.acknowledged if number in left]
    assert kept == writer.acknowledged[-len(kept) :]
    assert [each["status"] for each in databases.backups(name) if each["cause"] == "safety"] == ["completed"]
    client.ask("DELETE FROM numbers WHERE n > 1")


@pytest.mark.parametrize("kind", KIND_PARAMS)
def test_a_damaged_backup_leaves_the_database_as_it_is(harbor: Harbor, databases: Databases, kind: str) -> None:
    name, client = NAMES[kind], databases.client(NAMES[kind])
    backup = databases.backed_up(name, databases.back_up(name))["name"]
    stored = stored_at(harbor.data, backup)
    client.add(2)
    server = harbor.server(name)

    os.truncate(stored, stored.stat().st_size // 2)
    databases.restore(name, backup)
    found = databases.settled(name)

    assert found["status"] == "running"
    assert found["statusReason"].startswith(f"{backup} was not restored, the database is as it was")
    assert client.numbers() == [1, 2]
    assert harbor.server(name) == server
    assert harbor.leftovers() == []


def stored_at(data: Path, backup: str) -> Path:
    """Return the file in which a backup is kept."""
    with contextlib.closing(sqlite3.connect(f"file:{data / 'store' / 'moorage.db'}?mode=ro", uri=True)) as store:
        ((digest,),) = store.execute("SELECT digest FROM database_backup WHERE name = ?", (backup,))
    (found,) = list((data / "artifacts" / "sha256" / str(digest[:2])).glob(f"{digest[2:]}*"))
    return found


@pytest.mark.parametrize("kind", KIND_PARAMS)
def test_a_deleted_database_is_gone_until_the_operator_takes_it_back(
    harbor: Harbor, databases: Databases, kind: str
) -> None:
    name = new_name("kept")
    databases.make(name, kind)
    databases.fill(name)
    client, number = databases.client(name), databases.read(name)["id"]

    with contextlib.closing(client.connect()) as inside:
        databases.call("DELETE", f"/v1/databases/{name}")
        databases.wait_until_gone(name)
        with pytest.raises(REFUSED):
            ask(inside, "SELECT 1")
    trashed = harbor.trash_of(number).is_dir()
    with pytest.raises(REFUSED):
        client.connect()
    said = databases.operate("undelete", number)
    databases.up(name)

    assert trashed
    assert name in said
    assert databases.client(name) == client
    assert client.numbers() == [1]
    assert not harbor.trash_of(number).exists()
