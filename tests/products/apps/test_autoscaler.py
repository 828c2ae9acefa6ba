"""Autoscaler: replicas, sleep of idle apps, and rollback of a bad release."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.products.apps.memory_engine import MemoryReplicas
from tests.products.apps.test_replicas import PLAN, StubLauncher, World, ready
from tests.products.projects.support import make_team

from moorage.app import App
from moorage.core.artifacts import service as artifacts
from moorage.core.artifacts.service import Upload
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import MINUTE_MS, SECOND_MS, ManualClock
from moorage.core.telemetry import Telemetry
from moorage.products.apps import reconciler as reconciler_module
from moorage.products.apps import release_guard as guard
from moorage.products.apps import service
from moorage.products.apps.autoscaler import ROUND_INTERVAL_S, Autoscaler
from moorage.products.apps.metrics.service import Requests, step_of
from moorage.products.apps.reconciler import AppReconciler
from moorage.products.apps.tables import Replica
from moorage.products.projects import service as projects
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments import tables as deployment_tables
from moorage.products.projects.tables import Project

pytestmark = pytest.mark.anyio

SCALED = '{"enabled":true,"minReplicas":1,"maxReplicas":4,"targetCpuPercent":50}'


@dataclass
class Tended:
    """An app that is looked after, at a time that the test holds."""

    world: World
    autoscaler: Autoscaler
    clock: ManualClock

    @property
    def engine(self) -> MemoryReplicas:
        return self.world.engine

    async def project(self) -> Project:
        return await self.world.db.read(lambda tx: projects.get(tx, self.world.team.org_id, "app"))

    async def release(self, digest: str, *, is_stored: bool = True) -> int:
        """Make a release the live one, and return its deployment."""
        made, org_id = await self.world.deploy(kind="deploy"), self.world.team.org_id

        def note(tx: Tx) -> None:
            built: dict[str, Any] = {"digest": digest * 64, "file_count": 1, "plan": PLAN, "is_app": True}
            tx.run(deployment_tables.SET_BUILT, org_id=org_id, id=made, now=tx.now, **built)
            if is_stored:
                artifacts.record(tx, org_id, Upload(digest * 64, 1, "copy", tx.now), projects.owner_of(made))

        await self.world.db.write(note)
        await self.world.until(ready(1))
        return made

    async def ask(self, count: int, *, failed: int = 0, took_ms: float = 10) -> None:
        """Let visitors come, within the second that begins now."""
        requests = Requests(count, [0, count - failed, 0, 0, failed], {step_of(took_ms): count})
        now = self.clock.now()
        self.autoscaler.window.add((await self.project()).id, {now // SECOND_MS * SECOND_MS: requests}, now)

    async def log(self, deployment_id: int) -> list[str]:
        org_id = self.world.team.org_id
        lines = await self.world.db.read(lambda tx: deployments.lines_after(tx, org_id, deployment_id, 0, 100))
        return [line.message for line in lines]

    async def work(self, cores: float, seconds: int) -> None:
        """Let every replica use so many cores for a while, with a look at them every so often."""
        for _ in range(int(seconds / ROUND_INTERVAL_S)):
            for key, state in self.engine.states().items():
                self.engine.set(key, cpu_us=state.cpu_us + int(cores * ROUND_INTERVAL_S * 1_000_000))
            self.clock.advance(int(ROUND_INTERVAL_S * SECOND_MS))
            await self.autoscaler.round()


@pytest.fixture
async def tended(app: App, db: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tended]:
    monkeypatch.setattr(reconciler_module, "MIN_DRAIN_S", 0.02)
    monkeypatch.setattr(reconciler_module, "DRAIN_POLL_INTERVAL_S", 0.01)
    team = await make_team(app, db)
    await team.create("app", "container")
    engine, launcher, telemetry = MemoryReplicas(), StubLauncher(), Telemetry(quiet=True)

    async def settle() -> None:
        settled.append(1)

    settled: list[int] = []
    reconciler = AppReconciler(db, engine, launcher, telemetry, settle)  # type: ignore[arg-type]
    world = World(team, db, engine, reconciler, launcher, settled)
    yield Tended(world, Autoscaler(db, engine, reconciler, telemetry), clock)
    await engine.close()


async def swap(tended: Tended, *, is_stored: bool = True) -> tuple[int, int]:
    """Let a release have a good time, and then another one take over."""
    await tended.world.change(deploy_guard=True)
    older = await tended.release("a", is_stored=is_stored)
    await tended.ask(100)
    tended.clock.advance(10 * SECOND_MS)
    newer = await tended.release("b")
    tended.clock.advance(5 * SECOND_MS)
    return older, newer


async def test_a_release_that_fails_far_more_often_is_taken_back_and_both_logs_say_why(tended: Tended) -> None:
    _, newer = await swap(tended)
    await tended.ask(40, failed=30)

    await tended.autoscaler.round()
    newest, bad, *_ = await tended.world.team.deployments("app")
    why = "In the first 5 s after the switch 30 of 40 requests failed (75.0%; 0.0% before)."

    assert (newest["kind"], newest["status"], bad["id"]) == ("rollback", "queued", newer)
    assert (await tended.log(newer))[-1] == f"Rolled back by the deploy guard. {why}"
    assert (await tended.log(newest["id"]))[
        -1
    ] == f"Started by the deploy guard, which restores the previous release. {why}"


async def test_what_is_taken_back_is_taken_back_once(tended: Tended) -> None:
    await swap(tended)
    await tended.ask(40, failed=30)

    await tended.autoscaler.round()
    await tended.autoscaler.round()

    kinds = [each["kind"] for each in await tended.world.team.deployments("app")]
    assert kinds.count("rollback") == 1


@pytest.mark.parametrize("failed", [0, 1])
async def test_a_release_that_does_as_well_as_the_one_before_stays(tended: Tended, failed: int) -> None:
    _, newer = await swap(tended)
    await tended.ask(40, failed=failed)

    await tended.autoscaler.round()

    assert (await tended.project()).current_deployment_id == newer
    assert (await tended.world.team.deployments("app"))[0]["id"] == newer


async def test_a_bad_release_stays_where_nobody_wants_a_guard_and_where_its_time_is_over(tended: Tended) -> None:
    _, newer = await swap(tended)
    await tended.world.change(deploy_guard=False)
    await tended.ask(40, failed=40)
    await tended.autoscaler.round()
    await tended.world.change(deploy_guard=True)
    tended.clock.advance(guard.GUARD_MS)

    await tended.autoscaler.round()

    assert (await tended.world.team.deployments("app"))[0]["id"] == newer


async def test_where_the_release_before_is_gone_nothing_is_begun(tended: Tended) -> None:
    _, newer = await swap(tended, is_stored=False)
    await tended.ask(40, failed=30)

    await tended.autoscaler.round()

    assert (await tended.world.team.deployments("app"))[0]["id"] == newer


async def test_a_first_release_has_nothing_to_go_back_to(tended: Tended) -> None:
    await tended.world.change(deploy_guard=True)
    only = await tended.release("a")
    tended.clock.advance(5 * SECOND_MS)
    await tended.ask(40, failed=40)

    await tended.autoscaler.round()

    assert (await tended.project()).current_deployment_id == only
    assert not any(each["kind"] == "rollback" for each in await tended.world.team.deployments("app"))


async def test_an_app_that_works_hard_gets_another_replica_and_loses_it_when_it_rests(tended: Tended) -> None:
    await tended.world.change(auto_scaling=SCALED)
    await tended.release("a")

    await tended.work(0.8, seconds=40)
    more = (await tended.project()).replicas
    two = await tended.world.until(ready(2))
    await tended.work(0.01, seconds=360)
    await tended.world.until(ready(1))

    assert (more, len(two)) == (2, 2)
    assert (await tended.project()).replicas == 1


async def test_an_app_that_is_not_scaled_keeps_its_replica_however_hard_it_works(tended: Tended) -> None:
    await tended.release("a")

    await tended.work(1.0, seconds=40)

    assert (await tended.project()).replicas == 1
    assert len(await tended.world.rows()) == 1


async def idle(tended: Tended, tier: str = "free") -> list[Replica]:
    """Let an app have no visitor for just as long as it may."""
    await tended.world.change(tier=tier)
    await tended.release("a")
    tended.clock.advance(tended.world.db.env.settings.app_idle_minutes * MINUTE_MS)
    return await tended.world.rows()


async def test_a_free_app_that_nobody_asks_for_anything_sleeps(tended: Tended) -> None:
    (row,) = await idle(tended)

    await tended.autoscaler.round()
    await tended.world.until(lambda rows: rows == [])

    assert (await tended.project()).asleep
    assert tended.engine.stopped == [row.key]


async def test_an_app_that_was_asked_for_something_or_holds_a_connection_does_not_sleep(tended: Tended) -> None:
    (row,) = await idle(tended)
    await tended.ask(1)
    await tended.autoscaler.round()
    visited = (await tended.project()).asleep
    tended.clock.advance(tended.world.db.env.settings.app_idle_minutes * MINUTE_MS)
    tended.engine.set(row.key, connections=1)

    await tended.autoscaler.round()

    assert (visited, (await tended.project()).asleep) == (False, False)


async def test_an_app_that_is_paid_for_never_sleeps(tended: Tended) -> None:
    await idle(tended, tier="mini")

    await tended.autoscaler.round()

    assert not (await tended.project()).asleep


async def test_what_never_finishes_ends_when_the_time_to_drain_is_over(
    tended: Tended, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "DRAIN_MS", 50)
    await tended.release("a")
    (row,) = await tended.world.rows()
    tended.engine.set(row.key, connections=1)

    await tended.world.change(enabled=False)
    await tended.world.until(lambda rows: rows == [])

    assert tended.engine.stopped == [row.key]
