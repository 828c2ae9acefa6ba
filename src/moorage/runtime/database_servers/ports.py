"""What the platform asks of database software: which there is, how a server is started, and how it is spoken to.

Everything here is about one server and its folder. Which servers there should be is decided elsewhere. Functions that
speak to a server wait for it; callers run them in threads.

The folder of a server is found at /data in its sandbox:

    data/      the server's own files
    run/       the socket through which the platform comes in
    conf/      configuration, written anew before each start
    tls/       server.crt, server.key and ca.crt, where it offers TLS
    archive/   finished pieces of its log, until they are stored elsewhere
    moorage.json  says whose folder it is; a folder without it is never started
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

ADMIN = "moorage"  # the platform's own user, who can only come through the socket
REPLICATOR = "moorage_replica"  # the user as which a replica follows its primary
SCRATCH_PORT = 5432  # names the socket of a server that nobody reaches from outside

DATA, RUN, CONF, TLS, ARCHIVE, CARD = "data", "run", "conf", "tls", "archive", "moorage.json"


class ServerFailed(Exception):
    """Something asked of a server or of its tools did not work; the text is a sentence for whoever asked."""


class NotInstalled(Exception):
    """No software that may be used is installed; the text names what is."""


@dataclass(frozen=True, slots=True)
class Software:
    """Database software of this machine, proved to run."""

    type: str  # `postgresql` or `mysql`, as users ask for it
    product: str  # PostgreSQL, MySQL or MariaDB
    version: str  # as the program itself says, such as 16.4 or 10.11.18
    home: str  # the folder with its files; a sandbox has it at /work
    program: str  # of the server, below `home`, or from the root of the file system where it starts with a slash
    tools: str  # the folder with the programs that dump and load
    template: str  # a folder that was initialised once; new servers begin with a copy of its `data`
    binds: Mapping[str, str] = field(default_factory=dict)  # what else it needs to see: path inside -> path outside
    env: Mapping[str, str] = field(default_factory=dict)  # for the server; `{home}` stands for where that is
    tools_env: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return what is stored with a database and its backups, such as `postgresql-16.4` or `mariadb-10.11.18`."""
        return f"{self.product.lower()}-{self.version}"


@dataclass(frozen=True, slots=True)
class Names:
    """What a user of a database connects with."""

    username: str
    password: str
    database: str


@dataclass(frozen=True, slots=True)
class Access:
    """How the platform comes into a server."""

    folder: str  # of the server
    port: int  # which names the socket
    password: str  # of ADMIN


@dataclass(frozen=True, slots=True)
class Primary:
    """Which server a replica follows."""

    port: int  # at 127.0.0.1
    password: str  # of REPLICATOR


@dataclass(frozen=True, slots=True)
class Recovery:
    """How far the log is replayed when a server starts on a copy of its files; None for all there is."""

    target_ms: int | None


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything that decides how a server is configured."""

    port: int
    memory_mb: int
    cpu: float
    disk_mb: int = 0  # the disk of its tier, which bounds the temporary files of one session; 0 for no bound
    is_open: bool = True  # False for a scratch server: it can be reached through its socket only
    has_tls: bool = False
    archives: bool = False  # finished pieces of the log are put into `archive`
    is_replicated: bool = False  # it is one of two, and commits wait for the other where `waits` is set
    primary: Primary | None = None  # of a replica
    recovery: Recovery | None = None
    number: int = 1  # tells the two apart


@dataclass(frozen=True, slots=True)
class Counters:
    """What a server says of itself at one moment. Those that only grow are None where it cannot say."""

    connections: int  # without the platform's own
    max_connections: int
    queries: int | None
    cache_hits: int | None
    cache_reads: int | None  # what was not found in the cache


class Session(Protocol):
    """A connection that is kept for asking for counters."""

    def counters(self) -> Counters:
        """Ask; raises ServerFailed when the connection has broken."""
        ...

    def close(self) -> None: ...


class Kind(Protocol):
    """One kind of server. `home` and `place` are where software and folder are for the server: in a sandbox or not."""

    type: Literal["postgresql", "mysql"]
    stop_signal: int
    scheme: str  # of its URLs

    # Files.

    def fill(self, software: Software, folder: Path) -> None:
        """Make an empty folder one that a server can start on, from the template. Its owner is set by the caller."""
        ...

    def configure(self, software: Software, folder: Path, shape: Shape, *, home: str, place: str) -> None:
        """Write `conf` for the next start, and what else a replica or a recovery needs."""
        ...

    def argv(self, software: Software, shape: Shape, *, home: str, place: str) -> list[str]: ...

    def usable_connections(self, shape: Shape) -> int:
        """Return how many connections users have."""
        ...

    def is_filled(self, folder: Path) -> bool:
        """Tell whether the server's own files are there: nothing is started on an empty folder."""
        ...

    # Speaking to a server that runs.

    def ping(self, access: Access) -> bool:
        """Tell whether it takes the platform in; False while it starts or recovers. Any password will do."""
        ...

    def take_over(self, software: Software, access: Access) -> None:
        """Give ADMIN its own password in place of the template's. Safe to repeat."""
        ...

    def provision(self, access: Access, names: Names, replica_password: str | None) -> None:
        """Make the user and the database, and REPLICATOR where a password is given. Safe to repeat."""
        ...

    def set_password(self, access: Access, names: Names) -> None: ...

    def set_read_only(self, access: Access, names: Names, on: bool) -> None:
        """Keep the user from adding data, or allow it again; deleting stays possible. Safe to repeat."""
        ...

    def end_sessions(self, access: Access) -> None:
        """End every connection but the platform's own."""
        ...

    def version(self, access: Access) -> str:
        """Return the server's own version string."""
        ...

    def session(self, access: Access) -> Session: ...

    # Dumps. Tools run as the server's user where the platform is root.

    def dump(self, software: Software, access: Access, names: Names, target: Path) -> None:
        """Write a logical dump; raises ServerFailed unless every part of it ended well."""
        ...

    def check(self, software: Software, dump: Path) -> int:
        """Read a dump's table of contents; return how many entries it has, and raise ServerFailed for a broken one."""
        ...

    def load(self, software: Software, access: Access, names: Names, dump: Path) -> None:
        """Load a dump into the (empty) database, with the rights of the user."""
        ...

    def contents(self, access: Access, names: Names) -> dict[str, int]:
        """Return every table of the database with how many rows it has, for comparing."""
        ...
