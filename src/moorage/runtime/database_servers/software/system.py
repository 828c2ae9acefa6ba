"""Detects database software of the system: PostgreSQL, MySQL and MariaDB.

Runs each program with `--version` once per modification time of its file, so that a package upgrade is detected and
a repeated scan costs a few stat calls.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from moorage.core.kit.records import dataclass
from moorage.runtime.database_servers.mariadb import configuration as mariadb_conf
from moorage.runtime.database_servers.ports import Software
from moorage.runtime.database_servers.software.releases import EXTENSION, MARIADB, MYSQL, POSTGRESQL, VERSIONS, series

VERSION_TIMEOUT_S = 20
CACHE_S = 5.0
DEBIAN_POSTGRESQL = Path("/usr/lib/postgresql")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
_MOUNTED = ("/usr/bin/", "/usr/lib/", "/usr/libexec/")  # part of every sandbox
_SHARES = ("/usr/share/mysql", "/usr/share/mariadb", "/usr/local/mysql/share")
_POSTGRESQL_TOOLS = ("initdb", "pg_dump", "pg_restore", "psql")
# Programs for MariaDB servers and dumps, with their Debian packages.
_MARIADB_TOOLS = {
    "mariadb-install-db": "mariadb-server-core",
    "mariadb": "mariadb-client-core",
    "mariadb-dump": "mariadb-client",
}
_MYSQL_TOOLS = {"mysql": "mysql-client", "mysqldump": "mysql-client"}
_VERSION = re.compile(r"(?:\(PostgreSQL\)|Ver) (\d+(?:\.\d+)+)")
_cached: tuple[float, list[SystemSoftware]] | None = None  # time of the scan, and its result
_version_outputs: dict[str, tuple[int, str]] = {}  # by program: mtime of its file, and output of --version


@dataclass(frozen=True, slots=True)
class SystemSoftware:
    """Software of the system; `lacks` names missing programs."""

    software: Software  # without a template
    lacks: str = ""


def detect() -> list[SystemSoftware]:
    """Return the software of the system; the result is at most a few seconds old."""
    global _cached
    if _cached is None or time.monotonic() - _cached[0] > CACHE_S:
        _cached = time.monotonic(), [*_postgresql(), *_mysql()]
    return _cached[1]


def version_of(output: str) -> str | None:
    """Parse the version from the `--version` output of a server program."""
    match = _VERSION.search(output)
    return match.group(1) if match else None


def version_output(program: str) -> str:
    """Return the `--version` output of a program; empty if it cannot run."""
    try:
        mtime = os.stat(program).st_mtime_ns
        if _version_outputs.get(program, (0, ""))[0] != mtime:
            done = subprocess.run(
                [program, "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
            )
            _version_outputs[program] = mtime, done.stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return _version_outputs[program][1]


def _postgresql() -> list[SystemSoftware]:
    majors = [str(series(POSTGRESQL, version)[0]) for version in VERSIONS["postgresql"]]
    programs = [str(DEBIAN_POSTGRESQL / major / "bin" / "postgres") for major in majors]
    on_path = shutil.which("postgres", path=_PATH)
    detected = []
    for program in [*programs, *([os.path.realpath(on_path)] if on_path else [])]:
        version = version_of(version_output(program))
        if version is not None and str(series(POSTGRESQL, version)[0]) in majors:
            detected.append(_one_postgresql(Path(program), version))
    return detected


def _one_postgresql(program: Path, version: str) -> SystemSoftware:
    major, tools = str(series(POSTGRESQL, version)[0]), program.parent
    software = Software(
        "postgresql", POSTGRESQL, version, str(tools.parent), f"bin/{program.name}", str(tools), "",
        env={"LD_LIBRARY_PATH": "{home}/lib"},
    )  # fmt: skip
    share = tools.parent / "share"
    if str(program).startswith(("/usr/bin/", f"{DEBIAN_POSTGRESQL}/")):
        # A system package has absolute paths compiled in, so its files are mounted at the same path.
        names = (f"/usr/share/postgresql/{major}", "/usr/share/pgsql", "/usr/share/postgresql")
        share = Path(next(filter(os.path.isdir, names), names[0]))
        software = replace(software, home=str(share), program=str(program), binds={str(share): str(share)}, env={})
    missing = [name for name in _POSTGRESQL_TOOLS if not os.access(tools / name, os.X_OK)]
    extensions = (share / "extension", share / "postgresql" / "extension")
    if not any((folder / f"{EXTENSION}.control").is_file() for folder in extensions):
        missing.append(EXTENSION)
    return SystemSoftware(software, _lacks(missing, f"postgresql-{major} postgresql-client-{major}"))


def _mysql() -> list[SystemSoftware]:
    detected: list[SystemSoftware] = []
    for name in ("mysqld", "mariadbd"):
        program = shutil.which(name, path=f"{_PATH}:/usr/local/mysql/bin:/usr/libexec")
        output = version_output(program) if program else ""
        version = version_of(output)
        if program is None or version is None:
            continue
        # Debian also installs MariaDB's program as `mysqld`.
        is_mariadb = "MariaDB" in output
        if is_mariadb == (name == "mariadbd"):
            detected.append(_one_mysql(Path(program), MARIADB if is_mariadb else MYSQL, version))
    return detected


def _one_mysql(program: Path, product: str, version: str) -> SystemSoftware:
    home = next((share for share in _SHARES if os.path.isdir(f"{share}/english")), _SHARES[0])
    wanted = _MARIADB_TOOLS if product == MARIADB else _MYSQL_TOOLS
    tools = program.parent if program.parent.name == "bin" else Path("/usr/bin")
    binds = {home: home}
    if not str(program).startswith(_MOUNTED):
        binds[str(program)] = os.path.realpath(program)
    missing = [name for name in wanted if not os.access(tools / name, os.X_OK)]
    env = mariadb_conf.ENVIRONMENT
    software = Software("mysql", product, version, home, str(program), str(tools), "", binds, env)
    return SystemSoftware(software, _lacks(missing, " ".join(dict.fromkeys(wanted[name] for name in missing))))


def _lacks(missing: list[str], packages: str) -> str:
    return f"{', '.join(missing)} (Debian, Ubuntu: apt install {packages})" if missing else ""
