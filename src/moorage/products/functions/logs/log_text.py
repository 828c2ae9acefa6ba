"""The log text of invocations: the one place through which it is written, and the one through which it is read."""

from __future__ import annotations

import zlib
from typing import NamedTuple

from moorage.products.functions.logs import loglines
from moorage.products.functions.logs.log_files import FunctionLogs, Gap, LogLimits, Missing, Text
from moorage.products.functions.records.storing import Batch
from moorage.products.functions.records.tables import Invocation
from moorage.runtime.edge import spool

MB = 2**20


class _Key(NamedTuple):
    """Tells texts apart: of one call there may be several, which it printed after its answer."""

    function_id: int
    activation: str
    checksum: int


class TextWriter:
    """Writes the text of records, before the rows that refer to it.

    Where a unit fails, its records come again, perhaps in another batch. Their text is not written twice then.
    """

    def __init__(self, logs: FunctionLogs) -> None:
        self._logs = logs
        self._unconfirmed: dict[_Key, str] = {}

    def seal(self, org_id: int, function_id: int, block: bytes) -> bytes:
        """Return what a call printed in the form in which it is stored. All text passes here before it is written."""
        return loglines.pack(block)

    def write(self, batch: Batch, now_ms: int) -> None:
        """Store the sealed text of a batch; its rows then have references in place of text. To be called in a thread.

        The files are not synced: as with the spool, only the loss of the machine can take what the kernel had not
        written yet, and a row whose text is lost says so.
        """
        keys = [_Key(text.function_id, text.activation, zlib.crc32(text.packed)) for text in batch.texts]
        new = {key: text for key, text in zip(keys, batch.texts, strict=True) if key not in self._unconfirmed}
        places = self._logs.put([Text(each.org_id, each.function_id, each.packed) for each in new.values()], now_ms)
        placed = {**self._unconfirmed, **dict(zip(new, places, strict=True))}
        for key, text in zip(keys, batch.texts, strict=True):
            text.refer(placed[key])
        self._unconfirmed = {key: place for key, place in placed.items() if not place.startswith("!")}

    def confirm(self) -> None:
        """Forget what was written: the unit is stored, or another process stored its records."""
        self._unconfirmed.clear()

    def write_again(self, row: Invocation, stored: bytes | None, now_ms: int) -> str:
        """Write the text of an invocation in one piece, and return the reference to it. To be called in a thread."""
        packed = self.seal(row.org_id, row.function_id, block_of(self._logs, row, stored))
        (place,) = self._logs.put([Text(row.org_id, row.function_id, packed)], now_ms)
        return place


def block_of(logs: FunctionLogs, row: Invocation, stored: bytes | None, most: int = loglines.MOST) -> bytes:
    """Return the log block of an invocation, or its beginning where it is longer than `most`.

    `stored` is what its row itself has, from before there were log files. Each piece that is missing is an entry that
    says why. It reads the disk where the row has a reference.
    """
    block = loglines.unpack(stored, most)
    gaps: set[Gap] = set()
    for piece in logs.read(row.org_id, row.function_id, row.log_ref) if row.log_ref else ():
        if len(block) >= most:
            break
        if isinstance(piece, bytes):
            block += loglines.unpack(piece, most - len(block))
        elif piece not in gaps:
            gaps.add(piece)
            block += spool.log_entry(spool.NOTE, row.started_at, _sentence(piece, logs.limits).encode() + b"\n")
    return spool.cut_text(block, loglines.TEXT)


def _sentence(gap: Gap, limits: LogLimits) -> str:
    match gap.why:
        case Missing.QUOTA:
            why = (
                f"was deleted: the newest {limits.function_bytes // MB:,} MB of a function's logs are kept, and "
                f"{limits.organization_bytes // MB:,} MB of an organization's, for 30 days"
            )
        case Missing.RESERVE:
            why = "was not stored: the disk of the machine is almost full"
        case Missing.DISK:
            why = "was not stored: the disk of the machine refused it"
        case Missing.DAMAGED:
            why = "cannot be read: the machine stopped before it was on disk, or its file is damaged"
        case Missing.ELSEWHERE:
            why = f"is not here: the machine {gap.machine} recorded the call and keeps its log"
    return f"[moorage] The log of this call {why}."
