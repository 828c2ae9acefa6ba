"""Failures in the pool: only the running call fails, the others are requeued."""

from __future__ import annotations

import asyncio

import pytest
from tests.runtime.edge.pool_support import ENTRY, Lab, PlainCall, Worker, opened, until

from moorage.runtime.edge import spool
from moorage.runtime.edge.calls.function import MIN_SAMPLES
from moorage.runtime.workers import frames

pytestmark = pytest.mark.anyio


# Crashes.


async def hold(lab: Lab, calls: int) -> tuple[Worker, list[PlainCall]]:
    """Return a worker with several calls in its socket, the first of them running."""
    function = lab.function()
    worker = await lab.warm(function, calls=MIN_SAMPLES + 5)
    held = [lab.call(function) for _ in range(calls)]
    await until(lambda: len(function.instances[0].calls) == calls)
    return worker, held


async def finish_elsewhere(lab: Lab, calls: list[PlainCall]) -> list[str]:
    """Answer all calls in another instance; return their ids in order."""
    other = await lab.give_loaded()
    came = [await other.answer() for _ in calls]
    assert [await call.done() for call in calls] == ["1"] * len(calls)
    assert await other.is_quiet()
    return came


async def test_after_a_crash_only_the_oldest_call_fails_and_the_others_run_elsewhere_once(lab: Lab) -> None:
    worker, calls = await hold(lab, 5)

    worker.end()
    lab.ended(worker)
    failed = await calls[0].done()
    came = await finish_elsewhere(lab, calls[1:])

    assert failed == "failed: the function's process ended (exit code 9) before it answered"
    assert came == [call.activation.decode() for call in calls[1:]]
    assert [call.times for call in calls] == [1] * 5
    assert [len(lab.of(call)) for call in calls] == [1] * 5


async def test_the_end_may_be_told_before_the_socket_ends(lab: Lab) -> None:
    worker, calls = await hold(lab, 2)

    lab.ended(worker, code=-11)
    await asyncio.sleep(0.05)
    nothing_yet = calls[0].outcome
    worker.end()
    await calls[0].done()
    await finish_elsewhere(lab, calls[1:])

    assert nothing_yet == ""
    assert calls[0].outcome == "failed: the function's process was ended by signal 11 before it answered"


async def test_without_a_reason_from_the_invoker_the_call_fails_all_the_same(lab: Lab) -> None:
    worker, calls = await hold(lab, 2)

    worker.end()
    await calls[0].done()
    await finish_elsewhere(lab, calls[1:])

    assert calls[0].outcome == "failed: the function's process ended before it answered"


async def test_answers_written_before_a_crash_count(lab: Lab) -> None:
    worker, calls = await hold(lab, 3)

    lab.ended(worker)
    for call, body in zip(calls[:2], (b"1", b"2"), strict=True):
        number, activation = await worker.next_call()
        assert activation == call.activation.decode()
        worker.reply(number, body)
    worker.end()

    assert [await call.done() for call in calls[:2]] == ["1", "2"]
    assert (await calls[2].done()).startswith("failed: ")


@pytest.mark.parametrize(
    ("ended", "told"),
    [
        ({"oom": True, "code": -9}, "the function used more than its 128 MB of memory"),
        ({"err": "FATAL: heap out of memory"}, "the function used more than its 128 MB of memory"),
        ({"code": None}, "the function's process ended before it answered"),
        ({"code": 0}, "the function's process ended (exit code 0) before it answered"),
    ],
)
async def test_the_reason_of_an_end_is_told_in_words(lab: Lab, ended: dict[str, object], told: str) -> None:
    worker, calls = await hold(lab, 1)

    worker.end()
    lab.ended(worker, **ended)

    assert await calls[0].done() == f"failed: {told}"


async def test_what_a_dead_process_wrote_is_in_its_call_s_log(lab: Lab) -> None:
    worker, calls = await hold(lab, 1)

    worker.end()
    lab.ended(worker, out="one\ntwo\n", err="three")
    await calls[0].done()

    assert spool.log_texts(lab.of(calls[0])[0].log) == ("one\ntwo\n", "three")


