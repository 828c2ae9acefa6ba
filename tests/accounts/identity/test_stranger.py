"""Isolation of organizations: no route shows data to a credential of another organization.

Every parameter of every route names an existing resource of the victim's organization. A product that adds
routes adds its resources to `VICTIM`; otherwise this test reports the missing ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.accounts.identity.support import HangsUp, House, in_organization, make_house, path_of, whole_store
from tests.builders import make_org, make_token, make_user, session_for
from tests.client import Client, Reply
from tests.products.functions.edge_stand_in import EdgeStandIn, running
from tests.products.functions.support import PYTHON, form, zip_of
from tests.products.repositories.support import bind

from moorage.accounts.identity import notifications, tokens
from moorage.accounts.identity.organizations.service import WelcomeOrganization
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.sessions import service as session_list
from moorage.accounts.identity.sessions.session_tokens import Sessions
from moorage.accounts.identity.users import User
from moorage.app import App
from moorage.core import jobs
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx, move
from moorage.core.http.route import Route, Scope
from moorage.core.kit.clock import ManualClock
from moorage.products.cronjobs import service as cronjobs
from moorage.products.cronjobs import tables as cronjob_tables
from moorage.products.databases import service as databases
from moorage.products.databases.backups import service as backups
from moorage.products.databases.backups.service import StoredBackup
from moorage.products.databases.servers import add_server
from moorage.products.databases.states import DATABASE, DatabaseStatus
from moorage.products.projects import previews
from moorage.products.projects import service as projects
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.previews import PullRequest
from moorage.runtime.edge.spool import SpoolWriter
from moorage.settings import Settings

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.boundary("tenant-to-tenant", "No route shows or changes resources of another organization."),
]

# Part of every name of the victim, so that any leak is visible.
MARK = "victim-3f9c"


@dataclass
class Victim:
    """An organization with the path parameters of its resources, by first path segment."""

    house: House
    guest: User  # a user that the victim invited
    values: dict[str, dict[str, Any]] = field(default_factory=dict)

    def path(self, route: Route, **own: Any) -> str:
        known = {"org_id": self.house.org.id, **self.values.get(segment(route), {}), **own}
        if "/builds/{uuid}" in route.path:
            known["uuid"] = known["builds/uuid"]
        missing = {name for name, _ in route.params} - set(known)
        assert not missing, f"{route.path}: tell VICTIM[{segment(route)!r}] what {missing} of the victim is"
        return path_of(route, known)


Builder = Callable[[Client, Database, Victim], Awaitable[dict[str, Any]]]


async def identity_of(api: Client, db: Database, victim: Victim) -> dict[str, Any]:
    """Return the resources below /v1/orgs: a member and a pending invitation."""
    path = f"/v1/orgs/{victim.house.org.id}/invitations"
    made = await api.post(path, token=victim.house.sessions[Role.OWNER], json={"email": victim.guest.email})
    return {"user_id": victim.house.people[Role.VIEWER].id, "invitation_id": made.data["id"]}


async def invitation_of(api: Client, db: Database, victim: Victim) -> dict[str, Any]:
    path = f"/v1/orgs/{victim.house.org.id}/invitations"
    waiting = await api.get(path, token=victim.house.sessions[Role.OWNER])
    return {"invitation_id": waiting.data[0]["id"]}


async def token_of(api: Client, db: Database, victim: Victim) -> dict[str, Any]:
    found = await db.read(lambda tx: tokens.all_of(tx, victim.house.org.id))
    return {"token_id": found[0].id}


async def notification_of(api: Client, db: Database, victim: Victim) -> dict[str, Any]:
    owner = victim.house.people[Role.OWNER]
    await db.write(lambda tx: notifications.add(tx, owner.id, "test", MARK, MARK, about=MARK))
    told = await api.get("/v1/notifications", token=victim.house.sessions[Role.OWNER])
    return {"notification_id": told.data[0]["id"]}


async def logged_in_session_of(api: Client, db: Database, victim: Victim) -> dict[str, Any]:
    owner, sessions = victim.house.people[Role.OWNER], Sessions(db.env)
    await db.write(lambda tx: session_list.log_in(tx, sessions, owner.id, device=MARK))
    listed = await db.read(lambda tx: session_list.all_of(tx, owner.id))
    return {"session_id": listed[0].id}


async def function_of(api: Client, db: Database, victim: Victim) -> dict[str, Any]:
    # Its name is not secret: the request path contains it, so the response may as well.
    sent = form(zip_of(PYTHON), name="anchor", runtime="python", description=MARK)
    made = await api.post("/v1/functions", token=victim.house.tokens[Role.OWNER], **sent)
    secrets = {"secrets": [{"name": "KEY", "value": MARK}]}
    await api.patch(f"/v1/functions/{made.data['name']}", token=victim.house.tokens[Role.OWNER], json=secrets)
    return {"name": made.data["name"], "version": 1}


async def schedule_of(api: Client, db: Database, victim: Victim) -> dict[str, Any]:
    body = {"name": MARK, "function": "anchor", "cronSchedule": "0 0 1 1 *"}
    made = await api.post("/v1/scheduled-functions", token=victim.house.tokens[Role.OWNER], json=body)
    return {"schedule_id": made.data["id"]}


async def project_of(api: Client, db: Database, victim: Victim) -> dict[str, Any]:
    """Return a project with a secret, a pull request and a live release; its name is not secret."""
    token, org_id = victim.house.tokens[Role.OWNER], victim.house.org.id
    name = f"pier-{org_id}"
    sent = form(zip_of({"index.html": MARK}), sent_as="staticFiles", name=name)
    made = (await api.post("/v1/projects/static-upload", token=token, **sent)).data
    secrets = {"secrets": [{"name": "KEY", "value": MARK}], "env": [{"name": "A", "value": MARK}]}
    await api.patch(f"/v1/projects/{name}", token=token, json=secrets)
    pull = PullRequest(1, MARK, f"{MARK}/fork", "topic", "a" * 40, is_fork=True)

    def finish(tx: Tx) -> None:
        its = deployments.get_by_uuid(tx, org_id, made["uploadId"])
        deployments.begin(tx, org_id, its)
        deployments.go_live(tx, org_id, its)
        deployments.succeed(tx, org_id, its, MARK)
        previews.update(tx, org_id, projects.get(tx, org_id, name), pull)

    await db.write(finish)
    return {"name": name, "number": 1, "uuid": made["uploadId"]}


async def deployment_of(api: Client, db: Database, victim: Victim) -> dict[str, Any]:
    return {"uuid": victim.values["projects"]["uuid"]}


async def installation_of(api: Client, db: Database, victim: Victim) -> dict[str, Any]:
    await bind(db, victim.house.org, number=4711, login=MARK)
    return {"installation_id": 4711}


async def domain_of(api: Client, db: Database, victim: Victim) -> dict[str, Any]:
    body = {"domain": f"{MARK}-{victim.house.org.id}.example.com"}
    path = f"/v1/projects/{victim.values['projects']['name']}/domains"
    made = await api.post(path, token=victim.house.tokens[Role.OWNER], json=body)
    return {"domain_id": made.data["id"]}


async def database_of(api: Client, db: Database, victim: Victim) -> dict[str, Any]:
    """Return a database with a running status and a backup; its name is not secret."""
    token, org_id = victim.house.tokens[Role.OWNER], victim.house.org.id
    body = {"name": "orders", "type": "postgresql", "version": "16.4.0", "instanceType": "micro", "username": MARK}
    await api.post("/v1/databases", token=token, json=body)

    def finish(tx: Tx) -> None:
        found = databases.get(tx, org_id, "orders")
        for status in (DatabaseStatus.QUEUED, DatabaseStatus.DEPLOYING):
            move(tx, DATABASE, found, to=status)
        move(tx, DATABASE, found, to=DatabaseStatus.RUNNING, running_since=tx.now)
        add_server(tx, org_id, found.id, "primary", "s1", found.port)
        made = backups.add(tx, org_id, found, backups.BY_USER, backups.LOGICAL, MARK)
        backups.complete(tx, org_id, made.id, StoredBackup("0" * 64, 1, 1, None))

    await db.write(finish)
    return {"name": "orders", "schema": "public", "table": "boat"}


async def cronjob_of(api: Client, db: Database, victim: Victim) -> dict[str, Any]:
    """Return a cronjob with a build and a run; its name is not secret."""
    token, org_id = victim.house.tokens[Role.OWNER], victim.house.org.id
    body = {"name": "nightly", "cronSchedule": "0 0 1 1 *", "repositoryName": f"acme/{MARK}", "command": MARK}
    secrets = {"secrets": [{"name": "KEY", "value": MARK}], "env": [{"name": "A", "value": MARK}]}
    made = (await api.post("/v1/cronjobs", token=token, json=body | secrets)).data

    def finish(tx: Tx) -> str:
        found = cronjobs.get(tx, org_id, "nightly")
        tx.run(cronjob_tables.SET["build_id"], org_id=org_id, id=found.id, new=1, now=tx.now)
        return cronjobs.add_execution(tx, org_id, found, None).uuid

    run = await db.write(finish)
    # Both kinds of paths have a `uuid`; the preceding segment distinguishes them.
    return {"name": "nightly", "uuid": run, "builds/uuid": made["deploymentUuid"]}


async def registry_of(api: Client, db: Database, victim: Victim) -> dict[str, Any]:
    body = {"host": "registry.example.com", "username": MARK, "secret": MARK}
    made = await api.post("/v1/registries", token=victim.house.tokens[Role.OWNER], json=body)
    return {"registry_id": made.data["id"]}


async def monitor_of(api: Client, db: Database, victim: Victim) -> dict[str, Any]:
    token = victim.house.tokens[Role.OWNER]
    body = {"name": MARK, "url": f"http://127.0.0.1:9/{MARK}", "headers": [{"name": "X-Key", "value": MARK}]}
    made = (await api.post("/v1/monitors", token=token, json=body)).data
    return {"monitor_id": made["id"]}


async def alert_of(api: Client, db: Database, victim: Victim) -> dict[str, Any]:
    token, monitor = victim.house.tokens[Role.OWNER], await monitor_of(api, db, victim)
    body = {"metric": "status", "condition": "lt", "threshold": 1, "webhookUrl": f"http://127.0.0.1:9/{MARK}"}
    made = await api.post(f"/v1/monitors/{monitor['monitor_id']}/alerts", token=token, json=body)
    return {"alert_id": made.data["id"]}


async def tenant_of(api: Client, db: Database, victim: Victim) -> dict[str, Any]:
    """Return the victim as an operator sees it, and one of its jobs."""
    job_id = await db.write(lambda tx: jobs.add(tx, WelcomeOrganization(victim.house.org.id, victim.guest.id)))
    owner = victim.house.people[Role.OWNER]
    return {"organization_id": victim.house.org.id, "user_id": owner.id, "job_id": job_id, "name": "harbor"}


# First path segment after /v1, and the builder of the victim's resource for its parameters.
VICTIM: dict[str, Builder] = {
    "github": installation_of,
    "orgs": identity_of,
    "invitations": invitation_of,
    "api-tokens": token_of,
    "notifications": notification_of,
    "sessions": logged_in_session_of,
    "functions": function_of,
    "scheduled-functions": schedule_of,
    "projects": project_of,
    "deployments": deployment_of,
    "domains": domain_of,
    "databases": database_of,
    "cronjobs": cronjob_of,
    "registries": registry_of,
    "monitors": monitor_of,
    "alerts": alert_of,
    "operator": tenant_of,
}
# Valid bodies, or builders of them, for routes that validate the body before they find the resource.
BODIES: dict[tuple[str, str], Any] = {
    ("PATCH", "/v1/orgs/{org_id}/members/{user_id}"): {"role": "viewer"},
    ("PATCH", "/v1/orgs/{org_id}"): {"name": "Taken over"},
    ("POST", "/v1/orgs/{org_id}/invitations"): {"email": "eve@example.com", "role": "owner"},
    ("POST", "/v1/functions/{name}/rollback"): {"version": 1},
    ("POST", "/v1/functions/{name}/secrets/reveal"): {"name": "KEY"},
    ("PATCH", "/v1/projects/{name}/name"): lambda victim: {"name": f"taken-over-{victim.house.org.id}"},
    ("PATCH", "/v1/projects/{name}"): {"buildCmd": "taken over"},
    ("POST", "/v1/projects/{name}/toggle"): {"enable": False},
    ("POST", "/v1/projects/{name}/rollback"): lambda victim: {"deploymentUuid": victim.values["projects"]["uuid"]},
    ("POST", "/v1/projects/{name}/deploy"): {},
    ("POST", "/v1/projects/{name}/exec"): {"command": "true"},
    ("POST", "/v1/projects/{name}/secrets/reveal"): {"name": "KEY"},
    ("POST", "/v1/projects/{name}/domains"): {"domain": "taken.example.com"},
    ("PUT", "/v1/projects/{name}/headers"): {"headers": []},
    ("PUT", "/v1/projects/{name}/redirects"): {"redirects": []},
    ("POST", "/v1/projects/{name}/redirects/test"): {"path": "/old"},
    ("POST", "/v1/databases/{name}/query"): {"sql": "SELECT 1"},
    ("POST", "/v1/databases/{name}/change-tier"): {"instanceType": "mini"},
    ("POST", "/v1/databases/{name}/upgrade"): {"instanceType": "mini"},
    ("POST", "/v1/databases/{name}/restore"): {"backupName": MARK, "confirm": True},
    ("PATCH", "/v1/databases/{name}/backups"): {"enabled": True},
    ("PATCH", "/v1/cronjobs/{name}"): {"command": "taken over"},
    ("PATCH", "/v1/monitors/{monitor_id}"): {"name": "taken over"},
    ("POST", "/v1/monitors/{monitor_id}/alerts"): {"metric": "status", "condition": "lt", "threshold": 1},
    ("PATCH", "/v1/alerts/{alert_id}"): {"acknowledged": True},
}
# Responses to the owner for actions that the victim's resource does not support: the resource was found.
FOUND: dict[tuple[str, str], int] = {
    ("POST", "/v1/projects/{name}/exec"): 409,  # a static site runs nothing
    ("GET", "/v1/databases/{name}/extensions"): 409,  # these four ask its server, which does not run
    ("POST", "/v1/databases/{name}/query"): 409,
    ("GET", "/v1/databases/{name}/tables"): 409,
    ("GET", "/v1/databases/{name}/tables/{schema}/{table}"): 409,
}
UPLOADS: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/v1/functions/{name}/deploy"): form(zip_of({"main.py": "taken = 'over'"})),
}


@pytest.fixture(autouse=True)
async def gateway(app: App, settings: Settings, clock: ManualClock) -> AsyncIterator[None]:
    """A fake edge that only the owner of a function may call."""
    writer = SpoolWriter(settings.folder("spool"), capacity=2**20)
    async with running(EdgeStandIn(settings.folder("run") / "edge.sock", writer, clock.now)):
        yield
        await app.products.schedules.runner.stop()
        await app.products.functions.edge.close()
    app.products.functions.recorder.close()
    writer.close()


def segment(route: Route) -> str:
    return route.path.split("/")[2]


async def make_victim(api: Client, db: Database) -> Victim:
    house = await make_house(db, name=MARK)
    victim = Victim(house, await make_user(db, f"{MARK}.{house.org.id}@example.com"))
    for name, build in VICTIM.items():
        victim.values[name] = await build(api, db, victim)
    return victim


@dataclass(frozen=True)
class Stranger:
    """An owner of another organization, with both kinds of credential."""

    org_id: int
    credentials: tuple[str, str]


async def make_stranger(db: Database) -> Stranger:
    user = await make_user(db)
    org = await make_org(db, user, name="Stranger")
    return Stranger(org.id, (session_for(db, user), await make_token(db, user, org.id)))


async def of_victim(db: Database, victim: Victim) -> dict[str, list[dict[str, Any]]]:
    """Return all rows of the victim in the database."""
    mine, people = victim.house.org.id, {user.id for user in victim.house.people.values()}
    return {
        name: [
            row
            for row in rows
            if row.get("org_id") == mine
            or row.get("user_id") in people
            or (name == "organization" and row["id"] == mine)
            or (name == "account" and row["id"] in people)
        ]
        for name, rows in (await whole_store(db)).items()
    }


def call(
    client: Client, route: Route, victim: Victim, path: str, token: str, org: int | None = None
) -> Awaitable[Reply]:
    where = (route.method, route.path)
    body = BODIES.get(where, {} if route.body else None)
    sent = UPLOADS.get(where) or {"json": body(victim) if callable(body) else body}
    return client.request(route.method, path, token=token, org=org, **sent)


async def test_who_names_anothers_organization_finds_nothing(app: App, api: Client, db: Database) -> None:
    victim, stranger = await make_victim(api, db), await make_stranger(db)
    await app.asgi.close()  # Background writes of the victim's own requests are finished by now.
    client, before = Client(HangsUp(app.asgi)), await of_victim(db, victim)

    for route in in_organization(app.routes):
        for token in stranger.credentials:
            reply = await call(client, route, victim, victim.path(route), token, victim.house.org.id)

            assert (reply.status, reply.error["code"]) == (404, "not_found"), (route.method, route.path)
            assert MARK not in reply.body.decode()

    assert await of_victim(db, victim) == before


async def test_who_acts_in_their_own_organization_finds_nothing_of_anothers(
    app: App, api: Client, db: Database
) -> None:
    victim = await make_victim(api, db)
    await app.asgi.close()
    client, before = Client(HangsUp(app.asgi)), await of_victim(db, victim)

    for route in app.routes:
        if route.scope is Scope.PUBLIC:
            continue
        for which in range(2):
            # A new stranger each time: some routes delete the stranger's own resources.
            stranger = await make_stranger(db)
            path = victim.path(route, org_id=stranger.org_id)

            reply = await call(client, route, victim, path, stranger.credentials[which])

            assert reply.status < 500, (route.method, route.path)
            assert MARK not in reply.body.decode(), (route.method, route.path)
            if {name for name, _ in route.params} - {"org_id"}:
                # The check that an API token may not write for its user comes first.
                is_personal = route.scope is Scope.IDENTITY and route.is_write and which == 1
                assert reply.status in ((403, 404) if is_personal else (404,)), (route.method, route.path, reply.body)

    assert await of_victim(db, victim) == before


@pytest.mark.deep
async def test_the_victims_values_are_real(app: App, api: Client, db: Database) -> None:
    """A 404 for the stranger proves nothing if the owner gets a 404 too."""
    client, unchanged = Client(HangsUp(app.asgi)), await make_victim(api, db)

    for route in app.routes:
        if route.scope in (Scope.PUBLIC, Scope.OPERATOR) or not route.params:
            continue
        # A write may remove the resource of the next one.
        victim = await make_victim(api, db) if route.is_write else unchanged
        owner = victim.guest if segment(route) == "invitations" else victim.house.people[Role.OWNER]

        reply = await call(client, route, victim, victim.path(route), session_for(db, owner))

        where = (route.method, route.path)
        assert reply.status < 300 or reply.status == FOUND.get(where), (where, reply.body)
