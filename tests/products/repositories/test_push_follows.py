"""The deployments of a push start once, also after a crash of the process that stored it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import select
from tests.builders import make_org
from tests.products.repositories.support import Checkout, Harbor, Listener, mount

from moorage.app import App
from moorage.core import jobs
from moorage.core.audit.service import Actor
from moorage.core.db.query import Query, pair
from moorage.core.db.store import Database
from moorage.core.jobs.tables import job
from moorage.core.kit.clock import ManualClock
from moorage.core.telemetry import Telemetry
from moorage.core.worker.pool import Worker
from moorage.core.worker.run import Handlers
from moorage.products.repositories import service
from moorage.products.repositories.names import Name
from moorage.products.repositories.server.receiving import FOLLOW_DELAY_MS, FOLLOW_RETRY_S, RECEIVE_TIMEOUT_S
from moorage.products.repositories.service import FollowPush, Update
from moorage.products.repositories.storage import Storage

ACTOR = Actor(None, "Ada")
NOTHING = "0" * 40
_JOBS = Query(select(job.c.status, job.c.attempts).where(job.c.kind == jobs.kind_of(FollowPush)), pair)


class Quay:
    """A repository to which a push is left as a dead process leaves it: promised, and stored or not."""

    def __init__(self, db: Database, clock: ManualClock, app: App, work: Checkout) -> None:
        self.db, self.clock, self.work = db, clock, work
        self.listener = Listener()
        self.listener.go_on.set()
        self.handlers = Handlers()
        mount(app, db, self.listener).register(self.handlers)

    async def promise(self) -> Path:
        """Promise a push of the commit, and return the folder that git stores it in."""
        org = await make_org(self.db, name="Quay")
        stored = await self.db.write(lambda tx: service.begin_push(tx, org.id, Name("quay", "site"), ACTOR))
        folder = await Storage(self.db.env.settings).ensure(stored.id)
        self.update = Update("main", NOTHING, self.work.git("rev-parse", "HEAD"))
        payload = FollowPush(org.id, stored.id, (self.update,), ACTOR)
        await self.db.write(lambda tx: jobs.add(tx, payload, delay_ms=FOLLOW_DELAY_MS))
        return folder

    async def wait(self, ms: int) -> None:
        self.clock.advance(ms)
        await Worker(self.db, self.handlers, Telemetry(quiet=True)).run_due(turns=4)

    async def jobs(self) -> list[tuple[str, int]]:
        return await self.db.read(lambda tx: tx.all(_JOBS))

    @property
    def heard(self) -> list[tuple[Update, ...]]:
        return [push.updates for push in self.listener.pushes]


@pytest.fixture
def quay(db: Database, clock: ManualClock, app: App, tmp_path: Path) -> Quay:
    work = Checkout.init(tmp_path / "work")
    work.commit("the first", index_html="<h1>one</h1>")
    return Quay(db, clock, app, work)


@pytest.mark.anyio
async def test_a_push_that_was_stored_by_a_process_that_died_is_followed_once(quay: Quay) -> None:
    folder = await quay.promise()
    quay.work.git("push", str(folder), "main")

    await quay.wait(FOLLOW_DELAY_MS - 1)
    before = quay.heard
    await quay.wait(1)
    await quay.wait(FOLLOW_DELAY_MS)

    assert before == []
    assert quay.heard == [(quay.update,)]
    assert await quay.jobs() == [("done", 1)]


@pytest.mark.anyio
async def test_a_push_that_git_still_stores_is_followed_when_its_branch_has_moved(quay: Quay) -> None:
    folder = await quay.promise()
    await quay.wait(FOLLOW_DELAY_MS)
    before = quay.heard

    quay.work.git("push", str(folder), "main")
    await quay.wait(int(FOLLOW_RETRY_S * 1000))

    assert before == []
    assert quay.heard == [(quay.update,)]


@pytest.mark.anyio
async def test_a_push_that_was_never_stored_is_not_followed_and_is_given_up(quay: Quay) -> None:
    await quay.promise()

    await quay.wait(FOLLOW_DELAY_MS)
    await quay.wait(RECEIVE_TIMEOUT_S * 1000)

    assert quay.heard == []
    assert await quay.jobs() == [("done", 2)]


def test_a_push_that_came_to_its_end_leaves_no_job(harbor: Harbor, work: Checkout) -> None:
    work.git("push", harbor.url("quay/promised.git"), "main")

    assert [push.repository for push in harbor.listener.pushes] == ["quay/promised"]
    assert asyncio.run(harbor.db.read(lambda tx: tx.all(_JOBS))) == []


def test_a_push_that_is_only_to_be_stored_says_so_in_a_header(harbor: Harbor, work: Checkout) -> None:
    work.git("push", harbor.url("quay/deployed"), "main")
    work.git("-c", "http.extraHeader=X-Moorage-Deploy: none", "push", harbor.url("quay/stored"), "main")

    assert [push.deploys for push in harbor.listener.pushes] == [True, False]
