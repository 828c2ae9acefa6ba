"""Rounds: periodic reconciliation, with one task per resource."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest

from moorage.core.db.commits import Commits
from moorage.core.reconciler.rounds import Rounds
from moorage.core.telemetry import Telemetry
from moorage.errors import IllegalMove

pytestmark = pytest.mark.anyio

NEVER_S = 3600.0


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry(quiet=True)


@asynccontextmanager
async def going_on(rounds: Rounds, round_: Callable[[], Awaitable[bool | None]]) -> AsyncIterator[None]:
    task = asyncio.create_task(rounds.run(round_))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def reaches(seen: list[str], wanted: int) -> None:
    async with asyncio.timeout(10):
        while len(seen) < wanted:
            await asyncio.sleep(0.005)


def crashes(telemetry: Telemetry, where: str) -> float:
    return telemetry.metrics.crashes.labels(where).numbers[0]


async def test_a_round_is_made_at_once_and_again_when_somebody_wakes(telemetry: Telemetry) -> None:
    rounds, seen = Rounds(telemetry, "ships", NEVER_S), list[str]()

    async def look() -> None:
        seen.append("all")

    async with going_on(rounds, look):
        await reaches(seen, 1)
        rounds.wake()
        await reaches(seen, 2)

    assert seen == ["all", "all"]


async def test_rounds_that_crash_are_told_and_made_again_every_so_often(telemetry: Telemetry) -> None:
    rounds, seen = Rounds(telemetry, "ships", 0.01), list[str]()

    async def crash() -> None:
        seen.append("all")
        raise RuntimeError("the engine is away")

    async with going_on(rounds, crash):
        await reaches(seen, 3)

    assert crashes(telemetry, "ships") == len(seen)


async def test_a_thing_has_one_task_at_a_time_and_its_end_wakes(telemetry: Telemetry) -> None:
    rounds, seen = Rounds(telemetry, "ships", NEVER_S), list[str]()
    goes_on = asyncio.Event()

    async def work() -> None:
        seen.append("begun")
        await goes_on.wait()

    async def look() -> None:
        seen.append("all")
        if "over" not in seen:
            rounds.begin("one", work, after=lambda: seen.append("over"))

    async with going_on(rounds, look):
        await reaches(seen, 2)
        rounds.wake()
        await reaches(seen, 3)
        goes_on.set()
        await reaches(seen, 5)

    assert seen == ["all", "begun", "all", "over", "all"]


async def test_what_crashes_for_one_thing_is_told_and_the_others_go_on(telemetry: Telemetry) -> None:
    rounds, seen = Rounds(telemetry, "ships", NEVER_S), list[str]()

    async def crash() -> None:
        raise RuntimeError("it sank")

    async def was_decided() -> None:
        raise IllegalMove("ship", "sunk", "afloat")

    async def work() -> None:
        seen.append("done")

    for key, what in (("one", crash), ("two", was_decided), ("three", work)):
        rounds.begin(key, what, after=partial(seen.append, key))
    await rounds.idle()

    assert sorted(seen) == ["done", "one", "three", "two"]
    assert (crashes(telemetry, "ships one"), crashes(telemetry, "ships two")) == (1, 0)
    assert rounds.tasks == {}


async def test_what_is_under_way_ends_with_the_rounds_even_before_its_first_step(telemetry: Telemetry) -> None:
    rounds, seen = Rounds(telemetry, "ships", NEVER_S), list[str]()

    async def work() -> None:
        await asyncio.Event().wait()

    rounds.begin("one", work, after=lambda: seen.append("one"))
    await asyncio.sleep(0)
    rounds.begin("two", work, after=lambda: seen.append("two"))
    await rounds.stop()

    assert sorted(seen) == ["one", "two"]
    assert rounds.tasks == {}


async def test_a_settled_round_waits_for_a_commit_instead_of_its_interval(telemetry: Telemetry) -> None:
    commits, seen = Commits(), list[str]()
    rounds = Rounds(telemetry, "ships", 0.001, commits)

    async def look() -> bool:
        seen.append("all")
        return True

    async with going_on(rounds, look):
        await asyncio.sleep(0.1)
        before = len(seen)
        await asyncio.to_thread(commits.add)
        await reaches(seen, 2)

    assert before == 1


async def test_a_commit_during_a_round_starts_another_one(telemetry: Telemetry) -> None:
    commits, seen = Commits(), list[str]()
    rounds = Rounds(telemetry, "ships", 0.001, commits)

    async def look() -> bool:
        if not seen:
            commits.add()
        seen.append("all")
        return True

    async with going_on(rounds, look):
        await reaches(seen, 2)

    assert seen[:2] == ["all", "all"]


async def test_rounds_with_work_left_keep_their_interval(telemetry: Telemetry) -> None:
    rounds, seen = Rounds(telemetry, "ships", 0.001, Commits()), list[str]()

    async def look() -> bool:
        seen.append("all")
        return False

    async with going_on(rounds, look):
        await reaches(seen, 3)

    assert len(seen) >= 3


async def test_a_round_that_fails_is_not_settled(telemetry: Telemetry) -> None:
    rounds, seen = Rounds(telemetry, "ships", 0.001, Commits()), list[str]()

    async def look() -> bool:
        seen.append("all")
        raise OSError("the disk is away")

    async with going_on(rounds, look):
        await reaches(seen, 3)

    assert crashes(telemetry, "ships") >= 3
