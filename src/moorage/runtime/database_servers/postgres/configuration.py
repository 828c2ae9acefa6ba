"""PostgreSQL configuration: tier limits, pg_hba rules, replication, recovery."""

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
    ServerOptions,
    Software,
)

MAIN_FILE, RULES_FILE, NAMES_FILE = "postgresql.conf", "pg_hba.conf", "pg_ident.conf"
REPLICATION_FILE = "replication.conf"  # written by `replication`; included last, so its settings override
SECRET_FILE = "replica.pass"  # noqa: S105 - a name
WAL = "wal"  # folder with the WAL files for a recovery
RESERVED = 5  # connections that only the platform can use
AUTHENTICATION_S = 10  # Connections that have not logged in count against max_connections.
MAX_SOCKET_FOLDER_LENGTH = 80  # The address of a Unix socket has 107 bytes, including the file name.
STATEMENTS = "pg_stat_statements"
ARCHIVER = "basic_archive"

Settings = dict[str, str | int]


def settings(software: Software, options: ServerOptions, inside: str) -> Settings:
    """Return all settings of a server, without those of REPLICATION_FILE."""
    return {
        "data_directory": f"{inside}/{DATA}",
        "hba_file": f"{inside}/{CONF}/{RULES_FILE}",
        "ident_file": f"{inside}/{CONF}/{NAMES_FILE}",
        **_network(options, inside),
        **_memory(options),
        **_temporary(options),
        **_log(software),
        **_wal(software, options, inside),
        **_origin(options, inside),
    }


def _network(options: ServerOptions, inside: str) -> Settings:
    listened: Settings = {
        "port": options.port,
        "listen_addresses": (options.host or address(inside)) if options.is_open else "",
        "unix_socket_directories": run_folder(inside),
        "unix_socket_permissions": "0700",
        "max_connections": usable_connections(options.memory_mb) + RESERVED,
        "superuser_reserved_connections": RESERVED,
        "password_encryption": "scram-sha-256",
        "authentication_timeout": f"{AUTHENTICATION_S}s",
        "tcp_keepalives_idle": 60,
        "tcp_keepalives_interval": 10,
        "tcp_keepalives_count": 6,
    }
    if not options.has_tls:
        return {**listened, "ssl": "off"}
    return {
        **listened,
        "ssl": "on",
        "ssl_cert_file": f"{inside}/{TLS}/server.crt",
        "ssl_key_file": f"{inside}/{TLS}/server.key",
        "ssl_min_protocol_version": "TLSv1.2",
    }


def address(inside: str) -> str:
    """Return the listen address: any in a sandbox (own network), else loopback.

    A single IPv4 address, because in a sandbox each listener on the port would inherit the same socket.
    """
    return "0.0.0.0" if inside == "/data" else "127.0.0.1"  # noqa: S104


def run_folder(inside: str) -> str:
    """Return the folder of the Unix socket; a long path becomes relative to `data`.

    A sandbox rejects paths with `..`, but the path there is short.
    """
    path = f"{inside}/{RUN}"
    return path if len(path.encode()) <= MAX_SOCKET_FOLDER_LENGTH else f"../{RUN}"


