"""A platform that cannot start: one message that says what is wrong and what to do next, and no traceback."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.command import fill, in_store, moorage, secret_of
from tests.mounts import own_mounts
from tests.platform.backup_support import settings_for
from tests.platform.running import clean_environment, command, free_ports
from tests.ports import free_port
from tests.postgres_server import PostgresServer

from moorage.core.db import migrate
from moorage.errors import CannotStart
from moorage.platform import folders, keys, opening, store_checks

STRANGER = 12345  # a user that nothing on the machine belongs to


@pytest.fixture
def data(tmp_path: Path, filled: Path) -> Path:
    """The data folder of a platform that has run."""
    return shutil.copytree(filled, tmp_path / "data")


def store_of(data: Path) -> Path:
    return data / "store" / "moorage.db"


def open_and_close(data: Path, **given: str) -> None:
    opening.open_store(settings_for(data, **given)).close()


def check_one_message(ended: subprocess.CompletedProcess[str], *parts: str | Path) -> None:
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert ended.stderr.count("moorage: ") == 1
    assert [part for part in parts if str(part) not in ended.stderr] == []


def truncate(store: Path) -> None:
    os.truncate(store, store.stat().st_size // 2)


def truncate_to_a_few_bytes(store: Path) -> None:
    os.truncate(store, 100)


def overwrite_header(store: Path) -> None:
    with store.open("r+b") as file:
        file.write(b"\0garbage" * 16)


def overwrite_pages(store: Path) -> None:
    with store.open("r+b") as file:
        file.seek(store.stat().st_size // 2)
        file.write(os.urandom(64 * 1024))


def drop_table(store: Path) -> None:
    with contextlib.closing(sqlite3.connect(store)) as connection:
        connection.execute("DROP TABLE notification")
        connection.commit()


def drop_column(store: Path) -> None:
    with contextlib.closing(sqlite3.connect(store)) as connection:
        connection.execute("ALTER TABLE vault_secret DROP COLUMN origin")
        connection.commit()


DAMAGES = (truncate, truncate_to_a_few_bytes, overwrite_header, overwrite_pages, drop_table, drop_column)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_store_is_named_with_its_newest_copy_and_not_touched(
    data: Path, damage: Callable[[Path], None]
) -> None:
    snapshots = data / "store" / "snapshots"
    snapshots.mkdir(exist_ok=True)
    migrate.copy_sqlite(store_of(data), snapshots / "daily-1.db")
    damage(store_of(data))
    before = store_of(data).read_bytes()

    with pytest.raises(store_checks.DamagedStore) as refused:
        open_and_close(data)

    assert f"the store {store_of(data)} is damaged" in str(refused.value)
    assert str(snapshots / "daily-1.db") in str(refused.value)
    assert "moorage restore" in str(refused.value)
    assert store_of(data).read_bytes() == before


def test_a_store_that_was_replaced_by_its_copy_as_the_message_says_is_the_same(data: Path) -> None:
    migrate.copy_sqlite(store_of(data), data / "copy.db")
    overwrite_header(store_of(data))

    for name in ("moorage.db", "moorage.db-wal", "moorage.db-shm"):
        (data / "store" / name).unlink(missing_ok=True)
    shutil.copy(data / "copy.db", store_of(data))

    assert in_store(data, secret_of) == "hunter2"


def test_a_database_of_another_program_gets_no_tables_of_ours(data: Path) -> None:
    store_of(data).unlink()
    with contextlib.closing(sqlite3.connect(store_of(data))) as connection:
        connection.execute("CREATE TABLE other (id INTEGER)")
        connection.commit()

    with pytest.raises(migrate.ForeignStore, match="not a store of Moorage"):
        open_and_close(data)


@pytest.mark.parametrize(
    "words",
    [["serve"], *(pytest.param(words, marks=pytest.mark.twin) for words in (["audit", "verify"], ["keys", "rotate"]))],
    ids=" ".join,
)
def test_commands_on_a_damaged_store_end_with_one_message(data: Path, words: list[str]) -> None:
    overwrite_header(store_of(data))

    ended = moorage(*words, "--data", data)

    check_one_message(ended, store_of(data), "is damaged", "moorage restore")


def test_a_missing_master_key_is_named_and_no_new_one_is_written(data: Path) -> None:
    key = data / "keys" / "master_key"
    text = key.read_text()
    key.unlink()

    ended = subprocess.run(
        command(data, free_ports()), capture_output=True, text=True, env=clean_environment(), timeout=60, check=False
    )

    check_one_message(ended, "the master key is missing", key, "MOORAGE_MASTER_KEY", "backup")
    assert not key.exists()
    open_and_close(data, master_key=text.strip())


def test_no_key_is_written_beside_data_whose_store_is_gone(data: Path) -> None:
    (data / "keys" / "master_key").unlink()
    store_of(data).unlink()

    ended = subprocess.run(
        command(data, free_ports()), capture_output=True, text=True, env=clean_environment(), timeout=60, check=False
    )

    check_one_message(ended, "its store is missing")
    assert not (data / "keys" / "master_key").exists()


def test_a_first_start_writes_keys(tmp_path: Path) -> None:
    in_store(tmp_path / "new", fill)

    assert {path.name for path in (tmp_path / "new" / "keys").iterdir()} == {"master_key", "session_secret"}


@pytest.mark.group("postgres")
def test_no_key_is_written_beside_a_store_on_postgresql_that_has_secrets(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.create_database()
    in_store(tmp_path / "first", fill, database_url=url)

    with pytest.raises(keys.MissingKey, match="the store holds secrets"):
        keys.edge_keys(settings_for(tmp_path / "second", database_url=url))

    assert not (tmp_path / "second" / "keys" / "master_key").exists()
    postgres.drop_database(url)


@pytest.mark.parametrize("name", ["master_key", "session_secret"])
@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"", "is empty"), (b"ab" * 8, "line 1 has 8 bytes"), (b"?!\n", "line 1 is neither"), (b"\xff", "is not text")],
)
def test_a_key_file_that_cannot_be_used_is_named_and_kept(data: Path, name: str, content: bytes, problem: str) -> None:
    (data / "keys" / name).write_bytes(content)

    with pytest.raises(keys.BadKeyFile) as refused:
        open_and_close(data)

    assert f"{data / 'keys' / name}: {problem}" in str(refused.value)
    assert (data / "keys" / name).read_bytes() == content


def test_a_short_key_is_not_rotated(data: Path) -> None:
    key = data / "keys" / "master_key"
    key.write_text("abcd\n")

    check_one_message(moorage("keys", "rotate", "--data", data), key, "line 1 has 2 bytes")
    assert key.read_text() == "abcd\n"


def test_a_key_file_that_does_not_fit_the_store_is_blamed_and_not_the_setting(data: Path) -> None:
    (data / "keys" / "master_key").write_text(keys.generate() + "\n")

    ended = moorage("serve", "--data", data, "--api-port", str(free_port()), "--metrics-port", "0")

    check_one_message(ended, f"{data / 'keys' / 'master_key'}: does not fit this store")


@pytest.mark.deep
def test_postgresql_that_is_away_is_named_without_its_password(tmp_path: Path) -> None:
    url = f"postgresql://ada:hunter2@127.0.0.1:{free_port()}/harbor"

    ended = moorage("serve", "--data", tmp_path / "data", DATABASE_URL=url)

    check_one_message(ended, "MOORAGE_DATABASE_URL: cannot use PostgreSQL at 127.0.0.1:", "database harbor", "refused")
    assert "hunter2" not in ended.stderr


@pytest.mark.group("postgres")
def test_a_database_that_postgresql_does_not_have_is_named(postgres: PostgresServer, tmp_path: Path) -> None:
    url = postgres.create_database()
    postgres.drop_database(url)

    with pytest.raises(store_checks.UnusableStore, match="does not exist"):
        open_and_close(tmp_path / "data", database_url=url)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    if os.geteuid() != 0:
        folder.chmod(0o500)
        yield
        folder.chmod(0o700)
        return
    with own_mounts():
        for options in (["--bind"], ["-o", "remount,ro,bind"]):
            subprocess.run(["mount", *options, folder, folder], check=True)
        yield
        subprocess.run(["umount", folder], check=True)


def test_a_data_folder_that_cannot_be_written_is_named(data: Path) -> None:
    with read_only(data), pytest.raises(folders.UnusableFolder) as refused:
        folders.make(settings_for(data))

    assert str(data) in str(refused.value)
    assert "Read-only file system" in str(refused.value) or "Permission denied" in str(refused.value)
    assert "--data" in str(refused.value)


@contextlib.contextmanager
def folder_of_an_ordinary_user(source: Path) -> Iterator[Path]:
    """Copy a data folder, and be an ordinary user who owns the copy; root's own temporary folders are closed to it."""
    before = os.geteuid()
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        folder = shutil.copytree(source, Path(place) / "data")
        if before == 0:
            for path in (Path(place), folder, *folder.rglob("*")):
                os.chown(path, STRANGER, STRANGER)
            os.seteuid(STRANGER)
        try:
            yield folder
        finally:
            os.seteuid(before)


