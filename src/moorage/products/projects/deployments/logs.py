"""Write deployment logs with masked secrets, and stream them without gaps."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.events import Event
from moorage.core.kit.masking import Masker
from moorage.core.kit.records import dataclass
from moorage.products.projects.deployments import schemas
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments import tables as rows
from moorage.products.projects.deployments.followers import Followers
from moorage.products.projects.deployments.states import DEPLOYMENT
from moorage.products.projects.deployments.tables import Line

FLUSH_INTERVAL_S = 0.03
LEASE_CHECK_INTERVAL_S = 3.0  # of a build that prints nothing: a cancelled one must not run on
MAX_LOG_LINES = 20_000
MAX_LOG_BYTES = 8 * 2**20
MAX_LINE_CHARS = 8_192
CUT = f"The log is cut here: it has more than {MAX_LOG_LINES:,} lines or {MAX_LOG_BYTES // 2**20} MB"
# Lines of the platform have limits of their own, because a repository can cause any number of them, for example by its
# submodules. Beyond the limits, the last lines are stored when the log is finished: they say how the work ended.
MAX_SYSTEM_LINES = 2_000
MAX_SYSTEM_BYTES = 2**20
LAST_SYSTEM_LINES = 20
LINES_PER_READ = 500
# Followers poll as well, because another process with the same database may write lines without a notification here.
POLL_INTERVAL_S = {"postgresql": 0.08, "sqlite": 5.0}
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]")

Stream = Literal["stdout", "stderr", "system"]
T = TypeVar("T")


class Lines(Protocol):
    """Storage of log lines, of deployments or of another kind of build."""

    def last_seq(self, tx: Tx, org_id: int, owner_id: int) -> int: ...

    def add(self, tx: Tx, org_id: int, owner_id: int, lines: Sequence[Line]) -> None: ...


@dataclass(frozen=True)
class DeploymentLines:
    def last_seq(self, tx: Tx, org_id: int, owner_id: int) -> int:
        return tx.one(rows.LAST_SEQ, org_id=org_id, deployment_id=owner_id)

    def add(self, tx: Tx, org_id: int, owner_id: int, lines: Sequence[Line]) -> None:
        deployments.add_lines(tx, org_id, owner_id, list(lines))


class LogWriter:
    """Async context manager that writes the log of a deployment or other build.

    `write_unit` is the job's fenced write, so a job that lost its lease cannot add lines.
    """

    def __init__(
        self,
        write_unit: Callable[[Callable[[Tx], Any]], Awaitable[Any]],
        org_id: int,
        owner_id: int,
        followers: Followers,
        now: Callable[[], int],
        lines: Lines | None = None,
    ) -> None:
        self._write_unit = write_unit
        self._org_id = org_id
        self._owner_id = owner_id
        self._followers = followers
        self._lines: Lines = lines or DeploymentLines()
        self._now = now
        self._mask = Masker(())
        self._seq = 0
        self._bytes = 0
        self._is_cut = False
        self._system_lines = 0
        self._system_bytes = 0
        self._last_system: deque[tuple[int, str]] = deque(maxlen=LAST_SYSTEM_LINES)  # time and text, beyond the limits
        self._beyond = 0  # lines of the platform beyond the limits, since the log was last finished
        self._pending: list[Line] = []
        self._partial: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._flushing = asyncio.Lock()
        self._task: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> LogWriter:
        find = partial(self._lines.last_seq, org_id=self._org_id, owner_id=self._owner_id)
        self._seq = await self._write_unit(find)
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})

    async def guard(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`; cancel it when the lease is lost or the deployment has ended."""
        assert self._task is not None
        work_task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({work_task, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if not work_task.done():
                self._task.result()
        finally:
            if not work_task.done():
                work_task.cancel()
                await asyncio.wait({work_task})
        return work_task.result()

    def hide(self, secrets: Iterable[str]) -> None:
        """Mask these values in all later lines."""
        self._mask = Masker(secrets)

    def say(self, text: str) -> None:
        self.write("system", text if text.endswith("\n") else text + "\n")

    def write(self, stream: Stream, text: str) -> None:
        """Add output of any number of lines; an unfinished last line waits for its end.

        Lines beyond a limit are left out, except for the last ones of the platform.
        """
        *lines, rest = (self._partial.pop(stream, "") + text.replace("\r\n", "\n")).split("\n")
        for line in lines:
            self._add(stream, line)
        while len(rest) > MAX_LINE_CHARS:
            self._add(stream, rest[:MAX_LINE_CHARS])
            rest = rest[MAX_LINE_CHARS:]
        if rest:
            self._partial[stream] = rest

    async def flush(self) -> None:
        """Store all complete lines."""
        async with self._flushing:
            lines, self._pending = self._pending, []
            if not lines:
                return
            add = partial(self._lines.add, org_id=self._org_id, owner_id=self._owner_id, lines=lines)
            await self._write_unit(add)
        self._followers.notify(self._owner_id)

    async def finish(self) -> None:
        """Store all lines, unfinished ones included."""
        for stream, rest in list(self._partial.items()):
            self._add(stream, rest)
        self._partial.clear()
        last, self._last_system = self._last_system, deque(maxlen=LAST_SYSTEM_LINES)
        if left_out := self._beyond - len(last):
            self._store("system", f"{left_out:,} lines of the platform are left out here", self._now())
        for at, line in last:
            self._store("system", line, at)
        self._beyond = 0
        await self.flush()

    def _add(self, stream: str, line: str) -> None:
        if stream == "system" and (self._system_lines >= MAX_SYSTEM_LINES or self._system_bytes >= MAX_SYSTEM_BYTES):
            self._last_system.append((self._now(), line))
            self._beyond += 1
        else:
            self._store(stream, line, self._now())

    def _store(self, stream: str, line: str, at: int) -> None:
        # A progress bar overwrites its line after "\r"; a terminal would show only the last text.
        line = _ESCAPES.sub("", self._mask(line.rstrip("\r").rpartition("\r")[2]))[:MAX_LINE_CHARS]
        if not line.isascii():  # The name of a file may be no UTF-8.
            line = line.encode(errors="replace").decode()
        if stream == "system":
            self._system_lines += 1
            self._system_bytes += len(line)
        elif self._is_cut:
            return
        else:
            self._bytes += len(line)
            if self._seq >= MAX_LOG_LINES or self._bytes > MAX_LOG_BYTES:
                self._is_cut = True
                stream, line = "system", CUT
        self._seq += 1
        self._pending.append(Line(self._seq, at, stream, line))
        self._wake.set()

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEASE_CHECK_INTERVAL_S):
                    await self._wake.wait()
            if not self._wake.is_set():
                await self._write_unit(_check_lease)
            self._wake.clear()
            await self.flush()
            await asyncio.sleep(FLUSH_INTERVAL_S)


async def follow(
    db: Database, followers: Followers, org_id: int, deployment_id: int, seen: int = 0
) -> AsyncIterator[Event]:
    """Yield the log lines after `seen`, status changes, and `done` at the end."""
    status = ""
    with followers.following(deployment_id) as changed:
        while True:
            changed.clear()
            # The status is read before the lines, so that no line comes after `done`.
            deployment = await db.read(partial(deployments.find, org_id=org_id, deployment_id=deployment_id))
            lines = await _lines(db, org_id, deployment_id, seen)
            while lines:
                for line in lines:
                    yield Event("log", schemas.LogLine.of(line), id=str(line.seq))
                seen = lines[-1].seq
                lines = await _lines(db, org_id, deployment_id, seen) if len(lines) == LINES_PER_READ else []
            now = deployment.status if deployment is not None else "failed"
            if now != status:
                status = now
                yield Event("status", schemas.StatusNow(status))
            if deployment is None or deployment.status in DEPLOYMENT.terminal:
                yield Event("done", schemas.StatusNow(status))
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_INTERVAL_S[db.dialect]):
                    await changed.wait()


async def _lines(db: Database, org_id: int, deployment_id: int, seen: int) -> list[Line]:
    read = partial(deployments.lines_after, org_id=org_id, deployment_id=deployment_id, seq=seen, most=LINES_PER_READ)
    return await db.read(read)


@across_organizations("nothing is read or written")
def _check_lease(tx: Tx) -> None:
    """No-op write: its fence checks the lease and the deployment's status."""
