"""Protocols and data types of database servers and their software.

The types describe one server and its folder; the product decides which servers exist. Functions that connect to a
server block, so callers run them in threads.

Layout of a server's folder, mounted at /data in its sandbox:

    data/      data directory of the server
    run/       Unix socket for the platform's connections
    conf/      configuration, rewritten before each start
    tls/       server.crt, server.key and ca.crt, if the server offers TLS
    archive/   finished WAL segments until they are uploaded
    moorage.json  identity file with the database id; no server starts on a folder without it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Literal, Protocol

from moorage.core.kit.records import dataclass
from moorage.runtime.engines.local_specs import LocalFiles
from moorage.runtime.engines.ports import Address

ADMIN = "moorage"  # the platform's superuser; it can log in through the Unix socket only
REPLICATOR = "moorage_replica"  # the role that a replica uses to connect to its primary
READER = "moorage_reader"  # of MariaDB and MySQL: can read the tenant's database; created by the first query
SCRATCH_PORT = 5432  # part of the socket's name; a scratch server does not listen on TCP

DATA, RUN, CONF, TLS, ARCHIVE, IDENTITY_FILE = "data", "run", "conf", "tls", "archive", "moorage.json"


class ServerFailed(Exception):
    """An operation of a server or its tools failed; the message is for users."""


class NotInstalled(Exception):
    """No permitted software is installed; the message lists the installed software."""


@dataclass(frozen=True, slots=True)
class Software:
    """Installed database software that is known to run on this machine."""

    type: str  # `postgresql` or `mysql`, the `type` of the API
    product: str  # PostgreSQL, MySQL or MariaDB
    version: str  # reported by the program, such as 16.4 or 10.11.18
    home: str  # folder with its files, mounted at /work in a sandbox
    program: str  # server executable: relative to `home`, or absolute
    tools: str  # folder of the dump and restore programs
    template: str  # initialised once; a new server starts with a copy of its `data` folder
    binds: Mapping[str, str] = field(
        default_factory=dict
    )  # further bind mounts: path in the sandbox -> path on the host
    env: Mapping[str, str] = field(default_factory=dict)  # of the server; `{home}` is replaced by the path of `home`
    tools_env: Mapping[str, str] = field(default_factory=dict)
    has_boxed_tools: bool = True  # Each tool runs in a sandbox; False where there is none, and in the pod of a server.

    @property
    def name(self) -> str:
        """Return the name stored with databases and backups, such as `postgresql-16.4`."""
        return f"{self.product.lower()}-{self.version}"

    @property
    def files(self) -> LocalFiles:
        """Return the files of a server's program for its spec."""
        return LocalFiles(release=self.home, binds=dict(self.binds))


@dataclass(frozen=True, slots=True)
class Credentials:
    """Login of the tenant's user, and the name of its database."""

    username: str
    password: str
    database: str


@dataclass(frozen=True, slots=True)
class Access:
    """Connection parameters of the platform's superuser (ADMIN)."""

    folder: str  # of the server
    port: int  # part of the socket's name
    password: str  # of ADMIN


@dataclass(frozen=True, slots=True)
class Primary:
    """Connection parameters of the primary that a replica streams from."""

    address: Address
    password: str  # of REPLICATOR


@dataclass(frozen=True, slots=True)
class Recovery:
    """Point-in-time recovery on a restored base backup."""

    target_ms: int | None  # None replays all of the WAL


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Inputs of a server's configuration."""

    port: int
    memory_mb: int
    cpu: float
    disk_mb: int = 0  # disk size of the tier, the limit for temporary files of one session; 0 for no limit
    is_open: bool = True  # listens on TCP; False for a scratch server, which has its Unix socket only
    host: str = ""  # address at which it listens for other pods; "" for connections of this machine only
    has_tls: bool = False
    archives: bool = False  # copies finished WAL segments to `archive`
    is_replicated: bool = False  # is one of a primary and its replica
    primary: Primary | None = None  # set on a replica
    recovery: Recovery | None = None
    number: int = 1  # server id, unique within the pair


@dataclass(frozen=True, slots=True)
class Counters:
    """Statistics of a server; cumulative counters are None if unsupported."""

    connections: int  # without those of the platform
    max_connections: int
    queries: int | None
    cache_hits: int | None
    cache_reads: int | None  # cache misses


@dataclass(frozen=True, slots=True)
class Extension:
    """An extension, as the user of a database sees it."""

    name: str
    description: str
    default_version: str | None
    installed_version: str | None
    reason: str | None = None  # why the user cannot create it


class StatisticsSession(Protocol):
    """Persistent connection for reading counters."""

    def counters(self) -> Counters:
        """Read the counters; raises ServerFailed when the connection is broken."""
        ...

    def close(self) -> None: ...


class ServerKind(Protocol):
    """Operations of one kind of server, PostgreSQL or MariaDB/MySQL.

    `home` and `inside` are the paths of the software and of the server's folder as the server process sees them.
    """

    type: Literal["postgresql", "mysql"]
    stop_signal: int
    scheme: str  # of its URLs

    # Files.

    def fill(self, software: Software, folder: Path) -> None:
        """Initialise an empty folder from the template. The caller sets its owner."""
        ...

    def configure(self, software: Software, folder: Path, options: ServerOptions, *, home: str, inside: str) -> None:
        """Write `conf` and the files that start a replica or a recovery."""
        ...

    def argv(self, software: Software, options: ServerOptions, *, home: str, inside: str) -> list[str]: ...

    def usable_connections(self, options: ServerOptions) -> int:
        """Return the number of connections available to users."""
        ...

    def is_filled(self, folder: Path) -> bool:
        """Tell whether the data directory is initialised; no server starts without one."""
        ...

    # Connections to a running server.

    def ping(self, access: Access) -> bool:
        """Tell whether the server accepts logins; False during start and recovery."""
        ...

    def set_admin_password(self, software: Software, access: Access) -> None:
        """Replace the template's ADMIN password. Safe to repeat."""
        ...

    def provision(self, access: Access, credentials: Credentials, replica_password: str | None) -> None:
        """Create user and database, and REPLICATOR with its password. Safe to repeat."""
        ...

    def set_password(self, access: Access, credentials: Credentials) -> None: ...

    def set_read_only(self, access: Access, credentials: Credentials, on: bool) -> None:
        """Forbid or allow the user to add data; deletes stay possible. Safe to repeat."""
        ...

    def end_sessions(self, access: Access) -> None:
        """Terminate all connections except those of the platform."""
        ...

    def version(self, access: Access) -> str:
        """Return the version string that the server reports."""
        ...

    def session(self, access: Access) -> StatisticsSession: ...

    def extensions(self, access: Access, credentials: Credentials) -> list[Extension]:
        """Return the extensions by name, unavailable ones included, each with its reason."""
        ...

    # Dumps. The tools run as the server's user if the platform is root.

    def dump(self, software: Software, access: Access, credentials: Credentials, target: Path) -> None:
        """Write a complete logical dump, or raise ServerFailed."""
        ...

    def check(self, software: Software, dump: Path) -> int:
        """Read a whole dump; return its number of tables, or raise ServerFailed."""
        ...

    def load(self, software: Software, access: Access, credentials: Credentials, dump: Path) -> None:
        """Load a dump into the empty database with the privileges of its user."""
        ...

    def count_rows(self, access: Access, credentials: Credentials) -> dict[str, int]:
        """Return the row count of each table, to compare two databases."""
        ...
