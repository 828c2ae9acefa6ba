"""The routes below /v1/operator: who reaches them, what they show, and what they change."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from tests.accounts.identity.support import IN_PRODUCTION
from tests.builders import make_member, make_org, make_token, make_user, session_for
from tests.client import Client, Reply
from tests.conftest import RunJobs
from tests.products.repositories.support import basic

from moorage.accounts.identity import users
from moorage.accounts.identity.operators import role as operator_role
from moorage.accounts.identity.states import Approval
from moorage.accounts.identity.users import User
from moorage.accounts.operator.machine import PROCESSES_FILE
from moorage.accounts.plans.service import Plan
from moorage.app import App
from moorage.core import jobs
from moorage.core.audit import service as audit
from moorage.core.db.scope import PLATFORM_ORG_ID
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.route import Scope
from moorage.core.jobs import tables as job_tables
from moorage.errors import RetryLater

pytestmark = pytest.mark.anyio


@dataclass
class Bridge:
    """The API as an operator calls it."""

    api: Client
    db: Database
    operator: User
    session: str

    async def get(self, path: str) -> Any:
        return (await self.api.get(f"/v1/operator/{path}", token=self.session)).data

    async def patch(self, path: str, **body: Any) -> Reply:
        return await self.api.patch(f"/v1/operator/{path}", token=self.session, json=body)

    async def actions(self) -> list[tuple[str, str, str]]:
        """Return actor, action and target of the operators' activity, newest first."""
        items = (await self.get("activity"))["items"]
        return [(each["actor"]["name"], each["action"], each["target"]["name"]) for each in items]


@pytest.fixture
async def bridge(api: Client, db: Database) -> Bridge:
    user = await make_user(db, "keeper@example.com")
    await db.write(lambda tx: operator_role.grant(tx, user))
    return Bridge(api, db, user, session_for(db, user))


@pytest.mark.boundary("role-to-role", "No role of an organization reaches the routes of operators.")
async def test_for_all_others_the_routes_do_not_exist(app: App, api: Client, db: Database, bridge: Bridge) -> None:
    owner = await make_user(db)
    org = await make_org(db, owner)
    own_org = await make_org(db, bridge.operator)
    token, operator_token = await make_token(db, owner, org.id), await make_token(db, bridge.operator, own_org.id)
    routes = [route for route in app.routes if route.path.startswith("/v1/operator")]
    values = {"job_id": "1", "organization_id": str(org.id), "user_id": str(owner.id), "name": "harbor"}

    for route in routes:
        path = route.path.format(**values)
        body: dict[str, Any] = {"json": {}} if route.body else {}
        answers = {
            name: await api.request(route.method, path, token=credential, **body)
            for name, credential in (("session", session_for(db, owner)), ("token", token), ("none", None))
        }
        own_token = await api.request(route.method, path, token=operator_token, **body)

        assert route.scope is Scope.OPERATOR
        assert [answers[name].status for name in ("session", "token", "none")] == [404, 404, 401], route.path
        assert (own_token.status, own_token.error["code"]) == (403, "forbidden"), route.path
    assert len(routes) == 15


@pytest.mark.boundary("role-to-role", "No role of an organization reaches the routes of operators.")
async def test_a_suspended_or_pending_operator_and_a_former_one_are_refused(
    api: Client, db: Database, bridge: Bridge
) -> None:
    pending = await make_user(db, status=Approval.PENDING)
    await db.write(lambda tx: users.set_operator(tx, pending, is_operator=True))
    waiting = await api.get("/v1/operator/machines", token=session_for(db, pending))
    await db.write(lambda tx: users.suspend(tx, bridge.operator, suspended=True))
    suspended = await api.get("/v1/operator/machines", token=bridge.session)
    await db.write(lambda tx: users.suspend(tx, bridge.operator, suspended=False))
    await db.write(lambda tx: operator_role.revoke(tx, users.get(tx, bridge.operator.id)))
    former = await api.get("/v1/operator/machines", token=bridge.session)

    assert [waiting.status, suspended.status, former.status] == [403, 403, 404]


