"""Logs of running apps: read from the end, followed without loss, and over HTTP."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from tests.builders import make_member, make_token
from tests.core.http.lab import Guest
from tests.products.projects.support import Team, make_team

from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.roles import Role
from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.kit.clock import ManualClock
from moorage.products.apps.logs import following
from moorage.runtime.engines.ports import LogLine
from moorage.runtime.logs import reader
from moorage.runtime.logs.local import LocalLogs
from moorage.runtime.logs.logfile import LogFile
from moorage.runtime.logs.reader import LogFolder
from moorage.settings import Settings

pytestmark = pytest.mark.anyio

PROJECT = 7
START = 1_767_225_600_000
DAY_MS = 86_400_000


class Apps:
    """Replicas of one project that print, and the reader of their logs."""

    def __init__(self, folder: Path, project_id: int = PROJECT) -> None:
        self.log = following.log_of(project_id)
        self.folder = folder / self.log
        self.logs = LocalLogs(folder)
        self.now_ms = START
        self._files: dict[str, LogFile] = {}

    def print(self, text: str, replica: str = "r1", stream: Any = "stdout", *, later_ms: int = 1) -> None:
        self.now_ms += later_ms
        if replica not in self._files:
            self._files[replica] = LogFile(self.folder, replica, [], lambda: self.now_ms / 1000)
        self._files[replica].write(stream, f"{text}\n".encode())

    def end(self, replica: str = "r1") -> None:
        """End a replica; the next of that name begins a file."""
        self._files.pop(replica).close()

    def read(self, **asked: Any) -> list[LogLine]:
        return LogFolder(self.folder).read(**{"limit": 1000, **asked})

    def texts(self, **asked: Any) -> list[str]:
        return [line.message for line in self.read(**asked)]


@pytest.fixture
def apps(tmp_path: Path) -> Apps:
    return Apps(tmp_path / "apps")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in blocks so small that a few lines have all of their ends in them."""
    monkeypatch.setattr(reader, "FIRST_BLOCK_BYTES", 64)
    monkeypatch.setattr(reader, "BLOCK_BYTES", 100)
    monkeypatch.setattr(reader, "FOLLOW_BLOCK_BYTES", 128)
    monkeypatch.setattr(reader, "MAX_LINE_BYTES", 48)


async def test_a_line_is_read_as_it_was_written(apps: Apps) -> None:
    apps.print("hello  w\u00f6rld ", "r17", "stderr")

    (line,) = apps.read()

    assert line[:4] == (START + 1, "stderr", "r17", "hello  w\u00f6rld ")


async def test_a_project_that_printed_nothing_has_no_lines(apps: Apps) -> None:
    assert apps.read() == []


async def test_the_newest_lines_come_in_the_order_of_time_from_all_replicas(apps: Apps) -> None:
    for number in range(30):
        apps.print(f"line {number}", f"r{number % 3}")
        if number % 10 == 9:
            apps.end("r0")

    assert apps.texts(limit=25) == [f"line {number}" for number in range(5, 30)]


async def test_lines_of_one_moment_stay_in_the_order_they_were_printed_in(apps: Apps) -> None:
    for number in range(20):
        apps.print(f"line {number}", later_ms=0)
        if number % 5 == 4:
            apps.end()

    assert apps.texts(limit=12) == [f"line {number}" for number in range(8, 20)]


@pytest.mark.usefixtures("small")
async def test_blocks_that_end_anywhere_lose_and_repeat_nothing(apps: Apps) -> None:
    expected = []
    for number in range(200):
        expected.append(f"{number}" + "x" * (number * 7 % 23))
        apps.print(expected[-1])

    assert apps.texts() == expected
    assert apps.texts(search="X") == [text for text in expected if "x" in text]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("since", [-5, 0, 1, 2, 57, 100, 101])
@pytest.mark.parametrize("until", [-5, 0, 1, 2, 57, 100, 101])
async def test_lines_from_a_time_to_another_are_found(apps: Apps, since: int, until: int) -> None:
    for number in range(1, 101):
        apps.print(str(number), "r1" if number % 7 else "r2")

    found = apps.texts(since=START + since, until=START + until)

    assert found == [str(number) for number in range(1, 101) if since <= number <= until]


async def test_the_limit_counts_from_the_end_of_the_time_asked_for(apps: Apps) -> None:
    for number in range(1, 101):
        apps.print(str(number))

    assert apps.texts(until=START + 50, limit=3) == ["48", "49", "50"]


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("error", ["An ERROR", "error: r1 is out of 1767"]),
        ("AN", ["An ERROR"]),
        ("1767", ["error: r1 is out of 1767"]),  # The time of every line begins so.
        ("r1", ["error: r1 is out of 1767"]),
        (" o r1 ", []),
        ("gr\u00d6SSE", ["Gr\u00f6sse"]),
        (".*", []),
        ("", ["An ERROR", "fine", "error: r1 is out of 1767", "Gr\u00f6sse"]),
    ],
)
async def test_a_search_looks_at_what_was_printed_in_any_case(apps: Apps, search: str, found: list[str]) -> None:
    for text in ("An ERROR", "fine", "error: r1 is out of 1767", "Gr\u00f6sse"):
        apps.print(text)

    assert apps.texts(search=search) == found


