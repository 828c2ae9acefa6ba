"""Live stream of a function: its lines, then the invocation, without gaps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.builders import make_org, make_token, make_user
from tests.core.http.lab import Guest
from tests.products.functions.spool_writer import SMALL_FILE, activation, log, make_function, make_recorder, record

from moorage.app import App
from moorage.core.db.store import Database
from moorage.products.functions.logs.log_files import FunctionLogs
from moorage.runtime.edge.spool import LATE, SpoolWriter
from moorage.settings import Settings

pytestmark = pytest.mark.anyio


class Stage:
    """A function, an edge that writes its records, and clients that follow it."""

    def __init__(self, app: App, org_id: int, token: str, function_id: int, folder: Path) -> None:
        self._app, self._token, self._org_id, self._function_id = app, token, org_id, function_id
        self.writer = SpoolWriter(folder, SMALL_FILE)

    def call(self, number: int, *lines: str, **changes: Any) -> None:
        self.writer.append(record(number, self._function_id, org_id=self._org_id, log=log(*lines), **changes))

    async def guest(self, query: str = "", **headers: str) -> Guest:
        guest = Guest(self._app.asgi, f"/v1/functions/hello/logs/stream?access_token={self._token}&{query}", **headers)
        await guest.come()
        await guest.sees(": open")
        return guest


@pytest.fixture
async def stage(app: App, db: Database, settings: Settings) -> AsyncIterator[Stage]:
    user = await make_user(db)
    org = await make_org(db, user)
    function_id = await make_function(db, org.id)
    made = Stage(app, org.id, await make_token(db, user, org.id), function_id, settings.folder("spool"))
    yield made
    made.writer.close()


@pytest.fixture
async def recording(app: App) -> AsyncIterator[None]:
    """Run the recorder loop, as in the control process."""
    task = asyncio.create_task(app.products.functions.recorder.run())
    yield
    task.cancel()
    await asyncio.wait({task})


def events(text: str) -> list[tuple[str, str | None, Any]]:
    """Return name, id and data of each event."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            found.append((fields["event"], fields.get("id"), json.loads(fields["data"])))
    return found


def story(text: str) -> list[str]:
    """Return a short text for each event."""
    return [
        data["message"] if name == "log" else f"call {data['duration'] * 1000:.0f}" for name, _, data in events(text)
    ]


@pytest.mark.usefixtures("recording")
async def test_a_call_is_told_line_by_line_and_then_as_a_whole(stage: Stage) -> None:
    guest = await stage.guest()

    stage.call(7, "first", "!second", ok=False, error=b"it broke")
    text = await guest.sees("event: invocation")
    await guest.leaves()

    (first, second, call) = events(text)
    common = {"timestamp": "2026-01-01T00:00:00.000Z", "activationId": activation(7)}
    assert first == ("log", None, {"message": "first", "stream": "stdout", **common})
    assert second == ("log", None, {"message": "!second", "stream": "stderr", **common})
    assert call[:2] == ("invocation", str(call[2]["id"]))
    assert (call[2]["status"], call[2]["error"], call[2]["duration"]) == ("error", "it broke", 0.007)
    assert "stdout" not in call[2]


@pytest.mark.usefixtures("recording")
async def test_calls_come_in_order_as_they_happen_and_to_everybody_who_follows(stage: Stage) -> None:
    guests = [await stage.guest(), await stage.guest()]

    for number in range(1, 6):
        stage.call(number, f"line {number}")
        await guests[0].sees(f"line {number}")
    texts = [await guest.sees('"duration":0.005') for guest in guests]
    for guest in guests:
        await guest.leaves()

    expected = [part for number in range(1, 6) for part in (f"line {number}", f"call {number}")]
    assert [story(text) for text in texts] == [expected, expected]


@pytest.mark.usefixtures("recording")
async def test_a_stream_starts_with_the_present_unless_a_tail_is_asked_for(stage: Stage, app: App) -> None:
    for number in range(1, 6):
        stage.call(number)
    await app.products.functions.recorder.catch_up()
    fresh, with_past = await stage.guest(), await stage.guest("tail=2")

    stage.call(6)
    told = [story(await guest.sees('"duration":0.006')) for guest in (fresh, with_past)]
    for guest in (fresh, with_past):
        await guest.leaves()

    assert told == [["call 6"], ["call 4", "call 5", "call 6"]]


@pytest.mark.usefixtures("recording")
async def test_a_client_that_was_cut_off_goes_on_where_it_was(stage: Stage) -> None:
    guest = await stage.guest()
    stage.call(1)
    last = events(await guest.sees("event: invocation"))[-1][1]
    await guest.leaves()
    for number in range(2, 250):
        stage.call(number, "x")

    again = await stage.guest(last_event_id=str(last))
    text = await again.sees('"duration":0.249')
    await again.leaves()

    assert [part for part in story(text) if part != "x"] == [f"call {number}" for number in range(2, 250)]


@pytest.mark.usefixtures("recording")
async def test_lines_printed_after_the_answer_follow_and_no_line_comes_twice(stage: Stage) -> None:
    guest = await stage.guest()
    stage.call(1, "in time")
    await guest.sees("event: invocation")

    stage.call(1, "late", kind=LATE)
    await guest.sees('"late"')
    stage.call(1, "later", kind=LATE)
    await guest.sees('"later"')
    stage.call(2)
    text = await guest.sees('"duration":0.002')
    await guest.leaves()

    assert story(text) == ["in time", "call 1", "late", "later", "call 2"]


@pytest.mark.group("postgres")
@pytest.mark.parametrize("db", ["postgres"], indirect=True)
async def test_what_another_process_recorded_is_followed_too(stage: Stage, db: Database, settings: Settings) -> None:
    guest = await stage.guest()
    stage.call(1, "hello")

    await make_recorder(db, settings.folder("spool"), FunctionLogs.of(settings)).catch_up()
    text = await guest.sees("event: invocation")
    await guest.leaves()

    assert story(text) == ["hello", "call 1"]


@pytest.mark.usefixtures("recording")
async def test_a_call_that_printed_a_lot_is_told_whole(stage: Stage) -> None:
    guest = await stage.guest()
    lines = [f"{number} " + "x" * 1000 for number in range(2000)]

    stage.call(1, *lines)
    text = await guest.sees("event: invocation")
    await guest.leaves()

    assert story(text) == [*lines, "call 1"]


@pytest.mark.parametrize("tail", ["-1", "101", "x", "1.5", ""])
async def test_a_bad_tail_is_refused_by_its_field(app: App, db: Database, tail: str) -> None:
    user = await make_user(db)
    org = await make_org(db, user)
    await make_function(db, org.id)
    token = await make_token(db, user, org.id)
    guest = Guest(app.asgi, f"/v1/functions/hello/logs/stream?access_token={token}&tail={tail}")

    await guest.come()
    answer = json.loads(await guest.ends())

    assert list(answer["error"]["fields"]) == ["tail"]