async def test_a_session_says_whether_it_is_an_operators(api: Client, db: Database, bridge: Bridge) -> None:
    org = await make_org(db, bridge.operator)
    token = await make_token(db, bridge.operator, org.id)

    mine = [(await api.get("/v1/me", token=each)).data["isOperator"] for each in (bridge.session, token)]
    other = (await api.get("/v1/me", token=session_for(db, await make_user(db)))).data["isOperator"]

    assert (mine, other) == ([True, False], False)


async def test_in_development_the_demo_user_is_an_operator(api: Client) -> None:
    session = (await api.post("/v1/auth/demo")).data["token"]

    assert (await api.get("/v1/me", token=session)).data["isOperator"] is True
    assert (await api.get("/v1/operator/machines", token=session)).status == 200


@IN_PRODUCTION
async def test_in_production_the_demo_user_is_no_operator(api: Client, db: Database) -> None:
    demo = await make_user(db, operator_role.DEMO_EMAIL)

    assert (await api.get("/v1/operator/machines", token=session_for(db, demo))).status == 404


async def test_the_machine_and_its_processes(bridge: Bridge) -> None:
    run = bridge.db.env.settings.folder("run")
    run.mkdir(parents=True, exist_ok=True)
    alone = await bridge.get("processes")
    processes = [
        {"name": "supervisor", "pid": os.getppid(), "restarts": 0},
        {"name": "control", "pid": os.getpid(), "restarts": 2},
        {"name": "edge", "pid": 2**22 + 1, "restarts": 1},
    ]
    (run / PROCESSES_FILE).write_text(json.dumps({"processes": processes}))

    (machine,) = await bridge.get("machines")
    listed = await bridge.get("processes")

    assert [(each["name"], each["pid"]) for each in alone] == [("control", os.getpid())]
    assert machine["cpuCount"] >= 1
    assert len(machine["load"]) == 3
    assert machine["memory"]["totalBytes"] >= machine["memory"]["availableBytes"] > 0
    assert {"moorage", "python", "kernel", "store"} == set(machine["versions"])
    assert [(each["name"], each["running"], each["restarts"]) for each in listed] == [
        ("supervisor", True, 0),
        ("control", True, 2),
        ("edge", False, 1),
    ]
    assert listed[1]["memoryBytes"] > 2**20
    assert (listed[2]["startedAt"], listed[2]["memoryBytes"]) == (None, 0)


async def test_the_disk_by_area(bridge: Bridge) -> None:
    settings = bridge.db.env.settings
    for area in ("artifacts", "logs"):
        settings.folder(area).mkdir(parents=True, exist_ok=True)
    (settings.folder("logs") / "big").write_bytes(os.urandom(100_000))

    report = await bridge.get("disk")

    assert report["areas"]["logs"] >= 100_000
    assert report["reserveBytes"] == settings.disk_reserve_mb * 2**20
    assert report["totalBytes"] > report["freeBytes"] > 0


class Sail(msgspec.Struct, frozen=True, tag="test.sail"):
    org_id: int


class Moor(msgspec.Struct, frozen=True, tag="test.moor"):
    org_id: int


@dataclass
class Work:
    """Jobs that fail: `Moor` has marked its resource as failed then, and `Sail` has not."""

    bridge: Bridge
    run_jobs: RunJobs
    undone: list[int]

    async def add(self, payload: msgspec.Struct, attempts: int = 8) -> int:
        job_id = await self.bridge.db.write(lambda tx: jobs.add(tx, payload, max_attempts=attempts))
        assert job_id is not None
        await self.run_jobs()
        return job_id

    async def failing(self, state: str) -> list[Any]:
        items: list[Any] = (await self.bridge.get(f"jobs?state={state}"))["items"]
        return items

    async def retry(self, job_id: int) -> Reply:
        return await self.bridge.api.post(f"/v1/operator/jobs/{job_id}/retry", token=self.bridge.session)

    async def discard(self, job_id: int) -> Reply:
        return await self.bridge.api.delete(f"/v1/operator/jobs/{job_id}", token=self.bridge.session)

    async def status(self, job_id: int) -> str | None:
        row = await self.bridge.db.read(lambda tx: tx.find(job_tables.FIND, id=job_id))
        return row.status if row is not None else None


