"""`moorage databases connect` and `moorage databases url`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qs, unquote, urlsplit

import typer

from moorage.cli.output.tables import JsonOption, show_json
from moorage.cli.output.terminal import note, plain, say, stop
from moorage.cli.session import connect as session
from moorage.cli.session.names import DatabaseArgument
from moorage.client.models import DatabaseDetail

POSTGRESQL = "postgresql"
PROGRAMS = {POSTGRESQL: ("psql",), "mysql": ("mariadb", "mysql")}
EXECUTE = {POSTGRESQL: "--command", "mysql": "--execute"}
INSTALL = {
    POSTGRESQL: "install psql (on Debian and Ubuntu: apt install postgresql-client)",
    "mysql": "install mariadb (on Debian and Ubuntu: apt install mariadb-client)",
}


@dataclass(frozen=True, slots=True)
class Login:
    """Address and credentials of a database."""

    type: str
    host: str
    port: int
    username: str
    password: str
    database: str
    needs_tls: bool


@dataclass(frozen=True, slots=True)
class Program:
    path: str
    env: dict[str, str]


def connect(
    name: DatabaseArgument,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]...", help="Arguments of psql or mariadb.")
    ] = None,
    sql: Annotated[str | None, typer.Option("--command", "-c", metavar="SQL", help="Run statements and exit.")] = None,
) -> None:
    """Open psql or mariadb on a database.

    Uses the program of this machine, or the one of the platform's database software where it is installed here. The
    password is passed in the environment (psql) or in a file that only you can read (mariadb), never as an argument.

    Examples: `moorage databases connect orders`, `moorage databases connect orders -c 'select version()'`.
    """
    client = session.client()
    database = client.databases.read(name)
    if database.status != "running":
        stop(f"{name} is {plain(database.status)} and accepts no connections")
    program = find_program(database.type)
    if program is None:
        note(f"its address, without the password: {plain(database.public_url or database.private_url)}")
        stop(f"there is no {PROGRAMS[database.type][0]} here; {INSTALL[database.type]}, or use another client")
    credentials = client.databases.read_password(name)
    address = credentials.public_url or credentials.private_url
    if not credentials.password or not address:
        stop(f"the platform does not show the password of {name}")
    login = _login(database, address, credentials.password)
    statements = [] if sql is None else [EXECUTE[database.type], sql]
    raise typer.Exit(run(program, login, [*(arguments or []), *statements]))


def find_program(kind: str) -> Program | None:
    """Return the client program of this machine, else the bundled one of the platform's database software."""
    for name in PROGRAMS[kind]:
        if (path := shutil.which(name)) is not None:
            return Program(path, {})
    from moorage.runtime.database_servers.software.catalog import SoftwareCatalog, shared_folder

    own = Path(os.environ.get("MOORAGE_DATA") or ".moorage").absolute() / "engines"
    installed = [each for each in SoftwareCatalog([own], shared_folder()).installed() if each.type == kind]
    for software in reversed(installed):  # the newest first
        for name in PROGRAMS[kind]:
            path = str(Path(software.tools) / name)
            if os.access(path, os.X_OK):
                env = {key: value.replace("{home}", software.home) for key, value in software.env.items()}
                return Program(path, env)
    return None


def _login(database: DatabaseDetail, url: str, password: str) -> Login:
    parts = urlsplit(url)
    options = {name.lower().replace("_", "-"): values[-1].lower() for name, values in parse_qs(parts.query).items()}
    return Login(
        type=database.type,
        host=parts.hostname or "127.0.0.1",
        port=parts.port or 0,
        username=unquote(parts.username or database.connection_details.username),
        password=password,
        database=unquote(parts.path.lstrip("/")) or database.connection_details.database,
        needs_tls="require" in (options.get("sslmode", ""), options.get("ssl-mode", "").removesuffix("d")),
    )


def run(program: Program, login: Login, arguments: list[str]) -> int:
    """Run the client program until its end and return its exit code."""
    address = ["--host", login.host, "--port", str(login.port)]
    if login.type == POSTGRESQL:
        argv = [program.path, *address, "--username", login.username, "--dbname", login.database, *arguments]
        env = {"PGPASSWORD": login.password, **({"PGSSLMODE": "require"} if login.needs_tls else {})}
        return _wait(argv, program.env | env)
    with _defaults_file(login) as path:
        tls = ["--ssl"] if login.needs_tls else []
        argv = [program.path, f"--defaults-extra-file={path}", *address, *tls, f"--database={login.database}"]
        return _wait([*argv, *arguments], program.env)


@contextmanager
def _defaults_file(login: Login) -> Iterator[str]:
    """Yield a file with the user and the password, readable for its owner only, while the program runs."""
    with tempfile.NamedTemporaryFile("w", prefix="moorage-", suffix=".cnf", encoding="utf-8") as file:  # mode 0600
        password = login.password.replace("\\", "\\\\").replace('"', '\\"')
        file.write(f'[client]\nuser="{login.username}"\npassword="{password}"\nprotocol=tcp\n')
        file.flush()
        yield file.name


def _wait(argv: list[str], env: dict[str, str]) -> int:
    """Run a program on the terminal. Ctrl-C reaches it directly, so this process goes on waiting."""
    before = signal.signal(signal.SIGINT, lambda *_: None)  # Unlike SIG_IGN, it is not inherited.
    try:
        return subprocess.run(argv, env={**os.environ, **env}, check=False, stdin=sys.stdin).returncode
    finally:
        signal.signal(signal.SIGINT, before)


def url(
    name: DatabaseArgument,
    reveals: Annotated[bool, typer.Option("--reveal", help="With the password; the activity feed records it.")] = False,
    private: Annotated[bool, typer.Option("--private", help="The address for apps of the platform.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the connection string of a database, without the password unless --reveal is given.

    Examples: `moorage databases url orders`, `export DATABASE_URL="$(moorage databases url orders --reveal)"`.
    """
    client = session.client()
    connection = client.databases.read_password(name) if reveals else client.databases.read_connection_strings(name)
    if as_json:
        show_json(connection)
        return
    chosen = connection.private_url if private else connection.public_url or connection.private_url
    if not chosen:
        stop(f"{name} has no address yet; `moorage databases show {name}` shows its state")
    say(plain(chosen))
