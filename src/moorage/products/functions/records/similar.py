"""Many records that differ in little: what a busy function leaves. They are counted by columns, not one by one.

A plain record is thirteen words of eight bytes, so that the same word of each stands at the same distance. Python
counts and compares such a column in a fraction of the time that taking each record apart takes.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import NamedTuple

from moorage.core.kit.clock import MINUTE_MS
from moorage.runtime.edge.spool import (
    API,
    END,
    HEAD_SIZE,
    LENGTH_SIZE,
    MOST_ID,
    MOST_MB,
    MOST_MS,
    MOST_US,
    MOST_VERSION,
    WEB,
)

FEWEST = 256  # records; taking fewer apart one by one takes no time worth saving
SIZE = LENGTH_SIZE + HEAD_SIZE
_WORDS = SIZE // 8
_HEAD, _FUNCTION, _ORG, _VERSION_AND_MEMORY, _STARTED, _DURATION, _WAIT, _SCHEDULE = range(8)
_SIZES = 12  # of error and log
# The first word of a call that went well: length, kind, door, ok, cold.
_WARM = frozenset(HEAD_SIZE | END << 32 | door << 40 | 1 << 48 for door in (WEB, API))
_HEADS = _WARM | {head | 1 << 56 for head in _WARM}


class Alike(NamedTuple):
    """What a run of records comes to: calls of one function that began in one minute and went well."""

    function_id: int
    org_id: int
    memory_mb: int
    minute: int  # its number
    calls: int
    cold_starts: int
    duration_us: int


def count_functions(data: bytes, at: int) -> Counter[int] | None:
    """Count the calls of each function, where all records from a place on are plain; None where one is not."""
    words = _words(data, at, (len(data) - at) // SIZE)
    heads = words[_HEAD::_WORDS].tolist() if words else []
    count = heads.index(0) if 0 in heads else len(heads)
    if count < FEWEST or not _HEADS.issuperset(heads[:count]):
        return None
    return Counter(words[_FUNCTION : count * _WORDS : _WORDS].tolist())


def find_run(seen: bytes, data: bytes, at: int, most: int) -> Alike | None:
    """Return what the plain records of one function come to that stand at a place, up to a number of them.

    Both looks at the file have to have them. None where there are too few.
    """
    count = min(most, (min(len(seen), len(data)) - at) // SIZE)
    while count >= FEWEST:
        if _HEADS.issuperset(_words(seen, at, count)[_HEAD::_WORDS].tolist()):
            run = _sum(_words(data, at, count), count)
            if run is not None:
                return run
        count //= 2
    return None


def _sum(words: memoryview, count: int) -> Alike | None:
    heads = words[_HEAD::_WORDS].tolist()
    version, memory_mb = words[_VERSION_AND_MEMORY] & 0xFFFFFFFF, words[_VERSION_AND_MEMORY] >> 32
    started = words[_STARTED::_WORDS].tolist()
    durations = words[_DURATION::_WORDS].tolist()
    minute = started[0] // MINUTE_MS
    is_alike = (
        _HEADS.issuperset(heads)
        and all(len(set(words[which::_WORDS].tolist())) == 1 for which in (_FUNCTION, _ORG, _VERSION_AND_MEMORY))
        and minute == min(started) // MINUTE_MS == max(started) // MINUTE_MS
        and max(started) < MOST_MS
        and max(durations) < MOST_US
        and max(words[_WAIT::_WORDS].tolist()) < MOST_US
        and version < MOST_VERSION
        and memory_mb < MOST_MB
        and not any(words[_SCHEDULE::_WORDS].tolist())
        and not any(words[_SIZES::_WORDS].tolist())
        and 0 < words[_FUNCTION] < MOST_ID > words[_ORG]
    )
    if not is_alike:
        return None
    cold = count - sum(map(heads.count, _WARM))
    return Alike(words[_FUNCTION], words[_ORG], memory_mb, minute, count, cold, sum(durations))


def _words(data: bytes, at: int, count: int) -> memoryview:
    """Return records as a row of words. Only where the machine's order of bytes is the file's there are any."""
    whole = max(count, 0) * SIZE if sys.byteorder == "little" else 0
    return memoryview(data)[at : at + whole].cast("Q")
