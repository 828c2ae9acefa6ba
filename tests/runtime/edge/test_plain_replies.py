"""Plain replies are completed in batches, with the same answers and records."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.runtime.edge.pool_support import ENTRY, WAIT_S, Lab, PlainCall, Worker, until

from moorage.runtime.edge import spool
from moorage.runtime.edge.calls.call import WebCall, next_activation
from moorage.runtime.edge.calls.function import MIN_SAMPLES, AnyFunction
from moorage.runtime.edge.connections.answers import Answer, Request
from moorage.runtime.edge.connections.listener import Listener
from moorage.runtime.edge.connections.protocol import Connection, Handler
from moorage.runtime.workers import frames

pytestmark = pytest.mark.anyio

GET = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"


class NotedCall(WebCall):
    """A call that stores how it was answered, and the number of its records before."""

    def __init__(self, lab: Lab, function: AnyFunction, connection: Connection, request: Request) -> None:
        super().__init__(function, next_activation(), b"{}", connection, request)
        self.ways: list[str] = []
        self.recorded = -1
        self._lab = lab

    def reply_plainly(self, status: int, kind: int, body: bytes) -> None:
        self._note("plainly")
        super().reply_plainly(status, kind, body)

    def reply(self, status: int, kind: int, body: bytes, run_us: int) -> None:
        self._note("fully")
        super().reply(status, kind, body, run_us)

    def _note(self, way: str) -> None:
        if not self.ways:
            self.recorded = len(self._lab.of(self))
        self.ways.append(way)


class Web:
    """Clients with separate connections to a pool."""

    def __init__(self, lab: Lab) -> None:
        self.connections = Listener(self._take)
        self._lab = lab
        self._came: list[tuple[Connection, Request]] = []
        self._readers: dict[Connection, asyncio.StreamReader] = {}
        self._writers: list[asyncio.StreamWriter] = []

    def _take(self, connection: Connection, request: Request) -> None:
        self._came.append((connection, request))

    async def open(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(self.connections, "127.0.0.1", 0)

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
        self._server.close()
        await self.connections.drain(within_s=1)

    async def ask(self, function: AnyFunction, *requests: bytes) -> list[NotedCall]:
        """Send requests of separate clients to the pool in one turn of the loop."""
        for request in requests:
            reader, writer = await asyncio.open_connection(*self._server.sockets[0].getsockname())
            self._writers.append(writer)
            writer.write(request)
            await until(lambda: self._came and self._came[-1][0] not in self._readers)
            self._readers[self._came[-1][0]] = reader
        calls = [NotedCall(self._lab, function, *came) for came in self._came]
        self._came.clear()
        for call in calls:
            self._lab.pool.submit(call)
        return calls

    async def answer(self, call: NotedCall) -> tuple[int, bytes]:
        """Return status and body of a client's answer."""
        return await read_answer(self._readers[call.connection])

    async def whole_answer(self, call: NotedCall) -> bytes:
        """Return all bytes of an answer, with a placeholder for the activation id."""
        await until(lambda: call.ways)
        call.connection.close_if_idle()
        async with asyncio.timeout(WAIT_S):
            got = await self._readers[call.connection].read()
        return got.replace(call.activation, b"<activation>")


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    async with asyncio.timeout(WAIT_S):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return int(head.split()[1]), await reader.readexactly(length)


@pytest.fixture
async def web(lab: Lab) -> AsyncIterator[Web]:
    made = Web(lab)
    await made.open()
    yield made
    await made.close()


def frame(
    number: int,
    body: bytes = b"1",
    *,
    status: int = 200,
    kind: int = frames.JSON,
    outcome: int = frames.DONE,
    run_us: int = 0,
    head: bytes = b"",
    log: bytes = b"",
) -> bytes:
    fixed = frames.REPLY_HEAD.pack(number, outcome, status, kind, run_us, len(head), len(log))
    content = fixed + head + log + body
    return frames.HEAD.pack(1 + len(content), frames.REPLY) + content


async def hold(lab: Lab, web: Web, count: int) -> tuple[Worker, list[NotedCall], list[int]]:
    """Return a worker with several web calls in its socket, and their numbers."""
    function = lab.function()
    worker = await lab.warm(function, calls=MIN_SAMPLES + 5)
    calls = await web.ask(function, *[GET] * count)
    came = [await worker.next_call() for _ in calls]
    assert [activation for _, activation in came] == [call.activation.decode() for call in calls]
    return worker, calls, [number for number, _ in came]


