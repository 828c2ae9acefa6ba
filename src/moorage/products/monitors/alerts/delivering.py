"""Delivers notices: one job per notice, retried for a day.

Delivery is at least once. The result is recorded after sending; a crash in between sends the notice again under the
same id, so that the receiver can detect the duplicate.
"""

from __future__ import annotations

import random
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from sqlalchemy import select, update

from moorage.accounts.identity import notifications
from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM, AuditTarget
from moorage.core.db.query import Command, Query, arg, columns
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx, move
from moorage.core.kit.clock import DAY_MS
from moorage.core.kit.records import dataclass
from moorage.core.kit.texts import one_line
from moorage.core.mail.sender import Mailer, MailRefused
from moorage.core.net.calls import Answer, OutboundError
from moorage.core.net.client import GuardedClient
from moorage.core.net.targets import TargetRefused
from moorage.core.vault import service as vault
from moorage.core.worker.run import Handlers, Run
from moorage.errors import RetryLater
from moorage.products.monitors.alerts import channels, messages, notices
from moorage.products.monitors.alerts import tables as alert_tables
from moorage.products.monitors.alerts.messages import NoticeContent
from moorage.products.monitors.alerts.notices import EMAIL, SECRETS, SLACK, DeliverNotice
from moorage.products.monitors.alerts.tables import Alert, Notice, notice
from moorage.products.monitors.probing.checks import status_text
from moorage.products.monitors.states import NOTICE, NoticeStatus

TIMEOUT_S = 15.0
MAX_RESPONSE_BYTES = 4_096  # Only the status code of a response is used.
FIRST_RETRY_S, MAX_RETRY_S = 5, 15 * 60
JITTER = 0.1  # spreads the retries of notices that failed together
MAX_RETRY_AFTER_S = 3_600
RETRY_PERIOD_MS = DAY_MS
MAX_PREDECESSOR_POLL_S = 120  # while an earlier notice is pending; 24 hours of this fit into notices.MAX_ATTEMPTS
MAX_ERROR_CHARS = 300

_GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
_BUSY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})

_n = notice.c
_this = (_n.org_id == arg("org_id")) & (_n.id == arg("id"))
_LOCK = Query(select(*columns(notice)).where(_this).with_for_update(), Notice)
_TRIED = Command(
    update(notice).where(_this).values(attempts=_n.attempts + 1, last_error=arg("why"), updated_at=arg("now"))
)
# Earlier notices about the same subject to the same receiver.
_BEFORE = Query(
    select(*columns(notice))
    .where(
        (_n.org_id == arg("org_id"))
        & (_n.about == arg("about"))
        & (_n.channel == arg("channel"))
        & (_n.target == arg("target"))
        & (_n.id < arg("id"))
    )
    .order_by(_n.id),
    Notice,
)


@dataclass(frozen=True, slots=True)
class PreparedNotice:
    """A notice with the data needed to send it."""

    notice: Notice
    content: NoticeContent
    url: str = ""
    secret: str = ""
    first: Notice | None = None  # first mail of the thread
    obstacle: str | None = None  # the reason not to send it at all


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """Result of an attempt; a pending notice is sent again."""

    status: NoticeStatus
    why: str | None = None
    after_s: float | None = None  # Retry-After of the receiver
    was_tried: bool = True
    is_gone: bool = False  # the address of the receiver does not exist any more


_DELIVERED = DeliveryResult(NoticeStatus.DELIVERED)


