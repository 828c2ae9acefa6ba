"""How a server of MariaDB or MySQL is configured, as data: what its tier allows, where its files are, what it logs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from moorage.runtime.database_servers.ports import CONF, DATA, RUN, TLS, Shape, Software
from moorage.runtime.database_servers.postgres.configuration import address, run_folder

MAIN_FILE = "my.cnf"
REPLICATION_FILE = "replication.cnf"  # Written by whoever watches over two servers; its settings win.
SOCKET = "mysqld.sock"
FILES, TEMPORARY = "files", "tmp"  # folders in `run`: what users could read and write by path, and what is put aside
RESERVED = 5  # connections that users cannot take from the platform
AUTHENTICATION_S = 10  # A connection that has not logged in holds one of the few that there are.
MARIADB = "MariaDB"

# How a server's allocator behaves. While it starts, a server lets go of 19 MB at once, from which the allocator would
# learn to keep whatever comes back; and each thread would have a heap of its own. Told not to, it has 0.8 MB less when
# it is idle. Four heaps are as many as the largest tier has processors.
ENVIRONMENT: Mapping[str, str] = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_ARENA_MAX": "4"}

Settings = dict[str, str | int | None]  # None for one that has no value


def settings(software: Software, folder: Path, shape: Shape, *, home: str, place: str) -> Settings:
    """Return everything that a server is told. Names that not all of the family know begin with `loose_`."""
    return {
        **_files(software, home, place),
        **_network(shape, place),
        **_memory(shape),
        **_storage(),
        **_temporary(shape),
        **_WORDS,
        **_replication(shape),
        **(_of_mariadb(folder, shape) if software.product == MARIADB else _of_mysql(software, shape)),
    }


def _files(software: Software, home: str, place: str) -> Settings:
    told: Settings = {
        "datadir": f"{place}/{DATA}",
        "socket": f"{run_folder(place)}/{SOCKET}",
        "pid_file": f"{place}/{RUN}/mysqld.pid",
        # What is put aside can be large, and in a sandbox /tmp is memory.
        "tmpdir": f"{place}/{RUN}/{TEMPORARY}",
        "secure_file_priv": f"{place}/{RUN}/{FILES}",
        "local_infile": 0,
    }
    outside = Path(software.home)
    if (outside / "english").is_dir():
        return {**told, "lc_messages_dir": home, "character_sets_dir": f"{home}/charsets"}
    if (outside / "share").is_dir():
        return {**told, "basedir": home}
    return told


def _network(shape: Shape, place: str) -> Settings:
    usable = usable_connections(shape.memory_mb)
    told: Settings = {
        "port": shape.port,
        **({"bind_address": address(place)} if shape.is_open else {"skip_networking": 1}),
        "skip_name_resolve": 1,
        "max_connections": usable + RESERVED,
        "max_user_connections": usable,
        "max_allowed_packet": "64M",
        "connect_timeout": AUTHENTICATION_S,
    }
    if not shape.has_tls:
        return told
    return {
        **told,
        "ssl_cert": f"{place}/{TLS}/server.crt",
        "ssl_key": f"{place}/{TLS}/server.key",
        "ssl_ca": f"{place}/{TLS}/ca.crt",
        "tls_version": "TLSv1.2,TLSv1.3",
    }


def usable_connections(memory_mb: int) -> int:
    """Return how many connections users have: each is a thread with buffers of its own."""
    return max(25, min(500, memory_mb * 100 // 1024))


def _memory(shape: Shape) -> Settings:
    memory_mb = shape.memory_mb
    is_small = memory_mb <= 512
    return {
        "innodb_buffer_pool_size": f"{memory_mb // 4 if is_small else memory_mb // 2}M",
        "innodb_log_buffer_size": "2M" if is_small else "16M",
        "key_buffer_size": "1M",
        "tmp_table_size": "8M" if is_small else "32M",
        "max_heap_table_size": "8M" if is_small else "32M",
        "table_open_cache": 400 if is_small else 2000,
        "table_definition_cache": 400 if is_small else 2000,
        "thread_cache_size": 8,
        "host_cache_size": 0,
        "performance_schema": "OFF",
    }


def _storage() -> Settings:
    return {
        "default_storage_engine": "InnoDB",
        "innodb_use_native_aio": "OFF",  # A sandbox has no such calls.
        "innodb_flush_log_at_trx_commit": 1,
        "innodb_read_io_threads": 2,
        "innodb_write_io_threads": 2,
        "sql_mode": "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION",
    }


def _temporary(shape: Shape) -> Settings:
    """Bound temporary tables and files.

    Before MariaDB 11.5 no setting bounds the files of a sort; the shim bounds each file of a server (RLIMIT_FSIZE). A
    setting with `maximum_` in front of its name is the most that a session may choose.
    """
    path, most = "ibtmp1:4M:autoextend", shape.disk_mb
    if not most:
        return {"innodb_temp_data_file_path": path}
    return {
        "innodb_temp_data_file_path": f"{path}:max:{most}M",
        "loose_tmp_disk_table_size": f"{most}M",
        "loose_maximum_tmp_disk_table_size": f"{most}M",
        "loose_max_tmp_session_space_usage": f"{most}M",
        "loose_max_tmp_total_space_usage": f"{most}M",
        "loose_temptable_max_mmap": f"{min(most, 1024)}M",
    }


# How text is stored; and that errors are told on standard error, without what was asked.
_WORDS: Settings = {"character_set_server": "utf8mb4", "general_log": 0, "slow_query_log": 0}


def _log_bytes(folder: Path) -> int:
    """Return the size that a server's log has: another one would have it written anew."""
    try:
        return (folder / DATA / "ib_logfile0").stat().st_size
    except FileNotFoundError:
        return 0


