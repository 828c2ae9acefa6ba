"""The real git client, and a platform with a git server that it pushes to."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.builders import make_member, make_org, make_token, make_user, session_for
from tests.core.http.live_server import LiveServer, live_platform

from moorage.accounts.identity.gate import IdentityGate
from moorage.accounts.identity.organizations.service import Organization
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.users import User
from moorage.app import App
from moorage.core.audit.service import Actor
from moorage.core.db.sqlite import SqliteDatabase
from moorage.core.db.store import Database
from moorage.core.http.dispatch import Mount
from moorage.core.telemetry import Telemetry
from moorage.products.repositories import service
from moorage.products.repositories.github import bindings
from moorage.products.repositories.github.bindings import Installed, Proof
from moorage.products.repositories.names import parse_name
from moorage.products.repositories.server.http import PREFIX, GitServer, Push
from moorage.products.repositories.service import RecordPush

PATIENCE_S = 20.0


@dataclass
class Listener:
    """Stub of the deployments after a push: prints some lines, and may be slowed down."""

    lines: list[str] = field(default_factory=list)
    pushes: list[Push] = field(default_factory=list)
    ended: list[Push] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)
    db: Database | None = None

    async def hear(self, push: Push, record_push: RecordPush) -> AsyncIterator[str]:
        assert self.db is not None
        if await self.db.write(record_push):
            self.pushes.append(push)
        for line in self.lines:
            yield line
        while not self.go_on.is_set():
            await asyncio.sleep(0.01)
        self.ended.append(push)


@dataclass
class Harbor:
    """A platform with a user."""

    server: LiveServer
    db: SqliteDatabase
    user: User
    org: Organization
    token: str
    listener: Listener

    def url(self, repository: str, *, token: str | None = None, port: int | None = None) -> str:
        return f"http://anybody:{token or self.token}@127.0.0.1:{port or self.server.port}/git/{repository}"

    def folder(self, repository: str) -> Path:
        """Return where a repository lies."""
        name = parse_name(repository)
        assert name is not None
        found = asyncio.run(self.db.read(lambda tx: service.get(tx, self.org.id, name)))
        return self.db.env.settings.folder("git") / f"{found.id}.git"

    @property
    def incoming(self) -> list[Path]:
        return list((self.db.env.settings.folder("git") / "incoming").iterdir())


def mount(app: App, db: Database, listener: Listener) -> GitServer:
    """Put a git server of the test's own into the application, in the place of any other."""
    listener.db = db
    server = GitServer(db, IdentityGate(app.products.identity.sessions), listener.hear, telemetry=Telemetry(quiet=True))
    app.asgi.mounts = (Mount(PREFIX, server.handle),)
    return server


@contextlib.contextmanager
def running_harbor(folder: Path, template: Path) -> Iterator[Harbor]:
    caps = {"git_push_mb": 1, "repository_mb": 2, "disk_reserve_mb": 0}
    with live_platform(folder, template, **caps) as platform:
        listener = Listener()
        git = mount(platform.app, platform.db, listener)
        user, org, token = asyncio.run(_somebody(platform.db))
        yield Harbor(platform.server, platform.db, user, org, token, listener)
        listener.go_on.set()
        asyncio.run_coroutine_threadsafe(git.close(), platform.server.loop).result(PATIENCE_S)


async def _somebody(db: Database) -> tuple[User, Organization, str]:
    user = await make_user(db)
    org = await make_org(db, user, name="Quay")
    return user, org, await make_token(db, user, org.id)


async def token_of(db: Database, org: Organization, role: Role) -> str:
    member = await make_member(db, org, role)
    return await make_token(db, member, org.id)


async def bind(db: Database, org: Organization, *, number: int = 99, login: str = "Secret") -> None:
    """Let an organization read through an installation, as if it had proved that the account is its own."""
    proof = Proof(Installed(login, number, is_suspended=False), prover="ada")
    await db.write(lambda tx: bindings.bind(tx, org.id, Actor(1, "Ada"), proof))


def session_of(db: Database, user: User) -> str:
    return session_for(db, user)


def basic(password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"anybody:{password}".encode()).decode()}


def environment(home: Path) -> dict[str, str]:
    """Environment of git, without the configuration of the user that runs the tests."""
    someone = {f"GIT_{role}_{what}": "Ada" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C.UTF-8",
        **someone,
    }


@dataclass(frozen=True)
class Checkout:
    """A clone of a repository, and the git that works in it."""

    folder: Path

    @classmethod
    def init(cls, folder: Path, branch: str = "main") -> Checkout:
        folder.mkdir(parents=True)
        made = cls(folder)
        made.git("init", "--quiet", f"--initial-branch={branch}")
        return made

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start git and the helpers that it starts, in a group of their own."""
        return subprocess.Popen(
            ["git", *words],
            cwd=self.folder,
            env=environment(self.folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def git(self, *words: str, stdin: bytes = b"", fails: bool = False) -> str:
        """Run git and return all that it says; it should succeed, or should not."""
        done = subprocess.run(
            ["git", *words],
            cwd=self.folder,
            env=environment(self.folder),
            input=stdin,
            capture_output=True,
            check=False,
        )
        said = (done.stdout + done.stderr).decode(errors="replace").strip()
        assert (done.returncode != 0) is fails, said
        return said

    def commit(self, message: str = "a change", **files: str | bytes) -> str:
        """Commit some files (`index_html` is `index.html`), and return the commit's id."""
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            (self.folder / name.replace("_", ".")).write_bytes(data)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", f"--message={message}")
        return self.git("rev-parse", "HEAD")

    def clone(self, url: str, to: Path, *words: str) -> Checkout:
        self.git("clone", "--quiet", *words, url, str(to))
        return Checkout(to)


def kill(client: subprocess.Popen[str]) -> None:
    """End a client and its helpers, as a machine that loses its power does."""
    os.killpg(client.pid, signal.SIGKILL)
    client.communicate()


def wait_for(is_so: Callable[[], bool]) -> None:
    """Return as soon as something is so."""
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until, "it never came to be"
        time.sleep(0.01)
