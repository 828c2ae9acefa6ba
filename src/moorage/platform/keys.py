"""The platform's two secrets: from settings, or in development from files."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from moorage.core.db.snapshots import store_path
from moorage.core.env import Env
from moorage.core.kit.clock import SystemClock
from moorage.core.kit.crypto import KeyRing, derive
from moorage.core.kit.secret_text import decode_secret
from moorage.errors import CannotStart
from moorage.platform import store_checks
from moorage.runtime.edge import route_file
from moorage.settings import Settings

LEAST_BYTES = 32


class MissingKey(CannotStart):
    """The store holds secrets, but the key that encrypts them is missing."""

    def __init__(self, path: Path, key_id: str) -> None:
        super().__init__(
            f"the master key is missing: {path} does not exist and MOORAGE_MASTER_KEY is not set, but the store holds "
            f"secrets that are encrypted under the key {key_id}. No new key was written, because it could not read "
            "them. Bring the file back from a backup (tar -xzf FILE keys/master_key takes it out of one), or set "
            "MOORAGE_MASTER_KEY to the key that the platform ran with"
        )


class BadKeyFile(CannotStart):
    """A key file is unreadable or has an invalid line."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            f"{path}: {problem}; each line should be a key of at least {LEAST_BYTES} bytes in hex or base64. Bring the "
            "file back from a backup: the store's secrets cannot be read without the key that they are encrypted under"
        )


def generate() -> str:
    """Return 32 random bytes in hex, for `moorage keys generate`."""
    return secrets.token_hex(32)


def load_ring(settings: Settings) -> KeyRing:
    """Return the master keys, newest first."""
    configured = settings.master_key.get_secret_value()
    texts = configured.split(",") if configured else _stored(settings, "master_key")
    return KeyRing(tuple(decode_secret(text) for text in texts))


def source(settings: Settings) -> str:
    """Return the source of the master keys, for messages."""
    return "MOORAGE_MASTER_KEY" if settings.master_key.get_secret_value() else str(_path(settings, "master_key"))


def load_session_secret(settings: Settings) -> bytes:
    configured = settings.session_secret.get_secret_value()
    return decode_secret(configured or _stored(settings, "session_secret")[0])


def edge_keys(settings: Settings) -> str:
    """Return the keys of the edge's route file, derived from the master keys."""
    return ",".join(derive(key, "edge routes").hex() for key in load_ring(settings).keys)


def rotate_route_file(settings: Settings) -> None:
    """Re-encrypt the edge's route file under the newest key; the edge must be stopped."""
    route_file.rewrite(settings.folder("run") / route_file.ROUTE_FILE, edge_keys(settings))


def add_master_key(settings: Settings) -> None:
    """Prepend a new master key to the key file; not for keys from the environment."""
    path = _path(settings, "master_key")
    write_private(path, "\n".join([generate(), *_stored(settings, "master_key")]) + "\n")


def drop_old_master_keys(settings: Settings) -> None:
    path = _path(settings, "master_key")
    write_private(path, _stored(settings, "master_key")[0] + "\n")


def _path(settings: Settings, name: str) -> Path:
    return settings.folder("keys") / name


def _stored(settings: Settings, name: str) -> list[str]:
    """Return the keys of a file; create it if no stored secret depends on it."""
    path = _path(settings, name)
    if not path.exists():
        if name == "master_key" and (key_id := _find_key_id(settings)) is not None:
            raise MissingKey(path, key_id)
        write_private(path, generate() + "\n")
    try:
        lines = path.read_text().split()
    except UnicodeDecodeError as error:
        raise BadKeyFile(path, "is not text") from error
    except OSError as error:
        raise BadKeyFile(path, f"cannot be read ({error.strerror})") from error
    if not lines:
        raise BadKeyFile(path, "is empty")
    for number, line in enumerate(lines, 1):
        _check_key(path, number, line)
    return lines


def _check_key(path: Path, number: int, text: str) -> None:
    try:
        size = len(decode_secret(text))
    except ValueError as error:
        raise BadKeyFile(path, f"line {number} is {error}") from None
    if size < LEAST_BYTES:
        raise BadKeyFile(path, f"line {number} has {size} bytes")


def _find_key_id(settings: Settings) -> str | None:
    """Return the id of the key of the stored secrets; None without secrets."""
    with store_checks.explained(settings):
        if settings.uses_postgres:
            return store_checks.find_postgres_key_id(settings.database_url.get_secret_value())
        return store_checks.find_sqlite_key_id(store_path(settings))


def write_private(path: Path, text: str) -> None:
    """Write a secret file atomically, with mode 0600."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_name(path.name + ".partial")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def make_env(settings: Settings) -> Env:
    """Return the environment of units of work, with the keys of this platform."""
    return Env.make(settings, SystemClock(), load_ring(settings), load_session_secret(settings))
