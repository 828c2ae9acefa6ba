"""The publisher, through restarts of the edge and of the control process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.products.functions.edge_stand_in import EdgeStandIn, running
from tests.products.functions.support import Team, make_team

from moorage.app import App
from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.store import Database
from moorage.core.telemetry import Telemetry
from moorage.products.functions import code, service
from moorage.products.functions.edge_client import EdgeClient
from moorage.products.functions.logs.hidden_values import HiddenValues
from moorage.products.functions.publisher import Publisher
from moorage.settings import Settings

pytestmark = pytest.mark.anyio


@pytest.fixture
async def edge(settings: Settings) -> AsyncIterator[EdgeStandIn]:
    async with running(EdgeStandIn(settings.folder("run") / "edge.sock")) as stand_in:
        yield stand_in


@pytest.fixture
async def team(app: App, db: Database, edge: EdgeStandIn) -> AsyncIterator[Team]:
    """A client that deploys functions, published by the application's own publisher."""
    yield await make_team(app.asgi, db)
    await app.products.functions.edge.close()


@pytest.fixture
async def publisher(db: Database, app: App, settings: Settings) -> AsyncIterator[Publisher]:
    """A second publisher, as in a control process that has just started."""
    client = EdgeClient(settings.folder("run") / "edge.sock")
    yield Publisher(db, settings, client, app.artifacts, Telemetry(quiet=True), HiddenValues())
    await client.close()


def known(edge: EdgeStandIn) -> dict[str, int]:
    return {route["name"]: route["version"] for route in edge.routes.values()}


async def test_a_change_is_known_to_the_gateway_when_it_is_answered(team: Team, edge: EdgeStandIn) -> None:
    created = await team.create("hello", timeout="5000", memory="256", env='[{"name":"A","value":"1"}]')

    route = dict(edge.routes[created.data["id"]])

    digest = route.pop("digest")
    assert len(digest) == 64
    assert route == {
        "id": created.data["id"],
        "org": str(team.org_id),
        "name": "hello",
        "revision": 1,
        "version": 1,
        "runtime": created.data["runtime"],
        "main": "main.py",
        "timeout_ms": 5000,
        "memory_mb": 256,
        "env": [["A", "1"]],
        "network": "internet",
        "raw_http": False,
        "own_options": False,
        "secrets": [],
    }


async def test_deployments_and_deletions_reach_the_gateway(team: Team, edge: EdgeStandIn) -> None:
    await team.create("hello")
    await team.create("other")

    await team.deploy("hello", {"main.py": "def main(params):\n    return 2\n"})
    deployed = known(edge)
    await team.api.delete("/v1/functions/hello")

    assert deployed == {"hello": 2, "other": 1}
    assert known(edge) == {"other": 1}


async def test_a_publisher_that_starts_tells_everything_once(
    team: Team, edge: EdgeStandIn, publisher: Publisher
) -> None:
    await team.create("hello")
    await team.create("other")
    edge.routes.clear()
    edge.pushes.clear()

    was_ready = await publisher.ready(0.01)
    await publisher.sync()
    await publisher.sync()

    assert was_ready is False
    assert await publisher.ready(0.01) is True
    assert known(edge) == {"hello": 1, "other": 1}
    assert edge.pushes == ["all"]


async def test_a_gateway_that_restarted_is_told_everything_again(
    team: Team, edge: EdgeStandIn, publisher: Publisher
) -> None:
    await team.create("hello")
    await publisher.sync()
    await edge.stop()
    await edge.start()
    empty = known(edge)

    await publisher.sync()

    assert empty == {}
    assert known(edge) == {"hello": 1}


@pytest.mark.usefixtures("impatient")
async def test_a_gateway_that_was_away_is_told_everything_when_it_is_back(
    team: Team, edge: EdgeStandIn, publisher: Publisher
) -> None:
    await team.create("hello")
    await edge.stop()
    await publisher.sync()
    await edge.start()

    await publisher.sync()

    assert known(edge) == {"hello": 1}


async def test_what_other_processes_changed_is_found_by_comparison(
    db: Database, team: Team, edge: EdgeStandIn, publisher: Publisher
) -> None:
    created = await team.create("hello")
    await team.create("other")
    await publisher.sync()
    await db.write(lambda tx: service.update(tx, team.org_id, THE_PLATFORM, "hello", {"timeout_ms": 9_000}))
    await db.write(lambda tx: service.delete(tx, team.org_id, THE_PLATFORM, "other"))

    await publisher.compare()

    assert known(edge) == {"hello": 1}
    assert edge.routes[created.data["id"]]["timeout_ms"] == 9_000


