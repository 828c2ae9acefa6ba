"""A call on its way through the gateway: who asked, for what, and what to do with the reply."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from moorage.runtime.edge import spool
from moorage.runtime.edge.connections import answers, web
from moorage.runtime.edge.connections.answers import Answer, Failure, Request
from moorage.runtime.edge.connections.origins import ABSENT, Origin
from moorage.runtime.edge.connections.protocol import Connection
from moorage.runtime.workers import frames

if TYPE_CHECKING:
    from moorage.runtime.edge.calls.function import Function

LARGE_BYTES = 64 * 1024  # params of a large call
IDS_AT_ONCE = 512  # Each on its own would cost a system call.


def _activations() -> Iterator[bytes]:
    while True:
        digits = os.urandom(16 * IDS_AT_ONCE).hex().encode()
        for at in range(0, len(digits), 32):
            yield digits[at : at + 32]


next_activation = _activations().__next__

_CONTENT_TYPES = {
    frames.NO_BODY: b"",
    frames.HTML: b"content-type: text/html; charset=utf-8\r\n",
    frames.JSON: b"content-type: application/json\r\n",
    frames.DECLARED: b"",
}

_MOST_STARTS = 4096
_BETWEEN = b"\r\nx-request-id: "


class Call(ABC):
    """One invocation. `params` is JSON text; the reply comes to `reply` or `fail`, exactly once."""

    __slots__ = (
        "activation",
        "arrived",
        "cold",
        "function",
        "number",
        "params",
        "sent",
        "started",
    )
    door = spool.API
    schedule = 0
    flags = 0
    is_alone = False  # may not wait behind another call in an instance's socket
    is_plain = False  # its reply may be settled together with others
    is_large = False  # counts against its organization's memory until it ends

    def __init__(self, function: Function, activation: bytes, params: bytes) -> None:
        self.function = function
        self.activation = activation
        self.params = params
        self.arrived = time.perf_counter()
        self.number = 0
        self.started = 0.0  # since when it is the one that runs, as far as is known
        self.sent = 0.0  # when it was handed to an instance
        self.cold = False

    @abstractmethod
    def check(self, status: int, head: bytes, body: bytes) -> None:
        """Raise BadReply where the reply cannot be passed on: a function's process may send anything."""

    @abstractmethod
    def reply(self, status: int, kind: int, body: bytes, run_us: int) -> None:
        """Answer with a reply that was checked."""

    @abstractmethod
    def fail(self, message: str, run_us: int) -> None:
        """Answer that it failed, and why."""

    @abstractmethod
    def refuse(self, failure: Failure) -> None:
        """Answer that it does not run at all."""


