"""The built-in git server: smart HTTP below `/git/<owner>/<repo>.git`, spoken by the system's git.

A request passes the same gate as every other one, with the token as its password. What a client sends is stored
before git sees it, so that a push either comes whole or changes nothing; what git answers is passed on as it comes.
Errors are plain text, which git shows to the person in front of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from moorage.accounts.identity import tokens
from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.gate import IdentityGate
from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.roles import Role
from moorage.core import disk
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.answer import STATUS, Answer, Headers, Stream, plain_text
from moorage.core.http.dispatch import Ask
from moorage.core.http.request import BodyTooLarge, Request, size_text
from moorage.core.http.route import Route, Scope, declare
from moorage.core.kit.children import Child
from moorage.core.telemetry import Telemetry
from moorage.core.worker.run import Handlers
from moorage.errors import BadRequest, DiskFull, Forbidden, MoorageError, NotFound, Unauthorized
from moorage.products.repositories import service
from moorage.products.repositories.git import TooSlow, stop
from moorage.products.repositories.names import Name, parse_name
from moorage.products.repositories.server import bodies, pushes
from moorage.products.repositories.server.pktline import FLUSH, packet
from moorage.products.repositories.server.receiving import Incoming, OnPush, Receiver
from moorage.products.repositories.server.turns import Turns
from moorage.products.repositories.server.view import View
from moorage.products.repositories.service import FollowPush
from moorage.products.repositories.service import Push as Push
from moorage.products.repositories.service import Update as Update
from moorage.products.repositories.storage import MB, Storage
from moorage.products.repositories.tables import Repository

PREFIX = "/git/"
MOST_ASKED = 16 * MB  # what a client that fetches may say it has and wants
ADVERTISE_S = 60
SEND_S = 3600
STOP_S = 3.0
_READ = 64 * 1024
_PATH = re.compile(r"/git/([^/]+/[^/]+)/(info/refs|git-upload-pack|git-receive-pack)")
_PROTOCOL = re.compile(r"[a-z0-9=.:-]{1,100}")
_SERVICES = ("git-upload-pack", "git-receive-pack")
_ASK_FOR_PASSWORD: Headers = [(b"www-authenticate", b'Basic realm="Moorage"')]


def _git_request() -> None:
    """What the gate sees of a git request."""


_READS: Route = declare("GET", PREFIX, _git_request, tag="Git", scope=Scope.ORG)
_WRITES: Route = declare("POST", PREFIX, _git_request, tag="Git", scope=Scope.ORG, floor=Role.MEMBER)


@dataclass(frozen=True, slots=True)
class Asked:
    """A git request, once its path is understood."""

    request: Request
    name: Name
    service: str  # `git-upload-pack` or `git-receive-pack`

    @property
    def writes(self) -> bool:
        return self.service == "git-receive-pack"

    @property
    def environment(self) -> dict[str, str]:
        """The version of the protocol that the client offers. Pushes know one version only."""
        offered = self.request.header(b"git-protocol") or ""
        return {"GIT_PROTOCOL": offered} if _PROTOCOL.fullmatch(offered) and not self.writes else {}

    @property
    def speaks_version_2(self) -> bool:
        return "version=2" in self.environment.get("GIT_PROTOCOL", "").split(":")


class GitServer:
    def __init__(
        self, db: Database, gate: IdentityGate, on_push: OnPush, *, telemetry: Telemetry | None = None
    ) -> None:
        self._db = db
        self._gate = gate
        self._storage = Storage(db.env.settings)
        self._turns = Turns()
        self._receiver = Receiver(db, self._storage, self._turns, on_push, telemetry or Telemetry(quiet=True))
        self._push_bytes = db.env.settings.git_push_mb * MB
        self._pushes: set[asyncio.Task[None]] = set()

    async def handle(self, request: Request) -> Answer | Stream | None:
        """Answer a git request; None where there is nothing at the path."""
        found = _PATH.fullmatch(request.path)
        if found is None or request.method != ("GET" if found[2] == "info/refs" else "POST"):
            return None
        try:
            return await self._answer(_asked(request, found[1], found[2]), advertise=found[2] == "info/refs")
        except MoorageError as error:
            return _refusal(error)
        except OSError as error:
            if not disk.is_full(error):
                raise
            return _refusal(DiskFull())

    def register(self, handlers: Handlers) -> None:
        handlers.add(FollowPush, self._receiver.follow)

    async def close(self) -> None:
        """Let pushes that are being stored come to their end, but do not wait long for what follows them."""
        if self._pushes:
            await asyncio.wait(self._pushes, timeout=STOP_S)
        for task in self._pushes:
            task.cancel()
        await asyncio.gather(*self._pushes, return_exceptions=True)

    async def _answer(self, asked: Asked, *, advertise: bool) -> Answer | Stream:
        if asked.request.token is None:
            raise Unauthorized("Give an API token or a session token as the password; any user name will do")
        caller, repository = await self._db.peek(partial(self._admit, asked=asked))
        asked.request.caller = caller
        self._storage.prepare()
        if advertise:
            with self._turns.take(caller.org_id):
                return await self._advertise(asked, repository)
        if asked.request.media_type != f"application/x-{asked.service}-request":
            raise BadRequest(f"The body should be application/x-{asked.service}-request")
        if asked.writes:
            return await self._receive(asked, caller)
        assert repository is not None
        return await self._send(asked, repository)

    @across_organizations("who the caller is decides which organization it is")
    def _admit(self, tx: Tx, asked: Asked) -> tuple[Caller, Repository | None]:
        """Return the caller and the repository, which is None only for a push that would make it."""
        caller = self._pass_gate(tx, asked)
        find = service.find_to_push if asked.writes else service.get
        return caller, find(tx, caller.org_id, asked.name)

    @across_organizations("who the caller is decides which organization it is")
    def _pass_gate(self, tx: Tx, asked: Asked) -> Caller:
        """An API token says which organization it is; for a session it is the owner's, else the caller's only one."""
        route, token = _WRITES if asked.writes else _READS, asked.request.token
        assert token is not None
        ask = Ask(token, None, None, asked.request.client, asked.request.count_request)
        if token.startswith(tokens.PREFIXES):
            return self._gate.admit(tx, route, ask)
        named = orgs.find_by_slug(tx, asked.name.owner.lower())
        if named is not None:
            with contextlib.suppress(NotFound):
                return self._gate.admit(tx, route, ask._replace(organization=str(named.id)))
        try:
            return self._gate.admit(tx, route, ask)
        except BadRequest:
            raise Forbidden(
                "It is not clear which organization you mean: use the slug of one as the owner, or an API token"
            ) from None

    async def _advertise(self, asked: Asked, repository: Repository | None) -> Answer:
        """Say which references there are; of a repository that the push will make, none."""
        if asked.writes:
            self._storage.check_room()
        path = await self._find_folder(repository)
        words = (asked.service.removeprefix("git-"), "--stateless-rpc", "--advertise-refs", path)
        try:
            done = await self._storage.git.run(
                *words,
                cwd=path,
                within_s=ADVERTISE_S,
                config=self._receiver.config if asked.writes else None,
                environment=asked.environment,
            )
        except TooSlow as error:
            return plain_text(f"The repository cannot be read now: {error}", 503)
        if done.code != 0:
            return plain_text("The repository cannot be read now; try again", 503)
        head = b"" if asked.speaks_version_2 else packet(f"# service={asked.service}\n".encode()) + FLUSH
        return Answer(200, head + done.out, [_content_type(f"{asked.service}-advertisement")])

    async def _find_folder(self, repository: Repository | None) -> Path:
        if repository is None or not self._storage.path(repository.id).exists():
            return await self._storage.blank()
        return self._storage.path(repository.id)

    async def _send(self, asked: Asked, repository: Repository) -> Stream:
        body = tempfile.TemporaryFile(dir=self._storage.incoming)  # noqa: SIM115 - closed when it is sent, or collected
        with self._turns.take(repository.org_id):
            if not await bodies.store(asked.request, body, MOST_ASKED, self._storage.check_room):
                raise BadRequest(f"The body is larger than {size_text(MOST_ASKED)}")
            path = await self._find_folder(repository)
        sent = self._sent(repository.org_id, path, body, asked.environment)
        return Stream(sent, [_content_type(f"{asked.service}-result")])

    async def _sent(
        self, org_id: int, path: Path, body: IO[bytes], environment: dict[str, str]
    ) -> AsyncIterator[bytes]:
        """Yield what git sends for a fetch; a client that goes away ends it."""
        words = ("upload-pack", "--strict", "--stateless-rpc", path)
        with self._turns.go_on(org_id), body:
            os.lseek(body.fileno(), 0, os.SEEK_SET)  # Python's own seek may move within its buffer only.
            process = await self._storage.git.start(*words, cwd=path, environment=environment, stdin=body)
            assert process.stdout is not None
            late = asyncio.get_running_loop().call_later(SEND_S, _end, process)
            try:
                while chunk := await process.stdout.read(_READ):
                    yield chunk
            finally:
                late.cancel()
                await stop(process)

    async def _receive(self, asked: Asked, caller: Caller) -> Answer | Stream:
        self._storage.check_room()
        kind = _content_type(f"{asked.service}-result")
        body = tempfile.TemporaryFile(dir=self._storage.incoming)  # noqa: SIM115 - the push that it becomes closes it
        kept = False
        try:
            with self._turns.take(caller.org_id):
                fits = await bodies.store(asked.request, body, self._push_bytes, self._storage.check_room)
                request = pushes.read(body)
                if not request.commands:
                    return Answer(200, b"", [kind])  # A client asks like this whether it may send something large.
                if not fits:
                    why = f"The push is larger than {size_text(self._push_bytes)}, which is the most that one may be"
                    return Answer(200, pushes.refusal(request, why, "too large"), [kind])
                incoming = await self._begin(asked, caller, request, body)
            if isinstance(incoming, str):
                return Answer(200, pushes.refusal(request, incoming, "no room"), [kind])
            kept = True
            return Stream(self._follow(incoming), [kind])
        finally:
            if not kept:
                body.close()

    async def _begin(
        self, asked: Asked, caller: Caller, request: pushes.PushRequest, body: IO[bytes]
    ) -> Incoming | str:
        """Make the repository where it is new; return the push, or why it cannot be stored."""
        size = os.fstat(body.fileno()).st_size
        self._storage.check_room(size)
        begin = partial(service.begin_push, org_id=caller.org_id, name=asked.name, actor=caller.as_actor)
        repository = await self._db.write(begin)
        path = await self._storage.ensure(repository.id)
        problem = await self._receiver.find_problem(path, size)
        if problem is not None:
            return problem
        os.lseek(body.fileno(), 0, os.SEEK_SET)  # Python's own seek may move within its buffer only.
        return Incoming(repository, path, caller.as_actor, request, body)

    def _follow(self, incoming: Incoming) -> AsyncIterator[bytes]:
        """Store a push beside the request, and return what its client sees of that."""
        view = View(incoming.request.room)
        task = asyncio.get_running_loop().create_task(self._receiver.run(incoming, view))
        self._pushes.add(task)
        task.add_done_callback(self._pushes.discard)
        return view.chunks()


def _asked(request: Request, path: str, action: str) -> Asked:
    """Return what a request asks for; raises where no such repository or service can be."""
    name = parse_name(path)
    if name is None:
        raise NotFound(f"{path[:200]!r} is no name of a repository: use letters, digits, '.', '_' and '-'")
    wanted = request.from_query("service") if action == "info/refs" else action
    if wanted not in _SERVICES:
        raise Forbidden("This server speaks git's smart protocol only; use a newer git")
    return Asked(request, name, wanted)


def _refusal(error: MoorageError) -> Answer:
    """Return an error as git shows it best."""
    status = 413 if isinstance(error, BodyTooLarge) else STATUS[error.code]
    return plain_text(error.message, status, _ASK_FOR_PASSWORD if isinstance(error, Unauthorized) else None)


def _content_type(kind: str) -> tuple[bytes, bytes]:
    return b"content-type", f"application/x-{kind}".encode()


def _end(process: Child) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
