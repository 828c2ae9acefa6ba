"""Storing a push that has come whole, and what follows it.

Everything here runs beside the request that brought the push: a client that goes away takes nothing with it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from moorage.audit.service import Actor
from moorage.db.store import Database
from moorage.errors import EngineError
from moorage.http.request import size_text
from moorage.repositories import service
from moorage.repositories.git import TooSlow, stop
from moorage.repositories.pktline import BadPacket, Packets
from moorage.repositories.pushes import HEADS, PushRequest
from moorage.repositories.service import FIRST_BRANCH, Push, Update
from moorage.repositories.storage import MB, Storage, size_of
from moorage.repositories.tables import Repository
from moorage.repositories.turns import Turns
from moorage.repositories.view import View
from moorage.telemetry import Telemetry

RECEIVE_S = 600
TIDY_S = 300
ASK_S = 30
_READ = 64 * 1024

OnPush = Callable[[Push], AsyncIterator[str]]


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
            with incoming.body, self._turns.go_on(incoming.repository.org_id):
                code = await self._receive(incoming, view)
            if code == 0:
                await self._follow(incoming, view)
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

    async def tidy(self, path: Path, *words: str) -> None:
        """Let git pack what lies around; one repository at a time, since it takes memory and a core."""
        async with self._tidying:
            try:
                await self._git.run("gc", "--quiet", *words, cwd=path, within_s=TIDY_S)
            except (TooSlow, OSError) as error:  # The repository itself may be gone by now.
                self._telemetry.log.warning("a repository is not tidy", path=path.name, why=str(error))

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

    async def _follow(self, incoming: Incoming, view: View) -> None:
        """Note what is stored now, then tell whoever deploys, line by line."""
        stored, path = incoming.repository, incoming.path
        heads = await self._heads(path)
        updates = tuple(_updates(incoming.request, heads))
        push = Push(stored.org_id, str(stored.full_name), updates, incoming.actor)
        noted = partial(
            service.finish_push,
            org_id=stored.org_id,
            repository=stored,
            push=push,
            size_bytes=await asyncio.to_thread(size_of, path),
            default_branch=await self._settle_head(path, heads, updates),
        )
        await self._db.write(noted)
        if updates:
            await self._tell(push, view)

    async def _tell(self, push: Push, view: View) -> None:
        try:
            async for line in self._on_push(push):
                view.say(line)
        except Exception as error:  # noqa: BLE001 - the push itself is stored, whatever its deployment meets
            self._telemetry.crashed(None, error, where="on_push")
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


def _updates(request: PushRequest, heads: dict[str, str]) -> list[Update]:
    """Return what the push changed: what is true in the repository counts, not what was asked for."""
    found = []
    for command in request.commands:
        branch = command.reference.removeprefix(HEADS)
        moved = not command.deletes and command.old != command.new
        if moved and branch != command.reference and heads.get(branch) == command.new:
            found.append(Update(branch, command.old, command.new))
    return found
