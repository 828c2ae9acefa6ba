"""Requests of operator commands to the running platform, over its unix socket."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorage import settings as settings_module
from moorage.cli.output.terminal import fail
from moorage.core.db.snapshots import store_path
from moorage.settings import Settings

if TYPE_CHECKING:  # Slow to import, and most commands do not need it.
    from moorage.core.db.store import Database

DataOption = Annotated[
    Path | None, typer.Option("--data", help="Data folder of the platform. [MOORAGE_DATA; default: .moorage]")
]


def load(data: Path | None) -> Settings:
    """Read the settings as the platform does, for the given data folder."""
    return settings_module.load(**({"data": data} if data is not None else {}))


def ask(data: Path | None, command: str, **arguments: Any) -> Any:
    """Run a command in the platform and return its result; exit with its error."""
    folder = data_folder(data)
    try:
        response = _exchange(folder / "run" / "admin.sock", {"command": command, "arguments": arguments})
    except (FileNotFoundError, ConnectionRefusedError):
        fail(f"no Moorage runs on {folder}; start it with: moorage up --data {folder}")
    except PermissionError:
        fail(f"no permission to connect to the Moorage on {folder}; use the account that it runs as")
    except (OSError, ValueError) as error:
        fail(f"the Moorage on {folder} did not answer ({error}); its log says why")
    if not response["ok"]:
        fail(response["error"])
    return response["result"]


def is_running(data: Path | None) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(data_folder(data) / "run" / "admin.sock"))
    except OSError:
        return False
    return True


def data_folder(data: Path | None) -> Path:
    """Return the data folder without loading and validating the other settings."""
    return (data or Path(os.environ.get("MOORAGE_DATA") or ".moorage")).expanduser().absolute()


def check_store(settings: Settings) -> None:
    """Exit if there is no store: a mistyped folder must not become a new platform."""
    if not settings.uses_postgres and not store_path(settings).exists():
        fail(f"there is no store in {settings.data}; is --data right?")


@contextlib.contextmanager
def opened_store(settings: Settings) -> Iterator[Database]:
    """Open the store of a stopped platform."""
    from moorage.platform import opening, store_checks

    check_store(settings)
    opened = opening.open_store(settings)
    try:
        with store_checks.explained(settings):
            yield opened.db
    finally:
        opened.close()


def _exchange(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        sock.sendall(json.dumps(request).encode() + b"\n")
        response = b""
        while chunk := sock.recv(65536):
            response += chunk
    document: dict[str, Any] = json.loads(response)
    return document
