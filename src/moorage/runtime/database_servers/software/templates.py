"""Data folders that are initialised once for each software: a new server begins with a copy, in place of seconds.

A template has the platform's own user, with a password that is only good until the copy is taken over, and no user
without a password. It is made as an unprivileged user in a folder for temporary files, because servers refuse to run as
root and such a user may not come to where the software lies; the result belongs to the platform.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.core.kit import folders
from moorage.runtime.database_servers.ports import ADMIN, DATA, ServerFailed, Software
from moorage.runtime.database_servers.software.releases import EXTENSION, MARIADB, POSTGRESQL

ABOUT = "template.json"
STEP_S = 300  # A machine under load takes long for what is usually a second, but never this long.
NOBODY = 65534
LOG_FILE_SIZE = "16M"  # of MariaDB; its usual 96 MB would be most of what is copied
# What every MariaDB and MySQL of the platform begins with; a server's own configuration may say otherwise.
_MYSQL_OPTIONS = ("--character-set-server=utf8mb4", "--performance-schema=OFF", "--skip-log-bin", "--skip-networking")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def is_made(folder: Path) -> bool:
    """Tell whether a template is whole and may be read: one that another user has made may not."""
    return os.access(folder / ABOUT, os.R_OK) and os.path.isdir(folder / DATA)


def password_of(folder: Path | str) -> str:
    """Return the password that ADMIN has in copies of a template, until they are taken over."""
    about = json.loads((Path(folder) / ABOUT).read_text())
    return str(about["password"])


def make(software: Software, folder: Path) -> None:
    """Initialise a new folder as the template of a software; raises ServerFailed with what its programs said."""
    password = secrets.token_urlsafe(24)
    with _workshop(software) as workshop:
        if software.product == POSTGRESQL:
            _make_postgresql(workshop, password)
        elif software.product == MARIADB:
            _make_mariadb(workshop, password)
        else:
            _make_mysql(workshop, password)
        folder.mkdir(parents=True)
        folder.chmod(0o700)
        shutil.copytree(workshop.data, folder / DATA, symlinks=True)
    (folder / DATA).chmod(0o700)
    about = {"software": software.name, "password": password}
    with open(os.open(folder / ABOUT, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        json.dump(about, file)
    settle(folder)


def settle(folder: Path) -> None:
    """Have everything of the file system that a folder is on written to the disk: one call in place of a thousand."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(opened) != 0:
            raise OSError(ctypes.get_errno(), "cannot write to the disk", str(folder))
    finally:
        os.close(opened)


# PostgreSQL.


def _make_postgresql(workshop: _Workshop, password: str) -> None:
    secret = workshop.write("password", password)
    argv = ["--pgdata", str(workshop.data), "--username", ADMIN, f"--pwfile={secret}", "--data-checksums"]
    argv += ["--encoding=UTF8", "--auth=scram-sha-256", "--no-sync", "--no-instructions"]
    initdb = str(workshop.program.with_name("initdb"))
    try:
        workshop.run([initdb, *argv, "--locale=C.UTF-8"])
    except ServerFailed as error:
        if "locale" not in str(error):
            raise
        workshop.run([initdb, *argv, "--locale=C"])
    for database in ("template1", "postgres"):
        single = [str(workshop.program), "--single", "-D", str(workshop.data)]
        settings = ["-c", f"shared_preload_libraries={EXTENSION}", "-c", "dynamic_shared_memory_type=mmap"]
        said = workshop.run([*single, *settings, database], given=f"CREATE EXTENSION {EXTENSION}\n")
        if "ERROR:" in said or "FATAL:" in said:  # It ends with 0 whatever became of the statement.
            raise ServerFailed(f"cannot prepare {workshop.software.name}: {said.strip()}")


# MariaDB and MySQL.


