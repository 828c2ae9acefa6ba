"""Check the store at start; each problem gives a message with its cause and fix.

The text of a database driver contains neither the file nor the fix, and a traceback hides both. Only the standard
library is imported: `moorage up` checks the store before it starts a process that loads the rest.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from moorage.core.db.snapshots import STORE, store_path
from moorage.errors import CannotStart
from moorage.settings import Settings

CONNECT_TIMEOUT_S = 10
WHOLE_CHECK_BYTES = 256 * 2**20  # Up to this size the start checks every page of the store, in under a second.
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT")
_DENIED = ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")


class MissingStore(CannotStart):
    """The data folder holds data, but its store is missing."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{folder} holds data, but its store is missing or empty ({folder / 'store' / STORE}). Starting would "
            f"forget everything. Restore it from {folder / 'store' / 'snapshots'} or with `moorage restore`; to start "
            "over on purpose, move the folder away."
        )


class MovedStore(CannotStart):
    """The store was moved to PostgreSQL; the SQLite file has its state before the move."""

    def __init__(self, path: Path, target: str) -> None:
        super().__init__(
            f"the store was moved to {target}. Set MOORAGE_DATABASE_URL to it. To go back to the SQLite store, without "
            f"the changes since the move, delete {path}"
        )


class DamagedStore(CannotStart):
    def __init__(self, path: Path, problem: str) -> None:
        folder = path.parent
        copies = sorted((folder / "snapshots").glob("*.db"), key=lambda copy: copy.stat().st_mtime)
        copy = f"The newest copy is {copies[-1]}" if copies else f"There is no copy in {folder / 'snapshots'}"
        super().__init__(
            f"the store {path} is damaged: {problem}. Nothing was changed. {copy}. To use a copy, move {path} and the "
            f"files {path.name}-wal and {path.name}-shm away, and copy it to {path}. Or restore a backup: "
            "moorage restore FILE --force"
        )


class UnusableStore(CannotStart):
    """The store cannot be opened or reached."""


def check_store_is_there(settings: Settings) -> None:
    """Raise MissingStore if data exists without a store, and MovedStore if it was moved to PostgreSQL."""
    check_not_moved(settings)
    path = store_path(settings)
    if path.exists() and path.stat().st_size > 0:
        return
    has_marker = (settings.data / "instance").exists()
    has_data = any(next(settings.folder(name).iterdir(), None) for name in ("artifacts", "databases", "git"))
    if has_marker or has_data:
        raise MissingStore(settings.data)


def moved_path(settings: Settings) -> Path:
    """Return the file that marks the SQLite store as moved, so that no platform is started on it by mistake."""
    return settings.folder("store") / "moved"


def mark_moved(settings: Settings, server: str) -> Path:
    """Mark the SQLite store as moved to a server, which is described without a password."""
    path = moved_path(settings)
    path.write_text(f"PostgreSQL at {server} on {datetime.now(UTC):%Y-%m-%d at %H:%M} UTC\n")
    path.chmod(0o600)
    return path


def check_not_moved(settings: Settings) -> None:
    """Raise MovedStore if the SQLite store was moved."""
    path = moved_path(settings)
    if path.exists():
        raise MovedStore(path, path.read_text(errors="replace").strip())


def check_sqlite(path: Path) -> None:
    """Check the pages of the store, if it is small enough; raises DamagedStore."""
    if not path.exists() or path.stat().st_size == 0:
        return
    connection = sqlite3.connect(path)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if path.stat().st_size <= WHOLE_CHECK_BYTES:
            problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if problem != "ok":
                raise DamagedStore(path, " ".join(problem.split()))
    finally:
        connection.close()


def check_tables(path: Path, expected: Mapping[str, set[str]]) -> None:
    """Check the tables and columns of a migrated store; raises DamagedStore."""
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute(
            "SELECT t.name, c.name FROM sqlite_master t JOIN pragma_table_info(t.name) c WHERE t.type = 'table'"
        ).fetchall()
    finally:
        connection.close()
    columns: dict[str, set[str]] = {}
    for table, column in rows:
        columns.setdefault(table, set()).add(column)
    missing = [f"table {name}" for name in expected if name not in columns]
    missing += [
        f"column {name}.{each}" for name in columns.keys() & expected for each in expected[name] - columns[name]
    ]
    if missing:
        shown = ", ".join(sorted(missing)[:5])
        raise DamagedStore(path, f"its tables are not those of its version; missing: {shown}")