class WebCall(Call):
    """A call from the public address; the answer is HTTP."""

    __slots__ = ("_head", "connection", "request")
    door = spool.WEB
    flags = frames.WEB
    is_plain = True

    def __init__(
        self, function: Function, activation: bytes, params: bytes, connection: Connection, request: Request
    ) -> None:
        # One call less for every request: this says the same as the base class, but for what handing over or queueing
        # the call sets anyway.
        self.function = function
        self.activation = activation
        self.params = params
        self.arrived = time.perf_counter()
        self.cold = False
        self.connection = connection
        self.request = request

    def check(self, status: int, head: bytes, body: bytes) -> None:
        if not 200 <= status <= 599:
            raise web.BadReply(f"the function returned the status {status}, which cannot be sent")
        self._head = web.reply_head(head, self.request.origin) if head else web.NO_HEAD

    def reply_plainly(self, status: int, kind: int, body: bytes) -> None:
        """Answer with a reply without headers of its own and with a status from 200 to 599. Most are like that."""
        connection = self.connection
        request = self.request
        if not request.is_plain or connection.all.is_draining or status in (204, 304):
            self.check(status, b"", body)
            self.reply(status, kind, body, 0)
            return
        size = len(body)
        origin = request.origin
        start = origin.starts.get((status, kind, size)) or _start(origin, status, kind, size)
        activation = self.activation
        connection.finish(b"".join((start, activation, _BETWEEN, activation, connection.all.plain_end, body)))

    def reply(self, status: int, kind: int, body: bytes, run_us: int) -> None:
        request, connection, head = self.request, self.connection, self._head
        # Before the function's own lines: of a header that comes twice, browsers may take the first.
        protection = request.origin.protection(kind, head.declared)
        if status in (204, 304):
            start = answers.status_line(status) + protection + head.lines + head.cors
        else:
            start = b"%b%b%b%b%bcontent-length: %d\r\n" % (
                answers.status_line(status), _CONTENT_TYPES[kind], protection, head.lines, head.cors, len(body)
            )  # fmt: skip
        rendered = b"%bx-openwhisk-activation-id: %b\r\nx-request-id: %b\r\ndate: %b\r\n%b\r\n" % (
            start,
            self.activation,
            self.activation if request.sent_id is None else request.request_id or self.activation,
            connection.all.date,
            connection.connection_line(request),
        )
        is_bare = status in (204, 304) or request.method == b"HEAD"
        connection.finish(rendered if is_bare else rendered + body)

    def fail(self, message: str, run_us: int) -> None:
        failure = Failure(502, "internal", message, ((b"x-openwhisk-activation-id", self.activation),))
        self.connection.answer(failure.answer(self.request.request_id or self.activation))

    def refuse(self, failure: Failure) -> None:
        self.connection.answer(failure.answer(self.request.request_id or self.activation))


class LargeWebCall(WebCall):
    """A call with a large body."""

    __slots__ = ()
    is_plain = False
    is_large = True


def _start(origin: Origin, status: int, kind: int, size: int) -> bytes:
    """Return an answer whose function set no headers, up to its activation id. A few serve almost all calls."""
    starts = origin.starts
    if len(starts) >= _MOST_STARTS:
        starts.clear()
    start = starts[status, kind, size] = b"%b%b%b%bcontent-length: %d\r\nx-openwhisk-activation-id: " % (
        answers.status_line(status), _CONTENT_TYPES[kind], origin.protection(kind, ABSENT), answers.CORS, size
    )  # fmt: skip
    return start


class DoorCall(Call):
    """A call from the platform itself: the API's `invoke`, or a schedule."""

    __slots__ = ("_connection", "door", "is_alone", "is_large", "on_refused", "schedule")

    def __init__(
        self, function: Function, activation: bytes, params: bytes, connection: Connection, schedule: int, *, door: int
    ) -> None:
        super().__init__(function, activation, params)
        self._connection = connection
        self.schedule = schedule
        self.door = door
        self.on_refused: Callable[[], object] | None = None  # it did not run, and may come again
        # What runs at most once must not be sent elsewhere, so it goes to an instance that does nothing else.
        self.is_alone = door == spool.SCHEDULE
        self.is_large = len(params) > LARGE_BYTES

    def check(self, status: int, head: bytes, body: bytes) -> None:
        try:
            web.decode(body)
        except (msgspec.DecodeError, RecursionError):
            raise web.BadReply("the function returned what is not JSON") from None

    def reply(self, status: int, kind: int, body: bytes, run_us: int) -> None:
        self._answer("success", msgspec.Raw(body), None, run_us)

    def fail(self, message: str, run_us: int) -> None:
        self._answer("error", None, message, run_us)

    def refuse(self, failure: Failure) -> None:
        if self.on_refused is not None:
            self.on_refused()
        self._connection.answer(failure.answer(self.activation))

    def _answer(self, status: str, result: msgspec.Raw | None, error: str | None, run_us: int) -> None:
        body = {
            "status": status,
            "result": result,
            "error": error,
            "durationMs": run_us / 1000,
            "version": self.function.version,
            "activationId": self.activation.decode(),
        }
        self._connection.answer(Answer(200, web.encode(body), ((b"content-type", answers.JSON),)))