async def test_a_damaged_file_spoils_only_its_own_damage(apps: Apps) -> None:
    apps.print("before")
    (path,) = apps.folder.iterdir()
    with path.open("ab") as file:
        file.write(b"\n\x00\x00 nothing\n" + b"9" * 20_000 + b" o r1 x\n" + b"\xff" * 300_000 + b"\n")
    apps.print("after")
    with path.open("ab") as file:
        file.write(b"1767225600009 o r1 half a li")

    assert apps.texts() == ["before", "after"]
    assert apps.texts(search="e") == ["before", "after"]


async def test_what_is_too_old_goes_at_night_and_a_forgotten_project_at_once(apps: Apps) -> None:
    apps.print("old")
    apps.end()
    apps.print("new", later_ms=4 * DAY_MS)

    await apps.logs.trim("apps", START + 8 * DAY_MS)
    kept = apps.texts()
    await apps.logs.forget(apps.log)
    await apps.logs.forget(apps.log)

    assert (kept, apps.texts()) == (["new"], [])


async def test_retention_without_any_logs_does_nothing(apps: Apps) -> None:
    await apps.logs.trim("apps", START)

    assert not apps.folder.parent.exists()


async def gather(lines: AsyncIterator[list[LogLine]], count: int) -> list[LogLine]:
    """Return so many lines of a stream that is followed."""
    found: list[LogLine] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            found += await anext(lines)
    return found


async def follow(apps: Apps, count: int, after: str | None = None, tail: int = 1000) -> list[LogLine]:
    async with aclosing(following.follow(apps.logs, apps.log, after, tail=tail)) as lines:  # type: ignore[type-var]
        return await gather(lines, count)


async def test_a_follower_gets_the_newest_lines_and_then_each_new_one(apps: Apps) -> None:
    for number in range(10):
        apps.print(str(number), f"r{number % 2}")

    async with aclosing(following.follow(apps.logs, apps.log, None, tail=3)) as lines:  # type: ignore[type-var]
        first = await gather(lines, 3)
        for number in range(10, 20):
            apps.print(str(number), f"r{number % 4}")  # Two of them are replicas that were not there.
        second = await gather(lines, 10)

    assert [line.message for line in first] == ["7", "8", "9"]
    assert sorted(int(line.message) for line in second) == list(range(10, 20))


async def test_a_follower_can_wait_for_a_project_that_has_printed_nothing_yet(apps: Apps) -> None:
    async with aclosing(following.follow(apps.logs, apps.log, None, tail=5)) as lines:  # type: ignore[type-var]
        coming = asyncio.ensure_future(gather(lines, 1))
        await asyncio.sleep(0)
        apps.print("hello")
        (line,) = await coming

    assert line.message == "hello"


async def test_a_follower_of_an_idle_log_reads_nothing_until_a_line_is_written(
    apps: Apps, monkeypatch: pytest.MonkeyPatch
) -> None:
    apps.print("one")
    reads, news = [], LogFolder.news

    def counted(folder: LogFolder, cursor: reader.Cursor) -> list[LogLine]:
        reads.append(cursor)
        return news(folder, cursor)

    monkeypatch.setattr(LogFolder, "news", counted)
    async with aclosing(following.follow(apps.logs, apps.log, None, tail=1)) as lines:  # type: ignore[type-var]
        await gather(lines, 1)
        coming = asyncio.ensure_future(gather(lines, 1))
        await asyncio.sleep(1)
        while_idle = len(reads)
        apps.print("two", "r2")
        (line,) = await coming

    assert (while_idle, line.message) == (2, "two")  # once, and once more after the watch began


async def test_followers_of_one_log_all_get_a_line_after_one_of_them_has_left(apps: Apps) -> None:
    apps.print("one")
    followers = [following.follow(apps.logs, apps.log, None, tail=0) for _ in range(3)]
    waiting = [asyncio.ensure_future(gather(lines, 1)) for lines in followers]
    await asyncio.sleep(0.2)
    waiting[0].cancel()
    await asyncio.wait({waiting[0]})

    apps.print("two")
    got = [await each for each in waiting[1:]]

    for lines in followers:
        await lines.aclose()  # type: ignore[attr-defined]
    assert [[line.message for line in each] for each in got] == [["two"], ["two"]]