def find_sqlite_key_id(path: Path) -> str | None:
    """Return the id of the key of a stored secret; None without secrets."""
    if not path.exists() or path.stat().st_size == 0:
        return None
    connection = sqlite3.connect(path)
    try:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'vault_secret'").fetchone():
            return None
        row = connection.execute("SELECT ciphertext FROM vault_secret LIMIT 1").fetchone()
    finally:
        connection.close()
    return _key_id(row)


def find_postgres_key_id(url: str) -> str | None:
    """Return the same for a store on PostgreSQL."""
    import psycopg

    with psycopg.connect(url, connect_timeout=CONNECT_TIMEOUT_S) as connection:
        if connection.execute("SELECT to_regclass('vault_secret')").fetchone() == (None,):
            return None
        return _key_id(connection.execute("SELECT ciphertext FROM vault_secret LIMIT 1").fetchone())


def _key_id(row: tuple[str] | tuple[object, ...] | None) -> str | None:
    return str(row[0]).split(".")[1] if row else None


@contextlib.contextmanager
def explained(settings: Settings) -> Iterator[None]:
    """Convert exceptions of the database drivers and SQLAlchemy to CannotStart."""
    try:
        yield
    except CannotStart:
        raise
    except ModuleNotFoundError as error:
        if not settings.uses_postgres or error.name not in ("psycopg", "psycopg_pool"):
            raise
        raise UnusableStore(
            "MOORAGE_DATABASE_URL: PostgreSQL needs a driver that is not installed: pip install 'moorage[postgres]'"
        ) from error
    except Exception as error:
        cause = getattr(error, "orig", None) or error
        if isinstance(cause, sqlite3.Error):
            raise _sqlite_error(store_path(settings), cause) from error
        if type(cause).__module__.partition(".")[0] in ("psycopg", "psycopg_pool"):
            raise _postgres_error(settings.database_url.get_secret_value(), cause) from error
        raise


def _sqlite_error(path: Path, error: sqlite3.Error) -> CannotStart:
    name = getattr(error, "sqlite_errorname", None) or ""
    if name.startswith(_DAMAGED):
        return DamagedStore(path, str(error))
    if name.startswith(_DENIED):
        return UnusableStore(
            f"cannot open the store {path}: {error}. The user that runs Moorage has to be able to read and write it "
            "and its folder; see `moorage doctor`"
        )
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return UnusableStore(f"the store {path} is in use by another program: {error}. Stop it and start again")
    if name.startswith("SQLITE_FULL"):
        return UnusableStore(f"cannot write to the store {path}: {error}. Free some disk space and start again")
    if "no such table" in str(error) or "no such column" in str(error):
        return DamagedStore(path, f"its tables are not those of its version ({error})")
    return UnusableStore(f"cannot use the store {path}: {error}. Check the disk it is on; see `moorage doctor`")


def _postgres_error(url: str, error: BaseException) -> CannotStart:
    """Explain an error of PostgreSQL; shows no password of the URL."""
    reason = " ".join(str(error).split())
    server, password = server_of(url), urlsplit(url).password
    if password:
        reason = reason.replace(password, "****")
    if str(getattr(error, "sqlstate", None) or "").startswith("42"):
        return UnusableStore(
            f"the store on PostgreSQL at {server} cannot be used: {reason}. Its tables or rights are not those of this "
            "version: restore the database from a dump, or let the user of the URL own its tables"
        )
    return UnusableStore(
        f"MOORAGE_DATABASE_URL: cannot use PostgreSQL at {server}: {reason}. Start the server, or correct host, port, "
        "user, password and database in the URL, and start again"
    )


def server_of(url: str) -> str:
    """Describe a server and database of PostgreSQL, without the password of the URL."""
    parts = urlsplit(url)
    return f"{parts.hostname or 'the local socket'}:{_port(url)}, database {parts.path.lstrip('/') or 'of the user'}"


def without_password(url: str) -> str:
    """Return a URL for a terminal."""
    password = urlsplit(url).password
    return url.replace(f":{password}@", ":****@") if password else url


def _port(url: str) -> int:
    try:
        return urlsplit(url).port or 5432
    except ValueError:
        return 5432
