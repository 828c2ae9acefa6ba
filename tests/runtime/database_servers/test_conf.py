"""Configuration of servers: accepted by the software, and right for tier and role."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.database_servers.server_support import MARIADB, POSTGRESQL, POSTGRESQL_14, find_software

from moorage.runtime.database_servers import copying
from moorage.runtime.database_servers.kinds import kind_of
from moorage.runtime.database_servers.mariadb import configuration as mariadb_conf
from moorage.runtime.database_servers.ports import CONF, DATA, RUN, Primary, Recovery, ServerOptions, Software
from moorage.runtime.database_servers.postgres import configuration as postgres_conf
from moorage.runtime.engines.ports import Address

SHAPE = ServerOptions(port=21_000, memory_mb=256, cpu=0.25)
REPLICA = replace(SHAPE, primary=Primary(Address(21_001), "se:cret\\"), is_replicated=True, number=2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A server's folder with characters in its path that need quoting."""
    made = tmp_path / 'it\'s 100% \\ a "folder"'
    for name in (DATA, RUN, CONF):
        (made / name).mkdir(parents=True, mode=0o700)
    return made


def configured(software: Software, folder: Path, options: ServerOptions) -> None:
    kind_of(software.type).configure(software, folder, options, home=software.home, inside=str(folder))


