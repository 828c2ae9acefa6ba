"""Contract of an engine: the logs of workloads."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.runtime.engines.contract.conftest import LOG, Lab

from moorage.runtime.engines.ports import LogLine, LogReader

pytestmark = pytest.mark.anyio

DAY_MS = 86_400_000


def write(lab: Lab, *texts: str, log: str = LOG, key: str = "r1", hidden: tuple[str, ...] = ()) -> None:
    writer = lab.engine.logs.writer(log, key, hidden)
    for text in texts:
        writer.write("system", text.encode())
    writer.close()


def texts_of(lines: list[LogLine]) -> list[str]:
    return [line.message for line in lines]


async def all_news(reader: LogReader) -> list[LogLine]:
    found: list[LogLine] = []
    while lines := await reader.news():
        found += lines
    return found


async def test_output_has_its_stream_and_its_workload(lab: Lab) -> None:
    await lab.start(lab.once("c1", "exit", "0"))
    await lab.until("c1", lambda found: found.phase == "stopped")

    lines = await lab.engine.logs.read(LOG, limit=100)

    by_text = {line.message: (line.stream, line.replica) for line in lines}
    assert (by_text["out"], by_text["err"]) == (("stdout", "c1"), ("stderr", "c1"))


async def test_secrets_of_a_workload_are_masked(lab: Lab) -> None:
    await lab.start(lab.app(hidden=["hunter2-hunter2"]))

    await lab.get("r1", "print", "the key is hunter2-hunter2")

    await lab.printed("the key is ****")
    assert "hunter2" not in " ".join(await lab.lines())


async def test_messages_of_the_platform_are_masked_too(lab: Lab) -> None:
    write(lab, "pulled with hunter2-hunter2", hidden=("hunter2-hunter2",))

    (line,) = await lab.engine.logs.read(LOG, limit=10)

    assert (line.stream, line.message) == ("system", "pulled with ****")


async def test_the_newest_lines_are_read_oldest_first(lab: Lab) -> None:
    write(lab, "one", "two", "three")

    assert texts_of(await lab.engine.logs.read(LOG, limit=2)) == ["two", "three"]


async def test_a_search_ignores_the_case(lab: Lab) -> None:
    write(lab, "One ship", "two", "another SHIP")

    assert texts_of(await lab.engine.logs.read(LOG, search="Ship", limit=10)) == ["One ship", "another SHIP"]


async def test_a_span_of_time_includes_its_ends(lab: Lab) -> None:
    write(lab, "one")
    (line,) = await lab.engine.logs.read(LOG, limit=1)

    inside = await lab.engine.logs.read(LOG, since=line.at, until=line.at, limit=1)
    before = await lab.engine.logs.read(LOG, until=line.at - 1, limit=1)
    after = await lab.engine.logs.read(LOG, since=line.at + 1, limit=1)

    assert (texts_of(inside), before, after) == (["one"], [], [])


async def test_a_log_that_does_not_exist_is_empty(lab: Lab) -> None:
    reader = await lab.engine.logs.open("apps/99", tail=5)

    assert (await lab.engine.logs.read("apps/99", limit=5), await reader.news()) == ([], [])


async def test_a_reader_begins_with_the_first_line_and_goes_on_with_each_new_one(lab: Lab) -> None:
    write(lab, "one", "two")
    reader = await lab.engine.logs.open(LOG)

    first = texts_of(await all_news(reader))
    write(lab, "three", key="r2")
    second = texts_of(await all_news(reader))

    assert (first, second) == (["one", "two"], ["three"])


async def test_a_reader_may_begin_with_the_newest_lines(lab: Lab) -> None:
    write(lab, "one", "two", "three")

    reader = await lab.engine.logs.open(LOG, tail=2)

    assert texts_of(await all_news(reader)) == ["two", "three"]


async def test_a_reader_with_a_tail_of_none_waits_for_new_lines(lab: Lab) -> None:
    write(lab, "one")
    reader = await lab.engine.logs.open(LOG, tail=0)

    nothing = await reader.news()
    write(lab, "two", key="r2")

    assert (nothing, texts_of(await all_news(reader))) == ([], ["two"])


async def test_a_reader_waits_until_a_line_is_written_or_the_time_is_over(lab: Lab) -> None:
    write(lab, "one")
    reader = await lab.engine.logs.open(LOG, tail=0)

    await reader.wait(0.01)
    waiting = asyncio.create_task(reader.wait(600))
    await asyncio.sleep(0.1)
    write(lab, "two", key="r2")
    async with asyncio.timeout(20):
        await waiting
        while not (lines := await reader.news()):
            await reader.wait(600)

    assert texts_of(lines) == ["two"]


async def test_a_reader_continues_after_the_id_of_any_line(lab: Lab) -> None:
    write(lab, "one", "two", "three")
    lines = await all_news(await lab.engine.logs.open(LOG))

    rests = [texts_of(await all_news(await lab.engine.logs.open(LOG, after=line.id))) for line in lines]

    assert rests == [["two", "three"], ["three"], []]


async def test_an_invalid_id_begins_as_without_one(lab: Lab) -> None:
    write(lab, "one", "two")

    reader = await lab.engine.logs.open(LOG, after="no id", tail=1)

    assert texts_of(await all_news(reader)) == ["two"]


async def test_workloads_share_a_log(lab: Lab) -> None:
    write(lab, "one", key="r1")
    write(lab, "two", key="r2")

    lines = await lab.engine.logs.read(LOG, limit=10)

    assert sorted((line.replica, line.message) for line in lines) == [("r1", "one"), ("r2", "two")]


async def test_a_forgotten_log_takes_those_below_it_along_and_no_others(lab: Lab) -> None:
    for log in ("cronjobs/4/1", "cronjobs/4/2", "cronjobs/41/1"):
        write(lab, "one", log=log)

    for _ in range(2):
        await lab.engine.logs.forget("cronjobs/4")

    kept = [await lab.lines(log) for log in ("cronjobs/4/1", "cronjobs/4/2", "cronjobs/41/1")]
    assert kept == [[], [], ["one"]]


async def test_old_lines_are_trimmed_in_their_group_only(lab: Lab) -> None:
    write(lab, "one", log="apps/1")
    write(lab, "one", log="databases/1")
    now_ms = int(time.time() * 1000)

    await lab.engine.logs.trim("apps", now_ms)
    kept = await lab.lines("apps/1")
    await lab.engine.logs.trim("apps", now_ms + 8 * DAY_MS)

    assert (kept, await lab.lines("apps/1"), await lab.lines("databases/1")) == (["one"], [], ["one"])


async def test_a_log_survives_the_control_process(lab: Lab) -> None:
    await lab.start(lab.app())
    await lab.restart()

    answer = await lab.get("r1", "print", "still here")

    assert answer == "done"
    await lab.printed("still here")
