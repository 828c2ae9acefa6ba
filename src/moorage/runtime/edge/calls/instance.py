"""One instance of a function: the socket to its worker, and its calls.

Strictly one call runs at a time. Further short calls already wait in the socket, which saves two wake-ups per call.
Workers keep the order, so only the oldest unanswered call can have started.
"""

from __future__ import annotations

import asyncio
import mmap
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from moorage.runtime.edge import spool
from moorage.runtime.edge.calls.call import LARGE_BYTES, Call
from moorage.runtime.edge.calls.function import LOG_LIMIT, RESULT_LIMIT, Function
from moorage.runtime.edge.calls.replies import LARGE_FRAME_BYTES, Replies
from moorage.runtime.edge.connections.bodies import add_piece
from moorage.runtime.workers import frames

MAX_FRAME_BYTES = RESULT_LIMIT * 2 + LOG_LIMIT * 2  # with headers and entry heads; no valid frame is longer
BUFFERED_FRAME_BYTES = 64 * 2**10  # A longer incomplete frame gets a buffer of its own.
_pack_call = frames.CALL_HEAD.pack
_unpack_reply = frames.REPLY_HEAD.unpack_from
_REPLY_SIZE = frames.REPLY_HEAD.size
_unpack_frame = frames.REPLY_FRAME.unpack_from
_FRAME_SIZE = frames.REPLY_FRAME.size
MAX_MESSAGE_BYTES = 8192  # of an error; workers truncate theirs earlier
_CALL_REST = frames.CALL_HEAD.size - 4


PlainReply = tuple[Call, int, int, bytes, int]  # call, status, kind, body, run time in µs


class InstancePool(Protocol):
    """The methods of the pool that an instance calls."""

    replies: Replies

    @property
    def soon(self) -> Callable[[Callable[[], None]], object]: ...

    def thaw(self, instance: Instance) -> None: ...

    def loaded(self, instance: Instance, ok: bool, load_us: int, log: bytes, message: str) -> None: ...

    def complete_plain(self, instance: Instance, plain: list[PlainReply]) -> None: ...

    def complete(
        self,
        instance: Instance,
        call: Call,
        outcome: int,
        status: int,
        kind: int,
        head: bytes,
        log: bytes | memoryview,
        body: bytes,
        run_us: int,
        now: float,
    ) -> None: ...

    def printed_late(self, instance: Instance, activation: bytes, log: bytes) -> None: ...

    def fail_instance(self, instance: Instance, message: str) -> None: ...

    def disconnected(self, instance: Instance) -> None: ...