@pytest.fixture
def work(app: App, bridge: Bridge, run_jobs: RunJobs) -> Work:
    made = Work(bridge, run_jobs, [])

    def fail(tx: Tx, payload: Sail | Moor) -> None:
        raise RetryLater(after_s=600, why="no wind")

    app.handlers.add(Sail, fail)
    app.handlers.add(Moor, fail, on_failure=lambda tx, payload: made.undone.append(payload.org_id))
    return made


async def test_failing_jobs_are_listed_with_their_error(work: Work) -> None:
    retrying, failed = await work.add(Sail(7)), await work.add(Moor(8), attempts=1)

    (waiting,), (ended,) = await work.failing("retrying"), await work.failing("failed")
    depth = await work.bridge.get("queues")

    assert (waiting["id"], waiting["kind"], waiting["error"], waiting["attempts"]) == (
        retrying,
        "test.sail",
        "no wind",
        1,
    )
    assert (waiting["organizationId"], waiting["canRetry"], waiting["canDiscard"]) == ("7", True, False)
    assert waiting["nextAttemptAt"] is not None
    assert (ended["id"], ended["status"], ended["canRetry"], ended["canDiscard"]) == (failed, "failed", False, True)
    assert [
        (each["kind"], each["status"], each["count"]) for each in depth["items"] if each["kind"].startswith("test")
    ] == [
        ("test.sail", "queued", 1),
        ("test.moor", "failed", 1),
    ]
    assert (depth["failed"], depth["running"]) == (1, 0)


async def test_a_waiting_job_runs_now_and_a_failed_one_again_if_nothing_was_undone(work: Work) -> None:
    waiting, failed, undone = await work.add(Sail(1)), await work.add(Sail(2), attempts=1), await work.add(Moor(3), 1)

    replies = [await work.retry(each) for each in (waiting, failed, undone)]
    await work.run_jobs()

    assert [reply.status for reply in replies] == [200, 200, 409]
    assert [each["attempts"] for each in await work.failing("retrying")] == [2]
    assert {each["id"]: each["attempts"] for each in await work.failing("failed")} == {failed: 1, undone: 1}
    assert ("Ada Moor", "job.retried", f"test.sail {failed}") in await work.bridge.actions()


async def test_a_job_is_discarded_only_if_its_resource_does_not_stay_between_states(work: Work) -> None:
    failed, waiting, lasting = await work.add(Sail(1), attempts=1), await work.add(Moor(2)), await work.add(Sail(3))

    replies = [await work.discard(each) for each in (failed, waiting, lasting)]

    assert [reply.status for reply in replies] == [200, 200, 409]
    assert [await work.status(each) for each in (failed, waiting, lasting)] == [None, "failed", "queued"]
    assert work.undone == [2]
    assert (await work.discard(99_999)).status == 404


async def test_organizations_are_found_by_name_owner_and_id(bridge: Bridge, db: Database) -> None:
    owner = await make_user(db, "grace@example.com")
    org = await make_org(db, owner, name="100% Hopper_Co", plan=Plan.FREE)
    await make_member(db, org)
    await make_org(db, name="Other")

    async def search(text: str) -> list[str]:
        return [each["name"] for each in (await bridge.get(f"organizations?search={text}"))["items"]]

    (found,) = (await bridge.get("organizations?search=hopper"))["items"]
    detail = await bridge.get(f"organizations/{org.id}")

    assert (found["organizationId"], found["ownerEmail"], found["plan"]) == (str(org.id), "grace@example.com", "free")
    assert (found["suspendedAt"], found["resources"]["members"], found["resources"]["databases"]) == (None, 2, 0)
    assert detail == {**found, "metered": detail["metered"]}
    assert [await search(text) for text in ("GRACE%40", "100%25", "r_c", "1%25h")] == [
        *[["100% Hopper_Co"]] * 3,
        [],
    ]
    assert "100% Hopper_Co" in await search(str(org.id))
    page = await bridge.get("organizations?pageSize=1&page=2")
    assert (len(page["items"]), page["total"] >= 2) == (1, True)
    assert (await bridge.api.get("/v1/operator/organizations/999999", token=bridge.session)).status == 404