def asked_of_postgres(software: Software, folder: Path, name: str) -> str:
    """Return the value of a setting as the server program reads it."""
    env = {key: value.format(home=software.home) for key, value in software.env.items()}
    argv = [f"{software.home}/{software.program}", "-C", name, "-c", f"config_file={folder}/conf/postgresql.conf"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("name", [POSTGRESQL, POSTGRESQL_14])
@pytest.mark.parametrize(
    "options",
    [
        SHAPE,
        REPLICA,
        replace(SHAPE, memory_mb=16_384, cpu=4.0, has_tls=True, archives=True),
        replace(SHAPE, is_open=False, recovery=Recovery(1_700_000_000_123)),
        replace(SHAPE, is_open=False, recovery=Recovery(None)),
    ],
)
def test_postgresql_takes_every_setting(name: str, options: ServerOptions, folder: Path) -> None:
    software = find_software(name)

    configured(software, folder, options)

    assert asked_of_postgres(software, folder, "data_directory") == f"{folder}/data"
    assert asked_of_postgres(software, folder, "max_connections") == str(
        postgres_conf.usable_connections(options.memory_mb) + postgres_conf.RESERVED
    )


@pytest.mark.parametrize(("memory_mb", "connections"), [(256, 25), (512, 50), (1024, 100), (8192, 500), (16_384, 500)])
def test_larger_tiers_take_more_connections(memory_mb: int, connections: int) -> None:
    assert postgres_conf.usable_connections(memory_mb) == connections
    assert mariadb_conf.usable_connections(memory_mb) == connections


def test_a_quarter_of_the_memory_is_postgresqls_cache() -> None:
    told = postgres_conf.settings(find_software(POSTGRESQL), replace(SHAPE, memory_mb=4096), "/data")

    assert told["shared_buffers"] == "1024MB"


def test_a_replica_has_the_password_in_a_file_that_only_it_reads(folder: Path) -> None:
    software = find_software(POSTGRESQL)

    configured(software, folder, REPLICA)

    secret = folder / "conf" / "replica.pass"
    assert secret.read_text() == "127.0.0.1:21001:*:moorage_replica:se\\:cret\\\\\n"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert "se:cret" not in (folder / "conf" / "postgresql.conf").read_text()
    assert (folder / "data" / "standby.signal").exists()


def test_what_told_a_replica_to_follow_is_gone_when_it_does_not_any_more(folder: Path) -> None:
    software = find_software(POSTGRESQL)
    configured(software, folder, REPLICA)

    configured(software, folder, SHAPE)
    after_it = {path.name for path in (folder / "data").iterdir()}
    (folder / "data" / "recovery.signal").unlink()
    configured(software, folder, SHAPE)

    assert after_it == {"recovery.signal"}
    assert list((folder / "data").iterdir()) == []


def test_a_recovery_ends_at_its_moment(folder: Path) -> None:
    software = find_software(POSTGRESQL)

    configured(software, folder, replace(SHAPE, recovery=Recovery(1_700_000_000_123)))

    assert asked_of_postgres(software, folder, "recovery_target_time") == "2023-11-14 22:13:20.123+00:00"
    assert asked_of_postgres(software, folder, "restore_command").startswith("cp ")
    assert "100%% " in asked_of_postgres(software, folder, "restore_command")


def test_settings_for_two_servers_win_and_are_kept(folder: Path) -> None:
    software = find_software(POSTGRESQL)
    copying.put(folder / CONF, postgres_conf.REPLICATION_FILE, "work_mem = '77kB'\n")

    configured(software, folder, SHAPE)

    assert asked_of_postgres(software, folder, "work_mem") == "77"


def test_a_socket_is_named_from_the_data_folder_only_where_the_path_is_long() -> None:
    assert postgres_conf.run_folder("/data") == "/data/run"
    assert postgres_conf.run_folder("/srv/" + "x" * 90) == "../run"


def test_a_server_without_a_network_of_its_own_listens_at_this_machine_only() -> None:
    assert postgres_conf.address("/data") == "0.0.0.0"
    assert postgres_conf.address("/srv/moorage/databases/1/a") == "127.0.0.1"


def asked_of_mariadb(software: Software, folder: Path) -> dict[str, str]:
    argv = [software.program, f"--defaults-file={folder}/conf/my.cnf", "--help", "--verbose"]
    done = subprocess.run(argv, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "unknown" not in done.stderr
    return dict(re.findall(r"^([a-z][a-z0-9-]+) +(.*)$", done.stdout, re.MULTILINE))


@pytest.mark.parametrize(
    "options",
    [SHAPE, REPLICA, replace(SHAPE, is_open=False), replace(SHAPE, memory_mb=16_384, is_replicated=True)],
)
def test_mariadb_takes_every_setting(options: ServerOptions, tmp_path: Path) -> None:
    software, folder = find_software(MARIADB), tmp_path / "it's 100% a folder"
    for name in (DATA, RUN, CONF):
        (folder / name).mkdir(parents=True)

    configured(software, folder, options)

    told = asked_of_mariadb(software, folder)
    assert told["datadir"] == f"{folder}/data/"
    assert told["max-user-connections"] == str(mariadb_conf.usable_connections(options.memory_mb))
    assert told["read-only"] == str(options.primary is not None).upper()
    assert told["innodb-flush-log-at-trx-commit"] == "1"


def test_a_log_of_mariadb_is_never_made_smaller(tmp_path: Path) -> None:
    (tmp_path / DATA).mkdir()
    os.truncate(os.open(tmp_path / DATA / "ib_logfile0", os.O_CREAT | os.O_RDWR), 96 << 20)

    told = mariadb_conf.settings(find_software(MARIADB), tmp_path, SHAPE, home="/work", inside="/data")

    assert told["innodb_log_file_size"] == 96 << 20


def test_mysql_is_not_told_what_only_mariadb_knows(tmp_path: Path) -> None:
    mysql = replace(find_software(MARIADB), product="MySQL", version="8.4.2")

    plain = mariadb_conf.settings(mysql, tmp_path, SHAPE, home="/work", inside="/data")
    told = mariadb_conf.settings(mysql, tmp_path, REPLICA, home="/work", inside="/data")

    assert not {"userstat", "gtid_strict_mode", "aria_pagecache_buffer_size", "log_warnings"} & told.keys()
    assert told["gtid_mode"] == "ON"
    assert "skip_log_bin" in mariadb_conf.render(plain, "/data").splitlines()


def test_a_file_is_written_for_the_owner_alone_and_never_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "linked").symlink_to(outside)

    with pytest.raises(NotADirectoryError):
        copying.put(tmp_path / "linked", "file", "text")

    assert list(outside.iterdir()) == []


def test_a_copy_that_was_cut_short_is_made_anew_and_one_that_is_whole_is_kept(tmp_path: Path) -> None:
    template, folder = tmp_path / "template", tmp_path / "server"
    (template / DATA / "deep").mkdir(parents=True)
    (template / DATA / "deep" / "file").write_text("of the template")
    (folder / "data.part" / "half").mkdir(parents=True)

    copying.fill(template, folder)
    (folder / DATA / "deep" / "file").write_text("of a user")
    copying.fill(template, folder)

    assert (folder / DATA / "deep" / "file").read_text() == "of a user"
    assert sorted(path.name for path in folder.iterdir()) == ["archive", "conf", "data", "run", "tls"]
    assert stat.S_IMODE((folder / DATA).stat().st_mode) == 0o700
