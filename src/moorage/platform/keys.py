"""The platform's two secrets: from the settings, or, in development, from files it makes for itself."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from moorage.edge import route_file
from moorage.kit.crypto import KeyRing, derive
from moorage.settings import Settings, decode_secret


def generate() -> str:
    """Return 32 fresh random bytes in hex: what `moorage keys generate` prints."""
    return secrets.token_hex(32)


def load_ring(settings: Settings) -> KeyRing:
    """Return the master keys, newest first."""
    given = settings.master_key.get_secret_value()
    texts = given.split(",") if given else _stored(settings, "master_key")
    return KeyRing(tuple(decode_secret(text) for text in texts))


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
    path = settings.folder("keys") / "master_key"
    _write(path, "\n".join([generate(), *_stored(settings, "master_key")]) + "\n")


def drop_old_master_keys(settings: Settings) -> None:
    path = settings.folder("keys") / "master_key"
    _write(path, _stored(settings, "master_key")[0] + "\n")


def _stored(settings: Settings, name: str) -> list[str]:
    path = settings.folder("keys") / name
    if not path.exists():
        _write(path, generate() + "\n")
    return path.read_text().split()


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