class Delivery:
    def __init__(self, db: Database, client: GuardedClient, mailer: Mailer) -> None:
        self._clock = db.env.clock
        self._client = client
        self._mailer = mailer

    async def deliver(self, run: Run, payload: DeliverNotice) -> None:
        """Send a pending notice and record the result."""
        prepared = await run.read(lambda tx: _prepare(tx, payload.org_id, payload.notice_id))
        if prepared is None:
            return
        result = await self._send(prepared)
        delay_s = await run.write(lambda tx: _record(tx, payload.org_id, prepared, result))
        if delay_s is not None:
            raise RetryLater(after_s=delay_s, why=result.why or "")

    async def _send(self, prepared: PreparedNotice) -> DeliveryResult:
        if prepared.obstacle is not None:
            return DeliveryResult(NoticeStatus.FAILED, prepared.obstacle, was_tried=False)
        return await (self._mail(prepared) if prepared.notice.channel == EMAIL else self._post(prepared))

    async def _mail(self, prepared: PreparedNotice) -> DeliveryResult:
        if not self._mailer.is_configured:
            return DeliveryResult(NoticeStatus.FAILED, "no mail server is configured", was_tried=False)
        mail = channels.mail(prepared.content, prepared.notice, prepared.first)
        try:
            await self._mailer.send(
                to=prepared.notice.target,
                subject=mail.subject,
                text=mail.text,
                html=mail.html,
                message_id=mail.message_id,
                headers=mail.headers,
            )
        except RetryLater as later:
            # Users read this; the text after the colon is about the operator's network.
            return DeliveryResult(NoticeStatus.PENDING, later.why.partition(":")[0])
        except MailRefused as refused:
            return DeliveryResult(NoticeStatus.FAILED, str(refused))
        return _DELIVERED

    async def _post(self, prepared: PreparedNotice) -> DeliveryResult:
        now = self._clock.now()
        content = prepared.content
        if prepared.notice.channel == SLACK:
            body, headers = channels.slack_body(content), {"Content-Type": "application/json"}
        else:
            body = channels.webhook_body(content, prepared.notice, now)
            headers = channels.webhook_headers(content, prepared.notice, body, prepared.secret, now)
        try:
            answer = await self._client.request(
                "POST",
                prepared.url,
                headers=headers,
                body=body,
                timeout_s=TIMEOUT_S,
                max_body_bytes=MAX_RESPONSE_BYTES,
                follow=0,
            )
        except TargetRefused as refused:
            return DeliveryResult(NoticeStatus.FAILED, str(refused))
        except OutboundError as error:
            return DeliveryResult(NoticeStatus.PENDING, str(error))
        return _judge(answer, self._clock.now())


def register(handlers: Handlers, delivery: Delivery) -> None:
    handlers.add(DeliverNotice, delivery.deliver, on_failure=_on_crash)


def backoff_s(attempts: int) -> float:
    return min(FIRST_RETRY_S << min(max(attempts - 1, 0), 20), MAX_RETRY_S)


def retry_after_s(value: str | None, now: int) -> float | None:
    """Parse a Retry-After header, limited to MAX_RETRY_AFTER_S; None if it is invalid."""
    if value is None:
        return None
    try:
        seconds = int(value) if value.isascii() and value.isdigit() else _until_s(value, now)
    except ValueError:
        return None
    return min(max(seconds, 1), MAX_RETRY_AFTER_S)


def _until_s(date: str, now: int) -> float:
    return parsedate_to_datetime(date).timestamp() - now / 1000


def _judge(answer: Answer, now: int) -> DeliveryResult:
    if 200 <= answer.status < 300:
        return _DELIVERED
    why = f"the receiver answered {status_text(answer.status)}"
    if answer.status in _GONE:
        return DeliveryResult(NoticeStatus.FAILED, why, is_gone=True)
    if 300 <= answer.status < 400:
        why += ", and notices do not follow redirects"
    after_s = retry_after_s(answer.headers.get("Retry-After"), now) if answer.status in _BUSY else None
    return DeliveryResult(NoticeStatus.PENDING, why, after_s)


def _prepare(tx: Tx, org_id: int, notice_id: int) -> PreparedNotice | None:
    """Return a notice if it is pending; raises RetryLater while an earlier one is."""
    notice = tx.find(alert_tables.FIND_NOTICE, org_id=org_id, id=notice_id)
    if notice is None or notice.status != NoticeStatus.PENDING:
        return None
    before = tx.all(
        _BEFORE, org_id=org_id, about=notice.about, channel=notice.channel, target=notice.target, id=notice.id
    )
    for each in before:
        if each.status == NoticeStatus.PENDING:
            raise RetryLater(
                after_s=min(backoff_s(each.attempts), MAX_PREDECESSOR_POLL_S), why="an earlier notice goes first"
            )
    content, first = messages.decode(notice.payload), next(iter(before), None)
    if notice.channel != EMAIL:
        return _prepare_post(tx, org_id, notice, content)
    if all(each.email != notice.target for each in notices.recipients(tx, org_id)):
        return PreparedNotice(notice, content, obstacle="this user does not receive alerts any more")
    return PreparedNotice(notice, content, first=first)


