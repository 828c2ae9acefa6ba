"""Packing of log blocks for storage, and their texts by stream."""

from __future__ import annotations

import time
import zlib
from typing import NamedTuple

from moorage.runtime.edge import spool
from moorage.runtime.edge.spool import NOTE, STDERR, STDOUT

MAX_TEXT_BYTES = 10 * 2**20 + 1024  # both streams of one invocation: 10 MB and the notice that more was cut
MAX_BLOCK_BYTES = 12 * 2**20  # a block: its text and the headers of its entries
# Compressing a line or two costs more time than it saves space. The first byte distinguishes both forms: a block starts
# with a stream number, a compressed block with 0x78.
MIN_COMPRESSED_BYTES = 512
PIECE_BYTES = 128 * 2**10  # half a millisecond of compression
PAUSE_S = 0.0002
_RAW = (STDOUT, STDERR, NOTE)


class Texts(NamedTuple):
    stdout: str
    stderr: str
    is_cut: bool  # the block is longer than the texts
    is_dropped: bool = False  # some output was not kept, and a note says why


def pack(block: bytes) -> bytes:
    """Cut a log block to its limits and compress it if it is large."""
    block = spool.cut_log(spool.cut_text(block, MAX_TEXT_BYTES), MAX_BLOCK_BYTES)
    return block if len(block) < MIN_COMPRESSED_BYTES and block[0] in _RAW else _compress(block)


def _compress(block: bytes) -> bytes:
    """Compress a block, in a thread: with pauses, because sandboxes of others may wait for its CPU."""
    compressor, view = zlib.compressobj(1), memoryview(block)
    pieces = [compressor.compress(view[:PIECE_BYTES])]
    for at in range(PIECE_BYTES, len(block), PIECE_BYTES):
        time.sleep(PAUSE_S)
        pieces.append(compressor.compress(view[at : at + PIECE_BYTES]))
    return b"".join([*pieces, compressor.flush()])


def unpack(stored: bytes | None, most: int = MAX_BLOCK_BYTES) -> bytes:
    """Return the first `most` bytes of a stored log block."""
    if not stored:
        return b""
    if stored[0] in _RAW:
        return stored[:most]
    return zlib.decompressobj().decompress(stored, most) if most > 0 else b""


def texts_of(block: bytes, most: int = MAX_BLOCK_BYTES) -> Texts:
    """Return both streams of a log block as texts of at most `most` bytes in total."""
    cut = spool.cut_log(block, most)
    stdout, stderr = spool.log_texts(cut)
    return Texts(stdout, stderr, is_cut=len(block) > most, is_dropped=spool.has_note(cut))
