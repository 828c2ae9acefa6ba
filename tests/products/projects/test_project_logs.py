"""Deployment logs are masked, cut and in order."""

from __future__ import annotations

from typing import Any

import pytest
from tests.products.projects.support import Team

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.products.projects.deployments import logs
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments.followers import Followers
from moorage.products.projects.deployments.logs import (
    CUT,
    LAST_SYSTEM_LINES,
    MAX_LINE_CHARS,
    MAX_LOG_LINES,
    MAX_SYSTEM_BYTES,
    MAX_SYSTEM_LINES,
    LogWriter,
)
from moorage.products.projects.deployments.tables import Line

pytestmark = pytest.mark.anyio


async def lines_of(team: Team, db: Database, write: Any) -> list[Line]:
    """Write to the log of a deployment, and return the stored lines."""
    uuid = (await team.create()).data["deploymentUuid"]
    its = await db.read(lambda tx: deployments.get_by_uuid(tx, team.org_id, uuid))
    async with LogWriter(db.write, team.org_id, its.id, Followers(db.env.hooks), db.env.clock.now) as log:
        write(log)
        await log.finish()

    def read(tx: Tx) -> list[Line]:
        return deployments.lines_after(tx, team.org_id, its.id, 0, MAX_LOG_LINES * 2)

    return await db.read(read)


async def test_lines_are_put_together_from_pieces_and_keep_their_order(team: Team, db: Database) -> None:
    def write(log: LogWriter) -> None:
        log.write("stdout", "one\ntw")
        log.write("stderr", "oops\n")
        log.write("stdout", "o\r\nthree")
        log.say("done")

    found = await lines_of(team, db, write)

    assert [(line.stream, line.message) for line in found] == [
        ("stdout", "one"),
        ("stderr", "oops"),
        ("stdout", "two"),
        ("system", "done"),
        ("stdout", "three"),
    ]
    assert [line.seq for line in found] == [1, 2, 3, 4, 5]


async def test_colours_and_overwritten_progress_are_not_kept(team: Team, db: Database) -> None:
    def write(log: LogWriter) -> None:
        log.write("stdout", "\x1b[32mgreen\x1b[0m\n10%\r50%\r100%\nnul\x00byte\x9b\n")

    found = await lines_of(team, db, write)

    assert [line.message for line in found] == ["green", "100%", "nulbyte"]


async def test_the_name_of_a_file_that_is_no_text_is_replaced(team: Team, db: Database) -> None:
    found = await lines_of(team, db, lambda log: log.say("The submodule é\udcff is left out"))

    assert [line.message for line in found] == ["The submodule é? is left out"]


async def test_a_secret_in_two_pieces_of_one_line_is_masked(team: Team, db: Database) -> None:
    def write(log: LogWriter) -> None:
        log.hide(["hunter22"])
        log.write("stdout", "the password is hun")
        log.write("stdout", "ter22!\n")

    found = await lines_of(team, db, write)

    assert [line.message for line in found] == ["the password is ****!"]


async def test_a_log_that_is_too_long_is_cut_with_a_notice_and_the_platform_still_speaks(
    team: Team, db: Database
) -> None:
    def write(log: LogWriter) -> None:
        log.write("stdout", "x\n" * (MAX_LOG_LINES + 50))
        log.say("failed")

    found = await lines_of(team, db, write)

    assert len(found) == MAX_LOG_LINES + 2
    assert [line.message for line in found[-2:]] == [CUT, "failed"]


async def test_lines_of_the_platform_are_cut_too_and_the_last_ones_are_stored(team: Team, db: Database) -> None:
    def write(log: LogWriter) -> None:
        for number in range(MAX_SYSTEM_LINES + 1000):
            log.say(f"The submodule {number} is left out")
        log.write("stdout", "built\n")
        log.say("collected 1 file")

    found = await lines_of(team, db, write)

    assert len(found) == MAX_SYSTEM_LINES + 1 + 1 + LAST_SYSTEM_LINES
    assert found[MAX_SYSTEM_LINES].message == "built"
    assert found[MAX_SYSTEM_LINES + 1].message == "981 lines of the platform are left out here"
    assert [line.message for line in found[-2:]] == ["The submodule 2999 is left out", "collected 1 file"]


async def test_long_lines_of_the_platform_are_cut_and_the_last_ones_are_stored(team: Team, db: Database) -> None:
    def write(log: LogWriter) -> None:
        for number in range(300):
            log.say(f"{number} {'x' * MAX_LINE_CHARS}")
        log.say("failed")

    found = await lines_of(team, db, write)

    assert sum(len(line.message) for line in found) < MAX_SYSTEM_BYTES + (LAST_SYSTEM_LINES + 2) * MAX_LINE_CHARS
    assert found[-1].message == "failed"


async def test_a_line_without_an_end_is_stored_in_pieces(team: Team, db: Database) -> None:
    found = await lines_of(team, db, lambda log: log.write("stdout", "x" * (MAX_LINE_CHARS + 10)))

    assert [len(line.message) for line in found] == [MAX_LINE_CHARS, 10]


async def test_a_deployment_that_is_gone_ends_its_streams(team: Team, db: Database) -> None:
    events = [event async for event in logs.follow(db, Followers(db.env.hooks), team.org_id, 12345)]

    assert [event.name for event in events] == ["status", "done"]


@pytest.mark.group("postgres")
@pytest.mark.parametrize("db", ["postgres"], indirect=True)
async def test_what_another_process_writes_is_followed_too(team: Team, db: Database) -> None:
    """Two processes share a PostgreSQL: the one that streams gets no notification and polls."""
    uuid = (await team.create()).data["deploymentUuid"]
    its = await db.read(lambda tx: deployments.get_by_uuid(tx, team.org_id, uuid))
    events = logs.follow(db, Followers(db.env.hooks), team.org_id, its.id)
    first = await anext(events)
    line = Line(1, db.env.clock.now(), "stdout", "from elsewhere")

    await db.write(lambda tx: deployments.add_lines(tx, team.org_id, its.id, [line]))
    second = await anext(events)
    await events.aclose()  # type: ignore[attr-defined]

    assert (first.name, first.data.status) == ("status", "queued")
    assert (second.name, second.data.message, second.id) == ("log", "from elsewhere", "1")