# Batches.


async def test_calls_that_one_write_answers_are_recorded_once_each_and_then_answered(lab: Lab, web: Web) -> None:
    worker, calls, numbers = await hold(lab, web, 5)
    before = lab.pool.calls

    worker.writer.write(b"".join(frame(number, b"%d" % number) for number in numbers))
    answers = [await web.answer(call) for call in calls]

    function = calls[0].function
    records = lab.recorded()[-5:]
    assert answers == [(200, b"%d" % number) for number in numbers]
    assert [(call.ways, call.recorded) for call in calls] == [(["plainly"], 1)] * 5
    assert [record.activation for record in records] == [call.activation.decode() for call in calls]
    assert {(record.kind, record.door, record.ok, record.cold, record.error, record.log) for record in records} == {
        (spool.END, spool.WEB, True, False, None, b"")
    }
    assert {(record.function_id, record.org_id, record.version, record.memory_mb) for record in records} == {
        (function.id, function.org_id, function.version, function.memory_mb)
    }
    assert (lab.pool.calls, lab.pool.in_flight) == (before + 5, 0)


BAD = "the function returned the status 600, which cannot be sent"
# A reply, its answer and its record: a plain one, and replies that interrupt a batch.
Case = tuple[dict[str, Any], tuple[int, bytes], tuple[bool, str | None, bytes]]
USUAL: Case = ({}, (200, b"1"), (True, None, b""))
OTHERS: list[Case] = [
    ({"log": ENTRY}, (200, b"1"), (True, None, ENTRY)),
    ({"head": b'[["x-a", "b"]]'}, (200, b"1"), (True, None, b"")),
    ({"outcome": frames.FAILED, "body": b"no"}, (502, b"no"), (False, "no", b"")),
    ({"status": 600}, (502, BAD.encode()), (False, BAD, b"")),
]


@pytest.mark.parametrize("first", range(len(OTHERS)), ids=["log", "header", "failure", "status"])
async def test_among_plain_replies_each_other_one_has_its_own_outcome_and_record(
    lab: Lab, web: Web, first: int
) -> None:
    cases = [each for other in (*OTHERS[first:], *OTHERS[:first]) for each in (USUAL, other)] + [USUAL]
    worker, calls, numbers = await hold(lab, web, len(cases))

    worker.writer.write(b"".join(frame(number, **given) for number, (given, _, _) in zip(numbers, cases, strict=True)))
    answers = [await web.answer(call) for call in calls]

    for (status, body), (_, expected, _) in zip(answers, cases, strict=True):
        assert status == expected[0]
        assert body == expected[1] if status == 200 else expected[1] in body
    records = [(record.ok, record.error, record.log) for call in calls for record in lab.of(call)]
    assert records == [expected for _, _, expected in cases]


@pytest.mark.parametrize(
    ("ahead", "kind"),
    [
        pytest.param(1, frames.REPLY, id="to the call after"),
        pytest.param(1_000_000, frames.REPLY, id="to no call"),
        pytest.param(0, frames.CALL, id="of another kind"),
    ],
)
async def test_what_is_no_answer_after_plain_replies_fails_the_oldest_call_that_waits_and_no_other(
    lab: Lab, web: Web, ahead: int, kind: int
) -> None:
    worker, calls, numbers = await hold(lab, web, 4)
    wrong = bytearray(frame(numbers[2] + ahead))
    wrong[4] = kind

    worker.writer.write(frame(numbers[0]) + frame(numbers[1]) + wrong + frame(numbers[2]))
    answers = [await web.answer(call) for call in calls[:3]]
    other = await lab.give_loaded()
    activation = await other.answer()

    assert [status for status, _ in answers] == [200, 200, 502]
    assert b"sent an invalid frame" in answers[2][1]
    assert activation == calls[3].activation.decode()
    assert await web.answer(calls[3]) == (200, b"1")
    assert [len(lab.of(call)) for call in calls] == [1] * 4
    assert lab.invoker.sent("kill") == [worker.sandbox]


