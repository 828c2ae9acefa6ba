"""TLS certificates of database servers, as clients see them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import ssl
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from cryptography import x509
from tests.runtime.database_servers.server_support import MARIADB, POSTGRESQL, Lab, Server, a_lab, find_software

from moorage.runtime.database_servers import tls

NOW = round(time.time() * 1000)  # Clients go by their own clock.
DAY = 86_400_000
HOST = "db-1.moorage.example"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "server"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with a_lab() as made:
        yield made


def certificate(folder: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / "tls/server.crt").read_bytes())


@contextlib.contextmanager
def served(folder: Path) -> Iterator[int]:
    """Run a TLS server on a port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls/server.crt", folder / "tls/server.key")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_answer, args=(context, listening))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            thread.join()


def _answer(context: ssl.SSLContext, listening: socket.socket) -> None:
    connection = listening.accept()[0]
    with connection, contextlib.suppress(ssl.SSLError, ConnectionError), context.wrap_socket(connection, True) as said:
        said.sendall(b"hello")


def greeting(folder: Path, ca: Path, host: str) -> bytes:
    context = ssl.create_default_context(cafile=str(ca))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    with (
        served(folder) as port,
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname=host) as client,
    ):
        return client.recv(5)


@pytest.mark.parametrize("host", [HOST, "192.0.2.7", "127.0.0.1", "localhost"])
def test_a_client_that_knows_the_authority_believes_the_server_at_each_of_its_names(
    keys: Path, folder: Path, host: str
) -> None:
    tls.ensure_certificate(keys, folder, [HOST, "192.0.2.7"], NOW)

    assert greeting(folder, tls.ensure_ca(keys), host) == b"hello"


def test_a_client_does_not_believe_another_name_or_another_authority(keys: Path, folder: Path, tmp_path: Path) -> None:
    tls.ensure_certificate(keys, folder, [HOST], NOW)

    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        greeting(folder, tls.ensure_ca(keys), "other.example")
    with pytest.raises(ssl.SSLCertVerificationError):
        greeting(folder, tls.ensure_ca(tmp_path / "others"), HOST)


def test_the_authority_is_made_once_and_its_key_is_secret(keys: Path) -> None:
    assert tls.read_ca(keys) is None

    first = tls.ensure_ca(keys).read_text()

    assert tls.ensure_ca(keys).read_text() == first == tls.read_ca(keys)
    assert stat.S_IMODE((keys / "database-ca.key").stat().st_mode) == 0o600
    assert sorted(path.name for path in keys.iterdir()) == ["database-ca.crt", "database-ca.key"]


def test_many_processes_at_once_make_one_authority(keys: Path, folder: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        pool.map(tls.ensure_ca, [keys] * 8)

    tls.ensure_certificate(keys, folder, [HOST], NOW)

    assert greeting(folder, keys / "database-ca.crt", HOST) == b"hello"


def test_an_authority_whose_making_was_cut_short_is_completed(keys: Path, folder: Path) -> None:
    tls.ensure_ca(keys).unlink()
    secret = (keys / "database-ca.key").read_bytes()

    tls.ensure_certificate(keys, folder, [HOST], NOW)

    assert (keys / "database-ca.key").read_bytes() == secret
    assert greeting(folder, keys / "database-ca.crt", HOST) == b"hello"


def test_a_certificate_is_kept_until_its_last_month_and_renewed_then(keys: Path, folder: Path) -> None:
    tls.ensure_certificate(keys, folder, [HOST], NOW)
    first = certificate(folder)

    tls.ensure_certificate(keys, folder, [HOST], NOW + 334 * DAY)
    kept = certificate(folder)
    tls.ensure_certificate(keys, folder, [HOST], NOW + 336 * DAY)
    renewed = certificate(folder)

    assert kept == first
    assert (renewed.not_valid_after_utc - first.not_valid_after_utc).days == 336


@pytest.mark.parametrize("file", ["server.crt", "server.key", "ca.crt"])
def test_a_file_that_is_missing_or_damaged_is_made_good(keys: Path, folder: Path, file: str) -> None:
    tls.ensure_certificate(keys, folder, [HOST], NOW)
    (folder / "tls" / file).write_text("damaged")

    tls.ensure_certificate(keys, folder, [HOST], NOW)

    assert greeting(folder, folder / "tls/ca.crt", HOST) == b"hello"


def test_another_host_needs_another_certificate(keys: Path, folder: Path) -> None:
    tls.ensure_certificate(keys, folder, [HOST], NOW)

    tls.ensure_certificate(keys, folder, ["new.example"], NOW)

    assert greeting(folder, tls.ensure_ca(keys), "new.example") == b"hello"


def test_what_a_server_reads_belongs_to_its_user_alone(keys: Path, folder: Path) -> None:
    owner = 610_000_999 if os.getuid() == 0 else os.getuid()
    os.chown(folder, owner, owner)

    tls.ensure_certificate(keys, folder, [HOST], NOW)

    files = [folder / "tls" / name for name in ("server.crt", "server.key", "ca.crt")]
    assert {(path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) for path in files} == {(owner, 0o600)}
    assert (folder / "tls").stat().st_uid == owner


def test_a_link_in_the_folder_of_a_server_is_never_followed(keys: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (folder / "tls").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="tls"):
        tls.ensure_certificate(keys, folder, [HOST], NOW)

    assert list((tmp_path / "elsewhere").iterdir()) == []


def with_tls(lab: Lab, name: str) -> Server:
    server = lab.new(find_software(name), has_tls=True)
    server.fill()
    tls.ensure_certificate(lab.home / "keys", server.folder, [HOST], NOW)
    server.start()
    server.settle()
    return server


def test_a_postgresql_client_that_verifies_everything_gets_in(lab: Lab) -> None:
    server = with_tls(lab, POSTGRESQL)
    told: dict[str, Any] = {"host": "127.0.0.1", "port": server.options.port, "user": server.names.username}
    secret: dict[str, Any] = {
        "password": server.names.password,
        "dbname": server.names.database,
        "sslmode": "verify-full",
    }

    with psycopg.connect(**told, **secret, sslrootcert=str(tls.ensure_ca(lab.home / "keys"))) as connection:
        found = connection.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone()
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        psycopg.connect(**told, **secret, sslrootcert=str(tls.ensure_ca(lab.home / "others")))

    assert found == (True,)
    server.stop()


def test_a_mysql_client_that_verifies_everything_gets_in(lab: Lab) -> None:
    server = with_tls(lab, MARIADB)

    connection = pymysql.connect(
        host="127.0.0.1",
        port=server.options.port,
        user=server.names.username,
        password=server.names.password,
        ssl={"ca": str(tls.ensure_ca(lab.home / "keys")), "check_hostname": True},
    )
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute("SHOW STATUS LIKE 'Ssl_version'")
        found = cursor.fetchone()

    assert found is not None
    assert found[1].startswith("TLS")
    server.stop()
