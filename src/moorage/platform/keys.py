"""The platform's two secrets: from the settings, or, in development, from files it makes for itself."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from moorage.core.kit.crypto import KeyRing, derive
from moorage.errors import CannotStart
from moorage.platform import store_checks
from moorage.runtime.edge import route_file
from moorage.settings import Settings, decode_secret

LEAST_BYTES = 32


class MissingKey(CannotStart):
    """The store holds secrets, and the key that they were encrypted under is not there."""

    def __init__(self, path: Path, key_id: str) -> None:
        super().__init__(
            f"the master key is missing: {path} does not exist and MOORAGE_MASTER_KEY is not set, but the store holds "
            f"secrets that are encrypted under the key {key_id}. No new key was written, because it could not read "
            "them. Bring the file back from a backup (tar -xzf FILE keys/master_key takes it out of one), or set "
            "MOORAGE_MASTER_KEY to the key that the platform ran with"
        )


class BadKeyFile(CannotStart):
    """A file of keys cannot be used as it is."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            f"{path}: {problem}; each line should be a key of at least {LEAST_BYTES} bytes in hex or base64. Bring the "
            "file back from a backup: the store's secrets cannot be read without the key that they are encrypted under"
        )


def generate() -> str:
    """Return 32 fresh random bytes in hex: what `moorage keys generate` prints."""
    return secrets.token_hex(32)


def load_ring(settings: Settings) -> KeyRing:
    """Return the master keys, newest first."""
    given = settings.master_key.get_secret_value()
    texts = given.split(",") if given else _stored(settings, "master_key")
    return KeyRing(tuple(decode_secret(text) for text in texts))


def source(settings: Settings) -> str:
    """Return where the master keys come from, for messages."""
    return "MOORAGE_MASTER_KEY" if settings.master_key.get_secret_value() else str(_path(settings, "master_key"))


def load_session_secret(settings: Settings) -> bytes:
    given = settings.session_secret.get_secret_value()
    return decode_secret(given or _stored(settings, "session_secret")[0])


def edge_keys(settings: Settings) -> str:
    """Return the keys of the function gateway's file of routes, newest first: all that it gets of the master keys."""
    return ",".join(derive(key, "edge routes").hex() for key in load_ring(settings).keys)


def rotate_route_file(settings: Settings) -> None:
    """Encrypt the function gateway's file of routes under the newest key; only while the gateway does not run."""
    route_file.rewrite(settings.folder("run") / route_file.ROUTE_FILE, edge_keys(settings))


def add_master_key(settings: Settings) -> None:
    """Put a fresh key in front of the stored ones; only for keys that are not given by the environment."""
    path = _path(settings, "master_key")
    _write(path, "\n".join([generate(), *_stored(settings, "master_key")]) + "\n")


def drop_old_master_keys(settings: Settings) -> None:
    path = _path(settings, "master_key")
    _write(path, _stored(settings, "master_key")[0] + "\n")


def _path(settings: Settings, name: str) -> Path:
    return settings.folder("keys") / name


def _stored(settings: Settings, name: str) -> list[str]:
    """Return the keys of a file, which is made where it is missing and no secret depends on it."""
    path = _path(settings, name)
    if not path.exists():
        if name == "master_key" and (key_id := _find_key_id(settings)) is not None:
            raise MissingKey(path, key_id)
        _write(path, generate() + "\n")
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
    """Return the id of the key that the store's secrets are under; None where it has none."""
    with store_checks.explained(settings):
        if settings.uses_postgres:
            return store_checks.find_postgres_key_id(settings.database_url.get_secret_value())
        return store_checks.find_sqlite_key_id(store_checks.store_path(settings))


def _write(path: Path, text: str) -> None:
    """Write a secret file so that it is never half there, and never readable by others."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_name(path.name + ".partial")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