@pytest.mark.parametrize("cut", [1, 4, 5, 24, 25, 26])
async def test_a_reply_that_comes_in_two_pieces_between_plain_ones_is_put_together(
    lab: Lab, web: Web, cut: int
) -> None:
    worker, calls, numbers = await hold(lab, web, 3)
    first, second, third = (frame(number, b"[%d]" % number) for number in numbers)

    worker.writer.write(first + second[:cut])
    answers = [await web.answer(calls[0])]
    worker.writer.write(second[cut:] + third)
    answers += [await web.answer(call) for call in calls[1:]]

    assert answers == [(200, b"[%d]" % number) for number in numbers]
    assert [call.recorded for call in calls] == [1] * 3


async def test_a_full_disk_keeps_no_answer_back(lab: Lab, web: Web) -> None:
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context["exception"]))
    worker, calls, numbers = await hold(lab, web, 3)

    lab.is_disk_full = True
    worker.writer.write(b"".join(map(frame, numbers)))

    assert [await web.answer(call) for call in calls] == [(200, b"1")] * 3
    assert [type(problem) for problem in problems] == [OSError]


async def test_a_call_that_waits_comes_to_its_turn_after_plain_replies(lab: Lab, web: Web) -> None:
    worker, calls, numbers = await hold(lab, web, 3)
    waiting = PlainCall(lab, calls[0].function)
    waiting.is_alone = True
    lab.pool.submit(waiting)

    worker.writer.write(b"".join(map(frame, numbers)))
    activation = await worker.answer()

    assert activation == waiting.activation.decode()
    assert await waiting.done() == "1"


async def test_an_instance_of_a_function_that_was_replaced_ends_after_plain_replies(lab: Lab, web: Web) -> None:
    worker, calls, numbers = await hold(lab, web, 2)
    lab.replace(calls[0].function)
    before = lab.invoker.sent("kill")

    worker.writer.write(b"".join(map(frame, numbers)))

    assert [await web.answer(call) for call in calls] == [(200, b"1")] * 2
    assert (before, lab.invoker.sent("kill")) == ([], [worker.sandbox])


async def test_what_was_printed_while_loading_is_recorded_with_the_first_web_call(lab: Lab, web: Web) -> None:
    function = lab.function()
    calls = await web.ask(function, GET, GET)
    worker = await lab.give()

    worker.loaded(log=ENTRY)
    for call in calls:
        number, _ = await worker.next_call()
        worker.writer.write(frame(number))
        await web.answer(call)

    assert [(record.cold, record.log) for record in lab.recorded()] == [(True, ENTRY), (False, b"")]


# Run times.


@pytest.mark.parametrize("log", [b"", ENTRY], ids=["plain", "with a log"])
async def test_calls_that_one_read_answers_took_as_long_as_the_worker_says(lab: Lab, web: Web, log: bytes) -> None:
    worker, calls, numbers = await hold(lab, web, 4)
    told = [3000, 1000, 4000, 2000]

    await asyncio.sleep(0.02)  # Within the time since sending.
    worker.writer.write(
        b"".join(frame(number, run_us=run_us, log=log) for number, run_us in zip(numbers, told, strict=True))
    )
    await web.answer(calls[3])

    assert [record.duration_us for call in calls for record in lab.of(call)] == told


async def test_a_plain_reply_cannot_claim_more_time_than_the_call_was_given(lab: Lab, web: Web) -> None:
    before = time.perf_counter()
    worker, calls, numbers = await hold(lab, web, 2)

    worker.writer.write(b"".join(frame(number, run_us=4_000_000_000) for number in numbers))
    await web.answer(calls[1])

    most_us = (time.perf_counter() - before) * 1e6 + 1
    records = [record for call in calls for record in lab.of(call)]
    assert all(record.duration_us + record.wait_us <= most_us for record in records)
    assert [call.ways for call in calls] == [["plainly"]] * 2


# Answers.

REPLIES = [
    (200, frames.JSON, b'{"a": 1}'),
    (200, frames.HTML, b"<p>"),
    (404, frames.DECLARED, b"nothing"),
    (202, frames.NO_BODY, b""),
    (299, frames.JSON, b"[]"),
    (204, frames.NO_BODY, b""),
    (304, frames.JSON, b"{}"),
]


