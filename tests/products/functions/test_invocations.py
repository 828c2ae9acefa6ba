"""Invocations in the API: visible at once, newest first, with logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.builders import make_member, make_org, make_token
from tests.client import Client
from tests.products.functions.spool_writer import NOON, activation, log, make_function, record, write, writing
from tests.products.functions.support import Team, make_team

from moorage.accounts.identity.roles import Role
from moorage.app import App
from moorage.core.db.store import Database
from moorage.products.functions.records.invocations import PAGE_LOG_BYTES
from moorage.runtime.edge.spool import API, SCHEDULE
from moorage.settings import Settings

pytestmark = pytest.mark.anyio

LIST = "/v1/functions/hello/invocations"


@pytest.fixture
async def crew(app: App, db: Database) -> Team:
    return await make_team(app.asgi, db)


@pytest.fixture
def folder(settings: Settings) -> Path:
    return settings.folder("spool")


async def items(crew: Team, path: str = LIST) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await crew.api.get(path)).data["items"]
    return found


async def test_an_invocation_shows_up_as_soon_as_it_was_written(crew: Team, db: Database, folder: Path) -> None:
    function_id = await make_function(db, crew.org_id)
    with writing(folder) as writer:
        writer.append(
            record(1_234, function_id, org_id=crew.org_id, cold=True, wait_us=2_500, log=log("out", "!err", "more"))
        )

        page = (await crew.api.get(LIST)).data

    assert page["total"] == 1
    assert page["items"] == [
        {
            "id": page["items"][0]["id"],
            "duration": 1.234,
            "status": "success",
            "error": None,
            "stdout": "out\nmore\n",
            "stderr": "!err\n",
            "timestamp": "2026-01-01T00:00:00.000Z",
            "activationId": activation(1_234),
            "version": 3,
            "door": "web",
            "waitMs": 2.5,
            "coldStart": True,
            "logsCut": False,
            "logsDropped": False,
        }
    ]


async def test_a_failed_invocation_says_why(crew: Team, db: Database, folder: Path) -> None:
    function_id = await make_function(db, crew.org_id)
    error = "the function ran past its 1000 ms timeout é"

    write(folder, record(1, function_id, org_id=crew.org_id, ok=False, door=API, error=error.encode()))

    (found,) = await items(crew)
    assert (found["status"], found["error"], found["door"]) == ("error", error, "api")
    assert (found["stdout"], found["stderr"]) == ("", "")


async def test_invocations_come_newest_first_in_pages(crew: Team, db: Database, folder: Path) -> None:
    function_id = await make_function(db, crew.org_id)
    write(folder, *(record(number, function_id, org_id=crew.org_id) for number in range(1, 26)))

    pages = [(await crew.api.get(f"{LIST}?page={page}&pageSize=10")).data for page in (1, 2, 3, 4)]

    durations = [[found["duration"] * 1000 for found in page["items"]] for page in pages]
    assert durations == [list(range(25, 15, -1)), list(range(15, 5, -1)), list(range(5, 0, -1)), []]
    assert {page["total"] for page in pages} == {25}
    assert len(await items(crew)) == 20


@pytest.mark.parametrize("query", ["page=0", "pageSize=0", "pageSize=101", "page=x", "pageSize=1.5", "page=-1"])
async def test_a_bad_page_is_refused_by_its_field(crew: Team, db: Database, query: str) -> None:
    await make_function(db, crew.org_id)

    reply = await crew.api.get(f"{LIST}?{query}")

    assert (reply.status, list(reply.error["fields"])) == (400, [query.partition("=")[0]])


async def test_other_functions_and_other_organizations_stay_apart(
    crew: Team, app: App, db: Database, folder: Path
) -> None:
    other = await make_team(app.asgi, db)
    mine, beside = await make_function(db, crew.org_id), await make_function(db, crew.org_id, "beside")
    theirs = await make_function(db, other.org_id)

    write(
        folder,
        record(1, mine, org_id=crew.org_id),
        record(2, beside, org_id=crew.org_id, door=SCHEDULE, schedule_id=3),
        record(3, theirs, org_id=other.org_id),
    )

    assert [found["duration"] for found in await items(crew)] == [0.001]
    assert [found["door"] for found in await items(crew, "/v1/functions/beside/invocations")] == ["schedule"]
    assert [found["duration"] for found in await items(other)] == [0.003]


@pytest.mark.parametrize("what", ["invocations", "metrics", "logs/stream"])
async def test_an_unknown_function_is_not_found(crew: Team, app: App, db: Database, what: str) -> None:
    other = await make_team(app.asgi, db)
    await make_function(db, other.org_id, "theirs")

    for name in ("nothing", "theirs", "%00", "a" * 500):
        assert (await crew.api.get(f"/v1/functions/{name}/{what}")).status == 404


async def test_any_member_may_read_and_a_stranger_may_not(app: App, db: Database) -> None:
    org = await make_org(db)
    await make_function(db, org.id)
    viewer = await make_member(db, org, Role.VIEWER)
    token = await make_token(db, viewer, org.id)

    seen = [
        await Client(app.asgi).get(f"/v1/functions/hello/{what}", token=token) for what in ("invocations", "metrics")
    ]

    assert [reply.status for reply in seen] == [200, 200]
    assert (await Client(app.asgi).get(LIST)).status == 401


async def test_the_whole_log_of_one_invocation_is_shown_and_a_page_is_bounded(
    crew: Team, db: Database, folder: Path
) -> None:
    function_id = await make_function(db, crew.org_id)
    size = 6 * 2**20
    with writing(folder) as writer:
        for number in range(1, 6):
            writer.append(record(number, function_id, org_id=crew.org_id, log=log("x" * size)))
    while (await crew.api.get(f"{LIST}?pageSize=1&page=5")).data["total"] < 5:
        continue

    page, (alone,) = await items(crew), await items(crew, f"{LIST}?pageSize=1&page=5")

    assert [len(found["stdout"]) for found in page[:3]] == [size + 1] * 3
    assert [found["logsCut"] for found in page] == [False, False, False, True, True]
    assert sum(len(found["stdout"]) for found in page) <= PAGE_LOG_BYTES
    assert (len(alone["stdout"]), alone["logsCut"]) == (size + 1, False)


async def test_text_of_any_kind_comes_back_as_it_was_printed(crew: Team, db: Database, folder: Path) -> None:
    function_id = await make_function(db, crew.org_id)
    lines = ["", "nul \0 inside", "é ☃ 😀", "\x1b[31mred", "tab\tand\rreturn"]

    write(folder, record(1, function_id, org_id=crew.org_id, log=log(*lines, at_ms=NOON)))

    (found,) = await items(crew)
    assert found["stdout"] == "".join(line + "\n" for line in lines)
