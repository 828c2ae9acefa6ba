"""One instance of a function: the socket to its cell, and the calls it holds, in order.

Strictly one call runs at a time. Where calls are short the next ones already wait in the socket, which saves two
wake-ups a call; because order is kept, only the oldest unanswered call can have started.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, cast

from moorage.runtime.edge import spool
from moorage.runtime.edge.calls.call import LARGE_BYTES, Call
from moorage.runtime.edge.calls.function import LOG_LIMIT, RESULT_LIMIT, Function
from moorage.runtime.edge.calls.replies import LARGE_FRAME
from moorage.runtime.edge.connections.bodies import add_piece
from moorage.runtime.workers import frames

if TYPE_CHECKING:
    from moorage.runtime.edge.calls.pool import Pool

MOST_FRAME = RESULT_LIMIT * 2 + LOG_LIMIT * 2  # headers and entry heads included; no honest frame is longer
_pack_call = frames.CALL_HEAD.pack
_unpack_reply = frames.REPLY_HEAD.unpack_from
_REPLY_SIZE = frames.REPLY_HEAD.size
_unpack_frame = frames.REPLY_FRAME.unpack_from
_FRAME_SIZE = frames.REPLY_FRAME.size
MOST_MESSAGE = 8192  # bytes of an error; workers cut theirs well before
_CALL_REST = frames.CALL_HEAD.size - 4


Plain = tuple[Call, int, int, bytes, int]  # a call, the status, kind and body of its reply, and how long it ran


class Instance(asyncio.Protocol):
    def __init__(self, pool: Pool, function: Function, cell: int) -> None:
        self.pool = pool
        self.function = function
        self.cell = cell
        self.calls: deque[Call] = deque()
        self.is_open = False  # takes calls: its code is loaded, and it is not on its way out
        self.is_frozen = False
        self.is_watched = False
        self.is_over = False
        self.verdict = ""  # why it is being ended, where that was decided here
        self.is_attached = False  # its transport owns the socket
        self.worked = False  # since the pool last looked
        self.born = self.idle_since = time.perf_counter()
        self.is_loaded = False  # its code is there, or could not be loaded
        self.is_lost = False  # its socket has ended
        self.load_log = b""  # printed while the code was loaded; it goes to the first call's log
        self._is_cold = True
        self._late_bytes = 0  # printed since the last answer; no more than one call's logs are kept
        self._rest: list[bytes | bytearray] = []
        self.reserved = 0  # bytes for a large frame that is not complete, since `reserved_at`
        self.reserved_at = 0.0
        self._rest_bytes = 0
        self._needed = 0
        self._number = 0
        self._unsent: list[bytes] = []
        self._deadline = b""  # of the calls that are not sent yet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self.function.load_frame)

    def send(self, call: Call, now: float) -> None:
        """Hand a call over. Whatever it needs from now on comes from here."""
        self._number = call.number = number = (self._number + 1) & 0xFFFFFFFF
        call.sent = call.started = now
        if self._is_cold:
            self._is_cold = False
            call.cold = True
        self.calls.append(call)
        if self.is_frozen:
            self.pool.thaw(self)
        # Everything that one turn of the loop brings goes over in one piece: one system call, one wake-up.
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
        if self.is_over:
            return
        if len(unsent) == 2 and len(unsent[1]) > LARGE_BYTES:
            self.transport.writelines(unsent)  # Put together, they would be in memory twice.
        else:
            self.transport.write(b"".join(unsent))

    def data_received(self, data: bytes) -> None:
        if self._rest:
            add_piece(self._rest, data)
            self._rest_bytes += len(data)
            if self._rest_bytes < self._needed:
                return
            data = b"".join(self._rest)
            self._rest = []
            self.pool.replies.release(self, time.perf_counter())
        position, end = 0, len(data)
        # Replies that leave nothing to think about are settled together. Everything else goes the long way.
        position, plain = self._plain_replies(data, end)
        if plain:
            self.pool.settle(self, plain)
        while end - position >= 5 and not self.is_over:
            length = int.from_bytes(data[position : position + 4], "little")
            after = position + 4 + length
            if after > end:
                break
            kind = data[position + 4]
            if kind == frames.REPLY:
                is_fine = self._replied(data, position + 5, after)
            else:
                is_fine = self._said(kind, data[position + 5 : after])
            if not is_fine:
                return
            position = after
        if position < end and not self.is_over:
            self._keep(data[position:])

    def _plain_replies(self, data: bytes, end: int) -> tuple[int, list[Plain]]:
        """Take as many replies as are plain: those of web calls that went well and neither printed nor set a header.

        Return where they end, and what they are.
        """
        position, last = 0, end - _FRAME_SIZE
        plain: list[Plain] = []
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

    def _keep(self, rest: bytes) -> None:
        self._needed = 4 + int.from_bytes(rest[:4], "little") if len(rest) >= 4 else 5
        if self._needed > MOST_FRAME:
            self.pool.broke(self, "the function's process sent what is no answer")
            return
        self._rest = [rest]
        self._rest_bytes = len(rest)
        is_large = self._needed > LARGE_FRAME
        if is_large and not self.pool.replies.reserve(self, self._needed, time.perf_counter()):
            self.transport.pause_reading()

    def _replied(self, data: bytes, position: int, end: int) -> bool:
        if end - position < _REPLY_SIZE or not self.calls:
            self.pool.broke(self, "the function's process sent what is no answer")
            return False
        number, outcome, status, kind, run_us, head_length, log_length = _unpack_reply(data, position)
        position += _REPLY_SIZE
        body_at = position + head_length + log_length
        call = self.calls[0]
        if number != call.number or body_at > end or kind > frames.DECLARED:
            self.pool.broke(self, "the function's process sent what is no answer")
            return False
        self.calls.popleft()
        now = time.perf_counter()
        self.note_reply(now)
        log = data[position + head_length : body_at] if log_length else b""
        head = data[position : position + head_length] if head_length else b""
        self.pool.replied(self, call, outcome, status, kind, head, log, data[body_at:end], run_us, now)
        return not self.is_over

    def note_reply(self, now: float) -> None:
        """The call after those that were answered runs from here on, if there is one."""
        if self.calls:
            self.calls[0].started = now
        else:
            self.idle_since = now
        self.worked = True
        self._late_bytes = 0

    def _said(self, kind: int, body: bytes) -> bool:
        if kind == frames.LOADED and len(body) >= frames.LOADED_HEAD.size and not self.is_loaded:
            ok, load_us, log_length = frames.LOADED_HEAD.unpack_from(body)
            message_at = frames.LOADED_HEAD.size + log_length
            log = body[frames.LOADED_HEAD.size : message_at]
            message = body[message_at : message_at + MOST_MESSAGE].decode("utf-8", "replace")
            self.pool.loaded(self, bool(ok), load_us, log, message)
        elif kind == frames.LATE and body[:32].isalnum() and len(body) >= 32:
            # Anything else in the place of an activation id would make the records after it unreadable.
            self._late_bytes += len(body)
            if self._late_bytes <= LOG_LIMIT:
                self.pool.printed_late(self, body[:32], body[32:])
        else:
            self.pool.broke(self, "the function's process sent what is no answer")
            return False
        return not self.is_over

    def connection_lost(self, exc: Exception | None) -> None:
        self.pool.lost(self)

    def close(self) -> None:
        """Stop using the instance; its process ends when its socket does, after what it still runs."""
        self.is_open = False
        self.is_over = True
        self._rest = []
        self.pool.replies.release(self, time.perf_counter())
        if self.is_attached:
            self.transport.abort()


def entries(out: str, err: str, at_ms: int) -> bytes:
    """Return what a dead process left behind as log entries."""
    blocks = []
    for stream, text in ((spool.STDOUT, out), (spool.STDERR, err)):
        for line in text.splitlines(keepends=True):
            blocks.append(spool.log_entry(stream, at_ms, line.encode()))
    return b"".join(blocks)
