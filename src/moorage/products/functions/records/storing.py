"""What a run of records comes to: rows, counters and news for schedules, stored in one unit with the file's position.

Everything that can be worked out beforehand is, away from the transaction: the unit has only statements to run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import MINUTE_MS
from moorage.products.functions.records import tables as records
from moorage.products.functions.records.similar import Alike
from moorage.products.functions.records.spool import Chunk
from moorage.runtime.edge.spool import DOORS, END, HEAD_SIZE, LATE, LENGTH_SIZE, SCHEDULE, START, Record

RECORDS = 1_000  # of one unit
BYTES = 8 * 2**20  # of one unit: what does not fit comes in the next one
KEPT = 10_000  # invocations of one function
MANY_PLACES = 16  # Text that came in more pieces than this is written again in one.
LATE_AMONG = 2_000  # A late line belongs to one of so many newest invocations of its function.

FUNCTION = records.ADDED.index("function_id")
ORG = records.ADDED.index("org_id")
ACTIVATION = records.ADDED.index("activation_id")

# Brings what a call of a function of an organization printed into the form in which it is stored.
Seal = Callable[[int, int, bytes], bytes]

# Told of the calls that schedules made: those that are handed to an instance now, and those that came to an end.
OnScheduled = Callable[[Tx, list[Record], list[Record]], None]

# Masks the values of secrets in records.
Mask = Callable[[list[Record]], list[Record]]


class MovedOn(Exception):
    """Somebody else stored records of this file: its position is not what it was."""


@dataclass(slots=True)
class Minute:
    """What one function did in one minute."""

    org_id: int
    invocations: int = 0
    errors: int = 0
    cold_starts: int = 0
    duration_us: int = 0
    mb_ms: int = 0


@dataclass(slots=True)
class Late:
    """What a call printed after its answer: its text, then the reference to it."""

    org_id: int
    function_id: int
    activation: str
    block: bytes
    log_ref: str = ""


@dataclass(slots=True)
class BatchText:
    """Text that has to be in a file before the batch is stored, and what gets the reference to it."""

    org_id: int
    function_id: int
    activation: str
    packed: bytes
    owner: list[Any] | Late

    def refer(self, place: str) -> None:
        if isinstance(self.owner, Late):
            self.owner.log_ref = place
        else:
            self.owner[-1] = place


class Batch:
    """Records that are stored in one unit, as what the unit will write."""

    def __init__(self, was: int) -> None:
        self.was = was  # the file's position before them
        self.to = was  # and after them
        self.rows: list[list[Any]] = []  # in the order of `records.ADDED`; in place of `log_ref` there is text at first
        self.texts: list[BatchText] = []
        self.minutes: dict[tuple[int, int], Minute] = {}  # by function and number of the minute
        self.late: dict[tuple[int, str], Late] = {}  # by function and activation
        self.starts: list[Record] = []
        self.ends: list[Record] = []
        self._by_activation: dict[str, list[Any]] = {}

    @property
    def count(self) -> int:
        """Return how many calls came to an end in it."""
        return sum(minute.invocations for minute in self.minutes.values())

    @property
    def functions(self) -> set[int]:
        counted = {function_id for function_id, _ in self.minutes}
        return counted.union((function_id for function_id, _ in self.late), (each.function_id for each in self.starts))

    def fill(self, found: list[Record], surplus: Counter[int]) -> None:
        """Take records in. Of a function with a surplus the next so many calls are counted, but get no row.

        Every record comes through here, so that each is taken apart once and nothing is called for it.
        """
        rows, minutes, by_activation = self.rows, self.minutes, self._by_activation
        for record in found:
            if record[0] != END:
                self._take_note(record, surplus)
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

    def count_run(self, run: Alike) -> None:
        """Take in calls that are counted, and get no row."""
        minute = self.minutes.setdefault((run.function_id, run.minute), Minute(run.org_id))
        minute.invocations += run.calls
        minute.cold_starts += run.cold_starts
        minute.duration_us += run.duration_us
        minute.mb_ms += run.memory_mb * run.duration_us // 1000

    def pack(self, seal: Seal) -> None:
        """Bring what is to be stored into its final form and order.

        Calls of one function stay in theirs. Beside each other they go to the same page of the index.
        """
        for row in self.rows:
            if row[-1]:
                org_id, function_id = row[ORG], row[FUNCTION]
                packed = seal(org_id, function_id, row[-1])
                self.texts.append(BatchText(org_id, function_id, row[ACTIVATION], packed, row))
        for late in self.late.values():
            packed = seal(late.org_id, late.function_id, late.block)
            self.texts.append(BatchText(late.org_id, late.function_id, late.activation, packed, late))
        self.rows.sort(key=itemgetter(FUNCTION))

    def _take_note(self, record: Record, surplus: Counter[int]) -> None:
        if record.kind == START and record.door == SCHEDULE:
            self.starts.append(record)
        elif record.kind == LATE and record.log:
            row = self._by_activation.get(record.activation)
            if row is not None and row[FUNCTION] == record.function_id:
                row[-1] = (row[-1] or b"") + record.log
            elif not surplus[record.function_id] > 0:
                key = (record.function_id, record.activation)
                late = self.late.setdefault(key, Late(record.org_id, *key, b""))
                late.block += record.log


def next_batch(chunk: Chunk, surplus: Counter[int], seal: Seal, mask: Mask = list) -> Batch | None:
    """Return the next batch of a chunk, or None at its end."""
    batch = Batch(chunk.position)
    while run := chunk.take_run(surplus):
        batch.count_run(run)
        surplus[run.function_id] -= run.calls
    found = chunk.take(RECORDS, BYTES)
    if not found and not batch.minutes:
        return None
    batch.fill(mask(found), surplus)
    batch.pack(seal)
    batch.to = chunk.position
    return batch


def surplus_of(chunk: Chunk) -> Counter[int]:
    """Return of which functions a chunk has more calls than are kept, and how many more.

    The recorder fell behind then, and the older ones would be deleted as soon as they are written.
    """
    if len(chunk) <= KEPT * (HEAD_SIZE + LENGTH_SIZE):
        return Counter()
    return +Counter({function_id: count - KEPT for function_id, count in chunk.ends_of_functions().items()})


@dataclass(frozen=True, slots=True)
class Stored:
    """What a unit did, for those who follow."""

    added: dict[int, int]  # rows of each function
    grown: dict[int, list[int]]  # rows of each function whose logs grew
    scattered: list[tuple[int, int]]  # organization and id of rows whose logs are in many pieces
    gone: set[int]  # functions that do not exist any more


@across_organizations("one batch of records has calls of many")
def store(tx: Tx, batch: Batch, file: str, path: Path, on_scheduled: OnScheduled | None) -> Stored:
    """Store a batch and move its file's position, or raise MovedOn and leave nothing behind."""
    _move_on(tx, batch, file, path)
    alive = records.hold_functions(tx, batch.functions)
    rows = [row for row in batch.rows if row[FUNCTION] in alive]
    records.add(tx, rows)
    _count(tx, batch, alive)
    grown, scattered = _append_late(tx, [late for late in batch.late.values() if late.function_id in alive])
    starts = [record for record in batch.starts if record.function_id in alive]
    ends = [record for record in batch.ends if record.function_id in alive]
    if on_scheduled is not None and (starts or ends):
        on_scheduled(tx, starts, ends)
    return Stored(Counter(row[FUNCTION] for row in rows), grown, scattered, batch.functions - alive)


