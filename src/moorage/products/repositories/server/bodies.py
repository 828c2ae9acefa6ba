"""Read the body of a git request incrementally, decompress it, and enforce limits."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from typing import IO

from moorage.core import disk
from moorage.core.http.request import Request
from moorage.core.kit.texts import size_text
from moorage.errors import BadRequest

DECOMPRESS_STEP_BYTES = 256 * 1024
# A push over the limit is read up to this multiple of it, because a client reads no response while it sends.
READ_LIMIT_FACTOR = 4


async def chunks(request: Request, most: int) -> AsyncIterator[bytes]:
    """Yield the decompressed body; `most` limits its compressed size."""
    coding = (request.header(b"content-encoding") or "identity").strip().lower()
    if coding not in ("identity", "gzip", "x-gzip"):
        raise BadRequest(f"The body cannot be read: {coding!r} is neither gzip nor identity")
    if request.consumed:
        return
    if coding == "identity":
        async for chunk in request.chunks(most):
            yield chunk
        return
    async for chunk in _decompress(request, most):
        yield chunk


async def _decompress(request: Request, most: int) -> AsyncIterator[bytes]:
    unpack = zlib.decompressobj(31)
    try:
        async for chunk in request.chunks(most):
            rest = chunk
            while rest and not unpack.eof:
                # In small steps, because gzip may expand a chunk a thousandfold in memory.
                if piece := unpack.decompress(rest, DECOMPRESS_STEP_BYTES):
                    yield piece
                    await asyncio.sleep(0)  # lets other requests run between the pieces of a chunk
                rest = unpack.unconsumed_tail
        if not unpack.eof:
            raise BadRequest("The body ends early")
    except zlib.error:
        raise BadRequest("The body is not gzip") from None


async def store(request: Request, file: IO[bytes], most: int, check_room: Callable[[], None]) -> bool:
    """Write a body to a file; return False if it is over `most` and thus truncated.

    `check_room` is called every few megabytes, because concurrent bodies share the free disk space.
    """
    size = checked = 0
    async for chunk in chunks(request, most * READ_LIMIT_FACTOR):
        size += len(chunk)
        if size - checked >= disk.CHECK_INTERVAL_BYTES:
            checked = size
            check_room()
        if size <= most:
            file.write(chunk)
        elif size > most * READ_LIMIT_FACTOR:
            raise BadRequest(f"The push is larger than {size_text(most)}")
    file.flush()
    file.seek(0)
    return size <= most
