"""Alerts through the API: inputs, outputs and permissions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.client import Reply
from tests.products.monitors.support import Team, fields_of, make_alert, make_monitor, read_alert

from moorage.accounts.identity.roles import Role
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx, move
from moorage.core.kit.clock import HOUR_MS, MINUTE_MS, ManualClock, to_wire
from moorage.core.vault import service as vault
from moorage.products.monitors.alerts import notices
from moorage.products.monitors.alerts import service as alerts
from moorage.products.monitors.alerts import tables as alert_tables
from moorage.products.monitors.alerts.notices import Observed
from moorage.products.monitors.alerts.tables import Alert, Notice
from moorage.products.monitors.states import ALERT, NOTICE, NoticeStatus
from moorage.products.monitors.tables import Monitor

pytestmark = pytest.mark.anyio

RULE: dict[str, Any] = {"metric": "status", "condition": "eq", "threshold": 0}
HOOK, SLACK = "https://hooks.example/secret-w", "https://slack.example/secret-s"


@pytest.fixture
async def shop(team: Team, db: Database) -> Monitor:
    return await make_monitor(db, team)


async def create(team: Team, monitor: Monitor, role: Role = Role.OWNER, /, **given: Any) -> Reply:
    """Create an alert; fields that are None are omitted."""
    body = {key: value for key, value in {**RULE, **given}.items() if value is not None}
    return await team.post(f"/{monitor.id}/alerts", role, json=body)


async def addresses_of(db: Database, found: Alert) -> dict[str, str]:
    return await db.read(lambda tx: vault.values(tx, found.org_id, found.resource))


async def switch_off(db: Database, found: Alert) -> None:
    """Disable both channels of an alert, as a failed delivery does."""

    def unit(tx: Tx) -> None:
        for column in ("slack_off", "webhook_off"):
            tx.run(alert_tables.SET[column], org_id=found.org_id, id=found.id, new="it is gone", now=tx.now)

    await db.write(unit)


async def tell(db: Database, monitor: Monitor, found: Alert, about: str, *, kind: str = "triggered") -> list[Notice]:
    observed = Observed(0, 500, 20, "status: 500", 1000)
    return await db.write(
        lambda tx: notices.add(
            tx, monitor.org_id, monitor=monitor, alert=found, incident=None, about=about, kind=kind, observed=observed
        )
    )


async def settle(db: Database, told: Notice, to: NoticeStatus, **values: Any) -> None:
    await db.write(lambda tx: move(tx, NOTICE, told, to=to, **values))


async def add_incident(db: Database, found: Alert, number: int, started_at: int, resolved_at: int | None) -> None:
    seen = {"value": 0.0, "status_code": 500, "response_time": 12, "message": "status: 500", "at": started_at}
    await db.write(
        lambda tx: tx.one(
            alert_tables.ADD_INCIDENT,
            uuid=f"incident-{number}",
            org_id=found.org_id,
            monitor_id=found.monitor_id,
            alert_id=found.id,
            is_flapping=number == 2,
            observed=json.dumps(seen),
            started_at=started_at,
            resolved_at=resolved_at,
        )
    )


# Creation.


async def test_a_new_alert_has_these_defaults(team: Team, shop: Monitor, clock: ManualClock) -> None:
    made = (await create(team, shop)).data

    assert made == {
        "id": made["id"],
        "monitorId": shop.id,
        "organizationId": str(team.org_id),
        "metric": "status",
        "condition": "eq",
        "threshold": 0,
        "duration": 1,
        "severity": "warning",
        "notifications": {"email": True, "slack": False, "webhook": False},
        "status": "active",
        "acknowledged": False,
        "lastTriggered": None,
        "createdAt": to_wire(clock.now()),
        "enabled": True,
        "isFlapping": False,
        "hasWebhookUrl": False,
        "hasSlackWebhook": False,
        "disabled": {"slack": None, "webhook": None},
        "deliveries": [],
    }
    assert (await team.get(f"/{shop.id}/alerts")).data == [made]


async def test_everything_that_is_given_is_kept_and_addresses_are_not_shown(
    team: Team, shop: Monitor, db: Database
) -> None:
    given = {
        "metric": "response_time", "condition": "gt", "threshold": 1500.5, "duration": 60, "severity": "critical",
        "notifications": {"email": False, "slack": True, "webhook": True},
    }  # fmt: skip

    made = await create(team, shop, **given, webhookUrl=HOOK, slackWebhook=SLACK)

    listed = await team.get(f"/{shop.id}/alerts")
    assert {name: made.data[name] for name in given} == given
    assert (made.data["hasWebhookUrl"], made.data["hasSlackWebhook"]) == (True, True)
    assert b"secret" not in made.body + listed.body
    found = await read_alert(db, team, made.data["id"])
    assert await addresses_of(db, found) == {"webhook_url": HOOK, "slack_webhook": SLACK}


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("metric", ["status", "response_time", "status_code", "error_rate", "ssl_expiry"], ["uptime", "", 1]),
        ("condition", ["gt", "lt", "eq", "neq"], ["gte", "=", 0]),
        ("threshold", [0, 1, -5.25, 1e300, 2**53], ["1", True, [], 10**400]),
        ("duration", [1, 60], [0, 61, 1.5, "1"]),
        ("severity", ["info", "warning", "error", "critical"], ["fatal", "WARNING"]),
        ("webhookUrl", [HOOK, "http://10.0.0.1:8080/x"], ["", "hooks.example", "ftp://x.example", 5, "https://a b"]),
        ("slackWebhook", [SLACK], ["", "x", "https://" + "a" * 2048 + ".example"]),
        ("notifications", [{}, {"email": False}], [[], "email", True]),
    ],
)
async def test_both_edges_of_each_bound_hold(
    team: Team, shop: Monitor, field: str, good: list[Any], bad: list[Any]
) -> None:
    there = (await create(team, shop)).data["id"]
    is_changed = field != "metric"

    taken = [(await create(team, shop, **{field: value})).status for value in good]
    refused = [fields_of(await create(team, shop, **{field: value})) for value in bad]
    if is_changed:
        taken += [(await team.alert("PATCH", f"/{there}", **{field: value})).status for value in good]
        refused += [fields_of(await team.alert("PATCH", f"/{there}", **{field: value})) for value in bad]

    assert set(taken) == {200}
    assert all(set(fields) == {field} for fields in refused)


@pytest.mark.parametrize("field", ["metric", "condition", "threshold"])
async def test_a_rule_is_required(team: Team, shop: Monitor, field: str) -> None:
    assert fields_of(await create(team, shop, **{field: None})) == {field: "is required"}


@pytest.mark.parametrize("channel", ["email", "slack", "webhook"])
async def test_channels_are_switched_by_true_and_false(team: Team, shop: Monitor, channel: str) -> None:
    wrong = {"notifications": {channel: "yes"}}
    there = (await create(team, shop)).data["id"]

    assert set(fields_of(await create(team, shop, **wrong))) == {f"notifications.{channel}"}
    assert set(fields_of(await team.alert("PATCH", f"/{there}", **wrong))) == {f"notifications.{channel}"}


@pytest.mark.parametrize(
    ("channel", "field", "address"), [("slack", "slackWebhook", SLACK), ("webhook", "webhookUrl", HOOK)]
)
async def test_a_channel_needs_its_address(
    team: Team, shop: Monitor, db: Database, channel: str, field: str, address: str
) -> None:
    on, off = {"notifications": {channel: True}}, {"notifications": {channel: False}}
    there = (await create(team, shop)).data["id"]

    refused = [await create(team, shop, **on), await team.alert("PATCH", f"/{there}", **on)]
    given = await team.alert("PATCH", f"/{there}", **{field: address})
    switched = await team.alert("PATCH", f"/{there}", **on)
    refused.append(await team.alert("PATCH", f"/{there}", **{field: None}))
    removed = await team.alert("PATCH", f"/{there}", **{field: None}, **off)

    assert [set(fields_of(reply)) for reply in refused] == [{field}] * 3
    assert (given.data["notifications"][channel], switched.data["notifications"][channel]) == (False, True)
    assert removed.data["notifications"][channel] is False
    assert await addresses_of(db, await read_alert(db, team, there)) == {}


@pytest.mark.parametrize("field", ["slackWebhook", "webhookUrl"])
async def test_addresses_with_a_malformed_ipv6_host_are_refused(team: Team, shop: Monitor, field: str) -> None:
    assert fields_of(await create(team, shop, **{field: "https://[1:2]/hook"})) == {field: "should be a URL"}


async def test_all_addresses_that_are_missing_are_named_at_once(team: Team, shop: Monitor) -> None:
    reply = await create(team, shop, notifications={"slack": True, "webhook": True})

    assert set(fields_of(reply)) == {"slackWebhook", "webhookUrl"}


async def test_an_alert_of_a_paused_monitor_waits_until_it_is_resumed(team: Team, shop: Monitor) -> None:
    await team.post(f"/{shop.id}/pause")

    made = (await create(team, shop)).data
    await team.post(f"/{shop.id}/resume")

    assert made["status"] == "inactive"
    assert [each["status"] for each in (await team.get(f"/{shop.id}/alerts")).data] == ["active"]


async def test_a_monitor_has_so_many_alerts_and_no_more(team: Team, shop: Monitor, db: Database) -> None:
    for _ in range(alerts.MAX_ALERTS_PER_MONITOR - 1):
        await make_alert(db, team, shop)

    last, one_more = await create(team, shop), await create(team, shop)

    assert last.status == 200
    assert (one_more.status, one_more.error["code"]) == (409, "conflict")


# Changes.


async def test_what_is_sent_changes_and_the_rest_stays(team: Team, shop: Monitor) -> None:
    made = (await create(team, shop, webhookUrl=HOOK)).data
    changes = {"condition": "lt", "threshold": 5.5, "duration": 2, "severity": "info", "acknowledged": True}

    changed = (await team.alert("PATCH", f"/{made['id']}", **changes)).data
    refused = await team.alert("PATCH", f"/{made['id']}", threshold=7, metric="error_rate")
    switched = (await team.alert("PATCH", f"/{made['id']}", notifications={"webhook": True})).data

    assert changed == {**made, **changes}
    assert fields_of(refused) == {"metric": "cannot be changed"}
    assert switched["notifications"] == {"email": True, "slack": False, "webhook": True}


@pytest.mark.parametrize(
    "field", ["condition", "threshold", "duration", "severity", "notifications", "acknowledged", "enabled"]
)
async def test_null_is_not_left_out(team: Team, shop: Monitor, field: str) -> None:
    made = (await create(team, shop)).data

    assert set(fields_of(await team.alert("PATCH", f"/{made['id']}", **{field: None}))) == {field}


async def test_another_rule_counts_from_now(team: Team, shop: Monitor, db: Database) -> None:
    pending = await make_alert(db, team, shop, pending_since=1000, good_samples=1, good_since=900)

    await team.alert("PATCH", f"/{pending.id}", severity="error", condition="eq")
    same = await read_alert(db, team, pending.id)
    await team.alert("PATCH", f"/{pending.id}", threshold=1)
    other = await read_alert(db, team, pending.id)

    assert (same.pending_since, same.good_samples) == (1000, 1)
    assert (other.pending_since, other.good_samples, other.good_since) == (None, 0, None)


async def test_an_alert_can_be_switched_off_and_on(team: Team, shop: Monitor) -> None:
    made = (await create(team, shop)).data

    off = (await team.alert("PATCH", f"/{made['id']}", enabled=False)).data
    again = (await team.alert("PATCH", f"/{made['id']}", enabled=False)).data
    on = (await team.alert("PATCH", f"/{made['id']}", enabled=True)).data

    assert [(each["enabled"], each["status"]) for each in (off, again, on)] == [
        (False, "inactive"),
        (False, "inactive"),
        (True, "active"),
    ]


async def test_an_alert_that_is_switched_on_waits_for_its_monitor(team: Team, shop: Monitor) -> None:
    made = (await create(team, shop)).data
    await team.alert("PATCH", f"/{made['id']}", enabled=False)
    await team.post(f"/{shop.id}/pause")

    on = (await team.alert("PATCH", f"/{made['id']}", enabled=True)).data
    await team.post(f"/{shop.id}/resume")

    assert (on["enabled"], on["status"]) == (True, "inactive")
    assert [each["status"] for each in (await team.get(f"/{shop.id}/alerts")).data] == ["active"]


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ({"slackWebhook": SLACK}, {"slack": None, "webhook": "it is gone"}),
        ({"webhookUrl": HOOK}, {"slack": "it is gone", "webhook": None}),
        ({"notifications": {"slack": True}}, {"slack": None, "webhook": "it is gone"}),
        ({"notifications": {"webhook": True}}, {"slack": "it is gone", "webhook": None}),
        ({"notifications": {"email": False, "webhook": False}}, {"slack": "it is gone", "webhook": "it is gone"}),
        ({"severity": "info"}, {"slack": "it is gone", "webhook": "it is gone"}),
    ],
)
async def test_a_channel_that_was_given_up_is_tried_again_once_it_is_set_anew(
    team: Team, shop: Monitor, db: Database, change: dict[str, Any], left: dict[str, Any]
) -> None:
    found = await make_alert(db, team, shop, slack=SLACK, webhook=HOOK)
    await switch_off(db, found)

    before = (await team.get(f"/{shop.id}/alerts")).data[0]["disabled"]
    after = (await team.alert("PATCH", f"/{found.id}", **change)).data["disabled"]

    assert before == {"slack": "it is gone", "webhook": "it is gone"}
    assert after == left


def test_an_alert_moves_between_three_states() -> None:
    pairs = {(at, to) for at in ALERT.states for to in ALERT.states if at in ALERT.sources(to)}

    assert pairs == {
        ("active", "triggered"), ("active", "inactive"), ("triggered", "active"), ("triggered", "inactive"),
        ("inactive", "active"),
    }  # fmt: skip


def test_a_notice_ends_delivered_or_failed() -> None:
    pairs = {(at, to) for at in NOTICE.states for to in NOTICE.states if at in NOTICE.sources(to)}

    assert pairs == {("pending", "delivered"), ("pending", "failed")}


# Deliveries.


async def test_the_last_delivery_over_each_channel_is_shown(
    team: Team, shop: Monitor, db: Database, clock: ManualClock
) -> None:
    found = await make_alert(db, team, shop, webhook=HOOK, by_email=False)
    other = await make_alert(db, team, shop, slack=SLACK, by_email=False)
    (first,) = await tell(db, shop, found, "one")
    await settle(db, first, NoticeStatus.DELIVERED, delivered_at=clock.now())
    clock.advance(MINUTE_MS)
    (second,) = await tell(db, shop, found, "one", kind="resolved")
    await tell(db, shop, other, "two")
    clock.advance(MINUTE_MS)
    await settle(db, second, NoticeStatus.FAILED, attempts=7, last_error="it answers 500")

    listed = (await team.get(f"/{shop.id}/alerts")).data

    assert [each["deliveries"] for each in listed] == [
        [
            {
                "channel": "webhook", "kind": "resolved", "status": "failed", "attempts": 7,
                "lastError": "it answers 500", "at": to_wire(clock.now()),
            }
        ],
        [
            {
                "channel": "slack", "kind": "triggered", "status": "pending", "attempts": 0, "lastError": None,
                "at": to_wire(clock.now() - MINUTE_MS),
            }
        ],
    ]  # fmt: skip


async def test_of_many_who_are_told_the_same_the_worst_is_shown(
    team: Team, shop: Monitor, db: Database, clock: ManualClock
) -> None:
    found = await make_alert(db, team, shop)
    earlier = await tell(db, shop, found, "one")
    for each in earlier:
        await settle(db, each, NoticeStatus.FAILED, last_error="long ago")
    told = await tell(db, shop, found, "two")

    seen = []
    for each, to in zip(told, ["delivered", "failed", "delivered"], strict=True):
        await settle(db, each, NoticeStatus(to), attempts=1, last_error=f"{to} it is")
        (shown,) = (await team.get(f"/{shop.id}/alerts")).data[0]["deliveries"]
        seen.append((shown["status"], shown["lastError"]))

    assert seen == [("pending", None), ("failed", "failed it is"), ("failed", "failed it is")]


async def test_a_test_goes_over_every_channel_that_is_on(team: Team, shop: Monitor, db: Database) -> None:
    found = await make_alert(db, team, shop, slack=SLACK, webhook=HOOK, by_email=False)
    quiet = await make_alert(db, team, shop, by_email=False)

    sent = (await team.alert("POST", f"/{found.id}/test", Role.MEMBER)).data
    nothing = (await team.alert("POST", f"/{quiet.id}/test")).data

    listed = (await team.get(f"/{shop.id}/alerts")).data
    assert [(each["channel"], each["kind"], each["status"]) for each in sent["deliveries"]] == [
        ("slack", "test", "pending"),
        ("webhook", "test", "pending"),
    ]
    assert nothing == {"deliveries": []}
    assert listed[0]["deliveries"] == sent["deliveries"]


# Incidents.


async def test_incidents_come_newest_first_and_no_more_than_asked_for(
    team: Team, shop: Monitor, db: Database, clock: ManualClock
) -> None:
    found = await make_alert(db, team, shop)
    now = clock.now()
    await add_incident(db, found, 1, now - HOUR_MS, now - MINUTE_MS)
    await add_incident(db, found, 2, now, None)

    listed = (await team.get(f"/{shop.id}/incidents")).data
    one = (await team.get(f"/{shop.id}/incidents?limit=1")).data

    assert listed[0] == {
        "id": "incident-2",
        "alertId": found.id,
        "monitorId": shop.id,
        "isFlapping": True,
        "observed": {
            "value": 0, "statusCode": 500, "responseTime": 12, "message": "status: 500", "at": to_wire(now),
        },
        "startedAt": to_wire(now),
        "resolvedAt": None,
    }  # fmt: skip
    assert [(each["id"], each["resolvedAt"]) for each in listed[1:]] == [("incident-1", to_wire(now - MINUTE_MS))]
    assert one == listed[:1]


# Deletion and permissions.


async def test_a_deleted_alert_is_gone_with_its_addresses_and_incidents(
    team: Team, shop: Monitor, db: Database
) -> None:
    found = await make_alert(db, team, shop, slack=SLACK, webhook=HOOK)
    kept = await make_alert(db, team, shop)
    await add_incident(db, found, 1, 1000, None)

    reply = await team.alert("DELETE", f"/{found.id}")

    assert reply.data == {"deleted": True}
    assert [each["id"] for each in (await team.get(f"/{shop.id}/alerts")).data] == [kept.id]
    assert (await team.get(f"/{shop.id}/incidents")).data == []
    assert await addresses_of(db, found) == {}
    assert (await team.alert("DELETE", f"/{found.id}")).status == 404


@pytest.mark.parametrize(("method", "path"), [("PATCH", ""), ("DELETE", ""), ("POST", "/test")])
async def test_what_is_not_there_or_anothers_is_not_found(
    team: Team, stranger: Team, db: Database, method: str, path: str
) -> None:
    theirs = await make_alert(db, stranger, await make_monitor(db, stranger))
    body = {"severity": "info"} if method == "PATCH" else {}

    for wrong in (theirs.id, 999_999, "x", 0):
        reply = await team.alert(method, f"/{wrong}{path}", **body)
        assert (reply.status, reply.error["code"]) == (404, "not_found")

    assert await read_alert(db, stranger, theirs.id) == theirs


async def test_viewers_read_and_members_write(team: Team, shop: Monitor) -> None:
    made = (await create(team, shop, Role.MEMBER)).data["id"]

    read = await team.get(f"/{shop.id}/alerts", Role.VIEWER)
    refused = [
        await create(team, shop, Role.VIEWER),
        await team.alert("PATCH", f"/{made}", Role.VIEWER, severity="info"),
        await team.alert("POST", f"/{made}/test", Role.VIEWER),
        await team.alert("DELETE", f"/{made}", Role.VIEWER),
    ]
    done = [
        await team.alert("PATCH", f"/{made}", Role.MEMBER, severity="info"),
        await team.alert("POST", f"/{made}/test", Role.MEMBER),
        await team.alert("DELETE", f"/{made}", Role.MEMBER),
    ]

    assert read.status == 200
    assert [(reply.status, reply.error["code"]) for reply in refused] == [(403, "forbidden")] * 4
    assert [reply.status for reply in done] == [200] * 3


async def test_what_people_do_is_on_the_record_without_addresses(team: Team, shop: Monitor) -> None:
    made = (await create(team, shop, webhookUrl=HOOK)).data["id"]
    await team.alert("PATCH", f"/{made}", slackWebhook=SLACK)
    await team.alert("POST", f"/{made}/test")
    await team.alert("DELETE", f"/{made}")

    feed = await team.api.get("/v1/activity", token=team.tokens[Role.OWNER])

    done = [item["action"] for item in feed.data["items"] if item["action"].startswith("alert.")]
    assert sorted(done) == ["alert.created", "alert.deleted", "alert.tested", "alert.updated"]
    assert b"secret" not in feed.body
