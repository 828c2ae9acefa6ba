"""`moorage engines`, and what `moorage doctor` finds of databases."""

from __future__ import annotations

import json
import platform
from pathlib import Path

from tests.command import moorage
from tests.runtime.database_servers.test_catalog import put_postgresql

from moorage.platform.doctor.databases import check_engine
from moorage.platform.doctor.findings import State
from moorage.runtime.database_servers.ports import Software
from moorage.runtime.database_servers.software.catalog import SoftwareCatalog
from moorage.runtime.database_servers.software.system import SystemSoftware

MARIADB = Software("mysql", "MariaDB", "10.11.18", "/usr/share/mysql", "/usr/sbin/mariadbd", "/usr/bin", "")


def test_the_list_names_what_is_installed_and_what_serves_each_version(tmp_path: Path) -> None:
    done = moorage("engines", "list", "--data", tmp_path, ENGINE_SUBSTITUTION="minor")

    states = {words[0]: words[1] for line in done.stdout.splitlines() if (words := line.split())}
    assert done.returncode == 0
    assert (states["postgresql-16.14"], states["postgresql-14.23"]) == ("installed", "installed")
    assert "postgresql 16.4.0: PostgreSQL 16.14 runs in place of 16.4" in done.stdout
    assert "postgresql 14.8.0: PostgreSQL 14.23 runs in place of 14.8" in done.stdout
    assert "mysql 8.4.2: refused: MySQL 8.4.2 is not installed on this machine" in done.stdout


def test_installing_what_every_data_folder_finds_already_is_done_at_once(tmp_path: Path) -> None:
    done = moorage("engines", "install", "postgresql-16.14", "--data", tmp_path)

    assert (done.returncode, done.stdout) == (0, "postgresql-16.14 is ready\n")
    assert not (tmp_path / "engines" / "postgresql-16.14").exists()


def test_a_name_that_cannot_be_had_is_refused_with_those_that_can(tmp_path: Path) -> None:
    done = moorage("engines", "install", "postgresql-9.6", "--data", tmp_path)

    assert done.returncode == 1
    assert done.stderr.startswith("moorage: postgresql-9.6 is not available here; available: ")
    assert "postgresql-16.14" in done.stderr


def test_the_doctor_names_what_serves_each_version(tmp_path: Path) -> None:
    check = check_engine(SoftwareCatalog([], tmp_path, detect=lambda: [SystemSoftware(MARIADB)]), "mysql", "any")

    assert (check.name, check.state) == ("databases: mysql", State.OK)
    assert check.found == "MariaDB 10.11.18 for 8.4.2; MariaDB 10.11.18 for 5.7.44"


def test_the_doctor_says_that_software_is_fetched_when_it_is_needed(tmp_path: Path) -> None:
    check = check_engine(SoftwareCatalog([], tmp_path, detect=list), "postgresql", "minor")

    served = [f"PostgreSQL {each}, fetched when it is first needed" for each in ("16.14 for 16.4", "14.23 for 14.8")]
    assert (check.state, check.found) == (State.OK, "; ".join(served))


def test_the_doctor_names_the_release_with_fixes_that_an_installed_one_lacks(tmp_path: Path) -> None:
    put_postgresql(tmp_path, "16.4")

    check = check_engine(SoftwareCatalog([], tmp_path, detect=list), "postgresql", "minor")

    assert check.state is State.WARN
    assert check.found.startswith("PostgreSQL 16.4; PostgreSQL 14.23 for 14.8")
    assert check.fix == "run `moorage engines install postgresql-16.14`: it has fixes that postgresql-16.4 lacks"


def test_the_doctor_names_the_packages_where_there_is_nothing(tmp_path: Path) -> None:
    check = check_engine(SoftwareCatalog([], tmp_path, detect=list), "mysql", "any")

    assert (check.state, check.found) == (State.WARN, "none: MySQL databases are refused")
    assert "apt install mariadb-server-core mariadb-client-core mariadb-client" in (check.fix or "")


def test_the_doctor_names_the_package_that_is_missing(tmp_path: Path) -> None:
    lacking = SystemSoftware(MARIADB, "mariadb-dump (Debian, Ubuntu: apt install mariadb-client)")

    check = check_engine(SoftwareCatalog([], tmp_path, detect=lambda: [lacking]), "mysql", "any")

    assert (check.state, check.found) == (State.WARN, "none: MySQL databases are refused")
    assert check.fix == "install mariadb-dump (Debian, Ubuntu: apt install mariadb-client)"


def test_the_doctor_names_the_setting_that_would_allow_what_is_installed(tmp_path: Path) -> None:
    check = check_engine(SoftwareCatalog([], tmp_path, detect=lambda: [SystemSoftware(MARIADB)]), "mysql", "minor")

    assert check.state is State.WARN
    assert check.fix == "MariaDB 10.11.18 may serve in its place with MOORAGE_ENGINE_SUBSTITUTION=any"


def test_the_doctor_names_software_that_does_not_run_here(tmp_path: Path) -> None:
    why = "postgresql-14.23 does not run on this machine: it lacks libmissing.so.9 (install the system package with it)"
    record = {"machine": platform.machine(), "library": "libmissing.so.9", "why": why}
    (tmp_path / ".unusable-postgresql-14.23.json").write_text(json.dumps(record))

    check = check_engine(SoftwareCatalog([], tmp_path, detect=list), "postgresql", "any")

    assert (check.state, check.found) == (State.WARN, "PostgreSQL 16.14 for 16.4, fetched when it is first needed")
    assert check.fix == why
