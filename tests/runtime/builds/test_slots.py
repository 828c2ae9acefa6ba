"""Build slots: their number, the queue, and its messages."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from moorage.runtime.builds.slots import Slots, available_mb
from moorage.settings import Settings

pytestmark = pytest.mark.anyio


async def place_of(slots: Slots, said: list[str]) -> int:
    async with slots.one(said.append) as place:
        return place


@pytest.mark.settings(builds=2)
async def test_each_build_has_a_place_and_those_without_wait_in_turn(settings: Settings) -> None:
    slots, said, order = Slots(settings), list[str](), list[str]()
    done = asyncio.Event()

    async def build(name: str, *, until: asyncio.Event | None = None) -> int:
        async with slots.one(lambda line: said.append(f"{name}: {line}")) as place:
            order.append(name)
            if until is not None:
                await until.wait()
            return place

    async with asyncio.TaskGroup() as group:
        first = [group.create_task(build(name, until=done)) for name in ("a", "b")]
        while len(order) < 2:
            await asyncio.sleep(0)
        rest = [group.create_task(build(name)) for name in ("c", "d")]
        while len(said) < 2:
            await asyncio.sleep(0)
        done.set()

    assert sorted(task.result() for task in first) == [0, 1]
    assert {task.result() for task in rest} <= {0, 1}
    assert order[2:] == ["c", "d"]
    assert said == [
        "c: waiting: all build slots are in use, this one is next",
        "d: waiting: all build slots are in use, 1 build is ahead",
    ]


@pytest.mark.settings(builds=1)
async def test_another_process_s_build_takes_a_place_until_it_dies(settings: Settings) -> None:
    lock = settings.folder("run") / "build-0.lock"
    lock.parent.mkdir(parents=True)
    code = f"import fcntl, time; f = open({str(lock)!r}, 'w'); fcntl.flock(f, 2); print(flush=True); time.sleep(60)"
    said: list[str] = []

    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        waiting = asyncio.create_task(place_of(Slots(settings), said))
        while not said:
            await asyncio.sleep(0)
        other.kill()
        place = await waiting

    assert place == 0
    assert said == ["waiting: all build slots are in use, this one is next"]


@pytest.mark.settings(build_memory_mb=1 << 40)
async def test_where_memory_is_short_one_build_runs_all_the_same_and_no_second(settings: Settings) -> None:
    slots, said = Slots(settings), list[str]()

    async with slots.one(said.append) as first:
        second = asyncio.create_task(place_of(slots, said))
        while not said:
            await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second

    assert first == 0
    assert await place_of(slots, said) == 0
    assert len(said) == 1


def test_available_memory_is_some_of_the_machine_s() -> None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20

    assert 0 < available_mb() <= total
