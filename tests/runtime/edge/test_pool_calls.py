"""Calls in the pool: dispatch, order, records and answers."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.runtime.edge.pool_support import ENTRY, Lab, PlainCall, Worker, until

from moorage.runtime.edge import spool
from moorage.runtime.edge.calls import lost_records
from moorage.runtime.edge.calls.function import MIN_SAMPLES
from moorage.runtime.workers import frames

pytestmark = pytest.mark.anyio


# One call after the other.


async def test_a_first_call_asks_for_a_sandbox_and_is_answered_after_it_is_recorded(lab: Lab) -> None:
    function = lab.function(memory_mb=512, network="none")

    call = lab.call(function)
    worker = await lab.give_loaded()
    activation = await worker.answer(b'{"a": 1}')

    assert await call.done() == '{"a": 1}'
    assert (call.recorded, call.times) == (1, 1)
    assert activation == call.activation.decode()
    assert lab.invoker.takes == [
        {
            "runtime": "python:3.11",
            "digest": "d",
            "memory_mb": 512,
            "timeout_ms": 30_000,
            "network": "none",
            "org": "1",
            "function": function.id,
            "revision": 1,
        }
    ]
    assert worker.load["action"] == f"/org-1/default/{function.name}"


async def test_only_the_first_call_of_an_instance_is_cold(lab: Lab) -> None:
    await lab.warm(lab.function(), calls=3)

    assert [record.cold for record in lab.recorded()] == [True, False, False]


async def test_what_was_printed_while_loading_is_in_the_first_call_s_log(lab: Lab) -> None:
    function = lab.function()
    calls = [lab.call(function) for _ in range(2)]
    worker = await lab.give()

    worker.loaded(log=ENTRY)
    for _ in calls:
        number, _ = await worker.next_call()
        worker.reply(number, log=ENTRY)
        await asyncio.sleep(0.01)
    await calls[1].done()

    assert [record.log for record in lab.recorded()] == [ENTRY * 2, ENTRY]


async def test_a_failure_that_the_instance_survives_leaves_it_in_use(lab: Lab) -> None:
    function = lab.function()
    worker = await lab.warm(function)

    failed = lab.call(function)
    number, _ = await worker.next_call()
    worker.reply(number, b"ValueError: no", outcome=frames.FAILED)
    await failed.done()
    fine = lab.call(function)
    await worker.answer()

    assert failed.outcome == "failed: ValueError: no"
    assert [record.error for record in lab.of(failed)] == ["ValueError: no"]
    assert await fine.done() == "1"


async def test_an_error_shows_no_secret_of_the_function(lab: Lab) -> None:
    function = lab.function(env=[("TOKEN", "hush-hush"), ("PLACE", "harbor")], secrets=["TOKEN"])
    worker = await lab.warm(function)

    failed = lab.call(function)
    number, _ = await worker.next_call()
    worker.reply(number, b"Error: harbor refused hush-hush", outcome=frames.FAILED)

    assert await failed.done() == "failed: Error: harbor refused ****"
    assert [record.error for record in lab.of(failed)] == ["Error: harbor refused ****"]


async def test_an_instance_that_says_it_ends_gets_no_other_call(lab: Lab) -> None:
    function = lab.function()
    worker = await lab.warm(function)

    failed = lab.call(function)
    number, _ = await worker.next_call()
    worker.reply(number, b"exit", outcome=frames.ENDING)
    await failed.done()
    lab.call(function)
    other = await lab.give_loaded()

    assert await other.answer()
    assert lab.invoker.sent("kill") == [worker.sandbox]


async def test_a_call_is_told_when_its_time_is_up(lab: Lab) -> None:
    lab.call(lab.function(timeout_ms=5000))
    worker = await lab.give()
    before = int(time.time() * 1000)

    worker.loaded()
    _, body = await worker.next_frame()

    started = int(body[37:50]) - 5000
    assert before <= started <= time.time() * 1000


# Several calls in one socket.


async def test_calls_wait_for_the_one_before_until_calls_are_known_to_be_short(lab: Lab) -> None:
    function = lab.function()
    worker = await lab.warm(function, calls=MIN_SAMPLES - 2)

    calls = [lab.call(function) for _ in range(3)]
    number, _ = await worker.next_call()

    assert await worker.is_quiet()
    worker.reply(number)
    assert await calls[0].done() == "1"


async def test_short_calls_wait_in_the_socket_in_order(lab: Lab) -> None:
    function = lab.function()
    worker = await lab.warm(function, calls=MIN_SAMPLES + 5)

    calls = [lab.call(function) for _ in range(8)]
    got = [await worker.next_call() for _ in calls]
    for number, _ in got:
        worker.reply(number)

    assert [activation for _, activation in got] == [call.activation.decode() for call in calls]
    assert [await call.done() for call in calls] == ["1"] * 8
    assert len(lab.invoker.takes) == 1


async def test_where_some_calls_are_slow_none_waits_in_the_socket(lab: Lab) -> None:
    function = lab.function()
    worker = await lab.warm(function, calls=MIN_SAMPLES + 5)
    for _ in range(4):
        call = lab.call(function)
        number, _ = await worker.next_call()
        await asyncio.sleep(0.005)
        worker.reply(number, run_us=5000)
        await call.done()

    lab.call(function)
    lab.call(function)
    await worker.next_call()

    assert await worker.is_quiet()


async def test_a_process_cannot_claim_to_have_run_longer_than_it_did(lab: Lab) -> None:
    function = lab.function()
    worker = await lab.warm(function)

    call = lab.call(function)
    number, _ = await worker.next_call()
    worker.reply(number, run_us=4_000_000_000)
    await call.done()

    assert lab.of(call)[0].duration_us < 60_000_000


async def test_an_answer_in_small_pieces_is_put_together(lab: Lab) -> None:
    function = lab.function()
    worker = await lab.warm(function)
    call = lab.call(function)
    number, _ = await worker.next_call()
    body = b'"' + b"x" * 300 + b'"'
    frame = frames.HEAD.pack(21 + len(body), frames.REPLY) + frames.REPLY_HEAD.pack(number, 0, 200, 2, 0, 0, 0) + body

    for at in range(0, len(frame), 40):
        worker.writer.write(frame[at : at + 40])
        await asyncio.sleep(0.001)

    assert await call.done() == body.decode()


async def test_many_calls_of_many_functions_each_come_out_exactly_once(lab: Lab) -> None:
    functions = [lab.function(org=str(number % 3 + 1)) for number in range(12)]
    calls = [lab.call(function) for _ in range(20) for function in functions]

    async def work(worker: Worker) -> None:
        while True:
            await worker.answer()

    working = [asyncio.create_task(work(await lab.give_loaded())) for _ in functions]
    outcomes = [await call.done() for call in calls]
    for task in working:
        task.cancel()

    assert outcomes == ["1"] * len(calls)
    assert {call.times for call in calls} == {1}
    assert sorted(record.activation for record in lab.recorded()) == sorted(call.activation.decode() for call in calls)
    assert lab.pool.in_flight == 0


# Records.


async def test_what_is_printed_late_is_recorded_with_its_call(lab: Lab) -> None:
    function = lab.function()
    worker = await lab.warm(function)

    worker.send(frames.LATE, b"a" * 32 + ENTRY)
    await until(lambda: len(lab.records) == 2)

    late = lab.recorded()[1]
    assert (late.kind, late.activation, late.log, late.function_id) == (spool.LATE, "a" * 32, ENTRY, function.id)


async def test_late_lines_are_bounded_until_the_next_answer(lab: Lab) -> None:
    function = lab.function()
    worker = await lab.warm(function)
    for _ in range(30):
        worker.send(frames.LATE, b"a" * 32 + bytes(1_000_000))
    call = lab.call(function)
    await worker.answer()
    await call.done()

    worker.send(frames.LATE, b"b" * 32 + ENTRY)
    await until(lambda: lab.recorded()[-1].activation == "b" * 32)

    kinds = [record.kind for record in lab.recorded()]
    assert 5 <= kinds.count(spool.LATE) <= 12


async def test_a_full_disk_does_not_keep_the_answer_back(lab: Lab) -> None:
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context["exception"]))
    function = lab.function()
    worker = await lab.warm(function)

    lab.is_disk_full = True
    call = lab.call(function)
    await worker.answer()

    assert await call.done() == "1"
    assert [type(problem) for problem in problems] == [OSError]


async def test_calls_that_are_not_recorded_are_reported_once_a_second_and_all_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lost_records, "REPORT_INTERVAL_S", 0.05)
    reports: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reports.append(context["message"]))
    lost = lost_records.LostRecords(loop)

    lost.note(OSError(28, "No space left on device"))
    lost.note(OSError(28, "No space left on device"), 40)
    lost.note(OSError(28, "No space left on device"))
    await until(lambda: len(reports) == 2)

    assert reports == ["1 invocation was not recorded", "41 invocations were not recorded"]


# Scheduled calls.


def scheduled(lab: Lab, function: object) -> PlainCall:
    call = PlainCall(lab, function)  # type: ignore[arg-type]
    call.is_alone, call.source, call.schedule = True, spool.SCHEDULE, 7
    lab.pool.submit(call)
    return call


async def test_a_scheduled_call_is_recorded_before_it_is_handed_over(lab: Lab) -> None:
    call = scheduled(lab, lab.function())
    before = list(lab.of(call))
    worker = await lab.give_loaded()
    number, _ = await worker.next_call()
    handed = list(lab.of(call))
    worker.reply(number)
    await call.done()

    assert before == []
    assert [(record.kind, record.schedule_id) for record in handed] == [(spool.START, 7)]
    assert [record.kind for record in lab.of(call)] == [spool.START, spool.END]


async def test_a_scheduled_call_never_waits_behind_another_in_a_socket(lab: Lab) -> None:
    function = lab.function()
    worker = await lab.warm(function, calls=MIN_SAMPLES + 5)
    running = lab.call(function)
    number, _ = await worker.next_call()

    call = scheduled(lab, function)
    is_quiet = await worker.is_quiet()
    started = list(lab.of(call))
    worker.reply(number)
    await running.done()
    activation = await worker.answer()

    assert is_quiet
    assert started == []
    assert activation == call.activation.decode()
