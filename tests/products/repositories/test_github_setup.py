"""Connecting a GitHub account gives access only to its owner that also began here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from joserfc.jwk import RSAKey
from tests.builders import make_member, make_org, make_user, session_for
from tests.client import Client, Reply
from tests.core.http.live_server import live_server
from tests.products.repositories.code_host import APP_ID, OAUTH, CodeHost, GithubUser, installation
from tests.products.repositories.support import Checkout

from moorage import app as application
from moorage.accounts.identity.organizations.service import Organization
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.users import User
from moorage.accounts.webhooks.service import GithubEvent
from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.env import Env
from moorage.core.kit.clock import MINUTE_MS, ManualClock
from moorage.core.kit.crypto import KeyRing
from moorage.core.telemetry import Telemetry
from moorage.core.validated import SecretStr
from moorage.products.repositories.fetch import FetchFailed, Sources
from moorage.products.repositories.github import setup_state
from moorage.settings import Settings

pytestmark = pytest.mark.anyio
PROVED = pytest.mark.boundary(
    "tenant-to-tenant",
    "Private repositories of a GitHub account are read only for organizations that proved to own the account.",
)
INSTALLATIONS = "/v1/github/installations"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CodeHost, str, str]]:
    folder = tmp_path_factory.mktemp("codehost")
    work = Checkout.init(folder / "work")
    work.commit("the plans", index_html="<h1>plans</h1>")
    work.git("clone", "--quiet", "--bare", ".", str(folder / "root" / "secret" / "site.git"))
    key = RSAKey.generate_key(2048, private=True)
    host = CodeHost(folder / "root", key)
    with live_server(host) as server:
        yield host, server.url, key.as_pem(private=True).decode()


@pytest.fixture
def env(world: tuple[CodeHost, str, str], clock: ManualClock, tmp_path: Path) -> Env:
    host, url, pem = world
    host.codes.clear()
    host.made_tokens.clear()
    settings = Settings(
        _env_file=None,
        data=tmp_path / "data",
        rate_limit=1_000_000,
        codehost_url=url,
        codehost_api_url=f"{url}/api",
        github_app_id=APP_ID,
        github_app_key=SecretStr(pem),
        github_client_id=OAUTH["client_id"],
        github_client_secret=SecretStr(OAUTH["client_secret"]),
        disk_reserve_mb=0,
    )
    return Env.make(settings, clock, KeyRing((b"k" * 31 + b"1",)), b"s" * 32)


@pytest.fixture
def host(world: tuple[CodeHost, str, str], env: Env) -> CodeHost:
    return world[0]


@dataclass(frozen=True)
class Party:
    """An admin of an organization, and the admin's calls."""

    db: Database
    api: Client
    user: User
    org: Organization
    folder: Path

    async def begin(self) -> str:
        """Begin to connect an account, and return the state that GitHub is given."""
        begun = (await self.api.post(f"{INSTALLATIONS}/begin", org=self.org.id)).data
        return str(parse_qs(urlsplit(begun["url"]).query)["state"][0])

    async def finish(self, state: str, code: str = "c1", **more: Any) -> Reply:
        body = {"state": state, "code": code, "installationId": 99, **more}
        sent = {name: value for name, value in body.items() if value is not None}
        return await self.api.post(INSTALLATIONS, json=sent, org=self.org.id)

    async def reads(self) -> bool:
        """Tell whether a deployment of this organization could read the private repository."""
        self.folder.mkdir(exist_ok=True)
        for path in self.folder.iterdir():
            path.unlink()
        try:
            await Sources(self.db).fetch(
                self.org.id, "secret/site", branch="main", commit=None, target=self.folder, say=lambda _: None
            )
        except FetchFailed:
            return False
        return True


async def make_party(app: App, db: Database, folder: Path, name: str) -> Party:
    user = await make_user(db)
    org = await make_org(db, user, name=name)
    return Party(db, Client(app.asgi, token=session_for(db, user)), user, org, folder / name)


@pytest.fixture
async def quay(app: App, db: Database, tmp_path: Path) -> Party:
    """The organization that owns the account `Secret`."""
    return await make_party(app, db, tmp_path, "Quay")


@pytest.fixture
async def reef(app: App, db: Database, tmp_path: Path) -> Party:
    """An organization that asks first and has the account's name as its slug."""
    return await make_party(app, db, tmp_path, "Secret")


def owner() -> GithubUser:
    return GithubUser("ada", 1, [installation()], role="admin")


