"""Delivering notices: one job each, tried again for a day.

A receiver gets each notice at least once. What was sent is written down right after, and a crash in between sends it
again under the same id, by which the receiver tells the copy.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from sqlalchemy import select, update

from moorage.accounts.identity import notifications
from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM, Target
from moorage.core.db.query import Command, Query, arg, columns
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx, move
from moorage.core.kit.clock import DAY_MS
from moorage.core.mail.sender import Mailer, MailRefused
from moorage.core.net.calls import Answer, OutboundError
from moorage.core.net.client import GuardedClient
from moorage.core.net.targets import TargetRefused
from moorage.core.vault import service as vault
from moorage.core.worker.run import Handlers, Run
from moorage.errors import RetryLater
from moorage.products.monitors.alerts import channels, notices
from moorage.products.monitors.alerts import messages as stories
from moorage.products.monitors.alerts import tables as alert_tables
from moorage.products.monitors.alerts.messages import Story
from moorage.products.monitors.alerts.notices import EMAIL, SECRETS, SLACK, DeliverNotice
from moorage.products.monitors.alerts.tables import Alert, Notice, notice
from moorage.products.monitors.states import NOTICE, NoticeStatus

TIMEOUT_S = 15.0
ANSWER_BYTES = 4_096  # Nobody reads what a receiver says besides its code.
FIRST_RETRY_S, LAST_RETRY_S = 5, 15 * 60
JITTER = 0.1  # Notices that failed together do not come back together.
MOST_ASKED_S = 3_600  # how long a receiver may ask for patience
TRIED_MS = DAY_MS
WAIT_S = 120  # How often one looks whether the notice before it has arrived; 24 hours of this fit into its attempts.
SHOWN_ERROR = 300

_GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
_BUSY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})

_n = notice.c
_mine = (_n.org_id == arg("org_id")) & (_n.id == arg("id"))
_LOCK = Query(select(*columns(notice)).where(_mine).with_for_update(), Notice)
_TRIED = Command(
    update(notice).where(_mine).values(attempts=_n.attempts + 1, last_error=arg("why"), updated_at=arg("now"))
)
# What the same receiver is told of the same matter before.
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
class Errand:
    """A notice, and all that is needed to send it."""

    notice: Notice
    story: Story
    url: str = ""
    secret: str = ""
    first: Notice | None = None  # what began the thread
    obstacle: str | None = None  # why it is not sent at all


@dataclass(frozen=True, slots=True)
class Result:
    """How a try ended; one that is still pending is tried again."""

    status: NoticeStatus
    why: str | None = None
    after_s: float | None = None  # what the receiver asked for
    was_tried: bool = True
    is_gone: bool = False  # the receiver's address leads nowhere any more


_ARRIVED = Result(NoticeStatus.DELIVERED)


class Delivery:
    def __init__(self, db: Database, client: GuardedClient, mailer: Mailer) -> None:
        self._clock = db.env.clock
        self._client = client
        self._mailer = mailer

    async def deliver(self, run: Run, payload: DeliverNotice) -> None:
        """Send a notice that is still pending, and write down at once how that ended."""
        errand = await run.read(lambda tx: _errand(tx, payload.org_id, payload.notice_id))
        if errand is None:
            return
        result = await self._send(errand)
        delay_s = await run.write(lambda tx: _record(tx, payload.org_id, errand, result))
        if delay_s is not None:
            raise RetryLater(after_s=delay_s, why=result.why or "")

    async def _send(self, errand: Errand) -> Result:
        if errand.obstacle is not None:
            return Result(NoticeStatus.FAILED, errand.obstacle, was_tried=False)
        return await (self._mail(errand) if errand.notice.channel == EMAIL else self._post(errand))

    async def _mail(self, errand: Errand) -> Result:
        if not self._mailer.is_configured:
            return Result(NoticeStatus.FAILED, "no mail server is configured", was_tried=False)
        mail = channels.mail(errand.story, errand.notice, errand.first)
        try:
            await self._mailer.send(
                to=errand.notice.target,
                subject=mail.subject,
                text=mail.text,
                html=mail.html,
                message_id=mail.message_id,
                headers=mail.headers,
            )
        except RetryLater as later:
            # What follows the colon is about the operator's own network, and users read this.
            return Result(NoticeStatus.PENDING, later.why.partition(":")[0])
        except MailRefused as refused:
            return Result(NoticeStatus.FAILED, str(refused))
        return _ARRIVED

    async def _post(self, errand: Errand) -> Result:
        now = self._clock.now()
        story = errand.story
        if errand.notice.channel == SLACK:
            body, headers = channels.slack_body(story), {"Content-Type": "application/json"}
        else:
            body = channels.webhook_body(story, errand.notice, now)
            headers = channels.webhook_headers(story, errand.notice, body, errand.secret, now)
        try:
            answer = await self._client.request(
                "POST",
                errand.url,
                headers=headers,
                body=body,
                timeout_s=TIMEOUT_S,
                max_body_bytes=ANSWER_BYTES,
                follow=0,
            )
        except TargetRefused as refused:
            return Result(NoticeStatus.FAILED, str(refused))
        except OutboundError as error:
            return Result(NoticeStatus.PENDING, str(error))
        return _judge(answer, self._clock.now())


def register(handlers: Handlers, delivery: Delivery) -> None:
    handlers.add(DeliverNotice, delivery.deliver, on_failure=_on_crash)


def backoff_s(attempts: int) -> float:
    """Return how long to wait after so many tries."""
    return min(FIRST_RETRY_S << min(max(attempts - 1, 0), 20), LAST_RETRY_S)


def asked_s(value: str | None, now: int) -> float | None:
    """Return how long a Retry-After asks one to wait, within reason; None where it says nothing that can be read."""
    if value is None:
        return None
    try:
        seconds = int(value) if value.isascii() and value.isdigit() else _until_s(value, now)
    except ValueError:
        return None
    return min(max(seconds, 1), MOST_ASKED_S)


def _until_s(date: str, now: int) -> float:
    return parsedate_to_datetime(date).timestamp() - now / 1000


def _judge(answer: Answer, now: int) -> Result:
    if 200 <= answer.status < 300:
        return _ARRIVED
    why = f"the receiver answered {_code(answer.status)}"
    if answer.status in _GONE:
        return Result(NoticeStatus.FAILED, why, is_gone=True)
    if 300 <= answer.status < 400:
        why += ", and notices do not follow redirects"
    after_s = asked_s(answer.headers.get("Retry-After"), now) if answer.status in _BUSY else None
    return Result(NoticeStatus.PENDING, why, after_s)


def _code(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _errand(tx: Tx, org_id: int, notice_id: int) -> Errand | None:
    """Return what there is to do: None where it is done; raises RetryLater where another notice goes first."""
    found = tx.find(alert_tables.FIND_NOTICE, org_id=org_id, id=notice_id)
    if found is None or found.status != NoticeStatus.PENDING:
        return None
    before = tx.all(_BEFORE, org_id=org_id, about=found.about, channel=found.channel, target=found.target, id=found.id)
    for each in before:
        if each.status == NoticeStatus.PENDING:
            raise RetryLater(after_s=min(backoff_s(each.attempts), WAIT_S), why="an earlier notice goes first")
    story, first = stories.decode(found.payload), next(iter(before), None)
    if found.channel != EMAIL:
        return _posted(tx, org_id, found, story)
    if all(each.email != found.target for each in notices.recipients(tx, org_id)):
        return Errand(found, story, obstacle="this person is not told of alerts any more")
    return Errand(found, story, first=first)


def _posted(tx: Tx, org_id: int, found: Notice, story: Story) -> Errand:
    """Return the errand of a notice whose address the vault keeps; the one it has now counts."""
    alert = _alert_of(tx, org_id, found)
    if alert is None or not notices.is_open(alert, found.channel):
        return Errand(found, story, obstacle="the channel was switched off")
    url = _url_of(tx, org_id, alert, found.channel)
    secret = vault.find(tx, org_id, "organization", "webhook_secret")
    if url is None or secret is None:
        return Errand(found, story, obstacle="there is no address to send it to")
    return Errand(found, story, url, secret)


def _alert_of(tx: Tx, org_id: int, found: Notice) -> Alert | None:
    return tx.find(alert_tables.FIND, org_id=org_id, id=found.alert_id)


def _url_of(tx: Tx, org_id: int, alert: Alert, channel: str) -> str | None:
    return vault.find(tx, org_id, alert.resource, SECRETS[channel])


def _record(tx: Tx, org_id: int, errand: Errand, result: Result) -> float | None:
    """Write down how a try ended. Return after how long the next one comes, if one does."""
    found = tx.find(_LOCK, org_id=org_id, id=errand.notice.id)
    if found is None or found.status != NoticeStatus.PENDING:
        return None
    if result.is_gone and not _switch_off(tx, org_id, errand, result.why or ""):
        result = Result(NoticeStatus.PENDING, result.why)
    attempts = found.attempts + result.was_tried
    if result.status is NoticeStatus.DELIVERED:
        move(tx, NOTICE, found, to=result.status, attempts=attempts, last_error=None, delivered_at=tx.now)
        return None
    why = (result.why or "")[:SHOWN_ERROR]
    if result.status is NoticeStatus.PENDING:
        wait_s = result.after_s or backoff_s(attempts) * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - no secret
        if tx.now + wait_s * 1000 <= found.created_at + TRIED_MS:
            tx.run(_TRIED, org_id=org_id, id=found.id, why=why, now=tx.now)
            return wait_s
    move(tx, NOTICE, found, to=NoticeStatus.FAILED, attempts=attempts, last_error=why)
    if result.was_tried:
        told = {"channel": found.channel, "kind": found.kind, "attempts": attempts, "reason": why}
        audit.record(tx, org_id, THE_PLATFORM, "alert.notice_failed", _target(errand.story), **told)
    return None


def _switch_off(tx: Tx, org_id: int, errand: Errand, why: str) -> bool:
    """Send nothing more to an address that leads nowhere, and tell people. False where it was changed meanwhile."""
    channel = errand.notice.channel
    alert = _alert_of(tx, org_id, errand.notice)
    if alert is None or _url_of(tx, org_id, alert, channel) != errand.url:
        return False
    tx.run(alert_tables.SET[f"{channel}_off"], org_id=org_id, id=alert.id, new=why, now=tx.now)
    audit.record(tx, org_id, THE_PLATFORM, "alert.channel_disabled", _target(errand.story), channel=channel, reason=why)
    title = f"An alert of {stories.one_line(errand.story.monitor.name)} no longer uses its {channel}"
    body = f"Nothing more is sent there, because {why}. Set its address anew to switch it on again."
    for each in notices.recipients(tx, org_id):
        about = errand.notice.uuid
        notifications.tell(tx, each.user_id, "alert.channel_disabled", title, body, about=about, org_id=org_id)
    return True


def _target(story: Story) -> Target:
    return Target("monitor", story.monitor.name)


@across_organizations("a job's payload names its organization")
def _on_crash(tx: Tx, payload: DeliverNotice) -> None:
    """Ask again for a notice whose job failed for a reason of the platform's own: it must not be lost for that."""
    found = tx.find(alert_tables.FIND_NOTICE, org_id=payload.org_id, id=payload.notice_id)
    if found is None:
        return
    errand = Errand(found, stories.decode(found.payload))
    delay_s = _record(tx, payload.org_id, errand, Result(NoticeStatus.PENDING, "the platform could not send it"))
    if delay_s is not None:
        notices.ask(tx, payload.org_id, found, delay_ms=int(delay_s * 1000))
