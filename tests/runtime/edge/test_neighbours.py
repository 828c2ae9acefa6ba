"""Fairness between organizations: queue memory, sandboxes, takes."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator

import pytest
from bench.strangers import post
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.edge.pool_support import Lab, opened
from tests.runtime.workers.invoker_support import MODES, Host, running, until

from moorage.runtime.edge.calls.shares import Shares
from moorage.runtime.edge.calls.supply import MAX_ORG_TAKES

pytestmark = [pytest.mark.anyio, pytest.mark.group("edge-neighbours")]

MB = 2**20
SLOW = "import time\ndef main(args):\n    time.sleep(3600)\n"
QUICK = "def main(args):\n    return {'statusCode': 200, 'body': 'ok'}\n"


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with running(MODES[0], MOORAGE_FUNCTION_INSTANCES="1") as running_host:
        yield running_host


@pytest.mark.boundary(
    "tenant-to-tenant", "Calls of one organization, however many and large, do not make calls of another answer 429."
)
def test_an_organization_that_fills_the_queue_leaves_room_for_another(host: Host) -> None:
    slow = f"/api/v1/web/org_1/default/f-{host.put(SLOW, org='1', timeout_ms=600_000)}"
    quick = f"/api/v1/web/org_2/default/f-{host.put(QUICK, org='2')}"
    until(lambda: post(host.port, quick, b"{}") == "200")

    with contextlib.ExitStack() as stack:
        flood = [stack.enter_context(begin(host.port, slow, 5 * MB)) for _ in range(24)]
        until(lambda: answered(flood), "the refusal of the flood")
        small = [post(host.port, quick, b'{"a": 1}') for _ in range(4)]
        large = [post(host.port, quick, bytes(5 * MB)) for _ in range(2)]
        refused = answered(flood)

    assert set(refused) == {b"HTTP/1.1 429 Too Many Requests"}
    assert 2 < len(refused) < 20
    assert (small, large) == (["200"] * 4, ["200"] * 2)


def begin(port: int, path: str, size: int) -> socket.socket:
    """Send a call without waiting for its answer."""
    client = socket.create_connection(("127.0.0.1", port), timeout=60)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/octet-stream\r\nContent-Length: {size}\r\n\r\n"
    )
    client.sendall(head.encode() + bytes(size))
    return client


def answered(clients: list[socket.socket]) -> list[bytes]:
    """Return the status lines of the calls that were answered."""
    ready, _, _ = select.select(clients, [], [], 0)
    return [client.recv(100, socket.MSG_PEEK).partition(b"\r\n")[0] for client in ready]


# The pool.


async def test_large_calls_count_until_they_end_and_small_ones_while_they_wait() -> None:
    async with opened(queue_bytes=1 * MB, queue_bytes_guaranteed=0) as lab:
        function = lab.function(org="1")
        large = b'"' + b"x" * 300_000 + b'"'

        first = lab.call(function, large)
        worker = await lab.give_loaded()
        number, _ = await worker.next_call()
        second = lab.call(lab.function(org="1"), large)
        refused = second.outcome
        worker.reply(number)
        await first.done()
        third = lab.call(function, large)
        await worker.answer()

        assert refused == "refused: 429"
        assert await third.done() == "1"


async def test_an_organization_that_came_too_late_for_its_half_still_has_its_least() -> None:
    async with opened(queue_bytes=100_000, queue_bytes_guaranteed=5000, queue_bytes_extra=5000) as lab:
        greedy = lab.function(org="1")

        flood = [lab.call(greedy, b"x" * 6000) for _ in range(20)]
        others = [lab.call(lab.function(org=str(org)), b"x" * 2000) for org in range(2, 9)]

        assert [call.outcome for call in flood].count("refused: 429") > 10
        assert [call.outcome for call in others] == [""] * 7


async def test_takes_of_one_organization_do_not_keep_another_from_asking(lab: Lab) -> None:
    for _ in range(MAX_ORG_TAKES * 3):
        lab.call(lab.function(org="1"))
    asked = len(lab.invoker.takes)

    lab.call(lab.function(org="2"))

    assert asked == MAX_ORG_TAKES
    assert [take["org"] for take in lab.invoker.takes[asked:]] == ["2"]


async def test_an_organization_without_a_sandbox_gets_one_where_another_keeps_all_memory_busy(lab: Lab) -> None:
    for _ in range(10):
        lab.call(lab.function(org="1"))
        await (await lab.give_loaded()).next_call()

    lab.invoker.is_memory_low = True
    greedy = lab.call(lab.function(org="1"))
    call = lab.call(lab.function(org="2"))
    second = lab.call(lab.function(org="2"))
    taken = [take["org"] for take in lab.invoker.takes[10:]]
    await (await lab.give_loaded()).answer()

    assert await call.done() == "1"
    assert taken == ["2"]
    assert (greedy.outcome, second.outcome) == ("", "")


async def test_low_memory_evicts_from_the_organization_with_most(lab: Lab) -> None:
    await lab.warm(lab.function(org="2"))
    first_of_many = await lab.warm(lab.function(org="1"))
    await lab.warm(lab.function(org="1"))

    lab.invoker.is_memory_low = True
    lab.call(lab.function(org="3"))

    assert lab.invoker.sent("kill") == [first_of_many.sandbox]


# Shares.


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 40)), max_size=200))
def test_the_total_is_bounded_and_no_key_has_more_than_half(asked: list[tuple[str, int]]) -> None:
    shares = Shares(limit=100, guaranteed=5, extra=20)

    for key, size in asked:
        if shares.fits(key, size):
            shares.add(key, size)

    assert shares.total <= 120
    assert all(shares.used(key) <= 50 for key in "abcdef")


def test_what_is_given_back_can_be_had_again() -> None:
    shares = Shares(limit=100, guaranteed=0, extra=0)

    shares.add("a", 50)
    before = shares.fits("a", 1)
    shares.remove("a", 50)

    assert not before
    assert shares.fits("a", 50)
    assert list(shares) == []