@PROVED
async def test_an_owner_of_the_account_connects_it_and_only_then_is_it_read(quay: Party, host: CodeHost) -> None:
    host.codes["c1"] = owner()
    before = await quay.reads()

    reply = await quay.finish(await quay.begin())

    assert (before, await quay.reads()) == (False, True)
    assert (reply.data["account"], reply.data["installationId"], reply.data["provedBy"]) == ("Secret", 99, "ada")
    assert (await quay.api.get(INSTALLATIONS, org=quay.org.id)).data == [reply.data]


@PROVED
async def test_neither_asking_first_nor_the_account_s_name_as_slug_gives_access(
    quay: Party, reef: Party, host: CodeHost
) -> None:
    asked_first = await reef.reads()
    host.codes["c1"] = owner()
    await quay.finish(await quay.begin())

    assert reef.org.slug == "secret"
    assert (asked_first, await reef.reads(), await quay.reads()) == (False, False, True)


@PROVED
async def test_a_state_works_once_for_its_user_and_organization_within_a_quarter_of_an_hour(
    app: App, db: Database, quay: Party, reef: Party, host: CodeHost, clock: ManualClock
) -> None:
    host.codes |= {f"c{number}": owner() for number in range(9)}
    colleague = await make_member(db, reef.org, Role.ADMIN)
    theirs = Party(db, Client(app.asgi, token=session_for(db, colleague)), colleague, reef.org, reef.folder)
    used = await quay.begin()
    await quay.finish(used, "c0")
    forged = used[:-4] + ("AAAA" if not used.endswith("AAAA") else "BBBB")
    session = session_for(db, reef.user)

    replies = [
        await quay.finish(used, "c1"),
        await reef.finish(await quay.begin(), "c2"),  # a state that a victim began
        await theirs.finish(await reef.begin(), "c3"),  # another user of the same organization
        await reef.finish(forged, "c4"),
        await reef.finish(session, "c5"),
        await reef.finish("x", "c6"),
    ]
    late = await reef.begin()
    clock.advance(15 * MINUTE_MS)
    replies.append(await reef.finish(late, "c7"))

    assert [(reply.status, list(reply.error["fields"])) for reply in replies] == [(400, ["state"])] * 7
    assert set(host.codes) == {f"c{number}" for number in range(1, 9)}
    assert not await reef.reads()


@PROVED
async def test_a_code_that_a_victim_s_browser_got_for_an_attacker_s_state_binds_nothing(
    quay: Party, reef: Party, host: CodeHost
) -> None:
    """The victim followed the attacker's link, authorized the app, and runs the shown command."""
    host.codes["c1"] = owner()
    attacker_s = await reef.begin()
    page = await quay.api.get(f"/v1/github/callback?code=c1&installation_id=99&state={attacker_s}")

    reply = await quay.finish(attacker_s)

    assert page.status == 200
    assert (reply.status, await reef.reads(), await quay.reads()) == (400, False, False)
    assert "c1" in host.codes


@PROVED
@pytest.mark.parametrize(
    ("user", "sent", "status"),
    [
        pytest.param(GithubUser("eve", 2), {}, 403, id="no access"),
        pytest.param(GithubUser("eve", 2), {"installationId": None}, 403, id="no access to any"),
        pytest.param(GithubUser("eve", 2, [installation(98)], "admin"), {}, 403, id="access to another"),
        pytest.param(GithubUser("eve", 2, [installation()]), {}, 403, id="access to one repository"),
        pytest.param(GithubUser("eve", 2, [installation()], "member"), {}, 403, id="member"),
        pytest.param(
            GithubUser("eve", 2, [installation(account={"id": 1, "login": "ada", "type": "User"})], "admin"),
            {},
            403,
            id="another person's account",
        ),
        pytest.param(GithubUser("ada", 1, [installation(suspended=True)], "admin"), {}, 409, id="suspended"),
        pytest.param(
            GithubUser("ada", 1, [installation(), installation(98)], "admin"),
            {"installationId": None},
            400,
            id="not clear which",
        ),
        pytest.param(owner(), {"code": "unknown"}, 400, id="unknown code"),
        pytest.param(owner(), {"code": "a'; b"}, 400, id="no code"),
    ],
)
@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_a_github_user_who_does_not_own_the_account_connects_nothing(
    reef: Party, host: CodeHost, user: GithubUser, sent: dict[str, Any], status: int
) -> None:
    host.codes["c1"] = user

    reply = await reef.finish(await reef.begin(), **sent)

    assert reply.status == status
    assert (await reef.api.get(INSTALLATIONS, org=reef.org.id)).data == []
    assert not await reef.reads()


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_installations_are_looked_for_on_every_page_and_the_only_one_needs_no_number(
    quay: Party, host: CodeHost
) -> None:
    many = [installation(1000 + number) for number in range(230)]
    host.codes["c1"] = GithubUser("ada", 1, [*many, installation()], "admin")
    host.codes["c2"] = GithubUser("ada", 1, [installation(5, {"id": 1, "login": "ada", "type": "User"})])

    last = await quay.finish(await quay.begin())
    only = await quay.finish(await quay.begin(), "c2", installationId=None)

    assert [last.data["installationId"], only.data["installationId"]] == [99, 5]


