"""Read and push access: the gate in front of the git server, and ownership of repositories."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.builders import make_member, make_org, make_token, make_user, session_for
from tests.client import Client, Reply
from tests.products.repositories.support import Listener, basic, mount, token_of

from moorage.accounts.identity.operators import commands as operator
from moorage.accounts.identity.organizations.service import Organization
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.users import User
from moorage.app import App
from moorage.core.audit.service import Actor
from moorage.core.db.store import Database
from moorage.errors import NotFound
from moorage.products.repositories import service
from moorage.products.repositories.names import Name
from moorage.products.repositories.server.pktline import FLUSH, packet
from moorage.settings import Settings

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.settings(disk_reserve_mb=0),
    pytest.mark.boundary("tenant-to-tenant", "Repositories are read and pushed only by members of their organization."),
]
one_store = pytest.mark.parametrize("db", ["sqlite"], indirect=True)

EMPTY_PACK = b"PACK\0\0\0\2\0\0\0\0"
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
READ, PUSH = "info/refs?service=git-upload-pack", "info/refs?service=git-receive-pack"


@dataclass
class Quay:
    """An organization with a repository, `quay/site`."""

    db: Database
    api: Client
    owner: User
    org: Organization
    token: str

    async def ask(self, path: str, password: str | None, **headers: str) -> Reply:
        return await self.api.get(f"/git/{path}", headers={**(basic(password) if password else {}), **headers})

    async def push(self, path: str, body: bytes, **headers: str) -> Reply:
        kind = {"Content-Type": "application/x-git-receive-pack-request"}
        return await self.api.post(
            f"/git/{path}/git-receive-pack", content=body, headers={**kind, **basic(self.token), **headers}
        )


@pytest.fixture
async def quay(app: App, db: Database, api: Client) -> AsyncIterator[Quay]:
    server = mount(app, db, Listener())
    owner = await make_user(db)
    org = await make_org(db, owner, name="Quay")
    await db.write(lambda tx: service.begin_push(tx, org.id, Name("quay", "site"), _actor(owner)))
    yield Quay(db, api, owner, org, await make_token(db, owner, org.id))
    await server.close()


def _actor(user: User) -> Actor:
    return Actor(user.id, user.name)


def command(new: str, ref: str, capabilities: str, old: str = "0" * 40) -> bytes:
    return packet(f"{old} {new} {ref}\0{capabilities}".encode()) + FLUSH


def is_text(reply: Reply) -> bool:
    return reply.headers["content-type"].startswith("text/plain")


@one_store
async def test_without_credentials_git_is_asked_for_some(quay: Quay) -> None:
    reply = await quay.ask(f"quay/site.git/{READ}", None)

    assert reply.status == 401
    assert reply.headers["www-authenticate"] == 'Basic realm="Moorage"'
    assert is_text(reply)


@pytest.mark.parametrize("password", ["wrong", "psk_live_wrong", "eyJhbGciOiJIUzI1NiJ9.e30.x", "é", "x" * 5000])
@one_store
async def test_a_bad_password_is_asked_for_again(quay: Quay, password: str) -> None:
    reply = await quay.ask(f"quay/site.git/{READ}", password)

    assert reply.status == 401
    assert reply.headers["www-authenticate"] == 'Basic realm="Moorage"'


@pytest.mark.parametrize("header", ["Basic", "Basic !", "Basic YWJj", "Digest x", "Basic " + "YTo="])
@one_store
async def test_a_header_that_holds_no_password_is_none(quay: Quay, header: str) -> None:
    reply = await quay.api.get(f"/git/quay/site.git/{READ}", headers={"Authorization": header})

    assert reply.status == 401


@one_store
async def test_a_viewer_reads_and_may_not_push(quay: Quay) -> None:
    viewer = await token_of(quay.db, quay.org, Role.VIEWER)

    read = await quay.ask(f"quay/site.git/{READ}", viewer)
    push = await quay.ask(f"quay/site.git/{PUSH}", viewer)
    sent = await quay.push("quay/site.git", b"0000", **basic(viewer))

    assert read.status == 200
    assert read.body.startswith(packet(b"# service=git-upload-pack\n"))
    assert (push.status, push.body) == (403, b"This needs the member role\n")
    assert sent.status == 403


async def test_to_another_organization_nothing_exists(quay: Quay) -> None:
    stranger = await make_user(quay.db)
    other = await make_org(quay.db, stranger, name="Reef")
    token = await make_token(quay.db, stranger, other.id)

    read = await quay.ask(f"quay/site.git/{READ}", token)
    push = await quay.ask(f"quay/site.git/{PUSH}", token)
    new = await quay.ask(f"quay/new.git/{PUSH}", token)
    absent = await quay.ask(f"reef/site.git/{READ}", token)

    assert [reply.status for reply in (read, push, new, absent)] == [404] * 4
    assert read.body == b"There is no repository quay/site\n"
    assert absent.body == b"There is no repository reef/site\n"
    assert push.body == new.body.replace(b"quay/new", b"quay/site")
    assert b"yours are named reef/" in push.body


async def test_a_session_is_for_the_owners_organization_else_for_the_only_one(quay: Quay) -> None:
    session = session_for(quay.db, quay.owner)
    only = await quay.ask(f"anything/new.git/{PUSH}", session)
    await make_org(quay.db, quay.owner, name="Reef")

    named = await quay.ask(f"QUAY/site.git/{READ}", session)
    unclear = await quay.ask(f"anything/new.git/{PUSH}", session)
    other = await quay.ask(f"reef/new.git/{PUSH}", session)

    assert [reply.status for reply in (only, named, other)] == [200, 200, 200]
    assert unclear.status == 403
    assert b"which organization you mean" in unclear.body


@one_store
async def test_a_session_of_one_who_is_no_member_of_the_owners_organization_is_for_their_own(quay: Quay) -> None:
    stranger = await make_user(quay.db)
    await make_org(quay.db, stranger, name="Reef")

    reply = await quay.ask(f"quay/site.git/{READ}", session_for(quay.db, stranger))

    assert (reply.status, reply.body) == (404, b"There is no repository quay/site\n")


@one_store
async def test_somebody_who_is_suspended_is_told_so(quay: Quay) -> None:
    member = await make_member(quay.db, quay.org)
    token = await make_token(quay.db, member, quay.org.id)
    await quay.db.write(lambda tx: operator.suspend(tx, member, suspended=True))

    reply = await quay.ask(f"quay/site.git/{READ}", token)

    assert (reply.status, reply.body) == (403, b"This user is suspended\n")


@pytest.mark.settings(billing="manual", disk_reserve_mb=0)
@one_store
async def test_the_card_wall_stands_before_repositories_too(quay: Quay) -> None:
    owner = await make_user(quay.db)
    org = await make_org(quay.db, owner, name="Poor", card_verified=False)

    reply = await quay.ask(f"poor/site.git/{PUSH}", await make_token(quay.db, owner, org.id))

    assert reply.status == 402
    assert b"payment method" in reply.body


@pytest.mark.settings(rate_limit=2, disk_reserve_mb=0)
@one_store
async def test_git_requests_are_counted_like_all_others(quay: Quay) -> None:
    replies = [await quay.ask(f"quay/site.git/{READ}", quay.token) for _ in range(3)]

    assert [reply.status for reply in replies] == [200, 200, 429]
    assert replies[0].headers["ratelimit-remaining"] == "1"


@pytest.mark.settings(disk_reserve_mb=2**40)
@one_store
async def test_a_push_to_a_full_disk_is_refused_before_it_begins(quay: Quay) -> None:
    push = await quay.ask(f"quay/site.git/{PUSH}", quay.token)
    read = await quay.ask(f"quay/site.git/{READ}", quay.token)

    assert (push.status, read.status) == (402, 200)
    assert b"disk is almost full" in push.body


@pytest.mark.parametrize(
    "name",
    [
        "../..",
        "quay/../site",
        "quay/..",
        "--upload-pack=touch/x",
        "-quay/site",
        "quay/-site",
        "quay/.site",
        ".git/config",
        "quay/si te",
        "quay/site;id",
        "quay/$(id)",
        "quay/site%00",
        "quay/site%0a",
        "quay%2fsite/x",
        "quay/.git",
        "quay/" + "a" * 101,
        "qu\u00e4y/site",
    ],
)
@one_store
async def test_what_is_no_name_of_a_repository_is_not_there(quay: Quay, settings: Settings, name: str) -> None:
    before = {path.name for path in settings.folder("git").glob("*")}

    replies = [await quay.ask(f"{name}/{action}", quay.token) for action in (READ, PUSH)]
    sent = await quay.push(name, b"0000")

    assert [reply.status for reply in (*replies, sent)] == [404] * 3
    assert {path.name for path in settings.folder("git").glob("*")} == before


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "info/refs", 403),
        ("GET", "info/refs?service=git-upload-archive", 403),
        ("GET", "info/refs?service=../../bin/sh", 403),
        ("GET", "HEAD", 404),
        ("GET", "objects/info/packs", 404),
        ("GET", "config", 404),
        ("POST", "info/refs", 404),
        ("GET", "git-receive-pack", 404),
        ("PUT", "git-receive-pack", 404),
        ("POST", "git-upload-archive", 404),
        ("OPTIONS", "info/refs", 404),
    ],
)
@one_store
async def test_nothing_but_the_smart_protocol_is_spoken(quay: Quay, method: str, path: str, status: int) -> None:
    reply = await quay.api.request(method, f"/git/quay/site.git/{path}", headers=basic(quay.token))

    assert reply.status == status


@one_store
async def test_a_body_of_another_kind_is_refused(quay: Quay) -> None:
    reply = await quay.push("quay/site.git", b"0000", **{"Content-Type": "text/plain"})

    assert reply.status == 400
    assert b"application/x-git-receive-pack-request" in reply.body


@pytest.mark.parametrize("body", [b"", b"zzzz", b"0001", b"ffff", b"0009hello", b"000bhello w", packet(b"a b c\0d")])
@one_store
async def test_a_push_that_is_none_is_refused_and_makes_nothing(quay: Quay, settings: Settings, body: bytes) -> None:
    reply = await quay.push("quay/odd.git", body)

    assert (reply.status, reply.body) == (400, b"The body is not a push\n")
    assert sorted(path.name for path in settings.folder("git").glob("*.git")) == []


@one_store
async def test_asking_whether_one_may_push_makes_no_repository(quay: Quay) -> None:
    advertised = await quay.ask(f"quay/asked.git/{PUSH}", quay.token)
    probed = await quay.push("quay/asked.git", b"0000")

    assert (advertised.status, probed.status, probed.body) == (200, 200, b"")
    assert await quay.db.read(lambda tx: service.find(tx, quay.org.id, Name("quay", "asked"))) is None


@one_store
async def test_a_client_without_a_side_band_gets_gits_plain_answer(quay: Quay) -> None:
    pack = EMPTY_PACK + hashlib.sha1(EMPTY_PACK, usedforsecurity=False).digest()
    body = command("1" * 40, "refs/heads/main", " report-status") + pack

    reply = await quay.push("quay/plain.git", body)

    assert reply.headers["content-type"] == "application/x-git-receive-pack-result"
    assert reply.body == packet(b"unpack ok\n") + packet(b"ng refs/heads/main missing necessary objects\n") + FLUSH


@one_store
async def test_what_is_packed_is_unpacked_and_a_bomb_is_not(quay: Quay) -> None:
    wants = packet(b"command=ls-refs\n") + FLUSH
    headers = {"Content-Encoding": "gzip", "Git-Protocol": "version=2", **basic(quay.token)}
    headers["Content-Type"] = "application/x-git-upload-pack-request"

    async def fetch(body: bytes, coding: str = "gzip") -> Reply:
        given = {**headers, "Content-Encoding": coding}
        return await quay.api.post("/git/quay/site.git/git-upload-pack", content=body, headers=given)

    good = await fetch(gzip.compress(wants))
    bomb = await fetch(gzip.compress(b"0" * (17 * 2**20)))
    cut = await fetch(gzip.compress(wants)[:-9])
    odd = await fetch(b"not packed")
    other = await fetch(wants, "br")

    assert (good.status, good.body) == (200, FLUSH)
    assert (bomb.status, bomb.body) == (400, b"The body is larger than 16 MB\n")
    assert [reply.status for reply in (cut, odd, other)] == [400, 400, 400]


async def test_using_a_token_for_git_is_noted(quay: Quay, app: App) -> None:
    await quay.ask(f"quay/site.git/{READ}", quay.token)
    await app.asgi.close()

    listed = (await quay.api.get("/v1/api-tokens", token=session_for(quay.db, quay.owner))).data
    assert [each["lastUsedAt"] is not None for each in listed] == [True]


async def test_repositories_of_an_owner_are_made_by_its_first_user_alone(db: Database) -> None:
    first, second = await make_user(db), await make_user(db)
    quay, reef = await make_org(db, first, name="Quay"), await make_org(db, second, name="Reef")
    await db.write(lambda tx: service.begin_push(tx, quay.id, Name("Acme", "one"), _actor(first)))

    for name in (Name("acme", "two"), Name("ACME", "ONE"), Name("quay", "one")):
        with pytest.raises(NotFound):
            await db.write(lambda tx, name=name: service.begin_push(tx, reef.id, name, _actor(second)))  # type: ignore[misc]
    kept = await db.read(lambda tx: service.get(tx, quay.id, Name("aCmE", "oNe")))

    assert str(kept.full_name) == "Acme/one"


@one_store
async def test_the_feed_tells_who_made_a_repository(quay: Quay) -> None:
    activity = (await quay.api.get("/v1/activity", token=quay.token)).json

    assert "repository.created" in str(activity)


@one_store
async def test_folders_are_ours_alone(quay: Quay, settings: Settings) -> None:
    await quay.ask(f"quay/site.git/{READ}", quay.token)

    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in _folders(settings.folder("git"))}
    assert modes == {"incoming": "0o700", "empty": "0o500"}


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.suffix != ".git"]
