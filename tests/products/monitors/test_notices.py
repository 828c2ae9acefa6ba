"""Notices: receivers, content and deduplication."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.builders import make_user
from tests.products.monitors.delivery_support import Harbor, make_harbor

from moorage.accounts.identity import users
from moorage.accounts.identity.organizations import members
from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.states import Approval
from moorage.core.audit.service import Actor
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.jobs import tables as job_tables
from moorage.core.kit.clock import DAY_MS
from moorage.products.monitors.alerts import messages, notices
from moorage.products.monitors.probing.beats import Certificate

pytestmark = pytest.mark.anyio

HOOK, OTHER = "https://hooks.example/one", "https://hooks.example/two"


@pytest.fixture
async def harbor(db: Database) -> AsyncIterator[Harbor]:
    harbor = await make_harbor(db)
    yield harbor
    await harbor.client.close()


def a_certificate(harbor: Harbor) -> Certificate:
    return Certificate("shop.example", "Let's Encrypt", harbor.db.env.clock.now() + 5 * DAY_MS, "ab" * 32)


async def where(harbor: Harbor) -> list[tuple[str, str]]:
    return [(each.channel, each.target) for each in await harbor.notices()]


async def test_every_channel_that_is_on_gets_a_row_and_mail_one_for_each_person(harbor: Harbor) -> None:
    grace = await harbor.member()
    alert = await harbor.alert(by_email=True, slack=HOOK, webhook=HOOK)

    incident = await harbor.tell(alert)

    found = await harbor.notices()
    assert [(each.channel, each.target) for each in found] == [
        ("email", harbor.owner.email),
        ("email", grace.email),
        ("slack", ""),
        ("webhook", ""),
    ]
    assert {(each.about, each.kind, each.status, each.attempts) for each in found} == {
        (incident.uuid, "triggered", "pending", 0)
    }
    assert {(each.alert_id, each.incident_id) for each in found} == {(alert.id, incident.id)}
    assert len({each.uuid for each in found}) == 4


async def test_each_row_has_a_job_in_a_lane_of_its_own(harbor: Harbor) -> None:
    alert = await harbor.alert(by_email=True, webhook=HOOK)
    await harbor.tell(alert)

    claimed = await harbor.db.write(
        lambda tx: tx.all(
            job_tables.CLAIM, machine_id=0, lane="notices", now=tx.now, until=tx.now + 1, lease="mine", most=10
        )
    )

    assert [(job.kind, job.key) for job in sorted(claimed, key=lambda job: job.id)] == [
        ("alerts.deliver", f"alert:{alert.id}:email:{harbor.owner.email}"),
        ("alerts.deliver", f"alert:{alert.id}:webhook:"),
    ]


async def test_only_members_who_can_do_something_are_told(harbor: Harbor) -> None:
    admin = await harbor.member(Role.ADMIN)
    viewer = await harbor.member(Role.VIEWER)
    suspended, waiting = await harbor.member(), await make_user(harbor.db, status=Approval.PENDING)

    def unit(tx: Tx) -> None:
        users.suspend(tx, suspended, suspended=True)
        members.add(tx, harbor.org_id, waiting.id, Role.MEMBER)

    await harbor.db.write(unit)

    await harbor.tell(await harbor.alert(by_email=True))

    assert await where(harbor) == [("email", harbor.owner.email), ("email", admin.email)]
    assert [len(await harbor.told(each)) for each in (harbor.owner, admin)] == [1, 1]
    assert [await harbor.told(each) for each in (viewer, suspended, waiting)] == [[], [], []]


async def test_the_same_is_told_once_and_another_kind_of_it_too(harbor: Harbor) -> None:
    alert = await harbor.alert(by_email=True, webhook=HOOK)
    incident = await harbor.tell(alert)

    again = await harbor.db.write(lambda tx: harbor.add(tx, alert, incident))
    resolved = await harbor.db.write(lambda tx: harbor.add(tx, alert, incident, "resolved"))

    assert again == []
    assert [each.kind for each in resolved] == ["resolved", "resolved"]
    assert len(await harbor.notices()) == 4
    assert [each.kind for each in await harbor.told(harbor.owner)] == ["alert.triggered", "alert.resolved"]


async def test_what_is_undone_leaves_neither_a_notice_nor_a_job(harbor: Harbor) -> None:
    alert = await harbor.alert(by_email=True, webhook=HOOK)
    incident = await harbor.begin(alert)

    def unit(tx: Tx) -> None:
        harbor.add(tx, alert, incident)
        raise KeyError("the platform stops here")

    with pytest.raises(KeyError):
        await harbor.db.write(unit)

    assert (await harbor.notices(), await harbor.next_due(), await harbor.told(harbor.owner)) == ([], None, [])


async def test_people_are_told_in_the_product_even_where_every_channel_is_off(harbor: Harbor) -> None:
    alert = await harbor.alert(by_slack=True, slack_off="404", by_webhook=True, webhook_off="410")

    await harbor.tell(alert)

    assert await harbor.notices() == []
    [told] = await harbor.told(harbor.owner)
    assert (told.kind, told.title, told.org_id) == ("alert.triggered", "Shop is down", harbor.org_id)
    assert "connect: nothing listens there" in told.body


async def test_a_notice_keeps_what_was_so_when_it_was_written(harbor: Harbor) -> None:
    alert = await harbor.alert(webhook=HOOK, severity="critical", duration_min=5)
    incident = await harbor.tell(alert)
    ada = Actor(harbor.owner.id, "Ada")

    await harbor.db.write(lambda tx: orgs.rename(tx, harbor.org_id, ada, "Another name"))

    [notice] = await harbor.notices()
    content = messages.decode(notice.payload)
    assert (content.organization.name, content.monitor.name, content.version) == ("Harbor", "Shop", 1)
    assert (content.incident, content.started_at, content.resolved_at) == (incident.uuid, incident.started_at, None)
    assert content.alert == messages.AlertPart(alert.id, "status", "eq", 0.0, 5, "critical")


async def test_credentials_in_an_address_are_not_told(db: Database) -> None:
    harbor = await make_harbor(db, url="https://ada:s3cret@shop.example:8443/health?x=1")

    await harbor.tell(await harbor.alert(webhook=HOOK))

    [notice] = await harbor.notices()
    assert messages.decode(notice.payload).monitor.url == "https://shop.example:8443/health?x=1"
    assert "s3cret" not in notice.payload


async def test_a_stored_address_that_cannot_be_parsed_is_not_told(db: Database) -> None:
    harbor = await make_harbor(db, url="http://ada:s3cret@[1:2]/")

    await harbor.tell(await harbor.alert(webhook=HOOK))

    [notice] = await harbor.notices()
    assert messages.decode(notice.payload).monitor.url == "****"


async def test_a_certificate_is_told_to_everybody_and_once_to_each_address_of_the_alerts(harbor: Harbor) -> None:
    first = await harbor.alert(slack=HOOK, webhook=HOOK)
    await harbor.alert(slack=HOOK, metric="response_time")
    third = await harbor.alert(slack=OTHER)
    await harbor.alert(webhook=OTHER, is_enabled=False)
    await harbor.alert(webhook=OTHER, webhook_off="410")

    told = await harbor.tell_certificate(a_certificate(harbor))
    again = await harbor.tell_certificate(a_certificate(harbor))

    assert [(each.channel, each.target, each.alert_id) for each in told] == [
        ("email", harbor.owner.email, None),
        ("slack", first.resource, first.id),
        ("webhook", first.resource, first.id),
        ("slack", third.resource, third.id),
    ]
    assert again == []
    assert [each.title for each in await harbor.told(harbor.owner)] == ["The certificate of Shop expires in 5 days"]


async def test_a_test_notice_goes_to_the_channels_that_are_on_each_time(harbor: Harbor) -> None:
    alert = await harbor.alert(by_email=True, webhook=HOOK)

    for _ in range(2):
        added = await harbor.db.write(lambda tx: notices.add_test(tx, harbor.org_id, harbor.monitor, alert))

    assert [(each.channel, each.kind) for each in added] == [("email", "test"), ("webhook", "test")]
    assert len(await harbor.notices()) == 4
    assert await harbor.told(harbor.owner) == []


async def test_nothing_is_told_for_an_organization_that_was_just_deleted(harbor: Harbor) -> None:
    alert = await harbor.alert(by_email=True, webhook=HOOK)
    incident = await harbor.begin(alert)
    await harbor.db.write(lambda tx: orgs.delete(tx, harbor.org_id, Actor(harbor.owner.id, "Ada")))

    added = await harbor.db.write(lambda tx: harbor.add(tx, alert, incident))

    assert added == []
    assert await harbor.notices() == []
