"""How a PostgreSQL server is configured, as data: what its tier allows, who may come in, whom it follows."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path

from moorage.runtime.database_servers.ports import (
    ADMIN,
    ARCHIVE,
    CONF,
    DATA,
    REPLICATOR,
    RUN,
    TLS,
    Recovery,
    Shape,
    Software,
)

MAIN_FILE, RULES_FILE, NAMES_FILE = "postgresql.conf", "pg_hba.conf", "pg_ident.conf"
REPLICATION_FILE = "replication.conf"  # Written by whoever watches over two servers; its settings win.
SECRET_FILE = "replica.pass"  # noqa: S105 - a name
WAL = "wal"  # where a recovery finds the pieces of the log, beside the data
RESERVED = 5  # connections that only the platform can use
AUTHENTICATION_S = 10  # A connection that has not logged in holds one of the few that there are.
LONGEST_FOLDER = 80  # of a socket: its address has 107 bytes, with the socket's own name in it
STATEMENTS = "pg_stat_statements"
ARCHIVER = "basic_archive"

Settings = dict[str, str | int]


def settings(software: Software, shape: Shape, place: str) -> Settings:
    """Return everything that a server is told."""
    return {
        "data_directory": f"{place}/{DATA}",
        "hba_file": f"{place}/{CONF}/{RULES_FILE}",
        "ident_file": f"{place}/{CONF}/{NAMES_FILE}",
        **_network(shape, place),
        **_memory(shape),
        **_temporary(shape),
        **_log(software),
        **_wal(software, shape, place),
        **_origin(shape, place),
    }


def _network(shape: Shape, place: str) -> Settings:
    listened: Settings = {
        "port": shape.port,
        "listen_addresses": address(place) if shape.is_open else "",
        "unix_socket_directories": run_folder(place),
        "unix_socket_permissions": "0700",
        "max_connections": usable_connections(shape.memory_mb) + RESERVED,
        "superuser_reserved_connections": RESERVED,
        "password_encryption": "scram-sha-256",
        "authentication_timeout": f"{AUTHENTICATION_S}s",
        "tcp_keepalives_idle": 60,
        "tcp_keepalives_interval": 10,
        "tcp_keepalives_count": 6,
    }
    if not shape.has_tls:
        return {**listened, "ssl": "off"}
    return {
        **listened,
        "ssl": "on",
        "ssl_cert_file": f"{place}/{TLS}/server.crt",
        "ssl_key_file": f"{place}/{TLS}/server.key",
        "ssl_min_protocol_version": "TLSv1.2",
    }


def address(place: str) -> str:
    """Return where a server listens: in a sandbox everywhere, as the network is its own; outside at this machine only.

    One address of one family, because in a sandbox each listener at the port would be handed the same socket.
    """
    return "0.0.0.0" if place == "/data" else "127.0.0.1"  # noqa: S104


def run_folder(place: str) -> str:
    """Return where a server's socket is, from the data folder where the whole path is too long for a socket's address.

    A sandbox takes no path that leads upwards, but there it is never long.
    """
    whole = f"{place}/{RUN}"
    return whole if len(whole.encode()) <= LONGEST_FOLDER else f"../{RUN}"


def usable_connections(memory_mb: int) -> int:
    """Return how many connections users have: each takes some megabytes once it has done something."""
    return max(25, min(500, memory_mb * 100 // 1024))


def _memory(shape: Shape) -> Settings:
    memory_mb = shape.memory_mb
    buffers_mb = max(32, memory_mb // 4)
    per_gather = min(2, int(shape.cpu) // 2)
    return {
        "shared_buffers": f"{buffers_mb}MB",
        "effective_cache_size": f"{max(64, memory_mb * 6 // 10)}MB",
        "work_mem": f"{max(1024, (memory_mb - buffers_mb) * 1024 // (usable_connections(memory_mb) * 3))}kB",
        "maintenance_work_mem": f"{min(1024, max(16, memory_mb // 16))}MB",
        "huge_pages": "off",
        "dynamic_shared_memory_type": "mmap",  # A sandbox has no /dev/shm.
        # These two are the same for every tier: a replica must not have less than its primary.
        "max_worker_processes": 8,
        "max_locks_per_transaction": 64,
        "max_parallel_workers": max(1, int(shape.cpu)),
        "max_parallel_workers_per_gather": per_gather,
        "max_parallel_maintenance_workers": per_gather,
        "jit": "off",
        "random_page_cost": "1.1",
    }


def _temporary(shape: Shape) -> Settings:
    """Bound the temporary files of a session. Only a superuser may change it, and users are none."""
    return {"temp_file_limit": f"{shape.disk_mb}MB"} if shape.disk_mb else {}


def _log(software: Software) -> Settings:
    """Say what goes wrong on standard error, but never what was asked: statements and their values may be secret."""
    told: Settings = {
        "log_destination": "stderr",
        "logging_collector": "off",
        "log_line_prefix": "",
        "log_min_messages": "log",  # What a user did wrong is told to the user, with the values that were wrong.
        "log_min_error_statement": "panic",
        "log_error_verbosity": "terse",
        "log_statement": "none",
        "log_checkpoints": "off",
        "log_timezone": "UTC",
        "timezone": "UTC",
        "lc_messages": "C",
    }
    if not has_library(software, STATEMENTS):
        return told
    # Only what clients send counts as a query, not what functions run.
    counted: Settings = {f"{STATEMENTS}.track": "top", f"{STATEMENTS}.save": "off"}
    return {**told, "shared_preload_libraries": STATEMENTS, **counted}


def _wal(software: Software, shape: Shape, place: str) -> Settings:
    most_mb = min(1024, max(128, shape.memory_mb // 2))
    kept: Settings = {
        "wal_level": "replica",
        "max_wal_senders": 5,
        "max_replication_slots": 5,
        "max_wal_size": f"{most_mb}MB",
        "min_wal_size": f"{max(32, most_mb // 8)}MB",
    }
    if not shape.archives:
        return {**kept, "archive_mode": "off"}
    return {**kept, "archive_mode": "on", "archive_timeout": "60s", **_archiver(software, f"{place}/{ARCHIVE}")}


def _archiver(software: Software, target: str) -> Settings:
    """Return how a piece is archived: whole, on the disk, and safely twice."""
    if major(software) >= 15 and has_library(software, ARCHIVER):
        return {"archive_library": ARCHIVER, f"{ARCHIVER}.archive_directory": target}
    part, whole = _in_command(f"{target}/.%f.part", "%f"), _in_command(f"{target}/%f", "%f")
    return {"archive_command": f'cp "%p" {part} && sync {part} && mv {part} {whole}'}


def _in_command(path: str, variable: str) -> str:
    """Quote a path for a command that the server runs; `variable` in it is for the server to fill in."""
    before, _, after = path.rpartition(variable)
    return shlex.quote(before.replace("%", "%%") + variable + after)


def _origin(shape: Shape, place: str) -> Settings:
    """Return where a server that does not begin by itself has its changes from."""
    if shape.primary is not None:
        words = {
            "host": "127.0.0.1",
            "port": str(shape.primary.port),
            "user": REPLICATOR,
            "passfile": f"{place}/{CONF}/{SECRET_FILE}",
            "application_name": f"replica_{shape.number}",
            "sslmode": "disable",
        }
        told = " ".join(f"{name}={_in_conninfo(value)}" for name, value in words.items())
        return {"hot_standby": "on", "primary_conninfo": told}
    if shape.recovery is None:
        # A replica that now follows nobody looks for more of the log here, finds none, and begins a history of its own.
        # Nobody is let in before it has.
        return {"hot_standby": "off", "restore_command": "false"}
    return _recovery(shape.recovery, place)


def _recovery(recovery: Recovery, place: str) -> Settings:
    """Nobody is let in before everything is replayed."""
    told: Settings = {
        "hot_standby": "off",
        "restore_command": f'cp {_in_command(f"{place}/{WAL}/%f", "%f")} "%p"',
        "recovery_target_action": "promote",
    }
    if recovery.target_ms is None:
        return told
    moment = datetime.fromtimestamp(recovery.target_ms / 1000, UTC)
    return {**told, "recovery_target_time": moment.isoformat(sep=" ", timespec="milliseconds")}


def _in_conninfo(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def render(told: Settings) -> str:
    """Return the text of the file that a server reads first."""
    lines = [f"{name} = {_quoted(value)}" for name, value in told.items()]
    return "\n".join([*lines, f"include = '{REPLICATION_FILE}'", ""])


def _quoted(value: str | int) -> str:
    if isinstance(value, int):
        return str(value)
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def rules(*, has_tls: bool) -> str:
    """Return who may come in, and how: the first line that fits decides.

    Connections from other machines come through the proxy, which requires TLS and connects from loopback. Should a
    server ever be reached directly, it requires TLS itself.
    """
    lines = [
        f"local all {REPLICATOR} reject",
        f"local replication {ADMIN} scram-sha-256",
        "local all all scram-sha-256",
        f"host all {ADMIN} all reject",
        f"host replication {REPLICATOR} 127.0.0.1/32 scram-sha-256",
        f"host all {REPLICATOR} all reject",
        "host all all 127.0.0.0/8 scram-sha-256",
        *(["hostssl all all all scram-sha-256"] if has_tls else []),
        "host all all all reject",
    ]
    return "\n".join([*lines, ""])


def password_line(shape: Shape) -> str:
    """Return what a replica's file of passwords holds."""
    assert shape.primary is not None
    escaped = shape.primary.password.replace("\\", "\\\\").replace(":", "\\:")
    return f"127.0.0.1:{shape.primary.port}:*:{REPLICATOR}:{escaped}\n"


def major(software: Software) -> int:
    return int(software.version.split(".")[0])


def has_library(software: Software, name: str) -> bool:
    """Tell whether a server can load a library; it would not start where it is told to and cannot."""
    prefix = (Path(software.home) / software.program).parent.parent
    return any((prefix / folder / f"{name}.so").exists() for folder in ("lib/postgresql", "lib"))
