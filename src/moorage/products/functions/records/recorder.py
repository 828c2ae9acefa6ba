"""The recorder: stores the spool records of this machine's edges exactly once.

One transaction stores rows and the position in the file, so a crash neither loses nor doubles a record. Log text is
written to a log file before the row that refers to it is stored. A spool file is deleted before its row: in the
opposite order, a crash between the two steps would make the file be read again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.telemetry import Telemetry
from moorage.products.functions.logs.hidden_values import HiddenValues
from moorage.products.functions.logs.log_files import FunctionLogs
from moorage.products.functions.logs.log_text import TextWriter
from moorage.products.functions.records import spool, storing
from moorage.products.functions.records import tables as records
from moorage.products.functions.records.changes import Changes
from moorage.products.functions.records.log_events import LogEvents
from moorage.products.functions.records.spool import Chunk, SpoolFile
from moorage.products.functions.records.storing import (
    KEPT_INVOCATIONS,
    Batch,
    EncodeText,
    Mask,
    OnScheduled,
    PositionConflict,
    Stored,
    next_batch,
)

POLL_INTERVAL_S = 0.2  # between passes while there are records, or streams that follow them
IDLE_INTERVAL_S = 1.0  # between passes without either; the edge wakes the recorder for new records
BUSY_RECORDS = 1_000  # in one pass; above it, few large passes cost less than many small ones
BUSY_INTERVAL_S = 3.0
FAILURE_PAUSE_S = 2.0  # The database may be unavailable for a while.
CATCH_UP_TIMEOUT_S = 5.0  # A request for records waits at most this long for the newest ones.
LAST_PASS_TIMEOUT_S = 2.0  # for a running pass when the process stops
TRIM_LOGS_INTERVAL_S = 600.0
TRIM_AFTER_ROWS = 2_000  # A busy function would write millions of rows between two runs of the retention job.


class Recorder:
    """Moves records from one spool folder into the database."""

    def __init__(
        self,
        db: Database,
        telemetry: Telemetry,
        folder: Path,
        logs: FunctionLogs,
        *,
        on_scheduled: OnScheduled | None = None,
        hidden: HiddenValues | None = None,
    ) -> None:
        self.changed = Changes()
        self.logs = logs
        self.log_events = LogEvents(logs)
        self.on_scheduled = on_scheduled
        self.elsewhere: Callable[[], Awaitable[bool]] | None = None  # stores the records of edges on other machines
        self._hidden = hidden or HiddenValues()
        self._db = db
        self._telemetry = telemetry
        self._folder = folder
        self._texts = TextWriter(logs)
        self._id = ""
        self._known: dict[str, int] = {}  # stored position by file name
        self._files: dict[str, SpoolFile] = {}
        self._untrimmed: Counter[int] = Counter()
        self._stored = 0  # since the last pass began
        self._passing: asyncio.Task[bool] | None = None
        self._next: asyncio.Task[bool] | None = None
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Make a pass soon: there are new records."""
        self._wake.set()

    async def run(self) -> None:
        """Record until cancelled; then wait for the running pass."""
        loop, trim_at = asyncio.get_running_loop(), 0.0
        try:
            while True:
                if loop.time() >= trim_at:
                    trim_at = loop.time() + TRIM_LOGS_INTERVAL_S
                    await self.trim_logs()
                self._stored = 0
                self._wake.clear()
                is_well = await self._share_pass()
                if not is_well or self._stored or self.changed.is_followed:
                    await asyncio.sleep(self._pause_s() if is_well else FAILURE_PAUSE_S)
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_INTERVAL_S):
                        await self._wake.wait()
        finally:
            if running := {task for task in (self._passing, self._next) if task is not None}:
                await asyncio.wait(running, timeout=LAST_PASS_TIMEOUT_S)

    def _pause_s(self) -> float:
        """Return the pause before the next pass; only a live log needs a short one.

        Every other reader of records calls `catch_up` first.
        """
        return BUSY_INTERVAL_S if self._stored > BUSY_RECORDS and not self.changed.is_followed else POLL_INTERVAL_S

    async def catch_up(self) -> bool:
        """Store all records written before the call, also elsewhere; return False on failure or timeout."""
        if self.elsewhere is None:
            return await self.catch_up_here()
        return all(await asyncio.gather(self.catch_up_here(), self.elsewhere()))

    async def catch_up_here(self) -> bool:
        """Store the records of this machine; return False on failure or timeout."""
        try:
            async with asyncio.timeout(CATCH_UP_TIMEOUT_S):
                return await self._share_pass()
        except TimeoutError:
            return False

    async def trim_logs(self) -> None:
        """Remove expired log files, and those of deleted functions.

        Each machine cleans its own folder: the job that deletes a function runs on only one machine.
        """
        try:
            functions = await asyncio.to_thread(self.logs.functions)
            ids = {function_id for _, function_id in functions}
            alive = await self._db.read(lambda tx: records.existing_functions(tx, ids))
            await asyncio.to_thread(self.logs.trim, self._db.env.clock.trusted_now(), functions, alive)
        except Exception as error:  # noqa: BLE001 - the loop survives any error of the database or the disk
            self._telemetry.crashed(None, error, where="recorder logs")

    def close(self) -> None:
        """Close all files; unread records stay in them."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    async def _share_pass(self) -> bool:
        """Wait for a pass that starts after this call; concurrent callers share it.

        A running pass may have read a file before the caller's records were written.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._pass_after(self._passing))
        return await asyncio.shield(self._next)

    async def _pass_after(self, running: asyncio.Task[bool] | None) -> bool:
        if running is not None:
            await asyncio.wait({running})
        self._passing, self._next = self._next, None
        try:
            return await self._pass()
        except Exception as error:  # noqa: BLE001 - the loop survives any error of the database or the disk
            self._telemetry.crashed(None, error, where="recorder")
            return False

    async def _pass(self) -> bool:
        """Store the new records of every file, even if some file is unreadable."""
        is_well = await self._list_files()
        for file in sorted(self._files.values(), key=lambda each: each.name):
            try:
                await self._drain(file)
            except FileNotFoundError:
                continue  # The next `_list_files` removes its row.
            except OSError as error:
                self._telemetry.crashed(None, error, where="recorder file")
                is_well = False
        return is_well

    async def _list_files(self) -> bool:
        """Open new files and remove the rows of vanished ones; return whether all opened."""
        if not self._id:
            await self._hidden.load(self._db)
            spool_id = await asyncio.to_thread(spool.ensure_id, self._folder)
            self._known = dict(await self._db.read(partial(positions, spool_id=spool_id)))
            self._id = spool_id
        names = spool.names_in(self._folder)
        opened = [self._open(name) for name in names if name not in self._files]
        for name in (self._files.keys() | self._known.keys()) - set(names):
            await self._delete_row(name)
        return all(opened)

    def _open(self, name: str) -> bool:
        try:
            self._files[name] = SpoolFile(self._folder / name, self._known.get(name, 0))
        except FileNotFoundError:
            return True
        except OSError as error:
            self._telemetry.crashed(None, error, where="recorder file")
            return False
        return True

    async def _drain(self, file: SpoolFile) -> None:
        """Store the new records of a file; remove the file if its writer is gone."""
        is_complete = file.is_abandoned()
        max_bytes = spool.FIRST_READ_BYTES
        while file.has_more():
            try:
                is_last = await self._store_chunk(file, max_bytes)
            except PositionConflict:
                self._texts.confirm()
                await self._reload_position(file)
                continue
            if is_last:
                break
            max_bytes = spool.CHUNK_BYTES
        if is_complete and not file.has_more():
            await self._finish(file)

    async def _store_chunk(self, file: SpoolFile, max_bytes: int) -> bool:
        """Store the records of one chunk of a file; return whether it was the last."""
        mask, encode = self._hidden.mask, self._texts.encode
        chunk, surplus, batch = await asyncio.to_thread(_begin, file, max_bytes, encode, mask)
        prepare = partial(next_batch, chunk, surplus, encode, mask)
        is_stuck = batch is None  # `has_more` saw a record, so the file was truncated.
        while batch is not None:
            # The next batch is prepared while this one is stored.
            _, batch = await asyncio.gather(self._store(file, batch), asyncio.to_thread(prepare))
        if chunk.problem is not None:
            file.problem = chunk.problem
            self._telemetry.log.warning("spool file is torn", file=file.name, why=chunk.problem)
        return chunk.is_last or is_stuck

    async def _reload_position(self, file: SpoolFile) -> None:
        """Read the stored position again after a conflict.

        Another process reads this folder too, or the result of a commit was lost.
        """
        stored = dict(await self._db.read(partial(positions, spool_id=self._id)))
        if not file.path.exists():
            raise FileNotFoundError(f"{file.name} was read and deleted by another process")
        file.position = self._known[file.name] = stored.get(file.name, 0)

    async def _store(self, file: SpoolFile, batch: Batch) -> None:
        key = self._key(file.name)
        if batch.texts:
            await asyncio.to_thread(self._texts.write, batch, self._db.env.clock.now())
        stored = await self._db.write(lambda tx: storing.store(tx, batch, key, file.path, self.on_scheduled))
        if batch.texts:
            self._texts.confirm()
        file.position = self._known[file.name] = batch.to
        self._stored += batch.count
        await self._follow_up(stored)
        for org_id, function_id in {(text.org_id, text.function_id) for text in batch.texts}:
            if function_id in stored.deleted:
                await asyncio.to_thread(self.logs.forget, org_id, function_id)

    async def _follow_up(self, stored: Stored) -> None:
        for org_id, row_id in stored.fragmented:
            await self._join_logs(org_id, row_id)
        for function_id in stored.added.keys() | stored.grown.keys():
            self.changed.notify(function_id, stored.grown.get(function_id, ()))
        self._untrimmed.update(stored.added)
        for function_id in stored.added:
            if self._untrimmed[function_id] >= TRIM_AFTER_ROWS:
                count = self._untrimmed.pop(function_id)
                trim = partial(records.keep_newest, function_id=function_id, most=KEPT_INVOCATIONS, at_once=2 * count)
                await self._db.write(trim)

    async def _join_logs(self, org_id: int, row_id: int) -> None:
        """Rewrite fragmented log text in one piece, to shorten the row's reference."""
        row = await self._db.read(lambda tx: tx.find(records.FIND, org_id=org_id, id=row_id))
        if row is None or row.log_ref is None:
            return
        stored = await self._db.read(lambda tx: records.read_logs(tx, org_id, row))
        joined = await asyncio.to_thread(self._texts.rewrite, row, stored, self._db.env.clock.now())
        was = row.log_ref
        if not joined.startswith("!"):
            await self._db.write(lambda tx: tx.run(records.JOIN_LOGS, org_id=org_id, id=row_id, was=was, new=joined))

    async def _finish(self, file: SpoolFile) -> None:
        """Remove a complete file that was read to its end; keep a torn one aside."""
        if file.problem is None:
            await asyncio.to_thread(file.delete)
        else:
            await asyncio.to_thread(file.set_aside)
        await self._delete_row(file.name)

    async def _delete_row(self, name: str) -> None:
        if name in self._known:
            key = self._key(name)
            await self._db.write(lambda tx: tx.run(records.DELETE_FILE, file=key))
            del self._known[name]
        if file := self._files.pop(name, None):
            await asyncio.to_thread(
                file.close
            )  # The kernel frees the pages of a deleted file, which takes milliseconds.

    def _key(self, name: str) -> str:
        return f"{self._id}/{name}"


def _begin(file: SpoolFile, max_bytes: int, encode: EncodeText, mask: Mask) -> tuple[Chunk, Counter[int], Batch | None]:
    chunk = file.read(max_bytes)
    surplus = storing.surplus_of(chunk)
    return chunk, surplus, next_batch(chunk, surplus, encode, mask)


@across_organizations("spool files belong to the platform")
def positions(tx: Tx, spool_id: str) -> list[tuple[str, int]]:
    """Return the file names of a folder with their stored positions."""
    rows = tx.all(records.POSITIONS, pattern=f"{spool_id}/%")
    return [(name.partition("/")[2], position) for name, position in rows]