@pytest.mark.parametrize("name", ["", "store", "store/moorage.db", "keys/master_key"])
def test_a_data_folder_that_cannot_be_read_is_named_with_the_part_that_is_closed(filled: Path, name: str) -> None:
    with folder_of_an_ordinary_user(filled) as folder:
        mode = (folder / name).stat().st_mode
        (folder / name).chmod(0)
        with pytest.raises(folders.UnusableFolder) as refused:
            folders.make(settings_for(folder))
        (folder / name).chmod(mode)

    assert str(folder / name) in str(refused.value)
    assert "Permission denied" in str(refused.value)


def test_a_file_where_the_data_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")

    with pytest.raises(CannotStart, match="A file is where a folder should be"):
        folders.make(settings_for(tmp_path / "data"))


def test_root_is_refused_on_the_folder_of_another_user_and_leaves_nothing_there(data: Path) -> None:
    shutil.rmtree(data / "uploads")
    if os.geteuid() == 0:
        os.chown(data, STRANGER, STRANGER)
    owner = data.stat().st_uid

    with pytest.raises(folders.UnusableFolder) as refused:
        folders.check_owner(data, user=0)
    ended = [moorage("up", "--data", data)] if os.geteuid() == 0 else []

    assert f"({owner})" in str(refused.value) or f"the user {owner}" in str(refused.value)
    for each in ended:
        check_one_message(each, data, f"belongs to the user {STRANGER}", f"chown root {data}")
    assert not (data / "uploads").exists()


def test_a_gateway_on_its_own_is_refused_where_apps_are_not_pods(tmp_path: Path) -> None:
    ended = moorage("gateway", "--data", str(tmp_path / "data"))

    check_one_message(
        ended, "MOORAGE_ENGINE: a gateway on its own routes to pods", "`moorage up` runs a gateway on each"
    )
