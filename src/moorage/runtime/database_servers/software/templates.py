"""Template data folders: created once per software, copied for each server.

Initialisation takes seconds, a copy does not. A template has one user, ADMIN, with a password that is replaced in each
copy. It is built in a temporary folder as an unprivileged user, because servers refuse to run as root and that user may
not traverse the parents of the software's folder; the result belongs to the platform.
"""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import secrets
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from moorage.core.kit import folders
from moorage.core.kit.records import dataclass
from moorage.runtime.database_servers.ports import ADMIN, DATA, ServerFailed, Software
from moorage.runtime.database_servers.software.releases import EXTENSION, MARIADB, POSTGRESQL

ABOUT = "template.json"
STEP_TIMEOUT_S = 300  # A step usually takes a second, longer under load.
NOBODY = 65534
LOG_FILE_SIZE = "16M"  # redo log of MariaDB; the default of 96 MB would be most of the copy
# Defaults of the MariaDB and MySQL templates; the configuration of a server may override them.
_MYSQL_OPTIONS = ("--character-set-server=utf8mb4", "--performance-schema=OFF", "--skip-log-bin", "--skip-networking")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def is_complete(folder: Path) -> bool:
    """Tell whether a template is complete and readable by this user."""
    return os.access(folder / ABOUT, os.R_OK) and os.path.isdir(folder / DATA)


def password_of(folder: Path | str) -> str:
    """Return the initial ADMIN password of copies of this template."""
    about = json.loads((Path(folder) / ABOUT).read_text())
    return str(about["password"])


