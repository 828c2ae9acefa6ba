"""Store a push that was received completely, and start its deployments.

A push runs in its own task, so that it continues when the client disconnects. To survive a crash of the process, a job
that starts the deployments is added before git moves a branch. The process postpones the job while it lives, so it runs
a minute after a crash, and withdraws it in the transaction that starts the deployments.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import IO

from moorage.core import jobs
from moorage.core.audit.service import Actor
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.records import dataclass
from moorage.core.kit.texts import size_text
from moorage.core.telemetry import Telemetry
from moorage.core.worker.run import Run
from moorage.errors import EngineError, RetryLater
from moorage.products.repositories import service
from moorage.products.repositories.git import TooSlow, stop
from moorage.products.repositories.server.pktline import BadPacket, Packets
from moorage.products.repositories.server.pushes import HEADS, PushRequest
from moorage.products.repositories.server.transfer_slots import TransferSlots
from moorage.products.repositories.server.view import View
from moorage.products.repositories.service import FIRST_BRANCH, FollowPush, Push, RecordPush, Update
from moorage.products.repositories.storage import MB, Storage, size_of
from moorage.products.repositories.tables import Repository

RECEIVE_TIMEOUT_S = 600
FOLLOW_DELAY_MS = 60_000
POSTPONE_INTERVAL_S = 20.0
FOLLOW_RETRY_S = 20.0  # git outlives the control process, so it may still be storing a push
MAX_FOLLOW_ATTEMPTS = 60
GC_TIMEOUT_S = 300
READ_TIMEOUT_S = 30
_READ_BYTES = 64 * 1024

OnPush = Callable[[Push, RecordPush], AsyncIterator[str]]


@dataclass(frozen=True, slots=True)
class Incoming:
    """Completely received push that fits on the disk."""

    repository: Repository
    path: Path
    actor: Actor
    request: PushRequest
    body: IO[bytes]
    deploys: bool = True


class Receiver:
    def __init__(
        self, db: Database, storage: Storage, slots: TransferSlots, on_push: OnPush, telemetry: Telemetry
    ) -> None:
        self._db = db
        self._storage = storage
        self._git = storage.git
        self._slots = slots
        self._on_push = on_push
        self._telemetry = telemetry
        self._gc_slot = asyncio.Semaphore(1)
        settings = db.env.settings
        self._config = {
            "receive.fsckObjects": "true",
            # Written by old tools, and harmless.
            "receive.fsck.zeroPaddedFilemode": "ignore",
            "receive.fsck.badTimezone": "ignore",
            "receive.fsck.missingSpaceBeforeDate": "ignore",
            "receive.maxInputSize": str(settings.git_push_mb * MB),
            "receive.unpackLimit": "1",  # Keeps each push as a pack, which is small on disk.
            "receive.autogc": "false",
            "receive.keepAlive": "5",
        }

    @property
    def config(self) -> dict[str, str]:
        return self._config

    async def find_problem(self, path: Path, more_bytes: int) -> str | None:
        """Return why a push of this size cannot be stored, or None."""
        limit = self._storage.most_bytes
        if await asyncio.to_thread(size_of, path) + more_bytes > limit:
            await self.collect_garbage(path, "--prune=1.hour.ago")
            if await asyncio.to_thread(size_of, path) + more_bytes > limit:
                return f"The repository would be larger than {size_text(limit)}, which is the most it may be"
        return None

    async def run(self, incoming: Incoming, view: View) -> None:
        """Store a push, start its deployments, and show both to the client."""
        try:
            async with self._recovery_job(incoming) as job_id:
                with incoming.body, self._slots.hold(incoming.repository.org_id):
                    code = await self._receive(incoming, view)
                if code == 0:
                    await self._follow(incoming, view, job_id)
                else:
                    view.fail("The push could not be stored: git rejected it")
        except (TooSlow, BadPacket) as error:
            self._telemetry.log.warning("a push failed", repository=incoming.repository.id, why=str(error))
            view.fail(f"The push was stopped: {error}")
        except Exception as error:  # noqa: BLE001 - no caller awaits this task: report to the client and the log here
            self._telemetry.crashed(None, error, where="git")
            view.fail("Something went wrong on our side; push again")
        finally:
            view.end()
        await self.collect_garbage(incoming.path, "--auto")

    async def follow(self, run: Run, payload: FollowPush) -> None:
        """Start the deployments of a push after a crash of its process."""
        find = partial(service.find_by_id, org_id=payload.org_id, repository_id=payload.repository_id)
        repository = await run.read(find)
        if repository is None:
            return
        path = self._storage.path(repository.id)
        heads = await self._heads(path) if path.exists() else {}
        updates = tuple(update for update in payload.updates if heads.get(update.branch) == update.new)
        if not updates:
            if run.db.env.clock.now() - run.job.created_at < RECEIVE_TIMEOUT_S * 1000:
                raise RetryLater(after_s=FOLLOW_RETRY_S, why="no branch was moved so far")
            return
        push = Push(repository.org_id, str(repository.full_name), updates, payload.actor, payload.deploys)
        record = await self._recorder(repository, path, heads, push)

        def record_push(tx: Tx) -> bool:
            run.end(tx)
            record(tx)
            return True

        async for _ in self._on_push(push, record_push):
            break  # The first line comes after the deployments were started; no client reads the others.

    async def collect_garbage(self, path: Path, *words: str) -> None:
        """Run `git gc`; one repository at a time, because it takes memory and a core."""
        async with self._gc_slot:
            try:
                await self._git.run("gc", "--quiet", *words, cwd=path, within_s=GC_TIMEOUT_S)
            except (TooSlow, OSError) as error:  # The repository may be deleted by now.
                self._telemetry.log.warning("git gc failed", path=path.name, why=str(error))

    @contextlib.asynccontextmanager
    async def _recovery_job(self, incoming: Incoming) -> AsyncIterator[int]:
        """Add the job that continues the push after a crash, and postpone it meanwhile."""
        repository = incoming.repository
        updates = tuple(_requested_updates(incoming.request))
        payload = FollowPush(repository.org_id, repository.id, updates, incoming.actor, incoming.deploys)
        add = partial(
            jobs.add,
            payload=payload,
            delay_ms=FOLLOW_DELAY_MS,
            max_attempts=MAX_FOLLOW_ATTEMPTS,
            machine_id=repository.machine_id or None,
        )
        job_id = await self._db.write(add)
        assert job_id is not None
        postponing = asyncio.create_task(self._postpone(job_id))
        try:
            yield job_id
        finally:
            postponing.cancel()

    async def _postpone(self, job_id: int) -> None:
        while True:
            await asyncio.sleep(POSTPONE_INTERVAL_S)
            await self._db.write(partial(jobs.postpone, job_id=job_id, delay_ms=FOLLOW_DELAY_MS))

    async def _receive(self, incoming: Incoming, view: View) -> int:
        words = ("receive-pack", "--stateless-rpc", incoming.path)
        process = await self._git.start(*words, cwd=incoming.path, config=self._config, stdin=incoming.body)
        assert process.stdout is not None
        packets = Packets()
        try:
            async with asyncio.timeout(RECEIVE_TIMEOUT_S):
                while data := await process.stdout.read(_READ_BYTES):
                    for raw in packets.feed(data):
                        view.show(raw)
                return await process.wait()
        except TimeoutError:
            raise TooSlow(f"it took longer than {RECEIVE_TIMEOUT_S // 60} minutes") from None
        finally:
            await stop(process)

    async def _follow(self, incoming: Incoming, view: View, job_id: int) -> None:
        """Record the push and start its deployments in one transaction; show their lines."""
        repository, path = incoming.repository, incoming.path
        heads = await self._heads(path)
        updates = tuple(_updates(incoming.request, heads))
        push = Push(repository.org_id, str(repository.full_name), updates, incoming.actor, incoming.deploys)
        record = await self._recorder(repository, path, heads, push)

        def record_push(tx: Tx) -> bool:
            if not jobs.withdraw(tx, job_id):
                return False
            record(tx)
            return True

        if updates:
            await self._start_deployments(push, record_push, view)
        else:
            await self._db.write(record_push)

    async def _recorder(
        self, repository: Repository, path: Path, heads: dict[str, str], push: Push
    ) -> Callable[[Tx], None]:
        """Return the unit of work that records the state of the repository after a push."""
        return partial(
            service.finish_push,
            org_id=repository.org_id,
            repository=repository,
            push=push,
            size_bytes=await asyncio.to_thread(size_of, path),
            default_branch=await self._ensure_head(path, heads, push.updates),
        )

    async def _start_deployments(self, push: Push, record_push: RecordPush, view: View) -> None:
        try:
            async for line in self._on_push(push, record_push):
                view.say(line)
        except Exception as error:  # noqa: BLE001 - the push is stored, also where its deployments fail
            self._telemetry.crashed(None, error, where="on_push")
            await self._db.write(record_push)
            view.say("The push is stored, but its deployment could not be started because of an internal error.")

    async def _heads(self, path: Path) -> dict[str, str]:
        """Return the branches and their commits, without names that are not UTF-8."""
        words = ("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads")
        done = await self._git.run(*words, cwd=path, within_s=READ_TIMEOUT_S)
        heads = {}
        for line in done.out.split(b"\n"):
            with contextlib.suppress(UnicodeDecodeError):
                head, _, name = line.decode().partition(" ")
                heads[name.removeprefix(HEADS)] = head
        return {branch: head for branch, head in heads.items() if branch}

    async def _ensure_head(self, path: Path, heads: dict[str, str], updates: tuple[Update, ...]) -> str:
        """Point HEAD to an existing branch, which a clone checks out; return the branch."""
        head = (path / "HEAD").read_text(errors="replace").strip().removeprefix(f"ref: {HEADS}")
        if head in heads or not heads:
            return head
        candidates = [FIRST_BRANCH, "master", *(update.branch for update in updates), *heads]
        chosen = next(branch for branch in candidates if branch in heads)
        done = await self._git.run("symbolic-ref", "HEAD", HEADS + chosen, cwd=path, within_s=READ_TIMEOUT_S)
        if done.code != 0:
            raise EngineError(f"cannot set the head of {path.name}: {done.complaint}")
        return chosen


def _requested_updates(request: PushRequest) -> list[Update]:
    """Return the branches to create or move, without names that are not UTF-8."""
    updates = []
    for command in request.commands:
        branch = command.reference.removeprefix(HEADS)
        is_text = command.reference.isascii() or _is_utf8(command.reference)
        if is_text and not command.deletes and command.old != command.new and branch != command.reference:
            updates.append(Update(branch, command.old, command.new))
    return updates


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # Surrogates stand for bytes that are not UTF-8.
        return False
    return True


def _updates(request: PushRequest, heads: dict[str, str]) -> list[Update]:
    """Return the requested updates that git has applied."""
    return [update for update in _requested_updates(request) if heads.get(update.branch) == update.new]
