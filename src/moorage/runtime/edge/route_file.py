"""The route file, from which the edge starts while the control process is down.

It stores the functions' variables, which include secrets, encrypted with a key derived from the master key. The edge
receives only the derived key. Each function is encrypted once, when its route changes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from moorage.core.kit.decoding import decode, decoder_of
from moorage.runtime.edge.calls.function import AnyFunction, Function, Route

if TYPE_CHECKING:
    from moorage.core.kit.crypto import KeyRing

ROUTE_FILE = "edge-routes.json"
_encode = msgspec.json.Encoder().encode
_read_env = decoder_of(list[tuple[str, str]]).decode


class RouteFile:
    """`keys` are hexadecimal, newest first; needed for functions with variables."""

    def __init__(self, path: Path, keys: str) -> None:
        self._path = path
        self._keys = keys
        self._ring: KeyRing | None = None
        self._written: dict[int, tuple[AnyFunction, bytes]] = {}  # encoded entries of the file by function id

    def save(self, functions: Iterable[AnyFunction]) -> None:
        """Replace the file, with mode 0600."""
        written = {function.id: (function, self._entry(function)) for function in functions}
        self._written = written
        new = self._path.with_suffix(".new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(b"[" + b",".join(entry for _, entry in written.values() if entry) + b"]")
        new.replace(self._path)

    def load(self) -> tuple[list[Route], bool]:
        """Return the routes, and whether the file must be rewritten.

        It must if variables are unencrypted, as in earlier releases, or encrypted with an old key. A route whose
        variables cannot be decrypted is skipped until the control process sends it.
        """
        stored = decode(self._path.read_bytes(), list[Route])
        is_outdated = any(route.env or not self._is_current(route.sealed_env) for route in stored)
        return [route for route in map(self._decrypted, stored) if route is not None], is_outdated

    def _entry(self, function: AnyFunction) -> bytes:
        known = self._written.get(function.id)
        if known is not None and known[0] is function:
            return known[1]
        route = function.route
        if not route.env:
            return _encode(route)
        if not self._keys:
            return b""
        sealed = self._keyring().encrypt(_encode(route.env).decode(), place=_place(route))
        return _encode(msgspec.structs.replace(route, env=[], sealed_env=sealed))

    def _decrypted(self, route: Route) -> Route | None:
        if not route.sealed_env:
            return route
        from moorage.core.kit.crypto import CannotDecrypt

        try:
            env = _read_env(self._keyring().decrypt(route.sealed_env, place=_place(route)))
        except (CannotDecrypt, ValueError):
            return None
        return msgspec.structs.replace(route, env=env, sealed_env="")

    def _is_current(self, sealed: str) -> bool:
        return not sealed or (bool(self._keys) and self._keyring().is_current(sealed))

    def _keyring(self) -> KeyRing:
        # Imported lazily: an edge without function variables saves the memory.
        from moorage.core.kit.crypto import KeyRing

        if self._ring is None:
            self._ring = KeyRing(tuple(bytes.fromhex(key) for key in self._keys.split(",")))
        return self._ring


def _place(route: Route) -> str:
    return f"edge/{route.org}/{route.id}"


def rewrite(path: Path, keys: str) -> None:
    """Re-encrypt the file with the first key while no edge runs; safe to repeat."""
    file = RouteFile(path, keys)
    try:
        routes, _ = file.load()
    except FileNotFoundError:
        return
    except (msgspec.DecodeError, ValueError):  # The edge ignores a damaged file too.
        path.unlink()
        return
    file.save([Function(route, "") for route in routes])
