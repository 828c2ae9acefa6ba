"""Reading what a git client sends: as it comes, unpacked where it is packed, and never past a limit."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable
from typing import IO

from moorage.core.http.request import Request, size_text
from moorage.errors import BadRequest

STEP = 256 * 1024
# A push that is too large is read on for a while: a client that is still sending does not look at any answer.
READ_ON = 4
CHECK_EVERY = 8 * 2**20


async def chunks(request: Request, most: int) -> AsyncIterator[bytes]:
    """Yield the body, unpacked; raises BadRequest. What is sent and not what it unpacks to is held against `most`."""
    coding = (request.header(b"content-encoding") or "identity").strip().lower()
    if coding not in ("identity", "gzip", "x-gzip"):
        raise BadRequest(f"The body cannot be read: {coding!r} is neither gzip nor identity")
    if request.consumed:
        return
    if coding == "identity":
        async for chunk in request.chunks(most):
            yield chunk
        return
    async for chunk in _unpacked(request, most):
        yield chunk


async def _unpacked(request: Request, most: int) -> AsyncIterator[bytes]:
    unpack = zlib.decompressobj(31)
    try:
        async for chunk in request.chunks(most):
            rest = chunk
            while rest and not unpack.eof:
                # A little at a time: a thousandth of what is packed here may fit a packet, and all of it the memory.
                if piece := unpack.decompress(rest, STEP):
                    yield piece
                rest = unpack.unconsumed_tail
        if not unpack.eof:
            raise BadRequest("The body ends early")
    except zlib.error:
        raise BadRequest("The body is not gzip") from None


async def store(request: Request, file: IO[bytes], most: int, check_room: Callable[[], None]) -> bool:
    """Write a body to a file. Return False, with the begin of it in the file, where it is larger than `most`.

    `check_room` is called every few megabytes: many bodies come at once, and each was let in when there was room.
    """
    size = checked = 0
    async for chunk in chunks(request, most * READ_ON):
        size += len(chunk)
        if size - checked >= CHECK_EVERY:
            checked = size
            check_room()
        if size <= most:
            file.write(chunk)
        elif size > most * READ_ON:
            raise BadRequest(f"The push is larger than {size_text(most)}")
    file.flush()
    file.seek(0)
    return size <= most
