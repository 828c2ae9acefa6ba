"""The pool: which call goes where, what becomes of it, and how many instances there are."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator

import pytest
from tests.edge.pool_support import Lab, PlainCall, Worker, opened, until

from moorage.cells import frames
from moorage.edge.function import KNOWN
from moorage.kit import spool

pytestmark = pytest.mark.anyio

ENTRY = spool.log_entry(spool.STDOUT, 5, b"said\n")


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with opened() as made:
        yield made


# One call after the other.


async def test_a_first_call_asks_for_a_cell_and_is_answered_after_it_is_recorded(lab: Lab) -> None:
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
    assert lab.invoker.said("kill") == [worker.cell]


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
    worker = await lab.warm(function, calls=KNOWN - 2)

    calls = [lab.call(function) for _ in range(3)]
    number, _ = await worker.next_call()

    assert await worker.is_quiet()
    worker.reply(number)
    assert await calls[0].done() == "1"


async def test_short_calls_wait_in_the_socket_in_order(lab: Lab) -> None:
    function = lab.function()
    worker = await lab.warm(function, calls=KNOWN + 5)

    calls = [lab.call(function) for _ in range(8)]
    got = [await worker.next_call() for _ in calls]
    for number, _ in got:
        worker.reply(number)

    assert [activation for _, activation in got] == [call.activation.decode() for call in calls]
    assert [await call.done() for call in calls] == ["1"] * 8
    assert len(lab.invoker.takes) == 1


async def test_where_some_calls_are_slow_none_waits_in_the_socket(lab: Lab) -> None:
    function = lab.function()
    worker = await lab.warm(function, calls=KNOWN + 5)
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


# Crashes.


async def hold(lab: Lab, calls: int) -> tuple[Worker, list[PlainCall]]:
    """Return an instance that has several calls in its socket, the first of them running."""
    function = lab.function()
    worker = await lab.warm(function, calls=KNOWN + 5)
    held = [lab.call(function) for _ in range(calls)]
    await until(lambda: len(function.instances[0].calls) == calls)
    return worker, held


async def finish_elsewhere(lab: Lab, calls: list[PlainCall]) -> list[str]:
    """Answer all calls in another instance; return which came, in order."""
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

    assert calls[0].outcome == "failed: the function's process sent what is no answer"
    assert lab.invoker.said("kill") == [worker.cell]


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


# Loading.


async def test_a_load_that_fails_fails_everything_that_waits(lab: Lab) -> None:
    function = lab.function()
    calls = [lab.call(function) for _ in range(3)]
    worker = await lab.give()

    worker.loaded(ok=False, message=b"SyntaxError: no", log=ENTRY)

    assert [await call.done() for call in calls] == ["failed: SyntaxError: no"] * 3
    assert lab.of(calls[0])[0].log == ENTRY
    assert lab.invoker.said("kill") == [worker.cell]


async def test_a_cell_that_dies_while_loading_fails_everything_that_waits(lab: Lab) -> None:
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
    await until(lambda: lab.invoker.said("kill") == [worker.cell])


async def test_a_slow_load_brings_no_more_instances_than_calls_wait(lab: Lab) -> None:
    function = lab.function()
    busy = await lab.warm(function)
    slow = lab.call(function)
    number, _ = await busy.next_call()
    await asyncio.sleep(0.02)

    waiting = lab.call(function)
    loading = await lab.give()
    await asyncio.sleep(0.4)
    takes = len(lab.invoker.takes)
    loading.loaded()
    await loading.answer()
    busy.reply(number)

    assert takes == 2
    assert [await call.done() for call in (slow, waiting)] == ["1", "1"]


async def test_a_slow_load_asks_for_a_template_once(lab: Lab) -> None:
    python, node = lab.function(), lab.function(runtime="nodejs:24")
    for function in (python, node):
        lab.call(function)
        (await lab.give()).loaded(load_us=60_000)
    await until(lambda: lab.invoker.said("template"))

    lab.pool.retire(python, None)

    assert [asked["function"] for asked in lab.invoker.said("template")] == [python.id]
    assert lab.invoker.said("retire") == [[python.id, 1]]


async def test_a_refusal_of_the_invoker_is_told_to_who_waits(lab: Lab) -> None:
    call = lab.call(lab.function())

    lab.pool.refused(1, "its code cannot be read")

    assert await call.done() == "failed: the function cannot run here: its code cannot be read"
    assert (lab.pool.in_flight, lab.pool.instances) == (0, 0)


async def test_a_cell_that_nobody_asked_for_is_sent_back(lab: Lab) -> None:
    ours, theirs = socket.socketpair()

    lab.pool.took(99, 5, "waiting", theirs)

    assert lab.invoker.said("kill") == [5]
    assert ours.recv(1) == b""
    ours.close()


# Time.


async def test_a_call_past_its_timeout_fails_with_its_instance_and_the_next_runs_elsewhere() -> None:
    async with opened() as lab:
        function = lab.function(timeout_ms=300)
        worker = await lab.warm(function, calls=KNOWN + 5)
        calls = [lab.call(function) for _ in range(2)]

        other = await lab.give_loaded()
        came = await other.answer()
        failed = await calls[0].done()

        assert failed == "failed: the function ran past its 300 ms timeout"
        assert came == calls[1].activation.decode()
        assert lab.invoker.said("kill") == [worker.cell]


async def test_a_call_that_waits_longer_than_its_timeout_fails(lab: Lab) -> None:
    call = lab.call(lab.function(timeout_ms=100))

    assert await call.done() == "failed: the call waited 100 ms, its whole timeout, for its turn"
    assert [record.duration_us for record in lab.of(call)] == [0]
    assert lab.pool.in_flight == 0


async def test_a_long_call_is_watched_until_it_ends(lab: Lab) -> None:
    function = lab.function()
    call = lab.call(function)
    worker = await lab.give_loaded()
    number, _ = await worker.next_call()

    await until(lambda: lab.invoker.said("watch"))
    worker.reply(number)
    await call.done()

    assert lab.invoker.said("watch") == lab.invoker.said("unwatch") == [worker.cell]


async def test_cells_that_worked_are_told_only_where_organizations_compete(lab: Lab) -> None:
    one = lab.function(org="1")
    first = await lab.warm(one)
    await asyncio.sleep(0.6)
    alone = list(lab.invoker.said("busy"))
    second = await lab.warm(lab.function(org="2"))
    lab.call(one)
    await first.answer()

    await until(lambda: lab.invoker.said("busy"))
    assert alone == []
    assert set(lab.invoker.said("busy")[0]) <= {first.cell, second.cell}


async def test_an_idle_instance_is_frozen_thawed_by_the_next_call_and_reaped() -> None:
    async with opened(freeze_s=0.01, reap_s=1.5) as lab:
        function = lab.function()
        worker = await lab.warm(function)
        await until(lambda: lab.invoker.said("freeze"))

        call = lab.call(function)
        thawed = list(lab.invoker.said("thaw"))
        await worker.answer()
        await call.done()
        await until(lambda: lab.invoker.said("kill"))

        assert lab.invoker.said("freeze")[0] == worker.cell
        assert thawed == [worker.cell]
        assert lab.invoker.said("kill") == [worker.cell]
        assert lab.pool.instances == 0


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


# Scheduled calls.


def scheduled(lab: Lab, function: object) -> PlainCall:
    call = PlainCall(lab, function)  # type: ignore[arg-type]
    call.is_alone, call.door, call.schedule = True, spool.SCHEDULE, 7
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
    worker = await lab.warm(function, calls=KNOWN + 5)
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


# Revisions.


async def test_another_revision_takes_what_waits_and_lets_finish_what_runs(lab: Lab) -> None:
    old = lab.function()
    running = lab.call(old)
    worker = await lab.give_loaded()
    number, _ = await worker.next_call()
    waiting = lab.call(old)

    new = lab.replace(old)
    other = await lab.give_loaded()
    came = await other.answer(b"2")
    worker.reply(number)

    assert [await running.done(), await waiting.done()] == ["1", "2"]
    assert came == waiting.activation.decode()
    assert [lab.of(call)[0].version for call in (running, waiting)] == [1, 2]
    assert worker.cell in lab.invoker.said("kill")
    assert new.instances[0].cell == other.cell


async def test_idle_instances_end_with_their_revision(lab: Lab) -> None:
    old = lab.function()
    worker = await lab.warm(old)

    lab.replace(old)

    assert lab.invoker.said("kill") == [worker.cell]
    assert lab.pool.instances == 0


async def test_a_function_that_is_gone_refuses_what_waits_and_finishes_what_runs(lab: Lab) -> None:
    function = lab.function()
    running = lab.call(function)
    worker = await lab.give_loaded()
    number, _ = await worker.next_call()
    waiting = lab.call(function)

    del lab.functions[function.id]
    lab.pool.retire(function, None)
    worker.reply(number)

    assert await waiting.done() == "refused: 404"
    assert await running.done() == "1"
    await until(lambda: lab.pool.instances == 0)


async def test_a_cell_that_comes_for_an_old_revision_is_not_used(lab: Lab) -> None:
    old = lab.function()
    call = lab.call(old)
    lab.replace(old)

    stale = await lab.give()
    other = await lab.give_loaded()
    await other.answer()

    assert await call.done() == "1"
    stale.loaded()
    await until(lambda: stale.cell in lab.invoker.said("kill"))


# Bounds.


@pytest.mark.parametrize(
    ("caps", "params"),
    [({"queue": 3}, b"{}"), ({"org_queue": 3}, b"{}"), ({"queue_bytes": 3000}, b'"' + b"x" * 1000 + b'"')],
)
async def test_past_the_bounds_of_the_queue_calls_are_refused(caps: dict[str, int], params: bytes) -> None:
    async with opened(**caps) as lab:
        function = lab.function()

        calls = [lab.call(function, params) for _ in range(5)]
        refused = [call.outcome for call in calls]
        worker = await lab.give_loaded()
        for _ in range(3):
            await worker.answer()
        answers = [await call.done() for call in calls[:3]]
        again = lab.call(function, params)
        await worker.answer()

        assert refused == ["", "", "", "refused: 429", "refused: 429"]
        assert answers == ["1"] * 3
        assert await again.done() == "1"
        assert [len(lab.of(call)) for call in calls] == [1, 1, 1, 0, 0]


async def test_an_organization_s_queue_is_its_own() -> None:
    async with opened(org_queue=1) as lab:
        one, two = lab.function(org="1"), lab.function(org="2")

        calls = [lab.call(one), lab.call(one), lab.call(two)]

        assert [call.outcome for call in calls] == ["", "refused: 429", ""]


async def slow_calls(lab: Lab, count: int, **changed: object) -> list[PlainCall]:
    """Make calls of a function that is known to be slow, so that each wants an instance."""
    function = lab.function(**changed)
    worker = await lab.warm(function)
    calls = [lab.call(function)]
    await worker.next_call()
    await asyncio.sleep(0.02)
    return calls + [lab.call(function) for _ in range(count - 1)]


async def test_a_function_has_no_more_instances_than_it_may() -> None:
    async with opened(function_instances=3) as lab:
        await slow_calls(lab, 6)
        await lab.give_loaded()
        await lab.give_loaded()
        await asyncio.sleep(0.2)

        assert len(lab.invoker.takes) == 3


async def test_an_organization_at_its_cap_gives_up_its_own_idle_instance_for_another() -> None:
    async with opened(org_instances=1) as lab:
        idle = await lab.warm(lab.function(org="1"))
        others = await lab.warm(lab.function(org="2"))

        call = lab.call(lab.function(org="1"))
        await (await lab.give_loaded()).answer()

        assert await call.done() == "1"
        assert lab.invoker.said("kill") == [idle.cell]
        assert others.cell not in lab.invoker.said("kill")


async def test_an_organization_at_its_cap_waits_for_its_busy_instance() -> None:
    async with opened(org_instances=1) as lab:
        busy = lab.call(lab.function(org="1"))
        worker = await lab.give_loaded()
        number, _ = await worker.next_call()

        waiting = lab.call(lab.function(org="1"))
        await asyncio.sleep(0.1)
        takes = len(lab.invoker.takes)
        worker.reply(number)
        await busy.done()
        await until(lambda: len(lab.invoker.takes) == 2)
        await (await lab.give_loaded()).answer()

        assert takes == 1
        assert await waiting.done() == "1"


async def test_low_memory_evicts_the_oldest_idle_instance_of_anybody(lab: Lab) -> None:
    oldest = await lab.warm(lab.function(org="1"))
    await lab.warm(lab.function(org="2"))

    lab.invoker.is_memory_low = True
    call = lab.call(lab.function(org="3"))

    assert lab.invoker.said("kill") == [oldest.cell]
    await (await lab.give_loaded()).answer()
    assert await call.done() == "1"


async def test_without_anything_idle_low_memory_makes_calls_wait_until_there_is_room(lab: Lab) -> None:
    lab.invoker.is_memory_low = True
    call = lab.call(lab.function())
    await asyncio.sleep(0.1)
    takes = len(lab.invoker.takes)

    lab.invoker.is_memory_low = False
    lab.pool.breathe()
    await (await lab.give_loaded()).answer()

    assert takes == 0
    assert await call.done() == "1"


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
