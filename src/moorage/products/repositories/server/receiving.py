"""Storing a push that has come whole, and what follows it.

Everything here runs beside the request that brought the push: a client that goes away takes nothing with it. A process
that dies takes nothing with it either: before git moves a branch, a job is added that does what follows. It is due when
its process has not postponed it for a minute, and withdrawn in the transaction in which the process itself does it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from moorage.core import jobs
from moorage.core.audit.service import Actor
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.request import size_text
from moorage.core.telemetry import Telemetry
from moorage.core.worker.run import Run
from moorage.errors import EngineError, RetryLater
from moorage.products.repositories import service
from moorage.products.repositories.git import TooSlow, stop
from moorage.products.repositories.server.pktline import BadPacket, Packets
from moorage.products.repositories.server.pushes import HEADS, PushRequest
from moorage.products.repositories.server.turns import Turns
from moorage.products.repositories.server.view import View
from moorage.products.repositories.service import FIRST_BRANCH, FollowPush, Push, Settle, Update
from moorage.products.repositories.storage import MB, Storage, size_of
from moorage.products.repositories.tables import Repository

RECEIVE_S = 600
LEASE_MS = 60_000
RENEW_S = 20.0
RETRY_S = 20.0  # git itself outlives our process, and may still be storing a push.
ATTEMPTS = 60
TIDY_S = 300
ASK_S = 30
_READ = 64 * 1024

OnPush = Callable[[Push, Settle], AsyncIterator[str]]


@dataclass(frozen=True, slots=True)
class Incoming:
    """A push that has come whole, and for which there is room."""

    repository: Repository
    path: Path
    actor: Actor
    request: PushRequest
    body: IO[bytes]


class Receiver:
    def __init__(self, db: Database, storage: Storage, turns: Turns, on_push: OnPush, telemetry: Telemetry) -> None:
        self._db = db
        self._storage = storage
        self._git = storage.git
        self._turns = turns
        self._on_push = on_push
        self._telemetry = telemetry
        self._tidying = asyncio.Semaphore(1)
        settings = db.env.settings
        self._config = {
            "receive.fsckObjects": "true",
            # Old tools wrote these, and nothing goes wrong with them.
            "receive.fsck.zeroPaddedFilemode": "ignore",
            "receive.fsck.badTimezone": "ignore",
            "receive.fsck.missingSpaceBeforeDate": "ignore",
            "receive.maxInputSize": str(settings.git_push_mb * MB),
            "receive.unpackLimit": "1",  # Kept as the packs they came in: small on disk, however much is in them.
            "receive.autogc": "false",
            "receive.keepAlive": "5",
        }

    @property
    def config(self) -> dict[str, str]:
        return self._config

    async def find_problem(self, path: Path, more_bytes: int) -> str | None:
        """Say why a push of this size cannot be stored, or None where there is room."""
        most = self._storage.most_bytes
        if await asyncio.to_thread(size_of, path) + more_bytes > most:
            await self.tidy(path, "--prune=1.hour.ago")
            if await asyncio.to_thread(size_of, path) + more_bytes > most:
                return f"The repository would be larger than {size_text(most)}, which is the most it may be"
        return None

    async def run(self, incoming: Incoming, view: View) -> None:
        """Store a push, do what follows, and let the client see it."""
        try:
            async with self._promise(incoming) as job_id:
                with incoming.body, self._turns.go_on(incoming.repository.org_id):
                    code = await self._receive(incoming, view)
                if code == 0:
                    await self._follow(incoming, view, job_id)
                else:
                    view.fail("The push could not be stored; is it one?")
        except (TooSlow, BadPacket) as error:
            self._telemetry.log.warning("a push failed", repository=incoming.repository.id, why=str(error))
            view.fail(f"The push was given up: {error}")
        except Exception as error:  # noqa: BLE001 - nobody waits for this task: the client and the log are told here
            self._telemetry.crashed(None, error, where="git")
            view.fail("Something went wrong on our side; push again")
        finally:
            view.end()
        await self.tidy(incoming.path, "--auto")

    async def follow(self, run: Run, payload: FollowPush) -> None:
        """Do what follows a push, where its process died after git had moved the branches."""
        stored = await run.read(partial(service.find_by_id, org_id=payload.org_id, repository_id=payload.repository_id))
        if stored is None:
            return
        path = self._storage.path(stored.id)
        heads = await self._heads(path) if path.exists() else {}
        updates = tuple(update for update in payload.updates if heads.get(update.branch) == update.new)
        if not updates:
            if run.db.env.clock.now() - run.job.created_at < RECEIVE_S * 1000:
                raise RetryLater(after_s=RETRY_S, why="no branch was moved so far")
            return
        push = Push(stored.org_id, str(stored.full_name), updates, payload.actor)
        note = await self._noted(stored, path, heads, push)

        def settle(tx: Tx) -> bool:
            run.end(tx)
            note(tx)
            return True

        async for _ in self._on_push(push, settle):
            break  # Nobody looks on: the first line comes when everything is started.

    async def tidy(self, path: Path, *words: str) -> None:
        """Let git pack what lies around; one repository at a time, since it takes memory and a core."""
        async with self._tidying:
            try:
                await self._git.run("gc", "--quiet", *words, cwd=path, within_s=TIDY_S)
            except (TooSlow, OSError) as error:  # The repository itself may be gone by now.
                self._telemetry.log.warning("a repository is not tidy", path=path.name, why=str(error))

    @contextlib.asynccontextmanager
    async def _promise(self, incoming: Incoming) -> AsyncIterator[int]:
        """Hold a job that does what follows the push, should this process die; it waits as long as this one lives."""
        wanted, stored = tuple(_wanted(incoming.request)), incoming.repository
        payload = FollowPush(stored.org_id, stored.id, wanted, incoming.actor)
        add = partial(jobs.add, payload=payload, delay_ms=LEASE_MS, max_attempts=ATTEMPTS)
        job_id = await self._db.write(add)
        assert job_id is not None
        renewing = asyncio.create_task(self._renew(job_id))
        try:
            yield job_id
        finally:
            renewing.cancel()

    async def _renew(self, job_id: int) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            await self._db.write(partial(jobs.postpone, job_id=job_id, delay_ms=LEASE_MS))

    async def _receive(self, incoming: Incoming, view: View) -> int:
        words = ("receive-pack", "--stateless-rpc", incoming.path)
        process = await self._git.start(*words, cwd=incoming.path, config=self._config, stdin=incoming.body)
        assert process.stdout is not None
        packets = Packets()
        try:
            async with asyncio.timeout(RECEIVE_S):
                while data := await process.stdout.read(_READ):
                    for raw in packets.feed(data):
                        view.show(raw)
                return await process.wait()
        except TimeoutError:
            raise TooSlow(f"it took longer than {RECEIVE_S // 60} minutes") from None
        finally:
            await stop(process)

    async def _follow(self, incoming: Incoming, view: View, job_id: int) -> None:
        """Note what is stored now and start what follows, in one transaction; then show that, line by line."""
        stored, path = incoming.repository, incoming.path
        heads = await self._heads(path)
        updates = tuple(_updates(incoming.request, heads))
        push = Push(stored.org_id, str(stored.full_name), updates, incoming.actor)
        note = await self._noted(stored, path, heads, push)

        def settle(tx: Tx) -> bool:
            if not jobs.withdraw(tx, job_id):
                return False
            note(tx)
            return True

        if updates:
            await self._tell(push, settle, view)
        else:
            await self._db.write(settle)

    async def _noted(self, stored: Repository, path: Path, heads: dict[str, str], push: Push) -> Callable[[Tx], None]:
        """Return the unit of work that notes what a push left behind."""
        return partial(
            service.finish_push,
            org_id=stored.org_id,
            repository=stored,
            push=push,
            size_bytes=await asyncio.to_thread(size_of, path),
            default_branch=await self._settle_head(path, heads, push.updates),
        )

    async def _tell(self, push: Push, settle: Settle, view: View) -> None:
        try:
            async for line in self._on_push(push, settle):
                view.say(line)
        except Exception as error:  # noqa: BLE001 - the push itself is stored, whatever its deployment meets
            self._telemetry.crashed(None, error, where="on_push")
            await self._db.write(settle)
            view.say("The push is stored, but what follows it went wrong on our side.")

    async def _heads(self, path: Path) -> dict[str, str]:
        """Return the branches and their commits. One whose name is not UTF-8 is kept, but nothing can follow it."""
        words = ("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads")
        done = await self._git.run(*words, cwd=path, within_s=ASK_S)
        heads = {}
        for line in done.out.split(b"\n"):
            with contextlib.suppress(UnicodeDecodeError):
                head, _, name = line.decode().partition(" ")
                heads[name.removeprefix(HEADS)] = head
        return {branch: head for branch, head in heads.items() if branch}

    async def _settle_head(self, path: Path, heads: dict[str, str], updates: tuple[Update, ...]) -> str:
        """Let HEAD name a branch that exists, so that a clone has something to check out; return it."""
        head = (path / "HEAD").read_text(errors="replace").strip().removeprefix(f"ref: {HEADS}")
        if head in heads or not heads:
            return head
        wanted = [FIRST_BRANCH, "master", *(update.branch for update in updates), *heads]
        chosen = next(branch for branch in wanted if branch in heads)
        done = await self._git.run("symbolic-ref", "HEAD", HEADS + chosen, cwd=path, within_s=ASK_S)
        if done.code != 0:
            raise EngineError(f"cannot set the head of {path.name}: {done.complaint}")
        return chosen


def _wanted(request: PushRequest) -> list[Update]:
    """Return the branches that a push wants to create or move. One whose name is not UTF-8 is not followed."""
    found = []
    for command in request.commands:
        branch = command.reference.removeprefix(HEADS)
        is_text = command.reference.isascii() or _is_utf8(command.reference)
        if is_text and not command.deletes and command.old != command.new and branch != command.reference:
            found.append(Update(branch, command.old, command.new))
    return found


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # It stands for bytes that are not.
        return False
    return True


def _updates(request: PushRequest, heads: dict[str, str]) -> list[Update]:
    """Return the requested updates of branches that the repository shows after the push."""
    return [update for update in _wanted(request) if heads.get(update.branch) == update.new]
