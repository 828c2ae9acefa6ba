"""Desired replicas, and the reconciler that starts and stops them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.conftest import POSTGRES
from tests.products.apps.memory_engine import MemoryReplicas
from tests.products.projects.support import Team, make_team

from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.gateways import service as gateways
from moorage.core.kit.clock import ManualClock
from moorage.core.telemetry import Telemetry
from moorage.products.apps import health, service
from moorage.products.apps import reconciler as reconciler_module
from moorage.products.apps.reconciler import AppReconciler
from moorage.products.apps.tables import Replica
from moorage.products.projects import service as projects
from moorage.products.projects import tables as project_tables
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments import tables as deployment_tables
from moorage.products.projects.deployments.service import DeploymentRequest
from moorage.runtime.builds.ports import Plan
from moorage.runtime.engines.ports import AppSpec, CannotStart

pytestmark = pytest.mark.anyio

PLAN = msgspec.json.encode(Plan("container", "nodejs", start="node server.js")).decode()


class NoVolumes:
    async def names(self) -> list[str]:
        return []


class StubLauncher:
    """Describes a replica without its release: the engine of these tests needs none."""

    def __init__(self) -> None:
        self.refusal: str | None = None
        self.engine = SimpleNamespace(volumes=NoVolumes())

    async def specify(self, row: Replica) -> AppSpec:
        if self.refusal:
            raise CannotStart(self.refusal)
        return AppSpec(key=row.key, token=row.token, argv=["true"], env={}, log="apps/1")


@dataclass
class World:
    """One app of one organization, and its reconciler."""

    team: Team
    db: Database
    engine: MemoryReplicas
    reconciler: AppReconciler
    launcher: StubLauncher
    settled: list[int]

    async def deploy(self, *, is_live: bool = True, kind: Any = "rollback") -> int:
        """Record a deployment of the app as the pipeline does; return its id."""

        def unit(tx: Tx) -> int:
            project = projects.get(tx, self.team.org_id, "app")
            asked = DeploymentRequest(kind, plan=PLAN, is_app=True)
            made = deployments.start(tx, self.team.org_id, project, asked)
            tx.run(
                deployment_tables.SET_BUILT,
                org_id=self.team.org_id,
                id=made.id,
                digest="d" * 64,
                file_count=1,
                plan=PLAN,
                is_app=True,
                now=tx.now,
            )
            deployments.begin(tx, self.team.org_id, made)
            service.begin(tx, self.team.org_id, made)
            if is_live:
                tx.run(
                    project_tables.GO_LIVE,
                    org_id=self.team.org_id,
                    id=project.id,
                    deployment_id=made.id,
                    now=tx.now,
                )
                deployments.succeed(tx, self.team.org_id, made, "live")
            return made.id

        return await self.db.write(unit)

    async def go_live(self, deployment_id: int) -> None:
        def unit(tx: Tx) -> None:
            found = deployments.find(tx, self.team.org_id, deployment_id)
            assert found is not None
            assert deployments.go_live(tx, self.team.org_id, found)
            deployments.succeed(tx, self.team.org_id, found, "live")

        await self.db.write(unit)

    async def rows(self) -> list[Replica]:
        return (await self.db.read(service.view)).rows

    async def statuses(self) -> list[str]:
        return [row.status for row in await self.rows()]

    async def change(self, **columns: Any) -> None:
        def unit(tx: Tx) -> None:
            project = projects.get(tx, self.team.org_id, "app")
            projects.set_columns(tx, self.team.org_id, project, columns)

        await self.db.write(unit)

    async def until(self, wanted: Callable[[list[Replica]], bool]) -> list[Replica]:
        """Let the reconciler work until the rows are as wanted."""
        async with asyncio.timeout(20):
            while True:
                await self.reconciler.round()
                rows = await self.rows()
                if wanted(rows):
                    return rows
                await asyncio.sleep(0.01)


@pytest.fixture
async def world(app: App, db: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(reconciler_module, "MIN_DRAIN_S", 0.02)
    monkeypatch.setattr(reconciler_module, "DRAIN_POLL_INTERVAL_S", 0.01)
    monkeypatch.setattr(reconciler_module, "RESTART_PAUSES_S", (0.01,))
    team = await make_team(app, db)
    await team.create("app", "container")
    engine, launcher, settled = MemoryReplicas(), StubLauncher(), list[int]()

    async def settle() -> None:
        settled.append(1)

    reconciler = AppReconciler(db, engine, launcher, Telemetry(quiet=True), settle)  # type: ignore[arg-type]
    yield World(team, db, engine, reconciler, launcher, settled)
    await engine.close()


def ready(count: int) -> Callable[[list[Replica]], bool]:
    return lambda rows: len(rows) == count and all(row.status == "ready" for row in rows)


async def test_a_replica_is_started_and_ready_once_it_answers(world: World) -> None:
    await world.deploy()

    (row,) = await world.until(ready(1))

    assert row.port == world.engine.states()[row.key].port
    assert world.engine.limits == {}
    async with asyncio.timeout(20):
        while not world.settled:
            await asyncio.sleep(0.01)


async def test_the_cpu_of_a_replica_is_limited_some_time_after_it_is_ready_also_by_the_next_process(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.deploy()
    (row,) = await world.until(ready(1))

    await world.reconciler.adopt()
    await world.until(lambda _: world.engine.limits == {row.key: 1})

    world.engine.limits.clear()
    monkeypatch.setattr(reconciler_module, "CPU_LIMIT_DELAY_S", 0.0)
    world.engine.lose(row.key)
    await world.until(lambda _: world.engine.limits == {row.key: 1})


@pytest.mark.both_stores
@pytest.mark.parametrize("db", [POSTGRES], indirect=True)
async def test_a_replica_is_kept_until_the_gateways_of_all_machines_have_switched(world: World) -> None:
    first = await world.deploy()
    (old,) = await world.until(ready(1))
    await world.db.write(lambda tx: gateways.serve(tx, "machine:9", gateways.current(tx)))

    await world.deploy()
    await world.until(lambda rows: any(row.deployment_id == first and row.status == "draining" for row in rows))
    for _ in range(20):
        await world.reconciler.round()
        await asyncio.sleep(0.05)
    was_running = old.key in world.engine.states()
    await world.db.write(lambda tx: gateways.serve(tx, "machine:9", gateways.current(tx)))
    await world.until(ready(1))

    assert was_running
    assert old.key not in world.engine.states()


async def test_one_that_never_answers_well_fails_and_says_what_it_answered(world: World) -> None:
    world.engine.status = 500
    vars(world.db.env.settings)["app_start_s"] = 0
    await world.deploy(is_live=False)

    (row,) = await world.until(lambda rows: rows[0].status == "failed")

    assert row.reason is not None
    assert row.reason.startswith("GET / answered 500; a status below 500 is healthy, and healthCheckPath")


@pytest.mark.parametrize("status", [401, 404])
async def test_without_a_path_of_the_owner_an_api_without_a_page_at_its_root_is_healthy(
    world: World, status: int
) -> None:
    world.engine.status = status
    await world.deploy(is_live=False)

    (row,) = await world.until(lambda rows: rows[0].status in ("ready", "failed"))

    assert row.status == "ready"


async def test_a_steady_wrong_answer_at_the_owners_path_fails_before_the_time_is_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "WRONG_ANSWER_S", 0.05)
    world.engine.status = 404
    await world.change(health_check_path="/healthz")
    await world.deploy(is_live=False)

    (row,) = await world.until(lambda rows: rows[0].status == "failed")

    assert row.reason is not None
    assert row.reason.startswith("GET /healthz answered 404; healthCheckPath has to answer 2xx or 3xx")


async def test_one_that_crashes_again_and_again_fails_before_its_time_is_up(world: World) -> None:
    world.engine.crashes = True
    await world.deploy(is_live=False)

    (row,) = await world.until(lambda rows: rows[0].status == "failed")

    assert row.reason == "it ended with exit code 1"


async def test_one_that_answers_and_then_ends_is_not_ready(world: World) -> None:
    world.engine.ends_after_answer = 9

    await world.deploy(is_live=False, kind="deploy")
    (row,) = await world.until(lambda rows: [row.status for row in rows] == ["failed"])

    assert row.reason == "it answered, and then it ended: it ended with exit code 0"


async def test_one_that_ends_once_and_then_stays_is_ready(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FIRST_STEADY_S", 0.3)
    world.engine.ends_after_answer = 1

    await world.deploy(is_live=False, kind="deploy")
    (row,) = await world.until(ready(1))

    assert world.engine.states()[row.key].restarts == 1


@pytest.mark.parametrize(("kind", "is_steady"), [("deploy", False), ("rollback", True), ("restart", True)])
async def test_only_a_release_that_was_never_live_is_watched_before_it_is_ready(
    world: World, kind: str, is_steady: bool
) -> None:
    made = await world.deploy(is_live=False, kind=kind)
    (row,) = [row for row in await world.rows() if row.deployment_id == made]

    steady_s = await world.db.read(partial(service.steady_s, org_id=row.org_id, row=row))

    assert steady_s == (0.0 if is_steady else service.FIRST_STEADY_S)


async def test_one_that_cannot_be_started_fails_with_the_reason(world: World) -> None:
    world.engine.refusal = "there is no such program"
    await world.deploy(is_live=False)

    (row,) = await world.until(lambda rows: rows[0].status == "failed")

    assert row.reason == "there is no such program"


async def test_a_live_one_is_tried_again_however_often_it_cannot_be_started(world: World) -> None:
    world.launcher.refusal = "its release has gone"
    await world.deploy()
    await world.until(lambda rows: rows[0].reason == "its release has gone")
    for _ in range(8):
        await world.reconciler.round()
        await asyncio.sleep(0.02)

    world.launcher.refusal = None
    (row,) = await world.until(ready(1))

    assert row.reason is None


async def test_a_new_release_runs_beside_the_old_until_it_is_live_and_then_the_old_one_goes(world: World) -> None:
    await world.deploy()
    (old,) = await world.until(ready(1))

    newer = await world.deploy(is_live=False)
    beside = await world.until(ready(2))
    await world.go_live(newer)
    (left,) = await world.until(ready(1))

    assert [row.deployment_id for row in beside] == [old.deployment_id, newer]
    assert left.deployment_id == newer
    assert world.engine.stopped == [old.key]


async def test_a_failed_release_goes_and_the_live_one_is_not_touched(world: World) -> None:
    await world.deploy()
    (old,) = await world.until(ready(1))
    newer = await world.deploy(is_live=False)
    await world.until(ready(2))

    fail = partial(deployments.fail_if_open, org_id=world.team.org_id, deployment_id=newer, reason="no")
    await world.db.write(fail)
    (left,) = await world.until(ready(1))

    assert left.id == old.id
    assert world.engine.running.keys() == {old.key}


async def test_requests_may_finish_while_a_replica_is_drained(world: World, clock: ManualClock) -> None:
    await world.deploy()
    (row,) = await world.until(ready(1))
    world.engine.set(row.key, connections=1)

    await world.change(enabled=False)
    await world.until(lambda rows: [each.status for each in rows] == ["draining"])
    for _ in range(10):
        await world.reconciler.round()
        await asyncio.sleep(0.01)
    waiting = set(world.engine.running)
    world.engine.set(row.key, connections=0)
    await world.until(lambda rows: rows == [])

    assert waiting == {row.key}
    assert world.engine.stopped == [row.key]


async def test_one_that_is_lost_is_started_again_under_another_port(world: World) -> None:
    await world.deploy()
    (before,) = await world.until(ready(1))

    world.engine.lose(before.key)
    (after,) = await world.until(lambda rows: rows[0].status == "ready" and rows[0].port != before.port)

    assert after.id == before.id
    assert after.port == world.engine.states()[before.key].port


async def test_what_runs_is_adopted_and_what_does_not_starts_over(world: World) -> None:
    await world.change(auto_scaling='{"enabled":true,"minReplicas":2,"maxReplicas":2,"targetCpuPercent":80}')
    await world.deploy()
    kept, lost = await world.until(ready(2))
    world.engine.running.pop(lost.key)

    await world.reconciler.adopt()

    assert world.engine.adopted == {row.key: row.token for row in (kept, lost)}
    assert [row.status for row in await world.rows()] == ["ready", "starting"]


async def test_what_has_no_row_is_ended(world: World) -> None:
    await world.deploy()
    (row,) = await world.until(ready(1))

    await world.team.api.delete("/v1/projects/app")
    await world.until(lambda rows: rows == [])

    assert world.engine.stopped == [row.key]


async def test_a_project_that_is_switched_off_has_no_replicas_and_gets_them_back_without_a_deployment(
    world: World,
) -> None:
    await world.deploy()
    await world.until(ready(1))
    before = len(await world.team.deployments("app"))

    await world.team.api.post("/v1/projects/app/toggle", json={"enable": False})
    await world.until(lambda rows: rows == [])
    await world.team.api.post("/v1/projects/app/toggle", json={"enable": True})
    await world.until(ready(1))

    assert len(await world.team.deployments("app")) == before


async def test_one_that_sleeps_has_none_until_it_is_woken(world: World) -> None:
    await world.deploy()
    await world.until(ready(1))
    (project_id,) = {row.project_id for row in await world.rows()}

    await world.db.write(partial(service.put_to_sleep, org_id=world.team.org_id, project_id=project_id))
    await world.until(lambda rows: rows == [])
    was_asleep = await world.db.write(partial(service.wake, org_id=world.team.org_id, project_id=project_id))
    await world.until(ready(1))

    assert was_asleep


async def test_scaling_adds_replicas_and_takes_the_newest_away_first(world: World) -> None:
    await world.change(auto_scaling='{"enabled":true,"minReplicas":1,"maxReplicas":3,"targetCpuPercent":80}')
    await world.deploy()
    (first,) = await world.until(ready(1))
    scale = partial(service.scale, org_id=world.team.org_id, project_id=first.project_id)

    await world.db.write(partial(scale, replicas=9))
    three = await world.until(ready(3))
    await world.db.write(partial(scale, replicas=2))
    two = await world.until(ready(2))

    assert [row.id for row in two] == [row.id for row in three][:2]


@pytest.mark.parametrize(
    ("replicas", "scaling", "wanted"),
    [
        (5, None, 1),
        (5, '{"enabled":false,"minReplicas":2,"maxReplicas":9,"targetCpuPercent":80}', 1),
        (5, '{"enabled":true,"minReplicas":2,"maxReplicas":9,"targetCpuPercent":80}', 5),
        (1, '{"enabled":true,"minReplicas":2,"maxReplicas":9,"targetCpuPercent":80}', 2),
        (20, '{"enabled":true,"minReplicas":2,"maxReplicas":9,"targetCpuPercent":80}', 9),
    ],
)
def test_how_many_are_wanted_stays_within_the_bounds(replicas: int, scaling: str | None, wanted: int) -> None:
    assert service.wanted_replicas(replicas, scaling) == wanted


async def test_the_gateway_is_sent_to_what_is_ready_and_to_the_waker_where_nothing_is(world: World) -> None:
    await world.deploy()
    waiting = (await world.team.hosts()).apps["app.localhost"]

    (row,) = await world.until(ready(1))
    found = (await world.team.hosts()).apps["app.localhost"]

    assert waiting.addresses == ()
    assert found.addresses == (f"127.0.0.1:{row.port}",)


async def test_a_release_that_is_not_live_yet_has_a_name_that_nobody_knows(world: World) -> None:
    await world.deploy()
    await world.until(ready(1))
    newer = await world.deploy(is_live=False)
    rows = await world.until(ready(2))

    hosts = (await world.team.hosts()).apps

    (hidden,) = [host for host in hosts if host.startswith("probe-")]
    assert hosts[hidden].addresses == (f"127.0.0.1:{rows[1].port}",)
    assert hosts["app.localhost"].addresses == (f"127.0.0.1:{rows[0].port}",)
    assert rows[1].deployment_id == newer