class Instance(asyncio.Protocol):
    def __init__(self, pool: InstancePool, function: PooledFunction, sandbox_id: int) -> None:
        self.pool = pool
        self.function = function
        self.sandbox_id = sandbox_id
        self.calls: deque[Call] = deque()
        self.is_open = False  # accepts calls: its code is loaded, and it is not ending
        self.is_frozen = False
        self.is_watched = False
        self.is_outdated = False  # ends after its calls
        self.is_closed = False
        self.kill_reason = ""  # set if the pool killed it
        self.is_attached = False  # the transport owns the socket
        self.was_busy = False  # since the last busy report
        self.created_at = self.idle_since = time.perf_counter()
        self.is_loaded = False  # LOADED has arrived, with success or failure
        self.is_disconnected = False
        self.load_log = b""  # output of loading, for the log of the first call
        self._is_cold = True
        self._late_bytes = 0  # output since the last reply, limited to LOG_LIMIT
        self._partial: list[bytes | bytearray] = []
        self._frame: memoryview | None = None  # buffer of an incomplete large frame; `_partial_bytes` of it are filled
        self.reserved = 0  # bytes for an incomplete large frame, since `reserved_at`
        self.reserved_at = 0.0
        self._partial_bytes = 0
        self._needed = 0
        self._number = 0
        self._unsent: list[bytes] = []
        self._deadline = b""  # of the unsent calls

    def resume(self) -> None:
        """Read on after a pause."""
        self.transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self.function.load_frame)

    def send(self, call: Call, now: float) -> None:
        """Queue a call for this instance; `_flush` writes it in the same turn of the loop."""
        self._number = call.number = number = (self._number + 1) & 0xFFFFFFFF
        call.sent = call.started = now
        if self._is_cold:
            self._is_cold = False
            call.cold = True
        self.calls.append(call)
        if self.is_frozen:
            self.pool.thaw(self)
        # All calls of one turn of the event loop are written together: one system call, one wake-up.
        unsent = self._unsent
        if not unsent:
            self._deadline = b"%013d" % int((time.time() + self.function.timeout_s) * 1000)
            self.pool.soon(self._flush)
        params = call.params
        unsent.append(
            _pack_call(_CALL_REST + len(params), frames.CALL, number, call.flags, call.activation, self._deadline)
        )
        unsent.append(params)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self.is_closed:
            return
        if len(unsent) == 2 and len(unsent[1]) > LARGE_BYTES:
            self.transport.writelines(unsent)  # Joined, a large call would be in memory twice.
        else:
            self.transport.write(b"".join(unsent))

    def data_received(self, data: bytes) -> None:
        if self._frame is not None:
            data = self._fill_frame(self._frame, data)
            if not data or self.is_closed:
                return
        if self._partial:
            add_piece(self._partial, data)
            self._partial_bytes += len(data)
            if self._partial_bytes < self._needed:
                return
            data = b"".join(self._partial)
            self._partial = []
        position, end = 0, len(data)
        # Plain replies are completed in a batch, all other frames one by one.
        position, plain = self._plain_replies(data, end)
        if plain:
            self.pool.complete_plain(self, plain)
        while end - position >= 5 and not self.is_closed:
            length = int.from_bytes(data[position : position + 4], "little")
            after = position + 4 + length
            if after > end:
                break
            kind = data[position + 4]
            if kind == frames.REPLY:
                is_fine = self._handle_reply(data, position + 5, after)
            else:
                is_fine = self._handle_other(kind, data[position + 5 : after])
            if not is_fine:
                return
            position = after
        if position < end and not self.is_closed:
            self._store_partial(data[position:])

    def _plain_replies(self, data: bytes, end: int) -> tuple[int, list[PlainReply]]:
        """Parse the leading plain replies; return the offset of their end, and them.

        A reply is plain if its web call succeeded without logs and headers.
        """
        position, last = 0, end - _FRAME_SIZE
        plain: list[PlainReply] = []
        calls = self.calls
        if self.load_log:
            return 0, plain
        while calls and position <= last:
            length, frame, number, outcome, status, kind, run_us, head, log = _unpack_frame(data, position)
            after = position + 4 + length
            call = calls[0]
            if (
                after > end
                or length < _FRAME_SIZE - 4
                or frame != frames.REPLY
                or outcome
                or head
                or log
                or number != call.number
                or not call.is_plain
                or not 200 <= status <= 599
                or kind > frames.DECLARED
            ):
                break
            calls.popleft()
            plain.append((call, status, kind, data[position + _FRAME_SIZE : after], run_us))
            position = after
        return position, plain

    def _store_partial(self, rest: bytes) -> None:
        self._needed = 4 + int.from_bytes(rest[:4], "little") if len(rest) >= 4 else 5
        if self._needed > MAX_FRAME_BYTES:
            self.pool.fail_instance(self, "the function's process sent an invalid frame")
            return
        self._partial_bytes = len(rest)
        if self._needed <= BUFFERED_FRAME_BYTES:
            self._partial = [rest]
            return
        self._frame = memoryview(mmap.mmap(-1, self._needed))  # Its pages are zeroed one by one, not all of them now.
        self._frame[: len(rest)] = rest
        is_large = self._needed > LARGE_FRAME_BYTES
        if is_large and not self.pool.replies.reserve(self, self._needed, time.perf_counter()):
            self.transport.pause_reading()

    def _fill_frame(self, frame: memoryview, data: bytes) -> bytes:
        """Add data to the large frame, and handle the frame when it is complete; return the bytes after it.

        Each part is copied when it arrives: joining all parts at the end would block the event loop for longer.
        """
        taken = min(len(frame) - self._partial_bytes, len(data))
        frame[self._partial_bytes : self._partial_bytes + taken] = data[:taken]
        self._partial_bytes += taken
        if self._partial_bytes < len(frame):
            return b""
        self._frame = None
        self.pool.replies.release(self, time.perf_counter())
        if frame[4] == frames.REPLY:
            self._handle_reply(frame, 5, len(frame))
        else:
            self._handle_other(frame[4], bytes(frame[5:]))
        return data[taken:]

    def _handle_reply(self, data: bytes | memoryview, position: int, end: int) -> bool:
        if end - position < _REPLY_SIZE or not self.calls:
            self.pool.fail_instance(self, "the function's process sent an invalid frame")
            return False
        number, outcome, status, kind, run_us, head_length, log_length = _unpack_reply(data, position)
        position += _REPLY_SIZE
        body_at = position + head_length + log_length
        call = self.calls[0]
        if number != call.number or body_at > end or kind > frames.DECLARED:
            self.pool.fail_instance(self, "the function's process sent an invalid frame")
            return False
        self.calls.popleft()
        now = time.perf_counter()
        self.note_reply(now)
        log = data[position + head_length : body_at] if log_length else b""  # not copied out of a large frame
        head = bytes(data[position : position + head_length]) if head_length else b""
        self.pool.complete(self, call, outcome, status, kind, head, log, bytes(data[body_at:end]), run_us, now)
        return not self.is_closed

    def note_reply(self, now: float) -> None:
        """Note that calls were answered: the next one runs from now on."""
        if self.calls:
            self.calls[0].started = now
        else:
            self.idle_since = now
        self.was_busy = True
        self._late_bytes = 0

    def _handle_other(self, kind: int, body: bytes) -> bool:
        if kind == frames.LOADED and len(body) >= frames.LOADED_HEAD.size and not self.is_loaded:
            ok, load_us, log_length = frames.LOADED_HEAD.unpack_from(body)
            message_at = frames.LOADED_HEAD.size + log_length
            log = body[frames.LOADED_HEAD.size : message_at]
            message = body[message_at : message_at + MAX_MESSAGE_BYTES].decode("utf-8", "replace")
            self.pool.loaded(self, bool(ok), load_us, log, message)
        elif kind == frames.LATE and body[:32].isalnum() and len(body) >= 32:
            # The check protects the spool: an invalid activation id would make later records unreadable.
            self._late_bytes += len(body)
            if self._late_bytes <= LOG_LIMIT:
                self.pool.printed_late(self, body[:32], body[32:])
        else:
            self.pool.fail_instance(self, "the function's process sent an invalid frame")
            return False
        return not self.is_closed

    def connection_lost(self, exc: Exception | None) -> None:
        self.pool.disconnected(self)

    def close(self) -> None:
        """Close the socket; the worker exits after its current call."""
        self.is_open = False
        self.is_closed = True
        self._partial, self._frame = [], None
        self.pool.replies.release(self, time.perf_counter())
        if self.is_attached:
            self.transport.abort()


PooledFunction = Function[Call, Instance]


def native_log_entries(out: str, err: str, at_ms: int) -> bytes:
    """Return the native output of an ended process as log entries."""
    blocks = []
    for stream, text in ((spool.STDOUT, out), (spool.STDERR, err)):
        for line in text.splitlines(keepends=True):
            blocks.append(spool.log_entry(stream, at_ms, line.encode()))
    return b"".join(blocks)
