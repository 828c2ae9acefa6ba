"""Masks the values of secrets in logs and error messages before they are stored.

The publisher adds the values of a function here before it pushes them to the edge, in the process that records the
calls of the same edge. So no record can contain a value that is unknown here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from moorage.core.db.store import Database
from moorage.core.kit.masking import Masker
from moorage.products.functions import variables
from moorage.runtime.edge import spool
from moorage.runtime.edge.spool import Record

KEPT_SETS = 3  # Workers of earlier revisions may still print the values that they were started with.
# Bytes of text times number of search texts. This takes 0.2 s; functions with a few secrets never reach it.
MAX_WORK = 500_000_000
TOO_MUCH = b"[not shown: there is too much text to look for this function's secrets in]\n"
_ENTRY = struct.Struct("<BqI")


class HiddenValues:
    """Secrets by function. `mask` may be called in a thread while values change."""

    def __init__(self) -> None:
        self._sets: dict[int, tuple[frozenset[str], ...]] = {}
        self._masks: dict[int, Masker] = {}
        self._is_loaded = False

    async def load(self, db: Database) -> None:
        """Read all values once: earlier records may precede the first publication."""
        if self._is_loaded:
            return
        for function_id, each in (await db.read(variables.read_all)).items():
            self.put(function_id, each.secrets.values() if each is not None else ())
        self._is_loaded = True

    def put(self, function_id: int, values: Iterable[str]) -> None:
        """Mask these values from now on, and those of the latest changes."""
        new, known = frozenset(values), self._sets.get(function_id, ())
        if known[-1:] == (new,) or not (new or known):
            return
        self._sets[function_id] = (*(each for each in known if each != new), new)[-KEPT_SETS:]
        self._masks.pop(function_id, None)

    def drop(self, function_id: int) -> None:
        self._sets.pop(function_id, None)
        self._masks.pop(function_id, None)

    def mask(self, records: list[Record]) -> list[Record]:
        """Return records with the values of secrets masked in logs and errors."""
        if not self._sets:
            return records
        return [
            self._masked(each) if (each.log or each.error) and each.function_id in self._sets else each
            for each in records
        ]

    def _masked(self, record: Record) -> Record:
        mask = self._masks.get(record.function_id)
        if mask is None:
            sets = self._sets.get(record.function_id, ())
            mask = self._masks[record.function_id] = Masker(frozenset().union(*sets))
        error = mask(record.error) if record.error else record.error
        return record._replace(error=error, log=mask_block(mask, record.log))


def mask_block(mask: Masker, block: bytes) -> bytes:
    """Mask a log block; a value may span several entries of a stream."""
    if not block or not mask.shapes:
        return block
    if len(block) * mask.shapes > MAX_WORK:
        return spool.log_entry(spool.NOTE, _time_of(block), TOO_MUCH)
    entries = list(_entries(block))
    changed = False
    for stream in {entry[0] for entry in entries}:
        whole = b"".join(text for each, _, text in entries if each == stream)
        masked = mask.lines(whole)
        if masked == whole:
            continue
        changed = True
        single = [(each, at, mask.lines(text) if each == stream else text) for each, at, text in entries]
        if b"".join(text for each, _, text in single if each == stream) == masked:
            entries = single
        else:
            first = next(at for each, at, _ in entries if each == stream)
            entries = [entry for entry in entries if entry[0] != stream] + [(stream, first, masked)]
    return b"".join(spool.log_entry(*entry) for entry in entries) if changed else block


def _entries(block: bytes) -> Iterable[tuple[int, int, bytes]]:
    at = 0
    while len(block) - at >= _ENTRY.size:
        stream, at_ms, length = _ENTRY.unpack_from(block, at)
        at += _ENTRY.size
        yield stream, at_ms, block[at : at + length]
        at += length


def _time_of(block: bytes) -> int:
    return int(_ENTRY.unpack_from(block)[1]) if len(block) >= _ENTRY.size else 0