async def test_a_follower_without_a_watch_of_the_kernel_polls(apps: Apps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps.logs, "next_change", lambda _: None)
    async with aclosing(following.follow(apps.logs, apps.log, None, tail=0)) as lines:  # type: ignore[type-var]
        coming = asyncio.ensure_future(gather(lines, 1))
        await asyncio.sleep(0.1)
        apps.print("one")
        (line,) = await coming

    assert line.message == "one"


async def test_half_a_line_is_not_followed_before_it_is_whole(apps: Apps) -> None:
    apps.print("one")
    (path,) = apps.folder.iterdir()
    async with aclosing(following.follow(apps.logs, apps.log, None, tail=1)) as lines:  # type: ignore[type-var]
        await gather(lines, 1)
        with path.open("ab", buffering=0) as file:
            file.write(b"1767225600002 o r1 two\n1767225600003 o r1 thr")
            before = await gather(lines, 1)
            file.write(b"ee\n")
            after = await gather(lines, 1)

    assert ([line.message for line in before], [line.message for line in after]) == (["two"], ["three"])


async def test_damage_is_passed_over_by_who_follows(apps: Apps) -> None:
    apps.print("one")
    (path,) = apps.folder.iterdir()
    async with aclosing(following.follow(apps.logs, apps.log, None, tail=1)) as lines:  # type: ignore[type-var]
        await gather(lines, 1)
        with path.open("ab") as file:
            file.write(b"\xff" * 300_000 + b"\n" + b"no line\n" * 50_000)
        apps.print("two")
        (line,) = await gather(lines, 1)

    assert line.message == "two"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("gap_ms", [1, 20_000, 70_000])
async def test_a_client_that_comes_back_after_any_line_misses_and_repeats_nothing(apps: Apps, gap_ms: int) -> None:
    for number in range(24):
        apps.print(str(number), f"r{number * number % 5}", later_ms=gap_ms)
        if number in (9, 16):
            apps.end("r1")
    everything = await follow(apps, 24)

    again = [await follow(apps, 23 - index, line.id) for index, line in enumerate(everything[:-1])]

    expected = [str(number) for number in range(24)]
    assert [line.message for line in everything] == expected
    assert [[line.message for line in lines] for lines in again] == [expected[n:] for n in range(1, 24)]


async def test_lines_printed_while_a_client_was_away_come_first_when_it_is_back(apps: Apps) -> None:
    for number in range(5):
        apps.print(str(number), f"r{number}")
    last = (await follow(apps, 2, tail=2))[-1].id

    for number in range(5, 40):
        apps.print(str(number), f"r{number % 8}", later_ms=10_000)
    found = await follow(apps, 35, last)

    assert [line.message for line in found] == [str(number) for number in range(5, 40)]


async def test_a_line_with_an_earlier_time_that_is_written_late_is_not_missed(apps: Apps) -> None:
    apps.print("r1 is ahead", "r1", later_ms=50)
    last = (await follow(apps, 1))[-1].id

    apps.now_ms = START
    apps.print("r2 was slow", "r2")
    (line,) = await follow(apps, 1, last)

    assert line.message == "r2 was slow"


async def test_an_id_stays_short_when_there_are_many_old_files(apps: Apps) -> None:
    for number in range(100):
        apps.print("hello", f"r{number}", later_ms=30_000)

    found = await follow(apps, 100)

    assert max(len(line.id) for line in found) < 120


async def test_a_flood_is_followed_in_the_order_of_time(apps: Apps) -> None:
    for number in range(6000):
        apps.print(f"{number} " + "x" * 50, f"r{number % 2}")
    apps.print("x" * 50, "r2")
    first = (await follow(apps, 1, tail=6001))[0]

    found = await follow(apps, 6000, first.id)

    assert [line.at for line in found] == [START + number for number in range(2, 6002)]


@pytest.mark.parametrize("after", ["x", "-1", "5,r1", "5,r1:x", "1" * 30, ",", "\u0663"])
async def test_what_is_no_id_of_a_line_begins_anew(apps: Apps, after: str) -> None:
    apps.print("one")

    (line,) = await follow(apps, 1, after)

    assert line.message == "one"


@pytest.fixture
async def team(app: App, db: Database) -> Team:
    made = await make_team(app, db)
    assert (await made.create("shop", "container")).status < 300
    return made


@pytest.fixture
async def shop(team: Team, settings: Settings, clock: ManualClock) -> Apps:
    made = Apps(settings.folder("logs"), (await team.read("shop"))["id"])
    made.now_ms = clock.now()
    return made


async def items(team: Team, query: str = "") -> list[str]:
    return [item["message"] for item in (await team.api.get(f"/v1/projects/shop/logs{query}")).data["items"]]