async def test_a_comparison_without_changes_sends_nothing(team: Team, edge: EdgeStandIn, publisher: Publisher) -> None:
    await team.create("hello")
    await publisher.sync()
    edge.pushes.clear()

    await publisher.compare()

    assert edge.pushes == []


@pytest.mark.usefixtures("impatient")
async def test_settling_while_the_gateway_is_away_raises_nothing_and_is_made_up_for(
    db: Database, team: Team, edge: EdgeStandIn, publisher: Publisher
) -> None:
    created = await team.create("hello")
    await publisher.sync()
    await edge.stop()
    await db.write(lambda tx: service.update(tx, team.org_id, THE_PLATFORM, "hello", {"timeout_ms": 9_000}))

    await publisher.publish(team.org_id, created.data["id"])
    await edge.start()
    await publisher.sync()

    assert edge.routes[created.data["id"]]["timeout_ms"] == 9_000


async def test_code_that_is_missing_here_is_unpacked_before_the_gateway_hears_of_it(
    team: Team, edge: EdgeStandIn, publisher: Publisher, settings: Settings
) -> None:
    created = await team.create("hello")
    digest = edge.routes[created.data["id"]]["digest"]
    await code.remove(code.folder_of(settings, digest))

    await publisher.sync()

    assert known(edge) == {"hello": 1}
    assert (code.folder_of(settings, digest) / "main.py").read_text().startswith("def main")


async def test_a_function_whose_code_cannot_be_had_is_left_out_and_the_others_go_out(
    team: Team, edge: EdgeStandIn, publisher: Publisher, settings: Settings
) -> None:
    created = await team.create("hello")
    await team.create("other", {"main.py": "def main(params):\n    return 2\n"})
    digest = edge.routes[created.data["id"]]["digest"]
    await code.remove(code.folder_of(settings, digest))
    copies = [path for path in settings.folder("artifacts").rglob("*") if path.is_file() and digest[8:40] in path.name]
    for copy in copies:
        copy.chmod(0o600)
        copy.write_bytes(b"damaged")

    await publisher.sync()
    await publisher.compare()

    assert len(copies) == 1
    assert known(edge) == {"other": 1}


async def test_many_changes_at_once_end_with_the_newest_everywhere(
    db: Database, team: Team, edge: EdgeStandIn, publisher: Publisher
) -> None:
    created = await team.create("hello")
    await publisher.sync()

    async def change(timeout_ms: int) -> None:
        await db.write(lambda tx: service.update(tx, team.org_id, THE_PLATFORM, "hello", {"timeout_ms": timeout_ms}))
        await publisher.publish(team.org_id, created.data["id"])

    await asyncio.gather(*(change(1_000 + number) for number in range(20)))

    stored = await db.read(lambda tx: service.get(tx, team.org_id, "hello"))
    route = edge.routes[created.data["id"]]
    assert (route["revision"], route["timeout_ms"]) == (stored.revision, stored.timeout_ms)
    assert stored.revision == 21


async def test_what_is_made_while_a_comparison_runs_stays_known(app: App, team: Team, edge: EdgeStandIn) -> None:
    publisher = app.products.functions.publisher
    await publisher.sync()

    async def compare_often() -> None:
        for _ in range(60):
            await publisher.compare()
            await asyncio.sleep(0)

    comparing = asyncio.create_task(compare_often())
    names = [f"f{number}" for number in range(10)]
    for name in names:
        await team.create(name)
    await comparing

    assert known(edge) == dict.fromkeys(names, 1)


async def test_a_running_publisher_follows_the_gateway_by_itself(
    team: Team, edge: EdgeStandIn, publisher: Publisher
) -> None:
    await team.create("hello")
    keeping = asyncio.create_task(publisher.run())
    await publisher.ready(5)
    await edge.stop()
    await edge.start()

    async with asyncio.timeout(10):
        while known(edge) != {"hello": 1}:
            await asyncio.sleep(0.01)
    keeping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await keeping

    assert edge.pushes[-1] == "all"
