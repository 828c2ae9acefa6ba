"""A function call in the edge: its source, its params and the way to answer it."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import msgspec

from moorage.runtime.edge import spool
from moorage.runtime.edge.calls.function import AnyFunction
from moorage.runtime.edge.connections import answers, web
from moorage.runtime.edge.connections.answers import Answer, Failure, Request
from moorage.runtime.edge.connections.origins import ABSENT, Origin
from moorage.runtime.edge.connections.protocol import Connection
from moorage.runtime.workers import frames

LARGE_BYTES = 64 * 1024  # params of a large call
ID_BATCH = 512  # activation ids per `urandom` system call


def _activations() -> Iterator[bytes]:
    while True:
        digits = os.urandom(16 * ID_BATCH).hex().encode()
        for at in range(0, len(digits), 32):
            yield digits[at : at + 32]


next_activation = _activations().__next__

_CONTENT_TYPES = {
    frames.NO_BODY: b"",
    frames.HTML: b"content-type: text/html; charset=utf-8\r\n",
    frames.JSON: b"content-type: application/json\r\n",
    frames.DECLARED: b"",
}

_MAX_STARTS = 4096
_BETWEEN = b"\r\nx-request-id: "


class Call(ABC):
    """One invocation; exactly one of `reply`, `fail` and `refuse` ends it."""

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
    source = spool.API
    schedule = 0
    flags = 0
    is_alone = False  # needs an idle instance
    is_plain = False  # the pool may complete it in a batch
    is_large = False  # counts against the organization's memory until it ends

    def __init__(self, function: AnyFunction, activation: bytes, params: bytes) -> None:
        self.function = function
        self.activation = activation
        self.params = params
        self.arrived = time.perf_counter()
        self.number = 0
        self.started = 0.0  # estimated start: sent to an idle instance, or the call before it was answered
        self.sent = 0.0  # when it was sent to an instance
        self.cold = False

    @abstractmethod
    def check(self, status: int, head: bytes, body: bytes) -> None:
        """Raise BadReply for a reply that cannot be forwarded: workers are not trusted."""

    @abstractmethod
    def reply(self, status: int, kind: int, body: bytes, run_us: int) -> None:
        """Answer with a checked reply."""

    @abstractmethod
    def fail(self, message: str, run_us: int) -> None:
        """Answer that the call failed."""

    @abstractmethod
    def refuse(self, failure: Failure) -> None:
        """Answer that the call was not run."""


class WebCall(Call):
    """A call by HTTP from the internet."""

    __slots__ = ("_head", "connection", "request")
    source = spool.WEB
    flags = frames.WEB
    is_plain = True

    def __init__(
        self, function: AnyFunction, activation: bytes, params: bytes, connection: Connection, request: Request
    ) -> None:
        # Same as the base class without the cost of a call, except for fields that `Instance.send` or the queue sets.
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
        """Answer with a reply without headers and with a status from 200 to 599."""
        connection = self.connection
        request = self.request
        if not request.is_plain or connection.listener.is_draining or status in (204, 304):
            self.check(status, b"", body)
            self.reply(status, kind, body, 0)
            return
        size = len(body)
        origin = request.origin
        start = origin.starts.get((status, kind, size)) or _start(origin, status, kind, size)
        activation = self.activation
        connection.finish(b"".join((start, activation, _BETWEEN, activation, connection.listener.plain_end, body)))

    def reply(self, status: int, kind: int, body: bytes, run_us: int) -> None:
        request, connection, head = self.request, self.connection, self._head
        # Before the function's headers: browsers may use the first of duplicate headers.
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
            connection.listener.date,
            connection.connection_line(request),
        )
        is_bare = status in (204, 304) or request.method == b"HEAD"
        connection.finish(rendered if is_bare else rendered + body)

    def fail(self, message: str, run_us: int) -> None:
        failure = Failure(502, "internal", message, ((b"x-openwhisk-activation-id", self.activation),))
        self.connection.answer(failure.answer_to(self.request, self.activation))

    def refuse(self, failure: Failure) -> None:
        self.connection.answer(failure.answer_to(self.request, self.activation))


class LargeWebCall(WebCall):
    """A web call with params above LARGE_BYTES."""

    __slots__ = ()
    is_plain = False
    is_large = True


def _start(origin: Origin, status: int, kind: int, size: int) -> bytes:
    """Return the head of a plain answer up to the activation id; cached."""
    starts = origin.starts
    if len(starts) >= _MAX_STARTS:
        starts.clear()
    start = starts[status, kind, size] = b"%b%b%b%bcontent-length: %d\r\nx-openwhisk-activation-id: " % (
        answers.status_line(status), _CONTENT_TYPES[kind], origin.protection(kind, ABSENT), answers.CORS, size
    )  # fmt: skip
    return start


class PlatformCall(Call):
    """A call from the platform: the API's `invoke`, or a schedule."""

    __slots__ = ("_connection", "is_alone", "is_large", "on_refused", "schedule", "source")

    def __init__(
        self,
        function: AnyFunction,
        activation: bytes,
        params: bytes,
        connection: Connection,
        schedule: int,
        source: int,
    ) -> None:
        super().__init__(function, activation, params)
        self._connection = connection
        self.schedule = schedule
        self.source = source
        self.on_refused: Callable[[], object] | None = None  # The call was not run and may be repeated.
        # A scheduled call runs at most once and must not be requeued, so it needs an idle instance.
        self.is_alone = source == spool.SCHEDULE
        self.is_large = len(params) > LARGE_BYTES

    def check(self, status: int, head: bytes, body: bytes) -> None:
        try:
            web.check_json(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise web.BadReply("the function returned a result that is not JSON") from None

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