async def test_a_member_reads_what_the_app_printed(team: Team, shop: Apps) -> None:
    shop.print("listening", "r17", "stderr")

    reply = await team.api.get("/v1/projects/shop/logs")

    shown = {"timestamp": "2026-01-01T00:00:00.001Z", "stream": "stderr", "replica": "r17", "message": "listening"}
    assert reply.data == {"items": [shown]}


async def test_times_are_said_in_three_ways(team: Team, shop: Apps, clock: ManualClock) -> None:
    for minute in range(1, 6):
        shop.print(f"minute {minute}", later_ms=60_000)
    clock.advance(5 * 60_000)

    assert await items(team, "?since=2m") == ["minute 3", "minute 4", "minute 5"]
    assert await items(team, "?since=2026-01-01T00:04:00.000Z") == ["minute 4", "minute 5"]
    assert await items(team, "?since=2026-01-01T01:04:00%2B01:00&until=1m") == ["minute 4"]
    assert await items(team, f"?until={START + 60_000}") == ["minute 1"]
    assert await items(team, "?search=MINUTE%203") == ["minute 3"]
    assert await items(team, "?limit=2&until=2026-01-01T00:03") == ["minute 2", "minute 3"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("since=yesterday", "since"),
        ("since=5w", "since"),
        ("until=", "until"),
        ("until=2026-13-01", "until"),
        ("since=99999999999999999999", "since"),
        ("since=1h&until=2h", "since"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=ten", "limit"),
        (f"search={'x' * 201}", "search"),
    ],
)
async def test_a_bad_question_is_refused_with_its_field(team: Team, query: str, field: str) -> None:
    reply = await team.api.get(f"/v1/projects/shop/logs?{query}")

    assert (reply.status, list(reply.error["fields"])) == (400, [field])


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00%2B14:00", "9999-12-31T23:59:59-12:00", "0", "999999999d"])
async def test_far_times_are_times(team: Team, shop: Apps, moment: str) -> None:
    shop.print("hello")

    assert (await team.api.get(f"/v1/projects/shop/logs?until={moment}")).status == 200
    assert (await team.api.get(f"/v1/projects/shop/logs?since={moment}")).status == 200


async def test_a_site_has_no_lines(team: Team) -> None:
    await team.upload("site")

    reply = await team.api.get("/v1/projects/site/logs")

    assert reply.data == {"items": []}


@pytest.mark.parametrize("path", ["logs", "logs/stream"])
async def test_strangers_and_unknown_projects_get_no_logs(app: App, db: Database, team: Team, path: str) -> None:
    stranger = await make_team(app, db)

    assert (await stranger.api.get(f"/v1/projects/shop/{path}")).status == 404
    assert (await team.api.get(f"/v1/projects/nothing/{path}")).status == 404


async def test_a_viewer_reads_logs(db: Database, team: Team, shop: Apps) -> None:
    org = await db.read(lambda tx: orgs.get(tx, team.org_id))
    viewer = await make_member(db, org, Role.VIEWER)
    shop.print("hello")

    reply = await team.api.get("/v1/projects/shop/logs", token=await make_token(db, viewer, org.id))

    assert [item["message"] for item in reply.data["items"]] == ["hello"]


@pytest.mark.parametrize("tail", ["-1", "1001", "x"])
async def test_a_bad_tail_is_refused(team: Team, tail: str) -> None:
    reply = await team.api.get(f"/v1/projects/shop/logs/stream?tail={tail}")

    assert (reply.status, list(reply.error["fields"])) == (400, ["tail"])


async def guest_of(app: App, team: Team, query: str = "", **headers: str) -> Guest:
    guest = Guest(app.asgi, f"/v1/projects/shop/logs/stream?access_token={team.api.token}&{query}", **headers)
    await guest.come()
    await guest.sees(": open")
    return guest


async def test_a_guest_follows_an_app_and_goes_on_where_it_was(app: App, team: Team, shop: Apps) -> None:
    for number in range(3):
        shop.print(f"line {number}")

    guest = await guest_of(app, team, "tail=2")
    await guest.sees("line 2")
    shop.print("line 3", "r2", "stderr")
    text = await guest.sees("line 3")
    await guest.leaves()
    shop.print("line 4")
    back = await guest_of(app, team, last_event_id=re.findall(r"^id: (.+)$", text, re.M)[-1])
    rest = await back.sees("line 4")
    await back.leaves()

    shown = [json.loads(data) for data in re.findall(r"^event: log\ndata: (.+)$", text, re.M)]
    assert [line["message"] for line in shown] == ["line 1", "line 2", "line 3"]
    assert set(shown[0]) == {"timestamp", "stream", "replica", "message"}
    assert re.findall(r"line \d", rest) == ["line 4"]
