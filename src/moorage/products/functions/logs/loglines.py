"""Logs as they are stored, and as they are read back."""

from __future__ import annotations

import zlib
from typing import NamedTuple

from moorage.runtime.edge import spool
from moorage.runtime.edge.spool import NOTE, STDERR, STDOUT

TEXT = 10 * 2**20 + 1024  # of one invocation, both streams together: 10 MB, and the notice that more was cut
MOST = 12 * 2**20  # of a block: its text, and what the heads of entries add
# Compressing a line or two costs more time than it saves room. A block starts with the number of a stream and a
# compressed one with 0x78, so that the two are told apart by their first byte.
WORTH_COMPRESSING = 512
_RAW = (STDOUT, STDERR, NOTE)


class Texts(NamedTuple):
    stdout: str
    stderr: str
    is_cut: bool  # there is more than is shown here
    is_dropped: bool = False  # some of it was not kept, and a note says why


def pack(block: bytes) -> bytes:
    """Return a log block as it is stored."""
    block = spool.cut_log(spool.cut_text(block, TEXT), MOST)
    return block if len(block) < WORTH_COMPRESSING and block[0] in _RAW else zlib.compress(block, 1)


def unpack(stored: bytes | None, most: int = MOST) -> bytes:
    """Return the log block that was stored, or the beginning of it where it is longer than `most`."""
    if not stored:
        return b""
    if stored[0] in _RAW:
        return stored[:most]
    return zlib.decompressobj().decompress(stored, most) if most > 0 else b""


def texts_of(block: bytes, most: int = MOST) -> Texts:
    """Return both streams of a log block as texts of at most so many bytes in all."""
    shown = spool.cut_log(block, most)
    stdout, stderr = spool.log_texts(shown)
    return Texts(stdout, stderr, is_cut=len(block) > most, is_dropped=spool.has_note(shown))
