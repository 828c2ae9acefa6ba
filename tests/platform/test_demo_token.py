"""The API token that a development platform keeps for its demo organization."""

from __future__ import annotations

import pytest
from tests.builders import session_for
from tests.client import Client

from moorage.accounts.identity import logins
from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, ManualClock
from moorage.platform import demo_token
from moorage.platform.folders import demo_token_path
from moorage.settings import Settings

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def data(settings: Settings) -> None:
    settings.data.mkdir(parents=True, exist_ok=True)


async def test_the_token_is_made_once_and_kept(db: Database, settings: Settings, api: Client) -> None:
    first = await demo_token.ensure(db)
    again = await demo_token.ensure(db)

    path = demo_token_path(settings)
    assert first == again == path.read_text().strip()
    assert path.stat().st_mode & 0o777 == 0o600
    listed = (await api.get("/v1/api-tokens", token=first)).data
    assert [(token["name"], token["role"], token["expiresAt"]) for token in listed] == [("moorage up", "owner", None)]


async def test_the_token_works_after_a_day_and_with_a_second_organization(
    db: Database, api: Client, clock: ManualClock
) -> None:
    token = await demo_token.ensure(db)
    demo = (await api.post("/v1/auth/demo")).data
    second = (await api.post("/v1/orgs", json={"name": "Second"}, token=demo["token"])).data
    clock.advance(2 * DAY_MS)

    who = (await api.get("/v1/whoami", token=token)).data
    listed = await api.get("/v1/projects", token=token)

    assert who["orgId"] == demo["organizationId"] != second["organizationId"]
    assert listed.status == 200


async def test_a_revoked_token_is_made_again(db: Database, api: Client) -> None:
    first = await demo_token.ensure(db)
    [row] = (await api.get("/v1/api-tokens", token=first)).data
    await api.delete(f"/v1/api-tokens/{row['id']}", token=first)

    second = await demo_token.ensure(db)

    assert second != first
    assert (await api.get("/v1/me", token=first)).status == 401
    assert (await api.get("/v1/me", token=second)).status == 200


@pytest.mark.parametrize("mode", [0o644, 0o640])
async def test_a_file_that_others_can_read_is_replaced(db: Database, settings: Settings, mode: int) -> None:
    first = await demo_token.ensure(db)
    demo_token_path(settings).chmod(mode)

    second = await demo_token.ensure(db)

    assert second != first
    assert demo_token_path(settings).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"psk_test_of_another_platform", b"\xff\xfe"])
async def test_a_file_with_anything_else_is_replaced(db: Database, settings: Settings, content: bytes) -> None:
    path = demo_token_path(settings)
    path.write_bytes(content)
    path.chmod(0o600)

    token = await demo_token.ensure(db)

    assert path.read_text().strip() == token != content.decode(errors="replace")


async def test_a_deleted_organization_takes_its_token_along(db: Database, api: Client) -> None:
    first = await demo_token.ensure(db)
    user, org_id = await db.write(logins.demo)
    await api.delete(f"/v1/orgs/{org_id}", token=session_for(db, user))

    second = await demo_token.ensure(db)

    assert (await api.get("/v1/whoami", token=second)).data["orgId"] != str(org_id)
    assert second != first


async def test_the_token_does_not_work_once_the_platform_is_in_production(
    db: Database, settings: Settings, api: Client
) -> None:
    token = await demo_token.ensure(db)

    await demo_token.remove(db)
    await demo_token.remove(db)

    assert not demo_token_path(settings).exists()
    assert (await api.get("/v1/me", token=token)).status == 401
