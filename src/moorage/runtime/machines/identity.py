"""Identity of this machine: a key in the data folder, its name, capacity and address."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import secrets
import socket
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from moorage.core.machines.service import NewMachine
from moorage.errors import CannotStart
from moorage.settings import Settings

KEY_FILE = "machine"
MB = 2**20
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class DataFolderKey:
    """Key of the machine in its data folder, locked while this process runs."""

    def __init__(self, data: Path) -> None:
        self.path = data / KEY_FILE
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise CannotStart(f"a platform already runs on {data}: give each machine its own data folder") from None

    def read(self) -> str:
        """Return the key; the first call of a data folder creates it."""
        key = os.pread(self._descriptor, 256, 0).decode().strip()
        if not key:
            key = secrets.token_hex(16)
            os.pwrite(self._descriptor, f"{key}\n".encode(), 0)
            os.fsync(self._descriptor)
        return key

    def close(self) -> None:
        os.close(self._descriptor)


def describe(settings: Settings, key: str) -> NewMachine:
    """Return the row of this machine; its address follows when it accepts connections."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return NewMachine(
        key=key,
        name=settings.machine_name or platform.node() or "machine",
        address=None,
        labels=json.dumps(dict(label.partition("=")[::2] for label in settings.machine_labels)),
        cpu_count=os.cpu_count() or 1,
        memory_mb=memory // MB,
        boot=f"{_BOOT_ID.read_text().strip()} {settings.data}",
    )


def load_milli() -> int:
    """Return the load average of the last minute per CPU, times 1000."""
    return round(os.getloadavg()[0] * 1000 / (os.cpu_count() or 1))


def listen_address(settings: Settings) -> tuple[str, int]:
    """Return the host and port for connections of other machines; port 0 for any free one."""
    if settings.machine_address:
        host, _, port = settings.machine_address.rpartition(":")
        if not host or not port.isdecimal():
            raise CannotStart(f"MOORAGE_MACHINE_ADDRESS: {settings.machine_address} should be host:port")
        return host.strip("[]"), int(port)
    if settings.host not in _WILDCARDS:
        return settings.host, 0
    return _address_towards(settings.database_url.get_secret_value()), 0


def _address_towards(database_url: str) -> str:
    """Return the address of this machine from which it reaches the database server."""
    parts = urlsplit(database_url)
    host = parts.hostname or parse_qs(parts.query).get("host", [""])[0]
    if not host or host.startswith("/"):
        return "127.0.0.1"
    try:
        family, _, _, _, target = socket.getaddrinfo(host, parts.port or 5432, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