def make(software: Software, folder: Path) -> None:
    """Create a template; raises ServerFailed with the output of the programs."""
    password = secrets.token_urlsafe(24)
    with _build_folder(software) as build:
        if software.product == POSTGRESQL:
            _make_postgresql(build, password)
        elif software.product == MARIADB:
            _make_mariadb(build, password)
        else:
            _make_mysql(build, password)
        folder.mkdir(parents=True)
        folder.chmod(0o700)
        shutil.copytree(build.data, folder / DATA, symlinks=True)
    (folder / DATA).chmod(0o700)
    about = {"software": software.name, "password": password}
    with open(os.open(folder / ABOUT, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        json.dump(about, file)
    sync_file_system(folder)


def sync_file_system(folder: Path) -> None:
    """Call syncfs on the file system, in place of a thousand fsync calls."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(opened) != 0:
            raise OSError(ctypes.get_errno(), "cannot write to the disk", str(folder))
    finally:
        os.close(opened)


# PostgreSQL.


def _make_postgresql(build: _BuildFolder, password: str) -> None:
    secret = build.write("password", password)
    argv = ["--pgdata", str(build.data), "--username", ADMIN, f"--pwfile={secret}", "--data-checksums"]
    argv += ["--encoding=UTF8", "--auth=scram-sha-256", "--no-sync", "--no-instructions"]
    initdb = str(build.program.with_name("initdb"))
    try:
        build.run([initdb, *argv, "--locale=C.UTF-8"])
    except ServerFailed as error:
        if "locale" not in str(error):
            raise
        build.run([initdb, *argv, "--locale=C"])
    for database in ("template1", "postgres"):
        single = [str(build.program), "--single", "-D", str(build.data)]
        settings = ["-c", f"shared_preload_libraries={EXTENSION}", "-c", "dynamic_shared_memory_type=mmap"]
        output = build.run([*single, *settings, database], stdin=f"CREATE EXTENSION {EXTENSION}\n")
        if "ERROR:" in output or "FATAL:" in output:  # The exit code is 0 even if the statement failed.
            raise ServerFailed(f"cannot prepare {build.software.name}: {output.strip()}")


# MariaDB and MySQL.


def _make_mariadb(build: _BuildFolder, password: str) -> None:
    options = [f"--innodb-log-file-size={LOG_FILE_SIZE}", *_MYSQL_OPTIONS]
    installs = str(Path(build.software.tools) / "mariadb-install-db")
    root = ["--auth-root-authentication-method=normal", "--skip-test-db"]
    build.run([installs, "--no-defaults", f"--datadir={build.data}", *root, *options])
    statements = (
        # Its hundred files are useless without the performance schema, and would be copied with every server.
        "DROP DATABASE IF EXISTS sys",
        f"CREATE USER '{ADMIN}'@'localhost' IDENTIFIED VIA mysql_native_password USING PASSWORD('{password}')",
        f"GRANT ALL PRIVILEGES ON *.* TO '{ADMIN}'@'localhost' WITH GRANT OPTION",
        "DELETE FROM mysql.global_priv WHERE User IN ('', 'root')",
        "FLUSH PRIVILEGES",
        "SHUTDOWN",
    )
    file = build.write("users.sql", ";\n".join(statements) + ";\n")
    build.run([*_server(build), f"--init-file={file}", *options])
    _tidy(build.data)


def _make_mysql(build: _BuildFolder, password: str) -> None:
    statements = (
        f"CREATE USER '{ADMIN}'@'localhost' IDENTIFIED BY '{password}'",
        f"GRANT ALL PRIVILEGES ON *.* TO '{ADMIN}'@'localhost' WITH GRANT OPTION",
        "DROP USER 'root'@'localhost'",
    )
    file = build.write("users.sql", ";\n".join(statements) + ";\n")
    build.run([*_server(build), "--initialize-insecure", f"--init-file={file}", *_MYSQL_OPTIONS])
    _tidy(build.data)


def _server(build: _BuildFolder) -> list[str]:
    beside = build.data.parent
    files = [f"--socket={beside / 'socket'}", f"--pid-file={beside / 'pid'}", f"--tmpdir={beside}"]
    return [str(build.program), "--no-defaults", f"--datadir={build.data}", *files]


def _tidy(data: Path) -> None:
    """Delete files that are recreated or must differ: MySQL's server id and keys."""
    for pattern in ("ib_buffer_pool", "ibtmp*", "auto.cnf", "*.pem", "*.err", "*.pid"):
        for path in data.glob(pattern):
            path.unlink()


@dataclass(frozen=True)
class _BuildFolder:
    software: Software
    data: Path  # becomes the template
    program: Path  # server executable that `user` may run
    env: dict[str, str]
    user: dict[str, Any]  # user arguments of subprocess.run

    def run(self, argv: Sequence[str], stdin: str = "") -> str:
        """Run a step to its end and return its output; raises ServerFailed if it failed."""
        try:
            done = subprocess.run(
                argv, input=stdin, env=self.env, cwd=self.data.parent, text=True, errors="replace",
                timeout=STEP_TIMEOUT_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **self.user,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServerFailed(f"cannot prepare {self.software.name}: {error}") from error
        if done.returncode != 0:
            output = " ".join(done.stdout.split())[-600:]
            raise ServerFailed(f"cannot prepare {self.software.name}: {Path(argv[0]).name} said: {output}")
        return str(done.stdout)

    def write(self, name: str, text: str) -> Path:
        path = self.data.parent / name
        path.write_text(text)
        path.chmod(0o600)
        if self.user:
            os.chown(path, self.user["user"], self.user["group"])
        return path


@contextmanager
def _build_folder(software: Software) -> Iterator[_BuildFolder]:
    root = Path(tempfile.mkdtemp(prefix="moorage-template-"))
    try:
        user: dict[str, Any] = {}
        if os.geteuid() == 0:
            uid = _unprivileged()
            user = {"user": uid, "group": uid, "extra_groups": []}
            os.chown(root, uid, uid)
        home = Path(software.home)
        if user and not _is_open(home):
            home = Path(shutil.copytree(home, root / "software", symlinks=True))
        program = Path(software.program) if software.program.startswith("/") else home / software.program
        env = {name: value.format(home=home) for name, value in software.env.items()}
        yield _BuildFolder(software, root / DATA, program, {"PATH": _PATH, "HOME": str(root), "TZ": "UTC"} | env, user)
    finally:
        folders.remove(root)


def _unprivileged() -> int:
    """Return a user id other than root; PostgreSQL requires one with a name."""
    try:
        return pwd.getpwnam("nobody").pw_uid
    except KeyError:
        return NOBODY


def _is_open(folder: Path) -> bool:
    """Tell whether all users can traverse to a folder, unlike a private home."""
    return all(path.stat().st_mode & stat.S_IXOTH for path in (folder, *folder.resolve().parents))