@across_organizations("spool files are the platform's")
def _move_on(tx: Tx, batch: Batch, file: str, path: Path) -> None:
    if batch.was == 0:
        added = tx.find(records.ADD_FILE, name=file, position=0, updated_at=tx.now)
        if added is not None and not path.exists():
            # Its row is new only because another reader finished with the file and forgot it.
            raise MovedOn
    if tx.run(records.MOVE_ON, file=file, was=batch.was, to=batch.to, now=tx.now) == 0:
        raise MovedOn


@across_organizations("one batch of records has calls of many")
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


@across_organizations("one batch of records has calls of many")
def _append_late(tx: Tx, late: list[Late]) -> tuple[dict[int, list[int]], list[tuple[int, int]]]:
    """Refer rows to what their calls printed after the answer.

    Return those rows of each function, and which of them have their logs in many pieces.
    """
    grown: dict[int, list[int]] = {}
    scattered = []
    for each in late:
        row = records.find_activation(tx, each.org_id, each.function_id, each.activation, among=LATE_AMONG)
        if row is not None:
            new = f"{row.log_ref},{each.log_ref}" if row.log_ref else each.log_ref
            tx.run(records.SET_LOG_REF, org_id=each.org_id, id=row.id, new=new)
            grown.setdefault(each.function_id, []).append(row.id)
            if new.count(",") >= MANY_PLACES:
                scattered.append((each.org_id, row.id))
    return grown, scattered
