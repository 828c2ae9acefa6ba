"""Built-in git server: smart HTTP at `/git/<owner>/<repo>.git`.

The system's git does the work. Requests are authorized like API requests, with the token as the password. A request
body is stored completely before git reads it, so that an interrupted push changes nothing; git's output is streamed.
Errors are plain text, which git clients print.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import IO

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.gate import IdentityGate
from moorage.accounts.identity.roles import Role
from moorage.core import disk
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.answer import STATUS, Answer, Headers, Stream, plain_text
from moorage.core.http.dispatch import AccessRequest
from moorage.core.http.relay import Relay
from moorage.core.http.request import BodyTooLarge, Request
from moorage.core.http.route import Route, Scope, declare
from moorage.core.kit.processes.children import Child
from moorage.core.kit.records import dataclass
from moorage.core.kit.texts import size_text
from moorage.core.machines import placement
from moorage.core.machines import service as machines
from moorage.core.telemetry import Telemetry
from moorage.core.worker.run import Handlers
from moorage.errors import BadRequest, DiskFull, Forbidden, MoorageError, NotFound, Unauthorized
from moorage.products.repositories import machine_tokens, service
from moorage.products.repositories.git import TooSlow, stop
from moorage.products.repositories.names import Name, parse_name
from moorage.products.repositories.server import bodies, pushes
from moorage.products.repositories.server.pktline import FLUSH, packet
from moorage.products.repositories.server.receiving import Incoming, OnPush, Receiver
from moorage.products.repositories.server.transfer_slots import TransferSlots
from moorage.products.repositories.server.view import View
from moorage.products.repositories.service import FollowPush
from moorage.products.repositories.service import Push as Push
from moorage.products.repositories.service import Update as Update
from moorage.products.repositories.storage import MB, Storage
from moorage.products.repositories.tables import Repository

PREFIX = "/git/"
DEPLOY_HEADER = b"x-moorage-deploy"  # `none`: store the push, and let the client start the deployment
MAX_FETCH_REQUEST_BYTES = 16 * MB  # the list of commits that a client has and wants
ADVERTISE_TIMEOUT_S = 60
FETCH_TIMEOUT_S = 3600
SHUTDOWN_GRACE_S = 3.0
_READ_BYTES = 64 * 1024
_PATH = re.compile(r"/git/([^/]+/[^/]+)/(info/refs|git-upload-pack|git-receive-pack)")
_PROTOCOL = re.compile(r"[a-z0-9=.:-]{1,100}")
_SERVICES = ("git-upload-pack", "git-receive-pack")
_BASIC_CHALLENGE: Headers = [(b"www-authenticate", b'Basic realm="Moorage"')]


def _git_request() -> None:
    """Handler of the routes that the gate checks git requests against; never called."""


_READS: Route = declare("GET", PREFIX, _git_request, tag="Git", scope=Scope.ORG)
_WRITES: Route = declare("POST", PREFIX, _git_request, tag="Git", scope=Scope.ORG, min_role=Role.MEMBER)


@dataclass(frozen=True, slots=True)
class GitRequest:
    """Git request with its parsed path."""

    request: Request
    name: Name
    service: str  # `git-upload-pack` or `git-receive-pack`

    @property
    def writes(self) -> bool:
        return self.service == "git-receive-pack"

    @property
    def environment(self) -> dict[str, str]:
        """Protocol version that the client offers; pushes have one version only."""
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
        self._slots = TransferSlots()
        self._receiver = Receiver(db, self._storage, self._slots, on_push, telemetry or Telemetry(quiet=True))
        self._push_bytes = db.env.settings.git_push_mb * MB
        self._pushes: set[asyncio.Task[None]] = set()
        self.relay: Relay | None = None  # to other machines; None where the store has one

    async def handle(self, request: Request) -> Answer | Stream | None:
        """Answer a git request; None for a path that is not of this server."""
        match = _PATH.fullmatch(request.path)
        if match is None or request.method != ("GET" if match[2] == "info/refs" else "POST"):
            return None
        try:
            return await self._answer(_parse(request, match[1], match[2]), advertise=match[2] == "info/refs")
        except MoorageError as error:
            return _refusal(error)
        except OSError as error:
            if not disk.is_full(error):
                raise
            return _refusal(DiskFull())

    def register(self, handlers: Handlers) -> None:
        handlers.add(FollowPush, self._receiver.follow)

    async def close(self) -> None:
        """Give open pushes a few seconds to finish, then cancel them."""
        if self._pushes:
            await asyncio.wait(self._pushes, timeout=SHUTDOWN_GRACE_S)
        for task in self._pushes:
            task.cancel()
        await asyncio.gather(*self._pushes, return_exceptions=True)

    async def _answer(self, git_request: GitRequest, *, advertise: bool) -> Answer | Stream:
        if git_request.request.token is None:
            raise Unauthorized("Give an API token or a session token as the password; any user name will do")
        caller, repository = await self._db.peek(partial(self._admit, git_request=git_request))
        git_request.request.caller = caller
        if self.relay is not None and (elsewhere := await self._find_owner(repository)) is not None:
            most = self._push_bytes * bodies.READ_LIMIT_FACTOR if git_request.writes else MAX_FETCH_REQUEST_BYTES
            return await self.relay.send(git_request.request, elsewhere, most_bytes=most)
        self._storage.prepare()
        if advertise:
            with self._slots.take(caller.org_id):
                return await self._advertise(git_request, repository)
        if git_request.request.media_type != f"application/x-{git_request.service}-request":
            raise BadRequest(f"The body should be application/x-{git_request.service}-request")
        if git_request.writes:
            return await self._receive(git_request, caller)
        assert repository is not None
        return await self._send(git_request, repository)

    async def _find_owner(self, repository: Repository | None) -> int | None:
        """Return the other machine that has a repository, or gets a new one; None for this machine."""
        if not self._db.env.settings.uses_postgres:
            return None
        mine = self._db.env.machine.id
        if repository is not None:
            return repository.machine_id if repository.machine_id not in (mine, machines.UNOWNED) else None
        # An API process without a machine of its own stores no repositories.
        return None if mine else (await self._db.read(lambda tx: placement.choose(tx, 0))) or None

    @across_organizations("the caller's credential identifies the organization")
    def _admit(self, tx: Tx, git_request: GitRequest) -> tuple[Caller, Repository | None]:
        """Return the caller and the repository; None for a push that creates it."""
        token = git_request.request.token or ""
        if token.startswith(machine_tokens.PREFIX):
            return self._admit_machine(tx, git_request, token)
        caller = self._pass_gate(tx, git_request)
        find = service.find_to_push if git_request.writes else service.get
        return caller, find(tx, caller.org_id, git_request.name)

    @across_organizations("the caller's credential identifies the organization")
    def _admit_machine(self, tx: Tx, git_request: GitRequest, token: str) -> tuple[Caller, Repository]:
        """Let a worker of another machine read the one repository of its token."""
        grant = machine_tokens.read(tx.env, token)
        repository = None if grant is None else service.find(tx, grant.org_id, git_request.name)
        if grant is None or repository is None or repository.id != grant.repository_id or git_request.writes:
            raise Unauthorized("The token of this machine is not valid; do all machines have the same keys?")
        return Caller(0, "", "Moorage", None, grant.org_id, Role.VIEWER, None), repository

    @across_organizations("the caller's credential identifies the organization")
    def _pass_gate(self, tx: Tx, git_request: GitRequest) -> Caller:
        """Authorize a request and return its caller."""
        route, token = _WRITES if git_request.writes else _READS, git_request.request.token
        assert token is not None
        ask = AccessRequest(token, None, None, git_request.request.client, git_request.request.count_request)
        return self._gate.admit_to(tx, route, ask, git_request.name.owner)

    async def _advertise(self, git_request: GitRequest, repository: Repository | None) -> Answer:
        """List the references; a repository that the push will create has none."""
        if git_request.writes:
            self._storage.check_room()
        path = await self._find_folder(repository)
        words = (git_request.service.removeprefix("git-"), "--stateless-rpc", "--advertise-refs", path)
        try:
            done = await self._storage.git.run(
                *words,
                cwd=path,
                within_s=ADVERTISE_TIMEOUT_S,
                config=self._receiver.config if git_request.writes else None,
                environment=git_request.environment,
            )
        except TooSlow as error:
            return plain_text(f"The repository cannot be read now: {error}", 503)
        if done.code != 0:
            return plain_text("The repository cannot be read now; try again", 503)
        head = b"" if git_request.speaks_version_2 else packet(f"# service={git_request.service}\n".encode()) + FLUSH
        return Answer(200, head + done.out, [_content_type(f"{git_request.service}-advertisement")])

    async def _find_folder(self, repository: Repository | None) -> Path:
        if repository is None or not self._storage.path(repository.id).exists():
            return await self._storage.blank()
        return self._storage.path(repository.id)

    async def _send(self, git_request: GitRequest, repository: Repository) -> Stream:
        body = tempfile.TemporaryFile(dir=self._storage.incoming)  # noqa: SIM115 - closed when it is sent, or collected
        with self._slots.take(repository.org_id):
            if not await bodies.store(git_request.request, body, MAX_FETCH_REQUEST_BYTES, self._storage.check_room):
                raise BadRequest(f"The body is larger than {size_text(MAX_FETCH_REQUEST_BYTES)}")
            path = await self._find_folder(repository)
        chunks = self._run_upload_pack(repository.org_id, path, body, git_request.environment)
        return Stream(chunks, [_content_type(f"{git_request.service}-result")])

    async def _run_upload_pack(
        self, org_id: int, path: Path, body: IO[bytes], environment: dict[str, str]
    ) -> AsyncIterator[bytes]:
        """Yield git's output for a fetch; git is killed when the client disconnects."""
        words = ("upload-pack", "--strict", "--stateless-rpc", path)
        with self._slots.hold(org_id), body:
            os.lseek(body.fileno(), 0, os.SEEK_SET)  # Python's own seek may move within its buffer only.
            process = await self._storage.git.start(*words, cwd=path, environment=environment, stdin=body)
            assert process.stdout is not None
            timer = asyncio.get_running_loop().call_later(FETCH_TIMEOUT_S, _terminate, process)
            try:
                while chunk := await process.stdout.read(_READ_BYTES):
                    yield chunk
            finally:
                timer.cancel()
                await stop(process)

    async def _receive(self, git_request: GitRequest, caller: Caller) -> Answer | Stream:
        self._storage.check_room()
        kind = _content_type(f"{git_request.service}-result")
        body = tempfile.TemporaryFile(dir=self._storage.incoming)  # noqa: SIM115 - the push that it becomes closes it
        kept = False
        try:
            with self._slots.take(caller.org_id):
                fits = await bodies.store(git_request.request, body, self._push_bytes, self._storage.check_room)
                request = await asyncio.to_thread(pushes.read, body)
                if not request.commands:
                    return Answer(200, b"", [kind])  # Clients probe with an empty request before a large push.
                if not fits:
                    why = f"The push is larger than {size_text(self._push_bytes)}, which is the most that one may be"
                    return Answer(200, pushes.refusal(request, why, "too large"), [kind])
                incoming = await self._begin(git_request, caller, request, body)
            if isinstance(incoming, str):
                return Answer(200, pushes.refusal(request, incoming, "no room"), [kind])
            kept = True
            return Stream(self._follow(incoming), [kind])
        finally:
            if not kept:
                body.close()

    async def _begin(
        self, git_request: GitRequest, caller: Caller, request: pushes.PushRequest, body: IO[bytes]
    ) -> Incoming | str:
        """Create the repository if needed; return the push, or why it cannot be stored."""
        size = os.fstat(body.fileno()).st_size
        self._storage.check_room(size)
        begin = partial(service.begin_push, org_id=caller.org_id, name=git_request.name, actor=caller.as_actor)
        repository = await self._db.write(begin)
        path = await self._storage.ensure(repository.id)
        problem = await self._receiver.find_problem(path, size)
        if problem is not None:
            return problem
        os.lseek(body.fileno(), 0, os.SEEK_SET)  # Python's own seek may move within its buffer only.
        deploys = (git_request.request.header(DEPLOY_HEADER) or "").strip().lower() != "none"
        return Incoming(repository, path, caller.as_actor, request, body, deploys)

    def _follow(self, incoming: Incoming) -> AsyncIterator[bytes]:
        """Store a push in its own task, and return the output for its client."""
        view = View(incoming.request.room)
        task = asyncio.get_running_loop().create_task(self._receiver.run(incoming, view))
        self._pushes.add(task)
        task.add_done_callback(self._pushes.discard)
        return view.chunks()


def _parse(request: Request, path: str, action: str) -> GitRequest:
    """Parse a git request; raises NotFound and Forbidden."""
    name = parse_name(path)
    if name is None:
        raise NotFound(f"{path[:200]!r} is not a name of a repository: use letters, digits, '.', '_' and '-'")
    requested = request.from_query("service") if action == "info/refs" else action
    if requested not in _SERVICES:
        raise Forbidden("This server speaks git's smart protocol only; use a newer git")
    return GitRequest(request, name, requested)


def _refusal(error: MoorageError) -> Answer:
    status = 413 if isinstance(error, BodyTooLarge) else STATUS[error.code]
    return plain_text(error.message, status, _BASIC_CHALLENGE if isinstance(error, Unauthorized) else None)


def _content_type(kind: str) -> tuple[bytes, bytes]:
    return b"content-type", f"application/x-{kind}".encode()


def _terminate(process: Child) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