def _make_mariadb(workshop: _Workshop, password: str) -> None:
    options = [f"--innodb-log-file-size={LOG_FILE_SIZE}", *_MYSQL_OPTIONS]
    installs = str(Path(workshop.software.tools) / "mariadb-install-db")
    root = ["--auth-root-authentication-method=normal", "--skip-test-db"]
    workshop.run([installs, "--no-defaults", f"--datadir={workshop.data}", *root, *options])
    statements = (
        # Its hundred files say nothing while the performance schema is off, and each would be copied with every server.
        "DROP DATABASE IF EXISTS sys",
        f"CREATE USER '{ADMIN}'@'localhost' IDENTIFIED VIA mysql_native_password USING PASSWORD('{password}')",
        f"GRANT ALL PRIVILEGES ON *.* TO '{ADMIN}'@'localhost' WITH GRANT OPTION",
        "DELETE FROM mysql.global_priv WHERE User IN ('', 'root')",
        "FLUSH PRIVILEGES",
        "SHUTDOWN",
    )
    file = workshop.write("users.sql", ";\n".join(statements) + ";\n")
    workshop.run([*_server(workshop), f"--init-file={file}", *options])
    _tidy(workshop.data)


def _make_mysql(workshop: _Workshop, password: str) -> None:
    statements = (
        f"CREATE USER '{ADMIN}'@'localhost' IDENTIFIED BY '{password}'",
        f"GRANT ALL PRIVILEGES ON *.* TO '{ADMIN}'@'localhost' WITH GRANT OPTION",
        "DROP USER 'root'@'localhost'",
    )
    file = workshop.write("users.sql", ";\n".join(statements) + ";\n")
    workshop.run([*_server(workshop), "--initialize-insecure", f"--init-file={file}", *_MYSQL_OPTIONS])
    _tidy(workshop.data)


def _server(workshop: _Workshop) -> list[str]:
    beside = workshop.data.parent
    files = [f"--socket={beside / 'socket'}", f"--pid-file={beside / 'pid'}", f"--tmpdir={beside}"]
    return [str(workshop.program), "--no-defaults", f"--datadir={workshop.data}", *files]


def _tidy(data: Path) -> None:
    """Take out what a server writes anew, and what must not be the same for two: MySQL's own id and keys."""
    for pattern in ("ib_buffer_pool", "ibtmp*", "auto.cnf", "*.pem", "*.err", "*.pid"):
        for path in data.glob(pattern):
            path.unlink()


# Where templates are made.


@dataclass(frozen=True)
class _Workshop:
    software: Software
    data: Path  # what becomes the template
    program: Path  # of the server, where the user may run it
    env: dict[str, str]
    user: dict[str, Any]  # as whom programs run, for subprocess

    def run(self, argv: Sequence[str], given: str = "") -> str:
        """Run a step to its end; return what it said, and raise ServerFailed where it failed."""
        try:
            done = subprocess.run(
                argv, input=given, env=self.env, cwd=self.data.parent, text=True, errors="replace", timeout=STEP_S,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **self.user,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServerFailed(f"cannot prepare {self.software.name}: {error}") from error
        if done.returncode != 0:
            said = " ".join(done.stdout.split())[-600:]
            raise ServerFailed(f"cannot prepare {self.software.name}: {Path(argv[0]).name} said: {said}")
        return str(done.stdout)

    def write(self, name: str, text: str) -> Path:
        """Write a file for the user alone."""
        path = self.data.parent / name
        path.write_text(text)
        path.chmod(0o600)
        if self.user:
            os.chown(path, self.user["user"], self.user["group"])
        return path


@contextmanager
def _workshop(software: Software) -> Iterator[_Workshop]:
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
        yield _Workshop(software, root / DATA, program, {"PATH": _PATH, "HOME": str(root), "TZ": "UTC"} | env, user)
    finally:
        folders.remove(root)


def _unprivileged() -> int:
    """Return a user who is not root and has a name, which PostgreSQL insists on."""
    try:
        return pwd.getpwnam("nobody").pw_uid
    except KeyError:
        return NOBODY


def _is_open(folder: Path) -> bool:
    """Tell whether every user may come to a folder: one under a private home is closed to others."""
    return all(path.stat().st_mode & stat.S_IXOTH for path in (folder, *folder.resolve().parents))