async def test_a_suspended_organization_is_refused_until_it_is_lifted(bridge: Bridge, db: Database) -> None:
    owner = await make_user(db)
    org, other = await make_org(db, owner), await make_org(db, owner, name="Other")
    credentials = [session_for(db, owner), await make_token(db, owner, org.id)]

    async def statuses() -> list[int]:
        return [(await bridge.api.get("/v1/usage", token=each, org=org.id)).status for each in credentials]

    suspended = await bridge.patch(f"organizations/{org.id}", suspended=True)
    refused = await statuses()
    by_path = await bridge.api.get(f"/v1/orgs/{org.id}/members", token=credentials[0])
    elsewhere = await bridge.api.get("/v1/usage", token=credentials[0], org=other.id)
    git = await bridge.api.get("/git/a/b.git/info/refs?service=git-upload-pack", headers=basic(credentials[1]))
    me = await bridge.api.get("/v1/me", token=credentials[0])
    lifted = await bridge.patch(f"organizations/{org.id}", suspended=False)

    assert (suspended.status, suspended.data["suspendedAt"] is not None, refused) == (200, True, [403, 403])
    assert (by_path.status, git.status, elsewhere.status, me.status) == (403, 403, 200, 200)
    assert (lifted.data["suspendedAt"], await statuses()) == (None, [200, 200])
    feed = await db.read(lambda tx: audit.latest(tx, org.id, before=None, most=2))
    assert [(row.actor, row.action) for row in feed] == [
        ("Moorage", "organization.unsuspended"),
        ("Moorage", "organization.suspended"),
    ]
    assert (await bridge.actions())[1] == ("Ada Moor", "organization.suspended", f"{org.name} ({org.id})")


async def test_an_operator_sets_plan_and_card(bridge: Bridge, db: Database) -> None:
    org = await make_org(db, plan=Plan.FREE, card_verified=False)

    changed = await bridge.patch(f"organizations/{org.id}", plan="pro", cardVerified=True)
    wrong = await bridge.patch(f"organizations/{org.id}", plan="gold")

    assert (changed.data["plan"], changed.data["cardVerified"], wrong.status) == ("pro", True, 400)
    assert [action for _, action, _ in await bridge.actions()][:2] == ["billing.card_verified", "billing.plan_changed"]


async def test_an_operator_approves_and_suspends_users_but_no_operators(bridge: Bridge, db: Database) -> None:
    user = await make_user(db, "new@example.com", status=Approval.PENDING)

    (waiting,) = (await bridge.get("users?status=pending"))["items"]
    approved = await bridge.patch(f"users/{user.id}", approved=True)
    suspended = await bridge.patch(f"users/{user.id}", suspended=True)
    refused = await bridge.api.get("/v1/me", token=session_for(db, user))
    lifted = await bridge.patch(f"users/{user.id}", suspended=False)
    myself = await bridge.patch(f"users/{bridge.operator.id}", suspended=True)

    assert (waiting["id"], waiting["email"], waiting["isOperator"]) == (user.id, "new@example.com", False)
    assert (approved.data["approvalStatus"], suspended.data["suspendedAt"] is None) == ("approved", False)
    assert (refused.status, lifted.data["suspendedAt"], myself.status) == (403, None, 409)
    assert (await bridge.patch("users/999999", suspended=True)).status == 404
    assert [each[1:] for each in await bridge.actions()][:3] == [
        ("user.unsuspended", "new@example.com"),
        ("user.suspended", "new@example.com"),
        ("user.approved", "new@example.com"),
    ]


async def test_the_chain_of_operators_activity_is_sealed(bridge: Bridge, db: Database) -> None:
    holds, problem = await db.read(lambda tx: audit.verify(tx, PLATFORM_ORG_ID))

    assert (holds, problem) == (1, None)