def usable_connections(memory_mb: int) -> int:
    """Return the number of user connections; an active one takes some megabytes."""
    return max(25, min(500, memory_mb * 100 // 1024))


def _memory(options: ServerOptions) -> Settings:
    memory_mb = options.memory_mb
    buffers_mb = max(32, memory_mb // 4)
    per_gather = min(2, int(options.cpu) // 2)
    return {
        "shared_buffers": f"{buffers_mb}MB",
        "effective_cache_size": f"{max(64, memory_mb * 6 // 10)}MB",
        "work_mem": f"{max(1024, (memory_mb - buffers_mb) * 1024 // (usable_connections(memory_mb) * 3))}kB",
        "maintenance_work_mem": f"{min(1024, max(16, memory_mb // 16))}MB",
        "huge_pages": "off",
        "dynamic_shared_memory_type": "mmap",  # A sandbox has no /dev/shm.
        # The same for every tier: a replica must not have lower values than its primary.
        "max_worker_processes": 8,
        "max_locks_per_transaction": 64,
        "max_parallel_workers": max(1, int(options.cpu)),
        "max_parallel_workers_per_gather": per_gather,
        "max_parallel_maintenance_workers": per_gather,
        "jit": "off",
        "random_page_cost": "1.1",
    }


def _temporary(options: ServerOptions) -> Settings:
    """Limit the temporary files of a session. Only a superuser can change the limit."""
    return {"temp_file_limit": f"{options.disk_mb}MB"} if options.disk_mb else {}


def _log(software: Software) -> Settings:
    """Log errors to stderr without statements and values, which may be secret."""
    values: Settings = {
        "log_destination": "stderr",
        "logging_collector": "off",
        "log_line_prefix": "",
        "log_min_messages": "log",  # Errors of users contain values; they go to the client only.
        "log_min_error_statement": "panic",
        "log_error_verbosity": "terse",
        "log_statement": "none",
        "log_checkpoints": "off",
        "log_timezone": "UTC",
        "timezone": "UTC",
        "lc_messages": "C",
    }
    if not has_library(software, STATEMENTS):
        return values
    # Count statements of clients only, not those inside functions.
    tracking: Settings = {f"{STATEMENTS}.track": "top", f"{STATEMENTS}.save": "off"}
    return {**values, "shared_preload_libraries": STATEMENTS, **tracking}


def _wal(software: Software, options: ServerOptions, inside: str) -> Settings:
    most_mb = min(1024, max(128, options.memory_mb // 2))
    values: Settings = {
        "wal_level": "replica",
        "max_wal_senders": 5,
        "max_replication_slots": 5,
        "max_wal_size": f"{most_mb}MB",
        "min_wal_size": f"{max(32, most_mb // 8)}MB",
    }
    if not options.archives:
        return {**values, "archive_mode": "off"}
    return {**values, "archive_mode": "on", "archive_timeout": "60s", **_archiver(software, f"{inside}/{ARCHIVE}")}


def _archiver(software: Software, target: str) -> Settings:
    """Return settings that archive WAL files atomically, durably and repeatably."""
    if major(software) >= 15 and has_library(software, ARCHIVER):
        return {"archive_library": ARCHIVER, f"{ARCHIVER}.archive_directory": target}
    part, whole = _in_command(f"{target}/.%f.part", "%f"), _in_command(f"{target}/%f", "%f")
    return {"archive_command": f'cp "%p" {part} && sync {part} && mv {part} {whole}'}


def _in_command(path: str, variable: str) -> str:
    """Quote a path for a server's command; the server expands `variable` in it."""
    before, _, after = path.rpartition(variable)
    return shlex.quote(before.replace("%", "%%") + variable + after)


def _origin(options: ServerOptions, inside: str) -> Settings:
    """Return the settings for streaming from a primary, or for recovery."""
    if options.primary is not None:
        parameters = {
            "host": options.primary.address.host,
            "port": str(options.primary.address.port),
            "user": REPLICATOR,
            "passfile": f"{inside}/{CONF}/{SECRET_FILE}",
            "application_name": f"replica_{options.number}",
            "sslmode": "disable",
        }
        conninfo = " ".join(f"{name}={_in_conninfo(value)}" for name, value in parameters.items())
        return {"hot_standby": "on", "primary_conninfo": conninfo}
    if options.recovery is None:
        # A former replica finds no more WAL with this command and starts a new timeline. It accepts connections only
        # after that.
        return {"hot_standby": "off", "restore_command": "false"}
    return _recovery(options.recovery, inside)


def _recovery(recovery: Recovery, inside: str) -> Settings:
    """Return recovery settings; the server accepts connections only after the replay."""
    values: Settings = {
        "hot_standby": "off",
        "restore_command": f'cp {_in_command(f"{inside}/{WAL}/%f", "%f")} "%p"',
        "recovery_target_action": "promote",
    }
    if recovery.target_ms is None:
        return values
    target = datetime.fromtimestamp(recovery.target_ms / 1000, UTC)
    return {**values, "recovery_target_time": target.isoformat(sep=" ", timespec="milliseconds")}


def _in_conninfo(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def render(values: Settings) -> str:
    """Return the text of MAIN_FILE."""
    lines = [f"{name} = {_quoted(value)}" for name, value in values.items()]
    return "\n".join([*lines, f"include = '{REPLICATION_FILE}'", ""])


def _quoted(value: str | int) -> str:
    if isinstance(value, int):
        return str(value)
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def rules(*, has_tls: bool, is_in_pod: bool = False) -> str:
    """Return pg_hba.conf; the first matching line decides.

    Connections from other machines come through the proxy, which requires TLS and connects from loopback. On a direct
    connection the server itself requires TLS. In a pod, network policies decide which other pods connect.
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
        f"host all all all {'scram-sha-256' if is_in_pod else 'reject'}",
    ]
    return "\n".join([*lines, ""])


def password_line(options: ServerOptions) -> str:
    """Return the pgpass line of a replica."""
    assert options.primary is not None
    escaped = options.primary.password.replace("\\", "\\\\").replace(":", "\\:")
    host, port = options.primary.address.host.replace(":", "\\:"), options.primary.address.port
    return f"{host}:{port}:*:{REPLICATOR}:{escaped}\n"


def major(software: Software) -> int:
    return int(software.version.split(".")[0])


def has_library(software: Software, name: str) -> bool:
    """Tell whether a library is installed; a server does not start if one is missing."""
    prefix = (Path(software.home) / software.program).parent.parent
    return any((prefix / folder / f"{name}.so").exists() for folder in ("lib/postgresql", "lib"))
