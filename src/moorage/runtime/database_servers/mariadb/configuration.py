"""MariaDB and MySQL configuration: tier limits, paths, logging, replication."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from moorage.runtime.database_servers.ports import CONF, DATA, RUN, TLS, ServerOptions, Software
from moorage.runtime.database_servers.postgres.configuration import address, run_folder

MAIN_FILE = "my.cnf"
REPLICATION_FILE = "replication.cnf"  # written by `replication`; included last, so its settings override
SOCKET = "mysqld.sock"
FILES, TEMPORARY = "files", "tmp"  # folders in `run`: for secure_file_priv and tmpdir
RESERVED = 5  # connections that only the platform can use
AUTHENTICATION_S = 10  # Connections that have not logged in count against max_connections.
MARIADB = "MariaDB"

# Settings of glibc's allocator that save 0.8 MB in an idle server. During its start a server frees 19 MB at once, which
# would raise the dynamic mmap threshold so that freed memory is kept. Four arenas match the CPUs of the largest tier.
ENVIRONMENT: Mapping[str, str] = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_ARENA_MAX": "4"}

Settings = dict[str, str | int | None]  # None for an option without a value


def settings(software: Software, folder: Path, options: ServerOptions, *, home: str, inside: str) -> Settings:
    """Return all settings of a server; unknown ones with `loose_` are ignored."""
    return {
        **_files(software, home, inside),
        **_network(options, inside),
        **_memory(options),
        **_storage(),
        **_temporary(options),
        **_CHARACTERS_AND_LOGS,
        **_replication(options),
        **(_of_mariadb(folder, options) if software.product == MARIADB else _of_mysql(software, options)),
    }


def _files(software: Software, home: str, inside: str) -> Settings:
    values: Settings = {
        "datadir": f"{inside}/{DATA}",
        "socket": f"{run_folder(inside)}/{SOCKET}",
        "pid_file": f"{inside}/{RUN}/mysqld.pid",
        # Temporary files can be large, and /tmp of a sandbox is a tmpfs.
        "tmpdir": f"{inside}/{RUN}/{TEMPORARY}",
        "secure_file_priv": f"{inside}/{RUN}/{FILES}",
        "local_infile": 0,
        # `DATA DIRECTORY` of a table would lead out of the data folder, into /tmp for example: backups do not contain
        # such a file, and the next start of the server does not find it.
        "loose_symbolic_links": 0,
    }
    outside = Path(software.home)
    if (outside / "english").is_dir():
        return {**values, "lc_messages_dir": home, "character_sets_dir": f"{home}/charsets"}
    if (outside / "share").is_dir():
        return {**values, "basedir": home}
    return values


def _network(options: ServerOptions, inside: str) -> Settings:
    usable = usable_connections(options.memory_mb)
    values: Settings = {
        "port": options.port,
        **({"bind_address": options.host or address(inside)} if options.is_open else {"skip_networking": 1}),
        "skip_name_resolve": 1,
        "max_connections": usable + RESERVED,
        "max_user_connections": usable,
        "max_allowed_packet": "64M",
        "connect_timeout": AUTHENTICATION_S,
    }
    if not options.has_tls:
        return values
    return {
        **values,
        "ssl_cert": f"{inside}/{TLS}/server.crt",
        "ssl_key": f"{inside}/{TLS}/server.key",
        "ssl_ca": f"{inside}/{TLS}/ca.crt",
        "tls_version": "TLSv1.2,TLSv1.3",
    }


def usable_connections(memory_mb: int) -> int:
    """Return the number of user connections; each is a thread with its buffers."""
    return max(25, min(500, memory_mb * 100 // 1024))


def _memory(options: ServerOptions) -> Settings:
    memory_mb = options.memory_mb
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
        "innodb_use_native_aio": "OFF",  # The seccomp filter of a sandbox blocks io_uring.
        "innodb_flush_log_at_trx_commit": 1,
        "innodb_read_io_threads": 2,
        "innodb_write_io_threads": 2,
        "sql_mode": "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION",
    }


def _temporary(options: ServerOptions) -> Settings:
    """Limit temporary tables and files.

    Before MariaDB 11.5 no setting limits the files of a sort; the shim limits each file of a server (RLIMIT_FSIZE). A
    setting with the prefix `maximum_` is the upper limit for the session variable.
    """
    path, max_mb = "ibtmp1:4M:autoextend", options.disk_mb
    if not max_mb:
        return {"innodb_temp_data_file_path": path}
    return {
        "innodb_temp_data_file_path": f"{path}:max:{max_mb}M",
        "loose_tmp_disk_table_size": f"{max_mb}M",
        "loose_maximum_tmp_disk_table_size": f"{max_mb}M",
        "loose_max_tmp_session_space_usage": f"{max_mb}M",
        "loose_max_tmp_total_space_usage": f"{max_mb}M",
        "loose_temptable_max_mmap": f"{min(max_mb, 1024)}M",
    }


# Errors go to stderr, without statements. The stock client sends latin1 in a locale without UTF-8: the server ignores
# the character set of the handshake, and a client can still change it with SET NAMES.
_CHARACTERS_AND_LOGS: Settings = {
    "character_set_server": "utf8mb4",
    "loose_character_set_client_handshake": 0,
    "general_log": 0,
    "slow_query_log": 0,
}


def _log_bytes(folder: Path) -> int:
    """Return the size of the existing redo log; a change would rewrite it."""
    try:
        return (folder / DATA / "ib_logfile0").stat().st_size
    except FileNotFoundError:
        return 0


def _wanted_log_bytes(options: ServerOptions) -> int:
    """Return the minimum size of the redo log: a larger log saves writes under load."""
    return min(512, max(16, options.memory_mb // 16)) << 20


def _replication(options: ServerOptions) -> Settings:
    if not options.is_replicated:
        return {"server_id": options.number}
    return {
        "server_id": options.number,
        "log_bin": "binlog",
        "relay_log": "relay",
        "sync_binlog": 1,
        "max_binlog_size": "64M",
        "log_bin_trust_function_creators": 1,  # else users cannot create functions
        "read_only": int(options.primary is not None),
    }


def _of_mariadb(folder: Path, options: ServerOptions) -> Settings:
    is_small = options.memory_mb <= 512
    values: Settings = {
        "innodb_log_file_size": max(_log_bytes(folder), _wanted_log_bytes(options)),
        "aria_pagecache_buffer_size": "2M" if is_small else "16M",
        "query_cache_size": 0,
        "query_cache_type": 0,
        "collation_server": "utf8mb4_unicode_ci",
        "log_warnings": 1,
        # Counts statements per user, so that those of the platform can be subtracted.
        "userstat": "ON",
    }
    if not options.is_replicated:
        return values
    binlog: Settings = {"binlog_format": "ROW", "log_slave_updates": 1, "gtid_strict_mode": 1, "expire_logs_days": 3}
    return {**values, **binlog}


def _of_mysql(software: Software, options: ServerOptions) -> Settings:
    """Return settings of MySQL only; a release ignores unknown `loose_` settings."""
    values: Settings = {
        "loose_mysqlx": 0,
        "loose_mysql_native_password": "ON",
        "loose_default_authentication_plugin": "mysql_native_password",
        "loose_auto_generate_certs": "OFF",
        "loose_log_error_verbosity": 2,
        **({"collation_server": "utf8mb4_unicode_ci"} if software.version.startswith("5.") else {}),
    }
    if not options.is_replicated:
        return {**values, "skip_log_bin": None}
    binlog: Settings = {
        "loose_binlog_format": "ROW",
        "loose_log_slave_updates": "ON",
        "loose_log_replica_updates": "ON",
        "loose_expire_logs_days": 3,
        "loose_binlog_expire_logs_seconds": 3 * 86_400,
        "gtid_mode": "ON",
        "enforce_gtid_consistency": "ON",
    }
    return {**values, **binlog}


def render(values: Settings, inside: str) -> str:
    """Return the text of MAIN_FILE."""
    lines = [name if value is None else f"{name} = {_quoted(value)}" for name, value in values.items()]
    return "\n".join(["[mysqld]", *lines, f"!include {inside}/{CONF}/{REPLICATION_FILE}", ""])


def _quoted(value: str | int) -> str:
    return str(value) if isinstance(value, int) else '"' + value.replace("\\", "\\\\") + '"'
