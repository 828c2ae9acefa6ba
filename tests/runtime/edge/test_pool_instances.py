"""Instances in the pool: scaling up, scaling down, and limits."""

from __future__ import annotations

import asyncio
import socket

import pytest
from tests.runtime.edge.pool_support import Lab, PlainCall, opened, until

pytestmark = pytest.mark.anyio


# Growth.


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


async def test_a_slow_load_asks_for_a_snapshot_once(lab: Lab) -> None:
    python, node = lab.function(), lab.function(runtime="nodejs:24")
    for function in (python, node):
        lab.call(function)
        (await lab.give()).loaded(load_us=60_000)
    await until(lambda: lab.invoker.sent("template"))

    lab.pool.retire(python, None)

    assert [asked["function"] for asked in lab.invoker.sent("template")] == [python.id]
    assert lab.invoker.sent("retire") == [[python.id, 1]]


async def test_a_sandbox_that_nobody_asked_for_is_sent_back(lab: Lab) -> None:
    ours, theirs = socket.socketpair()

    lab.pool.sandbox_taken(99, 5, "waiting", theirs)

    assert lab.invoker.sent("kill") == [5]
    assert ours.recv(1) == b""
    ours.close()


# Work and idleness.


async def test_a_long_call_is_watched_until_it_ends(lab: Lab) -> None:
    function = lab.function()
    call = lab.call(function)
    worker = await lab.give_loaded()
    number, _ = await worker.next_call()

    await until(lambda: lab.invoker.sent("watch"))
    worker.reply(number)
    await call.done()

    assert lab.invoker.sent("watch") == lab.invoker.sent("unwatch") == [worker.sandbox]


async def test_sandboxes_that_worked_are_told_only_where_organizations_compete(lab: Lab) -> None:
    one = lab.function(org="1")
    first = await lab.warm(one)
    await asyncio.sleep(0.6)
    alone = list(lab.invoker.sent("busy"))
    second = await lab.warm(lab.function(org="2"))
    lab.call(one)
    await first.answer()

    await until(lambda: lab.invoker.sent("busy"))
    assert alone == []
    assert set(lab.invoker.sent("busy")[0]) <= {first.sandbox, second.sandbox}


async def test_an_idle_instance_is_frozen_thawed_by_the_next_call_and_reaped() -> None:
    async with opened(freeze_s=0.01, reap_s=1.5) as lab:
        function = lab.function()
        worker = await lab.warm(function)
        await until(lambda: lab.invoker.sent("freeze"))

        call = lab.call(function)
        thawed = list(lab.invoker.sent("thaw"))
        await worker.answer()
        await call.done()
        await until(lambda: lab.invoker.sent("kill"))

        assert lab.invoker.sent("freeze")[0] == worker.sandbox
        assert thawed == [worker.sandbox]
        assert lab.invoker.sent("kill") == [worker.sandbox]
        assert lab.pool.instances == 0


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
    assert worker.sandbox in lab.invoker.sent("kill")
    assert new.instances[0].sandbox_id == other.sandbox


async def test_idle_instances_end_with_their_revision(lab: Lab) -> None:
    old = lab.function()
    worker = await lab.warm(old)

    lab.replace(old)

    assert lab.invoker.sent("kill") == [worker.sandbox]
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


async def test_a_sandbox_that_comes_for_an_old_revision_is_not_used(lab: Lab) -> None:
    old = lab.function()
    call = lab.call(old)
    lab.replace(old)

    stale = await lab.give()
    other = await lab.give_loaded()
    await other.answer()

    assert await call.done() == "1"
    stale.loaded()
    await until(lambda: stale.sandbox in lab.invoker.sent("kill"))


# Bounds.


@pytest.mark.parametrize(
    ("caps", "params"),
    [
        ({"queue": 3}, b"{}"),
        ({"org_queue": 3}, b"{}"),
        ({"queue_bytes": 20_000, "queue_bytes_guaranteed": 0}, b'"' + b"x" * 1000 + b'"'),
    ],
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
    """Make calls of a function known to be slow, so that each needs an instance."""
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
        assert lab.invoker.sent("kill") == [idle.sandbox]
        assert others.sandbox not in lab.invoker.sent("kill")


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

    assert lab.invoker.sent("kill") == [oldest.sandbox]
    await (await lab.give_loaded()).answer()
    assert await call.done() == "1"


async def test_without_anything_idle_low_memory_makes_calls_wait_until_there_is_room(lab: Lab) -> None:
    lab.invoker.is_memory_low = True
    call = lab.call(lab.function())
    await asyncio.sleep(0.1)
    takes = len(lab.invoker.takes)

    lab.invoker.is_memory_low = False
    lab.pool.memory_changed()
    await (await lab.give_loaded()).answer()

    assert takes == 0
    assert await call.done() == "1"


async def test_a_pool_without_calls_waits_for_the_next_one(lab: Lab) -> None:
    await asyncio.sleep(0.2)
    is_waiting = lab.pool._pause.is_long

    worker = await lab.warm(lab.function())

    assert is_waiting
    assert worker.sandbox > 0