@pytest.mark.parametrize("is_draining", [False, True], ids=["", "draining"])
@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(GET, id="GET"),
        pytest.param(b"HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n", id="HEAD"),
        pytest.param(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", id="HTTP/1.0 that stays"),
        pytest.param(b"GET /a HTTP/1.0\r\n\r\n", id="HTTP/1.0"),
        pytest.param(b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", id="close"),
        pytest.param(b"GET /a HTTP/1.1\r\nHost: a\r\nX-Request-Id: own\r\n\r\n", id="an own id"),
        pytest.param(b"GET /a HTTP/1.1\r\nHost: a\r\nX-Request-Id: <b>\r\n\r\n", id="an unsafe id"),
    ],
)
async def test_a_plain_answer_has_the_bytes_of_any_other(
    lab: Lab, web: Web, request_: bytes, is_draining: bool
) -> None:
    function = lab.function()
    worker = await lab.warm(function)

    for status, kind, body in REPLIES:
        answers = []
        for log in (b"", ENTRY):  # A reply with a log is not plain; the answer is the same.
            web.connections.is_draining = False
            (call,) = await web.ask(function, request_)
            number, _ = await worker.next_call()
            web.connections.is_draining = is_draining
            worker.writer.write(frame(number, body, status=status, kind=kind, log=log))
            answers.append(await web.whole_answer(call))
            assert call.ways[0] == ("fully" if log else "plainly")

        plain, other = (answer.split(b"\r\n") for answer in answers)
        assert plain == other
        assert plain[0].startswith(b"HTTP/1.1 %d " % status)
        assert plain[-1] == (b"" if status in (204, 304) or request_.startswith(b"HEAD") else body)


POST = b"POST /b HTTP/1.1\r\nHost: a\r\nX-Request-Id: own\r\nContent-Length: 2\r\n\r\n"
LONG = b"GET /long HTTP/1.1\r\nHost: a\r\nX-Long: %b\r\n\r\n" % (b"x" * 4096)


@pytest.mark.parametrize(
    ("pieces", "understood"),
    [
        pytest.param([GET, GET, GET], ["new /a", "known /a", "known /a"], id="the same"),
        pytest.param([POST + b"hi"] * 2, ["new /b hi own", "known /b hi own"], id="with a body"),
        pytest.param([POST + b"hi", POST + b"ho"], ["new /b hi own", "new /b ho own"], id="another body"),
        pytest.param([GET, POST + b"hi", GET], ["new /a", "new /b hi own", "known /a"], id="another between"),
        pytest.param([GET, GET + GET, GET], [*["new /a"] * 3, "known /a"], id="two at once"),
        pytest.param([GET, GET[:9], GET[9:], GET], ["new /a", "new /a", "known /a"], id="in pieces"),
        pytest.param([GET + GET] * 2, ["new /a"] * 4, id="two at once twice"),
        pytest.param([POST, b"hi" + GET, b"hi" + GET], ["new /b hi own", "new /a", "400"], id="behind a body"),
        pytest.param([GET[:9], GET[9:], GET[9:]], ["new /a", "400"], id="a second half twice"),
        pytest.param([LONG, LONG], ["new /long"] * 2, id="long"),
    ],
)
async def test_a_request_that_comes_again_is_understood_as_the_first_time(
    pieces: list[bytes], understood: list[str]
) -> None:
    def send(_connection: Connection, request: Request) -> Answer:
        told = [request.resolved or b"new", request.target, request.body, request.sent_id]
        request.resolved = b"known"
        return Answer(200, b" ".join(filter(None, told)))

    async with connected(send) as (connection, reader):
        for piece in pieces:
            connection.data_received(piece)  # Like the loop, but never two chunks in one.
        answers = [await read_answer(reader) for _ in understood]

    assert [body.decode() if status == 200 else str(status) for status, body in answers] == understood


async def test_a_request_that_comes_again_before_its_answer_waits_for_its_turn() -> None:
    came: list[Request] = []

    async with connected(lambda _, request: came.append(request)) as (connection, _reader):
        counts = []
        for step in (GET, None, GET, GET, None, None):
            if step is None:
                connection.answer(Answer(200))
            else:
                connection.data_received(step)
            counts.append(len(came))

    assert counts == [1, 1, 2, 2, 3, 3]


@asynccontextmanager
async def connected(handler: Handler) -> AsyncIterator[tuple[Connection, asyncio.StreamReader]]:
    """Connect a client to a handler; yield the protocol, for data of the client."""
    connections = Listener(handler)
    server = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    await until(lambda: connections.open)
    (connection,) = connections.open
    yield connection, reader
    writer.close()
    server.close()
    await connections.drain(within_s=1)
