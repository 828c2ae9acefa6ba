"""The recorder: reads what the function gateways of this machine wrote to the spool, and stores it exactly once.

Rows and the position in the file are one transaction, so a crash anywhere neither loses nor doubles a record. The text
that calls printed is in a log file before the row that refers to it is stored. A spool file is deleted before its row
is: were it the other way round, a crash between the two would have it read again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
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
from moorage.products.functions.records.spool import Chunk, SpoolFile
from moorage.products.functions.records.storing import (
    KEPT,
    Batch,
    Mask,
    MovedOn,
    OnScheduled,
    Seal,
    Stored,
    next_batch,
)

POLL_S = 0.2
BUSY = 1_000  # records in one pass; while there are more, few large passes cost less than many small ones
BUSY_S = 3.0
PAUSE_S = 2.0  # after a pass that failed: the store may be away for a while
CATCH_UP_S = 5.0  # A request for records waits so long for the newest ones.
LAST_PASS_S = 2.0  # for a pass that is under way when the process stops
TRIM_LOGS_S = 600.0
TRIM_EVERY = 2_000  # A busy function would write millions of rows between two runs of the retention job.


class Recorder:
    """Moves records from one spool folder into the store. `on_scheduled` may be set before it runs."""

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
        self.on_scheduled = on_scheduled
        self._hidden = hidden or HiddenValues()
        self._db = db
        self._telemetry = telemetry
        self._folder = folder
        self._texts = TextWriter(logs)
        self._id = ""
        self._known: dict[str, int] = {}  # the positions that the store has
        self._files: dict[str, SpoolFile] = {}
        self._untrimmed: Counter[int] = Counter()
        self._stored = 0  # since the last pass began
        self._passing: asyncio.Task[bool] | None = None
        self._next: asyncio.Task[bool] | None = None

    async def run(self) -> None:
        """Record until cancelled; a pass that is under way is waited for."""
        loop, trim_at = asyncio.get_running_loop(), 0.0
        try:
            while True:
                if loop.time() >= trim_at:
                    trim_at = loop.time() + TRIM_LOGS_S
                    await self.trim_logs()
                self._stored = 0
                is_well = await self._share_pass()
                await asyncio.sleep(self._pause_s() if is_well else PAUSE_S)
        finally:
            if running := {task for task in (self._passing, self._next) if task is not None}:
                await asyncio.wait(running, timeout=LAST_PASS_S)

    def _pause_s(self) -> float:
        """Return how long to wait for more. Whoever reads records has them caught up first, and nobody else waits."""
        return BUSY_S if self._stored > BUSY and not self.changed.is_followed else POLL_S

    async def catch_up(self) -> bool:
        """Store everything that was written before the call. Return False where that failed or takes too long."""
        try:
            async with asyncio.timeout(CATCH_UP_S):
                return await self._share_pass()
        except TimeoutError:
            return False

    async def trim_logs(self) -> None:
        """Remove log files that are too old, and those of functions that are gone.

        Each machine does so for its own folder: a job that deletes a function runs on one of them.
        """
        try:
            found = await asyncio.to_thread(self.logs.functions)
            ids = {function_id for _, function_id in found}
            alive = await self._db.read(lambda tx: records.which_exist(tx, ids))
            await asyncio.to_thread(self.logs.trim, self._db.env.clock.trusted_now(), found, alive)
        except Exception as error:  # noqa: BLE001 - the loop outlives whatever the store or the disk meets
            self._telemetry.crashed(None, error, where="recorder logs")

    def close(self) -> None:
        """Let go of all files. What is not recorded yet stays in them."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    async def _share_pass(self) -> bool:
        """Wait for a pass that begins after this call. A running one may already be past what the caller waits for."""
        if self._next is None:
            self._next = asyncio.create_task(self._pass_after(self._passing))
        return await asyncio.shield(self._next)

    async def _pass_after(self, running: asyncio.Task[bool] | None) -> bool:
        if running is not None:
            await asyncio.wait({running})
        self._passing, self._next = self._next, None
        try:
            return await self._pass()
        except Exception as error:  # noqa: BLE001 - the loop outlives whatever the store or the disk meets
            self._telemetry.crashed(None, error, where="recorder")
            return False

    async def _pass(self) -> bool:
        """Store what is new in every file. One that cannot be read does not keep the others from it."""
        is_well = await self._look()
        for file in sorted(self._files.values(), key=lambda each: each.name):
            try:
                await self._drain(file)
            except FileNotFoundError:
                continue  # The next look forgets it.
            except OSError as error:
                self._telemetry.crashed(None, error, where="recorder file")
                is_well = False
        return is_well

    async def _look(self) -> bool:
        """Find out which files there are, and forget those that vanished. Return whether all could be opened."""
        if not self._id:
            await self._hidden.load(self._db)
            spool_id = await asyncio.to_thread(spool.ensure_id, self._folder)
            self._known = dict(await self._db.read(partial(positions, spool_id=spool_id)))
            self._id = spool_id
        names = spool.names_in(self._folder)
        opened = [self._open(name) for name in names if name not in self._files]
        for name in (self._files.keys() | self._known.keys()) - set(names):
            await self._forget(name)
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
        """Store what is new in a file, and be done with one that nobody writes to any more."""
        is_whole = file.is_abandoned()
        most = spool.FIRST
        while file.has_more():
            try:
                is_last = await self._store_chunk(file, most)
            except MovedOn:
                self._texts.confirm()
                await self._look_again(file)
                continue
            if is_last:
                break
            most = spool.CHUNK
        if is_whole and not file.has_more():
            await self._finish(file)

    async def _store_chunk(self, file: SpoolFile, most: int) -> bool:
        """Store the records of one piece of a file. Return whether there was nothing more in it."""
        mask, seal = self._hidden.mask, self._texts.seal
        chunk, surplus, batch = await asyncio.to_thread(_begin, file, most, seal, mask)
        prepare = partial(next_batch, chunk, surplus, seal, mask)
        is_stuck = batch is None  # It should have had a record: somebody cut the file.
        while batch is not None:
            # The next one is made ready while this one is written.
            _, batch = await asyncio.gather(self._store(file, batch), asyncio.to_thread(prepare))
        if chunk.problem is not None:
            file.problem = chunk.problem
            self._telemetry.log.warning("spool file is torn", file=file.name, why=chunk.problem)
        return chunk.is_last or is_stuck

    async def _look_again(self, file: SpoolFile) -> None:
        """Take the position from the store: another process reads this folder too, or we did not hear of a commit."""
        found = dict(await self._db.read(partial(positions, spool_id=self._id)))
        if not file.path.exists():
            raise FileNotFoundError(f"{file.name} was read and deleted by another process")
        file.position = self._known[file.name] = found.get(file.name, 0)

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
            if function_id in stored.gone:
                await asyncio.to_thread(self.logs.forget, org_id, function_id)

    async def _follow_up(self, stored: Stored) -> None:
        for org_id, row_id in stored.scattered:
            await self._join_logs(org_id, row_id)
        for function_id in stored.added.keys() | stored.grown.keys():
            self.changed.tell(function_id, stored.grown.get(function_id, ()))
        self._untrimmed.update(stored.added)
        for function_id in stored.added:
            if self._untrimmed[function_id] >= TRIM_EVERY:
                count = self._untrimmed.pop(function_id)
                trim = partial(records.keep_newest, function_id=function_id, most=KEPT, at_once=2 * count)
                await self._db.write(trim)

    async def _join_logs(self, org_id: int, row_id: int) -> None:
        """Write text that came in many pieces again in one, so that a row's reference stays short."""
        row = await self._db.read(lambda tx: tx.find(records.FIND, org_id=org_id, id=row_id))
        if row is None or row.log_ref is None:
            return
        stored = await self._db.read(lambda tx: records.read_logs(tx, org_id, row))
        place = await asyncio.to_thread(self._texts.write_again, row, stored, self._db.env.clock.now())
        was = row.log_ref
        if not place.startswith("!"):
            await self._db.write(lambda tx: tx.run(records.JOIN_LOGS, org_id=org_id, id=row_id, was=was, new=place))

    async def _finish(self, file: SpoolFile) -> None:
        """Remove a file that nobody writes to and that was read to its end."""
        if file.problem is None:
            await asyncio.to_thread(file.delete)
        else:
            await asyncio.to_thread(file.set_aside)
        await self._forget(file.name)

    async def _forget(self, name: str) -> None:
        if name in self._known:
            key = self._key(name)
            await self._db.write(lambda tx: tx.run(records.FORGET_FILE, file=key))
            del self._known[name]
        if file := self._files.pop(name, None):
            file.close()

    def _key(self, name: str) -> str:
        return f"{self._id}/{name}"


def _begin(file: SpoolFile, most: int, seal: Seal, mask: Mask) -> tuple[Chunk, Counter[int], Batch | None]:
    chunk = file.read(most)
    surplus = storing.surplus_of(chunk)
    return chunk, surplus, next_batch(chunk, surplus, seal, mask)


@across_organizations("spool files are the platform's")
def positions(tx: Tx, spool_id: str) -> list[tuple[str, int]]:
    """Return how far each file of a folder was read, by its name."""
    found = tx.all(records.POSITIONS, pattern=f"{spool_id}/%")
    return [(name.partition("/")[2], position) for name, position in found]