def _prepare_post(tx: Tx, org_id: int, notice: Notice, content: NoticeContent) -> PreparedNotice:
    """Prepare a webhook or Slack notice with the current address from the vault."""
    alert = _alert_of(tx, org_id, notice)
    if alert is None or not notices.is_open(alert, notice.channel):
        return PreparedNotice(notice, content, obstacle="the channel was switched off")
    url = _url_of(tx, org_id, alert, notice.channel)
    secret = vault.find(tx, org_id, "organization", "webhook_secret")
    if url is None or secret is None:
        return PreparedNotice(notice, content, obstacle="there is no address to send it to")
    return PreparedNotice(notice, content, url, secret)


def _alert_of(tx: Tx, org_id: int, notice: Notice) -> Alert | None:
    return tx.find(alert_tables.FIND, org_id=org_id, id=notice.alert_id)


def _url_of(tx: Tx, org_id: int, alert: Alert, channel: str) -> str | None:
    return vault.find(tx, org_id, alert.resource, SECRETS[channel])


def _record(tx: Tx, org_id: int, prepared: PreparedNotice, result: DeliveryResult) -> float | None:
    """Record the result of an attempt. Return the delay before the next one, if any."""
    notice = tx.find(_LOCK, org_id=org_id, id=prepared.notice.id)
    if notice is None or notice.status != NoticeStatus.PENDING:
        return None
    if result.is_gone and not _switch_off(tx, org_id, prepared, result.why or ""):
        result = DeliveryResult(NoticeStatus.PENDING, result.why)
    attempts = notice.attempts + result.was_tried
    if result.status is NoticeStatus.DELIVERED:
        move(tx, NOTICE, notice, to=result.status, attempts=attempts, last_error=None, delivered_at=tx.now)
        return None
    why = (result.why or "")[:MAX_ERROR_CHARS]
    if result.status is NoticeStatus.PENDING:
        delay_s = result.after_s or backoff_s(attempts) * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - no secret
        if tx.now + delay_s * 1000 <= notice.created_at + RETRY_PERIOD_MS:
            tx.run(_TRIED, org_id=org_id, id=notice.id, why=why, now=tx.now)
            return delay_s
    move(tx, NOTICE, notice, to=NoticeStatus.FAILED, attempts=attempts, last_error=why)
    if result.was_tried:
        details = {"channel": notice.channel, "kind": notice.kind, "attempts": attempts, "reason": why}
        audit.record(tx, org_id, THE_PLATFORM, "alert.notice_failed", _target(prepared.content), **details)
    return None


def _switch_off(tx: Tx, org_id: int, prepared: PreparedNotice, why: str) -> bool:
    """Disable a channel with a dead address and notify the users.

    Returns False if the address was changed meanwhile.
    """
    channel = prepared.notice.channel
    alert = _alert_of(tx, org_id, prepared.notice)
    if alert is None or _url_of(tx, org_id, alert, channel) != prepared.url:
        return False
    tx.run(alert_tables.SET[f"{channel}_off"], org_id=org_id, id=alert.id, new=why, now=tx.now)
    target = _target(prepared.content)
    audit.record(tx, org_id, THE_PLATFORM, "alert.channel_disabled", target, channel=channel, reason=why)
    title = f"An alert of {one_line(prepared.content.monitor.name)} no longer uses its {channel}"
    body = f"Nothing more is sent there, because {why}. Set its address again to switch it on."
    for each in notices.recipients(tx, org_id):
        about = prepared.notice.uuid
        notifications.add(tx, each.user_id, "alert.channel_disabled", title, body, about=about, org_id=org_id)
    return True


def _target(content: NoticeContent) -> AuditTarget:
    return AuditTarget("monitor", content.monitor.name)


@across_organizations("a job's payload names its organization")
def _on_crash(tx: Tx, payload: DeliverNotice) -> None:
    """Schedule another delivery after the job crashed, so that the notice is not lost."""
    notice = tx.find(alert_tables.FIND_NOTICE, org_id=payload.org_id, id=payload.notice_id)
    if notice is None:
        return
    prepared = PreparedNotice(notice, messages.decode(notice.payload))
    delay_s = _record(
        tx, payload.org_id, prepared, DeliveryResult(NoticeStatus.PENDING, "the platform could not send it")
    )
    if delay_s is not None:
        notices.schedule_delivery(tx, payload.org_id, notice, delay_ms=int(delay_s * 1000))