def _wanted_log_bytes(shape: Shape) -> int:
    """Return the size that a log should have at least: a larger one saves writing under load."""
    return min(512, max(16, shape.memory_mb // 16)) << 20


def _replication(shape: Shape) -> Settings:
    if not shape.is_replicated:
        return {"server_id": shape.number}
    return {
        "server_id": shape.number,
        "log_bin": "binlog",
        "relay_log": "relay",
        "sync_binlog": 1,
        "max_binlog_size": "64M",
        "log_bin_trust_function_creators": 1,  # Users are not let to make functions otherwise.
        "read_only": int(shape.primary is not None),
    }


def _of_mariadb(folder: Path, shape: Shape) -> Settings:
    is_small = shape.memory_mb <= 512
    told: Settings = {
        "innodb_log_file_size": max(_log_bytes(folder), _wanted_log_bytes(shape)),
        "aria_pagecache_buffer_size": "2M" if is_small else "16M",
        "query_cache_size": 0,
        "query_cache_type": 0,
        "collation_server": "utf8mb4_unicode_ci",
        "log_warnings": 1,
        # Counts the statements of every user, so that the platform's own can be told from those of others.
        "userstat": "ON",
    }
    if not shape.is_replicated:
        return told
    binlog: Settings = {"binlog_format": "ROW", "log_slave_updates": 1, "gtid_strict_mode": 1, "expire_logs_days": 3}
    return {**told, **binlog}


def _of_mysql(software: Software, shape: Shape) -> Settings:
    """Return what only MySQL knows; releases that do not know one that begins with `loose_` go on without."""
    told: Settings = {
        "loose_mysqlx": 0,
        "loose_mysql_native_password": "ON",
        "loose_default_authentication_plugin": "mysql_native_password",
        "loose_auto_generate_certs": "OFF",
        "loose_log_error_verbosity": 2,
        **({"collation_server": "utf8mb4_unicode_ci"} if software.version.startswith("5.") else {}),
    }
    if not shape.is_replicated:
        return {**told, "skip_log_bin": None}
    binlog: Settings = {
        "loose_binlog_format": "ROW",
        "loose_log_slave_updates": "ON",
        "loose_log_replica_updates": "ON",
        "loose_expire_logs_days": 3,
        "loose_binlog_expire_logs_seconds": 3 * 86_400,
        "gtid_mode": "ON",
        "enforce_gtid_consistency": "ON",
    }
    return {**told, **binlog}


def render(told: Settings, place: str) -> str:
    """Return the text of the file that a server reads."""
    lines = [name if value is None else f"{name} = {_quoted(value)}" for name, value in told.items()]
    return "\n".join(["[mysqld]", *lines, f"!include {place}/{CONF}/{REPLICATION_FILE}", ""])


def _quoted(value: str | int) -> str:
    return str(value) if isinstance(value, int) else '"' + value.replace("\\", "\\\\") + '"'