async def test_several_organizations_may_each_prove_an_account_and_disconnect_it(
    quay: Party, reef: Party, host: CodeHost
) -> None:
    host.codes |= {"c1": owner(), "c2": owner()}
    await quay.finish(await quay.begin(), "c1")
    await reef.finish(await reef.begin(), "c2")
    both = (await quay.reads(), await reef.reads())

    gone = await reef.api.delete(f"{INSTALLATIONS}/99", org=reef.org.id)
    again = await reef.api.delete(f"{INSTALLATIONS}/99", org=reef.org.id)

    assert both == (True, True)
    assert (gone.status, again.status) == (200, 404)
    assert (await quay.reads(), await reef.reads()) == (True, False)


@pytest.mark.boundary("tenant-to-tenant", "Events of a private repository start nothing for other organizations.")
async def test_events_of_a_private_repository_reach_only_who_proved_its_account(
    app: App, quay: Party, reef: Party, host: CodeHost
) -> None:
    host.codes["c1"] = owner()
    await quay.finish(await quay.begin())
    for party, name in ((quay, "mine"), (reef, "theirs")):
        body = {"slug": "static", "name": name, "repositoryName": "secret/site", "autoDeploy": True, "prPreview": True}
        assert (await party.api.post("/v1/projects", json=body, org=party.org.id)).status < 300
    about = {"repository": {"id": 1, "full_name": "secret/site", "private": True}, "installation": {"id": 99}}
    head = {"sha": "a" * 40, "ref": "topic", "repo": {"full_name": "secret/site"}}
    pull = {"action": "opened", "pull_request": {"number": 7, "title": "Secret plans", "head": head}, **about}
    push = {"ref": "refs/heads/main", "after": "a" * 40, **about}

    for event, payload in (("push", push), ("pull_request", pull)):
        for listener in app.products.projects.github.listeners[event]:
            told = GithubEvent(event, payload.get("action"), "d-1", payload)  # type: ignore[arg-type]
            await quay.db.write(lambda tx, hear=listener, told=told: hear(tx, told))  # type: ignore[misc]

    counts = []
    for party, name in ((quay, "mine"), (reef, "theirs")):
        read = await party.api.get(f"/v1/projects/{name}/deployments", org=party.org.id)
        counts.append(len(read.data["items"]))
    assert counts == [3, 1]


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_the_callback_shows_the_command_that_finishes_and_nothing_that_a_shell_would_run(
    quay: Party, host: CodeHost
) -> None:
    state = await quay.begin()

    page = await quay.api.get(f"/v1/github/callback?code=c1&installation_id=99&state={state}")
    bad = [
        await quay.api.get(f"/v1/github/callback?code={code}&installation_id={number}&state={given}")
        for code, number, given in (
            (quote("c1'; touch x; '"), "99", state),
            ("c1", quote("99'"), state),
            ("c1", "99", "forged"),
            ("", "99", state),
        )
    ]

    assert state in page.body.decode()
    assert "script" not in page.headers["content-security-policy"]
    assert ["curl" in each.body.decode() for each in bad] == [False] * 4


@pytest.mark.boundary("role-to-role", "Only admins connect and disconnect GitHub accounts.")
@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_members_cannot_begin_finish_or_disconnect(app: App, db: Database, quay: Party) -> None:
    member = await make_member(db, quay.org, Role.MEMBER)
    client = Client(app.asgi, token=session_for(db, member))
    state, _ = setup_state.make(db.env, quay.org.id, member.id)

    replies = [
        await client.post(f"{INSTALLATIONS}/begin", org=quay.org.id),
        await client.post(INSTALLATIONS, json={"state": state, "code": "c1"}, org=quay.org.id),
        await client.delete(f"{INSTALLATIONS}/99", org=quay.org.id),
    ]

    assert [reply.status for reply in replies] == [403, 403, 403]


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_without_the_app_s_client_nothing_can_be_connected(db: Database, quay: Party, app: App) -> None:
    settings = db.env.settings.model_copy(update={"github_client_id": ""})
    db.env = Env.make(settings, db.env.clock, db.env.ring, b"s" * 32)
    other = application.build(db, Telemetry(quiet=True))
    client = Client(other.asgi, token=session_for(db, quay.user))

    reply = await client.post(f"{INSTALLATIONS}/begin", org=quay.org.id)
    await other.close()

    assert reply.status == 409
    assert "MOORAGE_GITHUB_CLIENT_ID" in reply.error["message"]
