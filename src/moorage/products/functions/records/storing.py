"""Turns spool records into rows, counters and schedule events, and stores them.

One transaction stores a batch together with the spool file's position. A batch is prepared before the transaction,
which then only runs statements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import MINUTE_MS
from moorage.core.kit.records import dataclass
from moorage.products.functions.records import tables as records
from moorage.products.functions.records.similar import UniformRun
from moorage.products.functions.records.spool import Chunk
from moorage.runtime.edge.spool import DOORS, END, HEAD_SIZE, LATE, LENGTH_SIZE, SCHEDULE, START, Record

BATCH_RECORDS = 1_000
BATCH_BYTES = 8 * 2**20
KEPT_INVOCATIONS = 10_000  # per function
MAX_LOG_PIECES = 16  # Log text in more pieces is rewritten in one piece.
LATE_SEARCH_ROWS = 2_000  # newest invocations of a function that are searched for the call of a late line

FUNCTION = records.ADDED.index("function_id")
ORG = records.ADDED.index("org_id")
ACTIVATION = records.ADDED.index("activation_id")

# Encodes the output of a call for storage; takes the organization id, the function id and the log block.
EncodeText = Callable[[int, int, bytes], bytes]

# Gets the started and the ended calls of schedules.
OnScheduled = Callable[[Tx, list[Record], list[Record]], None]

# Masks the values of secrets in records.
Mask = Callable[[list[Record]], list[Record]]


class PositionConflict(Exception):
    """Another process stored records of this file: the stored position has changed."""


@dataclass(slots=True)
class Minute:
    """Counters of one function in one minute."""

    org_id: int
    invocations: int = 0
    errors: int = 0
    cold_starts: int = 0
    duration_us: int = 0
    mb_ms: int = 0


@dataclass(slots=True)
class LateText:
    """Output of a call after its response: first the text, then the reference to it."""

    org_id: int
    function_id: int
    activation: str
    block: bytes
    log_ref: str = ""


@dataclass(slots=True)
class BatchText:
    """Text to write to a log file before the batch is stored, and its owner."""

    org_id: int
    function_id: int
    activation: str
    packed: bytes
    owner: list[Any] | LateText

    def set_reference(self, log_ref: str) -> None:
        if isinstance(self.owner, LateText):
            self.owner.log_ref = log_ref
        else:
            self.owner[-1] = log_ref


class Batch:
    """Rows and counters that one transaction writes."""

    def __init__(self, was: int) -> None:
        self.was = was  # the file's position before the records
        self.to = was  # the file's position after the records
        self.rows: list[list[Any]] = []  # in the order of `records.ADDED`; `log_ref` holds the text at first
        self.texts: list[BatchText] = []
        self.minutes: dict[tuple[int, int], Minute] = {}  # by function and minutes since the epoch
        self.late: dict[tuple[int, str], LateText] = {}  # by function and activation
        self.starts: list[Record] = []
        self.ends: list[Record] = []
        self._by_activation: dict[str, list[Any]] = {}

    @property
    def count(self) -> int:
        """Return the number of ended calls."""
        return sum(minute.invocations for minute in self.minutes.values())

    @property
    def functions(self) -> set[int]:
        counted = {function_id for function_id, _ in self.minutes}
        return counted.union((function_id for function_id, _ in self.late), (each.function_id for each in self.starts))

    def fill(self, added: list[Record], surplus: Counter[int]) -> None:
        """Add records; the surplus calls of a function are counted without a row.

        A hot loop over every record: it unpacks each record once and avoids function calls.
        """
        rows, minutes, by_activation = self.rows, self.minutes, self._by_activation
        for record in added:
            if record[0] != END:
                self._add_start_or_late(record, surplus)
                continue
            (_, door, ok, cold, function_id, org_id, version, memory_mb, started_ms, duration_us, wait_us, schedule_id,
             activation, error, log) = record  # fmt: skip
            key = (function_id, started_ms // MINUTE_MS)
            minute = minutes.get(key)
            if minute is None:
                minute = minutes[key] = Minute(org_id)
            minute.invocations += 1
            minute.errors += not ok
            minute.cold_starts += cold
            minute.duration_us += duration_us
            minute.mb_ms += memory_mb * duration_us // 1000
            if door == SCHEDULE:
                self.ends.append(record)
            if surplus and surplus[function_id] > 0:
                surplus[function_id] -= 1
                continue
            row = [DOORS[door], ok, cold, function_id, org_id, version, started_ms, duration_us, wait_us,
                   schedule_id or None, activation, error, log or None]  # fmt: skip
            rows.append(row)
            by_activation[activation] = row

    def count_run(self, run: UniformRun) -> None:
        """Count calls that get no row."""
        minute = self.minutes.setdefault((run.function_id, run.minute), Minute(run.org_id))
        minute.invocations += run.calls
        minute.cold_starts += run.cold_starts
        minute.duration_us += run.duration_us
        minute.mb_ms += run.memory_mb * run.duration_us // 1000

    def pack(self, encode: EncodeText) -> None:
        """Encode the texts and sort the rows by function.

        The order within a function stays. Adjacent rows of a function go to the same page of the index.
        """
        for row in self.rows:
            if row[-1]:
                org_id, function_id = row[ORG], row[FUNCTION]
                packed = encode(org_id, function_id, row[-1])
                self.texts.append(BatchText(org_id, function_id, row[ACTIVATION], packed, row))
        for late in self.late.values():
            packed = encode(late.org_id, late.function_id, late.block)
            self.texts.append(BatchText(late.org_id, late.function_id, late.activation, packed, late))
        self.rows.sort(key=itemgetter(FUNCTION))

    def _add_start_or_late(self, record: Record, surplus: Counter[int]) -> None:
        if record.kind == START and record.door == SCHEDULE:
            self.starts.append(record)
        elif record.kind == LATE and record.log:
            row = self._by_activation.get(record.activation)
            if row is not None and row[FUNCTION] == record.function_id:
                row[-1] = (row[-1] or b"") + record.log
            elif not surplus[record.function_id] > 0:
                key = (record.function_id, record.activation)
                late = self.late.setdefault(key, LateText(record.org_id, *key, b""))
                late.block += record.log


def next_batch(chunk: Chunk, surplus: Counter[int], encode: EncodeText, mask: Mask = list) -> Batch | None:
    """Return the next batch of a chunk, or None at its end."""
    batch = Batch(chunk.position)
    while run := chunk.take_run(surplus):
        batch.count_run(run)
        surplus[run.function_id] -= run.calls
    taken = chunk.take(BATCH_RECORDS, BATCH_BYTES)
    if not taken and not batch.minutes:
        return None
    batch.fill(mask(taken), surplus)
    batch.pack(encode)
    batch.to = chunk.position
    return batch


def surplus_of(chunk: Chunk) -> Counter[int]:
    """Return by function how many calls of a chunk exceed the kept number.

    Such a recorder has fallen behind, and retention would delete the rows of these calls at once.
    """
    if len(chunk) <= KEPT_INVOCATIONS * (HEAD_SIZE + LENGTH_SIZE):
        return Counter()
    return +Counter({function_id: count - KEPT_INVOCATIONS for function_id, count in chunk.ends_of_functions().items()})


@dataclass(frozen=True, slots=True)
class Stored:
    """Result of a stored batch."""

    added: dict[int, int]  # number of new rows by function
    grown: dict[int, list[int]]  # ids of rows with additional log text by function
    fragmented: list[tuple[int, int]]  # organization id and row id of rows with too many log pieces
    deleted: set[int]  # functions that no longer exist


@across_organizations("a batch has calls of many organizations")
def store(tx: Tx, batch: Batch, file: str, path: Path, on_scheduled: OnScheduled | None) -> Stored:
    """Store a batch and advance its file's position; raises PositionConflict."""
    _advance_position(tx, batch, file, path)
    alive = records.lock_functions(tx, batch.functions)
    rows = [row for row in batch.rows if row[FUNCTION] in alive]
    records.add(tx, rows)
    _count(tx, batch, alive)
    grown, fragmented = _append_late(tx, [late for late in batch.late.values() if late.function_id in alive])
    starts = [record for record in batch.starts if record.function_id in alive]
    ends = [record for record in batch.ends if record.function_id in alive]
    if on_scheduled is not None and (starts or ends):
        on_scheduled(tx, starts, ends)
    return Stored(Counter(row[FUNCTION] for row in rows), grown, fragmented, batch.functions - alive)


