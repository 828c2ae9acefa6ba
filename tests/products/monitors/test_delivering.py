"""Delivery of notices to real HTTP and SMTP servers."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Iterator
from email.utils import formatdate
from functools import partial

import pytest
from sqlalchemy import delete
from tests.core.mail.support import Inbox, mailer, serving
from tests.ports import free_port
from tests.products.monitors.delivery_support import AGAIN_S, SECRET_PATH, Harbor, Receiver, make_harbor, statuses

from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.query import Command, arg
from moorage.core.db.store import Database
from moorage.core.jobs import tables as job_tables
from moorage.core.kit.clock import ManualClock
from moorage.core.net.client import GuardedClient
from moorage.core.net.targets import TargetPolicy
from moorage.core.vault import service as vault
from moorage.core.worker.pool import LEASE_MS
from moorage.errors import RateLimited
from moorage.products.monitors.alerts import delivering, notices
from moorage.products.monitors.alerts import service as alerts
from moorage.products.monitors.alerts import tables as alert_tables
from moorage.products.monitors.alerts.tables import WEBHOOK_URL, Alert

pytestmark = pytest.mark.anyio

REMOVE = Command(delete(alert_tables.notice).where(alert_tables.notice.c.org_id == arg("org_id")))
HOUR_S = 3_600


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    await receiver.start()
    yield receiver
    await receiver.close()


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with serving() as inbox:
        yield inbox


@pytest.fixture
async def harbor(db: Database) -> AsyncIterator[Harbor]:
    harbor = await make_harbor(db)
    yield harbor
    await harbor.client.close()


async def test_a_webhook_gets_a_notice_that_it_can_verify(harbor: Harbor, receiver: Receiver) -> None:
    incident = await harbor.tell(await harbor.alert(webhook=receiver.url))
    secret = await harbor.db.read(lambda tx: vault.find(tx, harbor.org_id, "organization", "webhook_secret"))

    await harbor.deliver()

    [got], [notice] = receiver.got, await harbor.notices()
    seconds, _, digest = got.headers["x-moorage-signature"].removeprefix("t=").partition(",v1=")
    assert secret is not None
    assert digest == hmac.new(secret.encode(), f"{seconds}.".encode() + got.body, "sha256").hexdigest()
    assert int(seconds) == harbor.db.env.clock.now() // 1000
    assert (got.path, got.headers["user-agent"]) == (SECRET_PATH, "Moorage-Alerts")
    assert (got.delivery, got.headers["idempotency-key"]) == (notice.uuid, f"{incident.uuid}:triggered")
    assert (got.headers["x-moorage-event"], got.event) == ("alert.triggered", "alert.triggered")
    assert (notice.status, notice.attempts, notice.last_error) == ("delivered", 1, None)
    assert notice.delivered_at == harbor.db.env.clock.now()


async def test_slack_gets_a_message_in_its_own_form(harbor: Harbor, receiver: Receiver) -> None:
    await harbor.tell(await harbor.alert(slack=receiver.url))

    await harbor.deliver()

    [got] = receiver.got
    assert got.json["text"] == "Shop is down"
    assert [block["type"] for block in got.json["attachments"][0]["blocks"]] == ["header", "section"]
    assert await statuses(harbor) == ["delivered"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("500 Oops", "the receiver answered 500 Internal Server Error"),
        ("400 No", "the receiver answered 400 Bad Request"),
        ("299x broken", "127.0.0.1 did not answer in valid HTTP"),
        ("302 Found\r\nLocation: /elsewhere", "the receiver answered 302 Found, and notices do not follow redirects"),
        ("599 Odd", "the receiver answered 599"),
        ("close", "127.0.0.1 closed the connection before the answer was complete"),
    ],
)
async def test_what_fails_is_sent_again_under_the_same_id(
    harbor: Harbor, receiver: Receiver, answer: str, why: str
) -> None:
    receiver.will(answer)
    await harbor.tell(await harbor.alert(webhook=receiver.url))

    await harbor.deliver()

    [notice] = await harbor.notices()
    assert (notice.status, notice.attempts, notice.last_error) == ("pending", 1, why)

    await harbor.deliver(after_s=AGAIN_S)

    [notice] = await harbor.notices()
    first, second = receiver.got
    assert (notice.status, notice.attempts, notice.last_error) == ("delivered", 2, None)
    assert first.delivery == second.delivery == notice.uuid
    assert first.headers["x-moorage-signature"] != second.headers["x-moorage-signature"]


async def test_a_receiver_that_hangs_is_tried_again(
    harbor: Harbor, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "TIMEOUT_S", 0.2)
    receiver.will("hang")
    await harbor.tell(await harbor.alert(webhook=receiver.url))

    await harbor.deliver()
    [notice] = await harbor.notices()
    await harbor.deliver(after_s=AGAIN_S)

    assert "gave no full answer" in (notice.last_error or "")
    assert await statuses(harbor) == ["delivered"]


@pytest.mark.parametrize("code", ["429 Too Many Requests", "503 Service Unavailable"])
@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_a_receiver_that_asks_for_patience_gets_it(
    harbor: Harbor, receiver: Receiver, code: str, form: str
) -> None:
    moment = formatdate(harbor.db.env.clock.now() / 1000 + 120, usegmt=True)
    receiver.will(f"{code}\r\nRetry-After: {'120' if form == 'seconds' else moment}")
    await harbor.tell(await harbor.alert(webhook=receiver.url))

    await harbor.deliver()
    await harbor.deliver(after_s=118)
    early = len(receiver.got)
    await harbor.deliver(after_s=3)

    assert early == 1
    assert await statuses(harbor) == ["delivered"]


@pytest.mark.parametrize("channel", ["slack", "webhook"])
@pytest.mark.parametrize("answer", ["404 Not Found", "410 Gone"])
async def test_an_address_that_is_gone_switches_the_channel_off_and_says_so(
    harbor: Harbor, receiver: Receiver, channel: str, answer: str
) -> None:
    receiver.will(answer)
    alert = await harbor.alert(**{channel: receiver.url})
    await harbor.tell(alert)

    await harbor.deliver()

    off = await harbor.the_alert(alert)
    assert getattr(off, f"{channel}_off") == f"the receiver answered {answer}"
    assert await statuses(harbor) == ["failed"]
    assert set(await harbor.actions()) == {"alert.channel_disabled", "alert.notice_failed"}
    [*_, notified] = await harbor.told(harbor.owner)
    assert (notified.kind, notified.org_id) == ("alert.channel_disabled", harbor.org_id)
    assert answer in notified.body

    await harbor.tell(off)

    assert len(await harbor.notices()) == 1


async def test_what_still_waits_for_a_channel_that_was_switched_off_is_given_up_unsent(
    harbor: Harbor, receiver: Receiver
) -> None:
    receiver.will("500 Oops", "410 Gone")
    alert = await harbor.alert(webhook=receiver.url)
    await harbor.tell(alert)
    await harbor.deliver()
    await harbor.tell(alert)

    await harbor.deliver()
    await harbor.deliver(after_s=AGAIN_S)

    assert [(each.status, each.attempts) for each in await harbor.notices()] == [("failed", 1), ("failed", 1)]
    assert (await harbor.notices())[0].last_error == "the channel was switched off"
    assert len(receiver.got) == 2


async def test_an_address_that_was_replaced_while_the_old_one_was_asked_stays_on(
    harbor: Harbor, receiver: Receiver
) -> None:
    alert = await harbor.alert(webhook=receiver.url + "/old")
    await harbor.tell(alert)
    replace = partial(vault.put, org_id=harbor.org_id, resource=alert.resource, name=WEBHOOK_URL, value=receiver.url)

    class Replaces(GuardedClient):
        async def request(self, *given, **options):  # type: ignore[no-untyped-def]
            await harbor.db.write(replace)
            return await super().request(*given, **options)

    receiver.will("404 Not Found")
    async with Replaces(TargetPolicy(allow_loopback=True)) as client:
        await harbor.worker(client=client).run_due()
    await harbor.deliver(after_s=AGAIN_S)

    assert (await harbor.the_alert(alert)).webhook_off is None
    assert [each.path for each in receiver.got] == [SECRET_PATH + "/old", SECRET_PATH]
    assert await statuses(harbor) == ["delivered"]


async def test_a_target_that_is_not_allowed_is_given_up_at_once(harbor: Harbor, receiver: Receiver) -> None:
    await harbor.tell(await harbor.alert(webhook=receiver.url))

    async with GuardedClient(TargetPolicy()) as strict:
        await harbor.worker(client=strict).run_due()

    [notice] = await harbor.notices()
    assert (notice.status, notice.last_error) == (
        "failed",
        "cannot call 127.0.0.1: loopback addresses are not allowed",
    )
    assert receiver.got == []


async def test_a_notice_is_given_up_after_a_day_and_no_error_tells_the_address(
    harbor: Harbor, clock: ManualClock
) -> None:
    await harbor.tell(await harbor.alert(webhook=f"http://127.0.0.1:{free_port()}{SECRET_PATH}"))
    began, errors, worker = clock.now(), set(), harbor.worker()

    while due := await harbor.next_due():
        clock.now_ms = max(due, began)
        await worker.run_due()
        errors |= {each.last_error for each in await harbor.notices()}

    [notice] = await harbor.notices()
    assert notice.status == "failed"
    assert errors == {"cannot connect to 127.0.0.1: Connection refused"}
    assert 23 * HOUR_S * 1000 < notice.updated_at - began <= 24 * HOUR_S * 1000
    assert notice.attempts > 50
    assert await harbor.actions() == ["alert.notice_failed"]


async def test_a_notice_that_waited_for_the_platform_itself_is_tried_however_old_it_is(
    harbor: Harbor, receiver: Receiver
) -> None:
    await harbor.tell(await harbor.alert(webhook=receiver.url))

    await harbor.deliver(after_s=3 * 24 * HOUR_S)

    assert await statuses(harbor) == ["delivered"]


async def test_a_recovery_waits_for_the_alert_that_is_tried_again(harbor: Harbor, receiver: Receiver) -> None:
    receiver.will("500 Oops", "500 Oops")
    alert = await harbor.alert(webhook=receiver.url)
    incident = await harbor.tell(alert)
    await harbor.deliver()
    await harbor.tell(alert, "resolved", of=incident)

    await harbor.deliver()
    assert receiver.events == ["alert.triggered"]
    for _ in range(15):
        await harbor.deliver(after_s=3)
    assert receiver.events == ["alert.triggered"] * 3 + ["alert.resolved"]
    assert await statuses(harbor) == ["delivered", "delivered"]


async def test_a_recovery_is_sent_where_the_alert_itself_was_given_up(harbor: Harbor, receiver: Receiver) -> None:
    alert = await harbor.alert(webhook=receiver.url)
    incident = await harbor.tell(alert)
    receiver.will("500 Oops")
    await harbor.deliver()
    receiver.will("500 Oops")
    await harbor.deliver(after_s=24 * HOUR_S)
    await harbor.tell(alert, "resolved", of=incident)

    await harbor.deliver()

    assert await statuses(harbor) == ["failed", "delivered"]
    assert receiver.events[-1] == "alert.resolved"


async def test_another_incident_does_not_wait_for_one_that_cannot_be_told(harbor: Harbor, receiver: Receiver) -> None:
    receiver.will("500 Oops")
    alert = await harbor.alert(webhook=receiver.url)
    await harbor.tell(alert)
    await harbor.deliver()
    await harbor.tell(alert)

    await harbor.deliver()

    assert await statuses(harbor) == ["pending", "delivered"]


async def test_a_crash_after_the_send_sends_the_same_delivery_again(harbor: Harbor, receiver: Receiver) -> None:
    receiver.will("hang")
    await harbor.tell(await harbor.alert(webhook=receiver.url))

    await harbor.die_when(lambda: len(receiver.got) == 1)
    await harbor.deliver()

    first, second = receiver.got
    assert first.delivery == second.delivery
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert await statuses(harbor) == ["delivered"]


async def test_a_crash_before_the_send_loses_nothing(harbor: Harbor, receiver: Receiver, clock: ManualClock) -> None:
    await harbor.tell(await harbor.alert(webhook=receiver.url))
    taken = await harbor.db.write(
        lambda tx: tx.all(
            job_tables.CLAIM,
            machine_id=0,
            lane="notices",
            now=tx.now,
            until=tx.now + LEASE_MS,
            lease="of one that died",
            most=4,
        )
    )

    await harbor.deliver()
    before = len(receiver.got)
    clock.advance(LEASE_MS + 1)
    await harbor.deliver()

    assert (len(taken), before, len(receiver.got)) == (1, 0, 1)
    assert await statuses(harbor) == ["delivered"]


async def test_a_crash_while_an_alert_waits_to_be_tried_again_keeps_the_order(
    harbor: Harbor, receiver: Receiver
) -> None:
    receiver.will("500 Oops", "hang")
    alert = await harbor.alert(webhook=receiver.url)
    incident = await harbor.tell(alert)
    await harbor.deliver()
    await harbor.tell(alert, "resolved", of=incident)
    harbor.db.env.clock.advance(AGAIN_S * 1000)  # type: ignore[attr-defined]

    await harbor.die_when(lambda: len(receiver.got) == 2)
    for _ in range(5):
        await harbor.deliver(after_s=3)

    assert receiver.events == ["alert.triggered"] * 3 + ["alert.resolved"]
    assert len({each.delivery for each in receiver.got}) == 2


async def test_a_fault_of_the_platform_does_not_lose_a_notice(harbor: Harbor, receiver: Receiver) -> None:
    await harbor.tell(await harbor.alert(webhook=receiver.url))
    broken = GuardedClient(TargetPolicy(allow_loopback=True))
    await broken.close()  # From here on it raises an unexpected error.

    await harbor.worker(client=broken).run_due()
    [notice] = await harbor.notices()
    await harbor.deliver(after_s=AGAIN_S)

    assert (notice.status, notice.last_error) == ("pending", "the platform could not send it")
    assert await statuses(harbor) == ["delivered"]


async def test_a_second_job_for_a_delivered_notice_sends_nothing(harbor: Harbor, receiver: Receiver) -> None:
    await harbor.tell(await harbor.alert(webhook=receiver.url))
    await harbor.deliver()
    [notice] = await harbor.notices()

    await harbor.db.write(lambda tx: notices.schedule_delivery(tx, harbor.org_id, notice))
    await harbor.deliver()

    assert len(receiver.got) == 1


async def test_a_notice_that_was_removed_while_it_was_sent_is_forgotten(harbor: Harbor, receiver: Receiver) -> None:
    await harbor.tell(await harbor.alert(webhook=receiver.url))

    class Removes(GuardedClient):
        async def request(self, *given, **options):  # type: ignore[no-untyped-def]
            await harbor.db.write(lambda tx: tx.run(REMOVE, org_id=harbor.org_id))
            return await super().request(*given, **options)

    async with Removes(TargetPolicy(allow_loopback=True)) as client:
        await harbor.worker(client=client).run_due()
    await harbor.deliver(after_s=HOUR_S)

    jobs = dict(await harbor.db.read(lambda tx: tx.all(job_tables.COUNTS)))
    assert (len(receiver.got), jobs.get("done"), jobs.get("failed")) == (1, 1, None)
    assert await harbor.notices() == []


async def test_a_test_notice_arrives_in_every_channel(harbor: Harbor, receiver: Receiver, inbox: Inbox) -> None:
    alert = await harbor.alert(by_email=True, slack=receiver.url, webhook=receiver.url)
    await harbor.db.write(lambda tx: notices.add_test(tx, harbor.org_id, harbor.monitor, alert))

    await harbor.deliver(mailer(inbox.url))

    assert sorted(each.json.get("event", "slack") for each in receiver.got) == ["alert.test", "slack"]
    assert inbox.mails[0]["Subject"] == "[test] Test notice for Shop"
    assert await statuses(harbor) == ["delivered"] * 3


def test_tries_come_ever_more_seldom_and_at_least_every_quarter_of_an_hour() -> None:
    waits = [delivering.backoff_s(attempts) for attempts in range(1, 12)]

    assert waits == [5, 10, 20, 40, 80, 160, 320, 640, 900, 900, 900]
    assert delivering.backoff_s(10**6) == 900


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("30", 30),
        ("0", 1),
        ("86400", 3_600),
        ("9" * 400, 3_600),
        ("Thu, 01 Jan 2026 00:01:00 GMT", 60),
        ("Thu, 01 Jan 2015 00:00:00 GMT", 1),
        ("Thu, 01 Jan 2027 00:00:00 GMT", 3_600),
        ("soon", None),
        ("-5", None),
        ("", None),
        (None, None),
    ],
)
def test_what_a_receiver_asks_for_is_obeyed_within_reason(value: str | None, seconds: float | None) -> None:
    assert delivering.retry_after_s(value, 1_767_225_600_000) == seconds


async def test_an_alert_has_one_test_at_a_time(harbor: Harbor, receiver: Receiver) -> None:
    alert = await harbor.alert(webhook=receiver.url)
    other = await harbor.alert(webhook=receiver.url)

    async def send_test(of: Alert = alert) -> None:
        await harbor.db.write(lambda tx: alerts.send_test(tx, harbor.org_id, THE_PLATFORM, of.id))

    await send_test()
    await send_test(other)
    with pytest.raises(RateLimited, match="is being sent"):
        await send_test()
    await harbor.deliver()
    await send_test()

    assert len(await harbor.notices()) == 3


async def test_a_new_test_replaces_one_that_failed_and_would_be_sent_again(harbor: Harbor, receiver: Receiver) -> None:
    receiver.will("500 Oops")
    alert = await harbor.alert(webhook=receiver.url)
    for _ in range(2):
        await harbor.db.write(lambda tx: alerts.send_test(tx, harbor.org_id, THE_PLATFORM, alert.id))
        await harbor.deliver()

    await harbor.deliver(after_s=AGAIN_S)

    assert [each.status for each in await harbor.notices()] == ["failed", "delivered"]
    assert len(receiver.got) == 2
