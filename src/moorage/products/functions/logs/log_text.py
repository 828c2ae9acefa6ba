"""Writes and reads the log text of invocations; all log text passes through here."""

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
    """Identity of a text; one call may have several, printed after its response."""

    function_id: int
    activation: str
    checksum: int


class TextWriter:
    """Writes the log text of records before the rows that refer to it.

    After a failed transaction its records come again, perhaps in another batch. Their text is not written twice.
    """

    def __init__(self, logs: FunctionLogs) -> None:
        self._logs = logs
        self._unconfirmed: dict[_Key, str] = {}

    def encode(self, org_id: int, function_id: int, block: bytes) -> bytes:
        """Encode a log block for storage."""
        return loglines.pack(block)

    def write(self, batch: Batch, now_ms: int) -> None:
        """Store the texts of a batch and set the references of its rows. Blocks.

        The files are not synced: as with the spool, only a crash of the machine loses text in the page cache, and the
        row of a lost text reports it as damaged.
        """
        keys = [_Key(text.function_id, text.activation, zlib.crc32(text.packed)) for text in batch.texts]
        new = {key: text for key, text in zip(keys, batch.texts, strict=True) if key not in self._unconfirmed}
        written = self._logs.put([Text(each.org_id, each.function_id, each.packed) for each in new.values()], now_ms)
        references = {**self._unconfirmed, **dict(zip(new, written, strict=True))}
        for key, text in zip(keys, batch.texts, strict=True):
            text.set_reference(references[key])
        self._unconfirmed = {key: each for key, each in references.items() if not each.startswith("!")}

    def confirm(self) -> None:
        """Clear the written texts after this or another process stored their records."""
        self._unconfirmed.clear()

    def rewrite(self, row: Invocation, stored: bytes | None, now_ms: int) -> str:
        """Write the text of an invocation in one piece and return its reference. Blocks."""
        packed = self.encode(row.org_id, row.function_id, block_of(self._logs, row, stored))
        (reference,) = self._logs.put([Text(row.org_id, row.function_id, packed)], now_ms)
        return reference


def block_of(logs: FunctionLogs, row: Invocation, stored: bytes | None, most: int = loglines.MAX_BLOCK_BYTES) -> bytes:
    """Return the first `most` bytes of an invocation's log block.

    `stored` is the text in the row itself, from before log files existed. An entry explains each missing piece. Reads
    the disk if the row has a reference.
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
            block += spool.log_entry(spool.NOTE, row.started_at, _explain(piece, logs.limits).encode() + b"\n")
    return spool.cut_text(block, loglines.MAX_TEXT_BYTES)


def _explain(gap: Gap, limits: LogLimits) -> str:
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