@across_organizations("spool files belong to the platform")
def _advance_position(tx: Tx, batch: Batch, file: str, path: Path) -> None:
    if batch.was == 0:
        added = tx.find(records.ADD_FILE, name=file, position=0, updated_at=tx.now)
        if added is not None and not path.exists():
            # The row is new because another reader finished and removed the file and its row.
            raise PositionConflict
    if tx.run(records.ADVANCE_POSITION, file=file, was=batch.was, to=batch.to, now=tx.now) == 0:
        raise PositionConflict


@across_organizations("a batch has calls of many organizations")
def _count(tx: Tx, batch: Batch, alive: set[int]) -> None:
    sums = [
        {
            "org_id": minute.org_id,
            "function_id": function_id,
            "minute": number * MINUTE_MS,
            "invocations": minute.invocations,
            "errors": minute.errors,
            "cold_starts": minute.cold_starts,
            "duration_us": minute.duration_us,
            "mb_ms": minute.mb_ms,
        }
        for (function_id, number), minute in sorted(batch.minutes.items(), key=lambda item: item[0])
        if function_id in alive
    ]
    if sums:
        tx.run_many(records.ADD_TO_MINUTE, sums)


@across_organizations("a batch has calls of many organizations")
def _append_late(tx: Tx, late: list[LateText]) -> tuple[dict[int, list[int]], list[tuple[int, int]]]:
    """Add references to late text; return `Stored.grown` and `Stored.fragmented`."""
    grown: dict[int, list[int]] = {}
    fragmented = []
    for each in late:
        row = records.find_activation(tx, each.org_id, each.function_id, each.activation, among=LATE_SEARCH_ROWS)
        if row is not None:
            log_ref = f"{row.log_ref},{each.log_ref}" if row.log_ref else each.log_ref
            tx.run(records.SET_LOG_REF, org_id=each.org_id, id=row.id, new=log_ref)
            grown.setdefault(each.function_id, []).append(row.id)
            if log_ref.count(",") >= MAX_LOG_PIECES:
                fragmented.append((each.org_id, row.id))
    return grown, fragmented
