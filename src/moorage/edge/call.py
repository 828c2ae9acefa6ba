"""A call on its way through the gateway: who asked, for what, and what to do with the reply."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from moorage.cells import frames
from moorage.edge import answers, web
from moorage.edge.answers import Answer, Failure, Request
from moorage.edge.protocol import Connection
from moorage.kit import spool

if TYPE_CHECKING:
    from moorage.edge.function import Function

# Activation ids have to be unique, not secret; the system's randomness would cost a system call each.
random_bits = random.Random(random.SystemRandom().getrandbits(256)).getrandbits  # noqa: S311

_CONTENT_TYPES = {
    frames.NO_BODY: b"",
    frames.HTML: b"content-type: text/html; charset=utf-8\r\n",
    frames.JSON: b"content-type: application/json\r\n",
    frames.DECLARED: b"",
}

_PLAIN: dict[tuple[int, int], bytes] = {}


class Call(ABC):
    """One invocation. `params` is JSON text; the reply comes to `reply` or `fail`, exactly once."""

    __slots__ = (
        "activation",
        "arrived",
        "cold",
        "flags",
        "function",
        "is_alone",
        "number",
        "params",
        "started",
    )
    door = spool.API
    schedule = 0

    def __init__(self, function: Function, activation: bytes, params: bytes) -> None:
        self.function = function
        self.activation = activation
        self.params = params
        self.arrived = time.perf_counter()
        self.number = 0
        self.started = 0.0
        self.cold = False
        self.flags = 0
        self.is_alone = False  # may not wait behind another call in an instance's socket

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

    __slots__ = ("_cors", "_lines", "connection", "request")
    door = spool.WEB

    def __init__(
        self, function: Function, activation: bytes, params: bytes, connection: Connection, request: Request
    ) -> None:
        # One call less for every request: this says the same as the base class.
        self.function = function
        self.activation = activation
        self.params = params
        self.arrived = time.perf_counter()
        self.number = 0
        self.started = 0.0
        self.cold = False
        self.is_alone = False
        self.flags = frames.WEB
        self.connection = connection
        self.request = request
        self._lines = b""
        self._cors = answers.CORS

    def check(self, status: int, head: bytes, body: bytes) -> None:
        if not 200 <= status <= 599:
            raise web.BadReply(f"the function returned the status {status}, which cannot be sent")
        if head:
            self._lines, self._cors = web.reply_headers(head)

    def reply(self, status: int, kind: int, body: bytes, run_us: int) -> None:
        request, connection = self.request, self.connection
        if status in (204, 304):
            start = answers.status_line(status) + self._lines + self._cors
        elif self._lines:
            start = b"%b%b%b%bcontent-length: %d\r\n" % (
                answers.status_line(status), _CONTENT_TYPES[kind], self._lines, self._cors, len(body)
            )  # fmt: skip
        else:
            start = b"%bcontent-length: %d\r\n" % (_PLAIN.get((status, kind)) or plain(status, kind), len(body))
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


def plain(status: int, kind: int) -> bytes:
    """Return the start of an answer whose function set no headers; there are few of them, so they are kept."""
    start = _PLAIN[status, kind] = answers.status_line(status) + _CONTENT_TYPES[kind] + answers.CORS
    return start


class DoorCall(Call):
    """A call from the platform itself: the API's `invoke`, or a schedule."""

    __slots__ = ("_connection", "door", "on_refused", "schedule")

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