async def test_an_idle_instance_that_ends_is_replaced_when_it_is_needed(lab: Lab) -> None:
    function = lab.function()
    worker = await lab.warm(function)

    worker.end()
    lab.ended(worker)
    await until(lambda: lab.pool.instances == 0)
    call = lab.call(function)
    await (await lab.give_loaded()).answer()

    assert await call.done() == "1"


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"\xff" * 64, id="an endless frame"),
        pytest.param(bytes(8), id="an empty frame"),
        pytest.param(frames.HEAD.pack(3, frames.REPLY) + b"ab", id="half an answer"),
        pytest.param(frames.HEAD.pack(21, frames.REPLY) + b"\xff" * 20, id="an answer to another call"),
        pytest.param(frames.HEAD.pack(10, frames.LOADED) + bytes(9), id="a failed load after the load"),
        pytest.param(frames.HEAD.pack(1, frames.READY), id="ready again"),
        pytest.param(frames.HEAD.pack(33, frames.LATE) + b" " * 32, id="late lines of no call"),
        pytest.param(frames.HEAD.pack(3, frames.LATE) + b"ab", id="late lines that are cut"),
        pytest.param(frames.HEAD.pack(1, 99), id="an unknown kind"),
    ],
)
async def test_garbage_fails_the_call_that_runs_and_moves_the_others(lab: Lab, sent: bytes) -> None:
    worker, calls = await hold(lab, 3)

    worker.writer.write(sent)
    await calls[0].done()
    await finish_elsewhere(lab, calls[1:])

    assert calls[0].outcome == "failed: the function's process sent an invalid frame"
    assert lab.invoker.sent("kill") == [worker.sandbox]


# Loading.


async def test_a_load_that_fails_fails_everything_that_waits(lab: Lab) -> None:
    function = lab.function()
    calls = [lab.call(function) for _ in range(3)]
    worker = await lab.give()

    worker.loaded(ok=False, message=b"SyntaxError: no", log=ENTRY)

    assert [await call.done() for call in calls] == ["failed: SyntaxError: no"] * 3
    assert lab.of(calls[0])[0].log == ENTRY
    assert lab.invoker.sent("kill") == [worker.sandbox]


async def test_a_sandbox_that_dies_while_loading_fails_everything_that_waits(lab: Lab) -> None:
    calls = [lab.call(lab.function())]
    worker = await lab.give()

    worker.end()
    lab.ended(worker, code=3)

    assert await calls[0].done() == "failed: the function's process ended (exit code 3) before it answered"


async def test_a_load_that_does_not_end_is_cut_off(lab: Lab) -> None:
    call = lab.call(lab.function(timeout_ms=200))
    worker = await lab.give()

    told = await call.done()

    assert told == "failed: the function ran past its 200 ms timeout while its code was loaded"
    await until(lambda: lab.invoker.sent("kill") == [worker.sandbox])


async def test_a_refusal_of_the_invoker_is_told_to_who_waits(lab: Lab) -> None:
    call = lab.call(lab.function())

    lab.pool.take_refused(1, "its code cannot be read")

    assert await call.done() == "failed: the function cannot run here: its code cannot be read"
    assert (lab.pool.in_flight, lab.pool.instances) == (0, 0)


# Time.


async def test_a_call_past_its_timeout_fails_with_its_instance_and_the_next_runs_elsewhere() -> None:
    async with opened() as lab:
        function = lab.function(timeout_ms=300)
        worker = await lab.warm(function, calls=MIN_SAMPLES + 5)
        calls = [lab.call(function) for _ in range(2)]

        other = await lab.give_loaded()
        came = await other.answer()
        failed = await calls[0].done()

        assert failed == "failed: the function ran past its 300 ms timeout"
        assert came == calls[1].activation.decode()
        assert lab.invoker.sent("kill") == [worker.sandbox]


async def test_a_call_that_waits_longer_than_its_timeout_fails(lab: Lab) -> None:
    call = lab.call(lab.function(timeout_ms=100))

    assert await call.done() == "failed: the call waited 100 ms, its whole timeout, for its turn"
    assert [record.duration_us for record in lab.of(call)] == [0]
    assert lab.pool.in_flight == 0
