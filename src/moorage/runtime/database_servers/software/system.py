"""Database software that the system's own packages brought: PostgreSQL of a wanted major, MySQL, and MariaDB.

Programs are asked for their version, once for each file: an upgrade by the package manager is noticed, and looking
again costs a few calls only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

from moorage.runtime.database_servers.mariadb import configuration as mariadb_conf
from moorage.runtime.database_servers.ports import Software
from moorage.runtime.database_servers.software.releases import EXTENSION, MARIADB, MYSQL, POSTGRESQL, VERSIONS, series

PROBE_S = 20
FRESH_S = 5.0
DEBIAN_POSTGRESQL = Path("/usr/lib/postgresql")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
_VISIBLE = ("/usr/bin/", "/usr/lib/", "/usr/libexec/")  # what every sandbox sees of the system anyway
_SHARES = ("/usr/share/mysql", "/usr/share/mariadb", "/usr/local/mysql/share")
_POSTGRESQL_TOOLS = ("initdb", "pg_dump", "pg_restore", "psql")
# Each program that MariaDB's servers and dumps need, and the package of Debian that has it.
_MARIADB_TOOLS = {
    "mariadb-install-db": "mariadb-server-core",
    "mariadb": "mariadb-client-core",
    "mariadb-dump": "mariadb-client",
}
_MYSQL_TOOLS = {"mysql": "mysql-client", "mysqldump": "mysql-client"}
_VERSION = re.compile(r"(?:\(PostgreSQL\)|Ver) (\d+(?:\.\d+)+)")
_looked: tuple[float, list[Found]] | None = None
_said: dict[str, tuple[int, str]] = {}  # what a program said of itself, and which state of its file that was


@dataclass(frozen=True, slots=True)
class Found:
    """Software of the system, and in words what is missing for using it; nothing where it is complete."""

    software: Software  # without a template
    lacks: str = ""


def look() -> list[Found]:
    """Return what the system has, as it was a few seconds ago at most."""
    global _looked
    if _looked is None or time.monotonic() - _looked[0] > FRESH_S:
        _looked = time.monotonic(), [*_postgresql(), *_mysql()]
    return _looked[1]


def version_of(said: str) -> str | None:
    """Return the version in what a server's program says of itself."""
    match = _VERSION.search(said)
    return match.group(1) if match else None


def ask(program: str) -> str:
    """Return what a program says with --version, or nothing where it cannot be run."""
    try:
        state = os.stat(program).st_mtime_ns
        if _said.get(program, (0, ""))[0] != state:
            done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=PROBE_S, check=False)
            _said[program] = state, done.stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return _said[program][1]


def _postgresql() -> list[Found]:
    majors = [str(series(POSTGRESQL, version)[0]) for version in VERSIONS["postgresql"]]
    programs = [str(DEBIAN_POSTGRESQL / major / "bin" / "postgres") for major in majors]
    on_path = shutil.which("postgres", path=_PATH)
    found = []
    for program in [*programs, *([os.path.realpath(on_path)] if on_path else [])]:
        version = version_of(ask(program))
        if version is not None and str(series(POSTGRESQL, version)[0]) in majors:
            found.append(_one_postgresql(Path(program), version))
    return found


def _one_postgresql(program: Path, version: str) -> Found:
    major, tools = str(series(POSTGRESQL, version)[0]), program.parent
    software = Software(
        "postgresql", POSTGRESQL, version, str(tools.parent), f"bin/{program.name}", str(tools), "",
        env={"LD_LIBRARY_PATH": "{home}/lib"},
    )  # fmt: skip
    share = tools.parent / "share"
    if str(program).startswith(("/usr/bin/", f"{DEBIAN_POSTGRESQL}/")):
        # A system's package looks for its files where they were put, wherever the program is.
        names = (f"/usr/share/postgresql/{major}", "/usr/share/pgsql", "/usr/share/postgresql")
        share = Path(next(filter(os.path.isdir, names), names[0]))
        software = replace(software, home=str(share), program=str(program), binds={str(share): str(share)}, env={})
    missing = [name for name in _POSTGRESQL_TOOLS if not os.access(tools / name, os.X_OK)]
    places = (share / "extension", share / "postgresql" / "extension")
    if not any((place / f"{EXTENSION}.control").is_file() for place in places):
        missing.append(EXTENSION)
    return Found(software, _lacks(missing, f"postgresql-{major} postgresql-client-{major}"))


def _mysql() -> list[Found]:
    found: list[Found] = []
    for name in ("mysqld", "mariadbd"):
        program = shutil.which(name, path=f"{_PATH}:/usr/local/mysql/bin:/usr/libexec")
        said = ask(program) if program else ""
        version = version_of(said)
        if program is None or version is None:
            continue
        # Debian calls MariaDB's program by the name of MySQL's as well.
        is_mariadb = "MariaDB" in said
        if is_mariadb == (name == "mariadbd"):
            found.append(_one_mysql(Path(program), MARIADB if is_mariadb else MYSQL, version))
    return found


def _one_mysql(program: Path, product: str, version: str) -> Found:
    home = next((share for share in _SHARES if os.path.isdir(f"{share}/english")), _SHARES[0])
    wanted = _MARIADB_TOOLS if product == MARIADB else _MYSQL_TOOLS
    tools = program.parent if program.parent.name == "bin" else Path("/usr/bin")
    binds = {home: home}
    if not str(program).startswith(_VISIBLE):
        binds[str(program)] = os.path.realpath(program)
    missing = [name for name in wanted if not os.access(tools / name, os.X_OK)]
    env = mariadb_conf.ENVIRONMENT
    software = Software("mysql", product, version, home, str(program), str(tools), "", binds, env)
    return Found(software, _lacks(missing, " ".join(dict.fromkeys(wanted[name] for name in missing))))


def _lacks(missing: list[str], packages: str) -> str:
    return f"{', '.join(missing)} (Debian, Ubuntu: apt install {packages})" if missing else ""
