"""Counts long runs of similar records of a busy function by columns.

A plain record has 13 words of 8 bytes, so the same word of all records is a strided column. Python counts and compares
such a column in a fraction of the time that decoding each record takes.
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

MIN_RUN = 256  # records; decoding fewer one by one is fast enough
SIZE = LENGTH_SIZE + HEAD_SIZE
_WORDS = SIZE // 8
_HEAD, _FUNCTION, _ORG, _VERSION_AND_MEMORY, _STARTED, _DURATION, _WAIT, _SCHEDULE = range(8)
_SIZES = 12  # sizes of error and log
# First word of a successful call: length, kind, door, ok, cold.
_WARM = frozenset(HEAD_SIZE | END << 32 | door << 40 | 1 << 48 for door in (WEB, API))
_HEADS = _WARM | {head | 1 << 56 for head in _WARM}


class UniformRun(NamedTuple):
    """Sums of consecutive successful calls of one function that started in one minute."""

    function_id: int
    org_id: int
    memory_mb: int
    minute: int  # minutes since the epoch
    calls: int
    cold_starts: int
    duration_us: int


def count_functions(data: bytes, at: int) -> Counter[int] | None:
    """Count the calls of each function; None if a record after `at` is not plain."""
    if not _HEADS.issuperset(_words(data, at, min(MIN_RUN, (len(data) - at) // SIZE))[_HEAD::_WORDS].tolist()):
        return None
    words = _words(data, at, (len(data) - at) // SIZE)
    heads = words[_HEAD::_WORDS].tolist() if words else []
    count = heads.index(0) if 0 in heads else len(heads)
    if count < MIN_RUN or not _HEADS.issuperset(heads[:count]):
        return None
    return Counter(words[_FUNCTION : count * _WORDS : _WORDS].tolist())


def find_run(seen: bytes, data: bytes, at: int, most: int) -> UniformRun | None:
    """Return the sums of at most `most` plain records of one function at a position.

    Both reads of the file must have the records. Returns None if the run is too short.
    """
    count = min(most, (min(len(seen), len(data)) - at) // SIZE)
    while count >= MIN_RUN:
        if _HEADS.issuperset(_words(seen, at, count)[_HEAD::_WORDS].tolist()):
            run = _sum(_words(data, at, count), count)
            if run is not None:
                return run
        count //= 2
    return None


def _sum(words: memoryview, count: int) -> UniformRun | None:
    heads = words[_HEAD::_WORDS].tolist()
    version, memory_mb = words[_VERSION_AND_MEMORY] & 0xFFFFFFFF, words[_VERSION_AND_MEMORY] >> 32
    started = words[_STARTED::_WORDS].tolist()
    durations = words[_DURATION::_WORDS].tolist()
    minute = started[0] // MINUTE_MS
    is_uniform = (
        _HEADS.issuperset(heads)
        and all(len(set(words[column::_WORDS].tolist())) == 1 for column in (_FUNCTION, _ORG, _VERSION_AND_MEMORY))
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
    if not is_uniform:
        return None
    cold = count - sum(map(heads.count, _WARM))
    return UniformRun(words[_FUNCTION], words[_ORG], memory_mb, minute, count, cold, sum(durations))


def _words(data: bytes, at: int, count: int) -> memoryview:
    """Return records as 8-byte words; none on a big-endian machine."""
    whole = max(count, 0) * SIZE if sys.byteorder == "little" else 0
    return memoryview(data)[at : at + whole].cast("Q")
