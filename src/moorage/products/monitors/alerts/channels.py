"""What a notice looks like in each channel. Nothing here sends anything."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from html import escape
from typing import Any

import msgspec

from moorage.core.kit.clock import to_wire, to_wire_or_none
from moorage.products.monitors.alerts import messages as stories
from moorage.products.monitors.alerts.messages import EVENTS, RESOLVED, Story
from moorage.products.monitors.alerts.tables import Notice

# What Slack takes, in characters as they are sent; the fallback could be longer, but stands in small places.
SLACK_TEXT, SLACK_HEADER, SLACK_SECTION = 500, 150, 3_000
SUBJECT = 200

_GREEN, _GREY = "#2eb886", "#8a8f98"
_COLOURS = {"info": "#2f80ed", "warning": "#daa038", "error": "#d0302f", "critical": "#8f1010"}


@dataclass(frozen=True, slots=True)
class Mail:
    subject: str
    text: str
    html: str
    message_id: str
    headers: dict[str, str]


def webhook_body(story: Story, notice: Notice, now: int) -> bytes:
    """Return what a receiver gets: version 1, to which fields are added and from which none is taken away."""
    observed = story.observed
    return msgspec.json.encode(
        {
            "version": story.version,
            "id": notice.uuid,
            "event": EVENTS[story.kind],
            "sentAt": to_wire(now),
            "message": stories.headline(story),
            "incidentId": story.incident,
            "organization": story.organization,
            "alert": story.alert,
            "monitor": story.monitor,
            "observed": {
                "value": observed.value,
                "statusCode": observed.status_code,
                "responseTime": observed.response_time,
                "message": observed.message,
                "at": to_wire(observed.at),
            },
            "startedAt": to_wire_or_none(story.started_at),
            "resolvedAt": to_wire_or_none(story.resolved_at),
            "certificate": _certificate(story),
        }
    )


def webhook_headers(story: Story, notice: Notice, body: bytes, secret: str, now: int) -> dict[str, str]:
    """Return the headers of one try. The delivery's id stays the same at each, and the signature does not."""
    return {
        "Content-Type": "application/json",
        "X-Moorage-Event": EVENTS[story.kind],
        "X-Moorage-Delivery": notice.uuid,
        "Idempotency-Key": f"{notice.about}:{notice.kind}",
        "X-Moorage-Signature": signature(secret, body, now // 1000),
    }


def signature(secret: str, body: bytes, seconds: int) -> str:
    """Sign a body with the moment at which it is sent, so that nobody can send it again later."""
    digest = hmac.digest(secret.encode(), f"{seconds}.".encode() + body, "sha256").hex()
    return f"t={seconds},v1={digest}"


def slack_body(story: Story) -> bytes:
    """Return a message of an incoming webhook: plain text for notifications, and an attachment with a colour."""
    title = stories.headline(story)
    lines = [f"{story.organization.name}: {story.monitor.url}", *stories.details(story)]
    text = {"type": "mrkdwn", "text": _slack("\n".join(lines), SLACK_SECTION), "verbatim": True}
    blocks = [
        {"type": "header", "text": {"type": "plain_text", "text": _slack(title, SLACK_HEADER), "emoji": False}},
        {"type": "section", "text": text},
    ]
    shown = {"color": _colour(story), "blocks": blocks}
    return msgspec.json.encode({"text": _slack(title, SLACK_TEXT), "attachments": [shown]})


def mail(story: Story, notice: Notice, first: Notice | None = None) -> Mail:
    """Return a mail, in the thread that the first notice of the same matter began."""
    title = stories.headline(story)
    facts = [f"Monitor: {stories.one_line(story.monitor.name)}", f"URL: {story.monitor.url}", *stories.details(story)]
    sender = f"Sent by Moorage for {stories.one_line(story.organization.name)}."
    rows = "".join(f"<li>{escape(fact)}</li>" for fact in facts)
    headers = {"Auto-Submitted": "auto-generated", "X-Auto-Response-Suppress": "All"}
    if first is not None:
        headers |= {"In-Reply-To": message_id(first), "References": message_id(first)}
    return Mail(
        subject=_cut(f"[{_label(story)}] {title}", SUBJECT),
        text="\n".join([title, "", *facts, "", sender, ""]),
        html=(
            f'<h2 style="border-left:6px solid {_colour(story)};padding-left:12px">{escape(title)}</h2>'
            f"<ul>{rows}</ul><p>{escape(sender)}</p>"
        ),
        message_id=message_id(notice),
        headers=headers,
    )


def message_id(notice: Notice) -> str:
    """Return the id of a notice's mail. It is short: a longer one is folded, and programs then no longer find it."""
    return f"<{notice.uuid}@moorage>"


def _certificate(story: Story) -> dict[str, Any] | None:
    found = story.certificate
    if found is None:
        return None
    return {
        "subject": found.subject,
        "issuer": found.issuer,
        "validTo": to_wire(found.valid_to),
        "daysUntilExpiry": found.days_left,
    }


def _label(story: Story) -> str:
    if story.kind == RESOLVED or story.alert is None:
        return story.kind
    return "test" if story.kind == stories.TEST else story.alert.severity


def _colour(story: Story) -> str:
    if story.kind == RESOLVED:
        return _GREEN
    if story.kind == stories.TEST:
        return _GREY
    return _COLOURS[story.alert.severity if story.alert else "warning"]


def _slack(text: str, most: int) -> str:
    """Escape a text for Slack and cut it to what Slack takes, never within an escaped character."""
    pieces = [{"&": "&amp;", "<": "&lt;", ">": "&gt;"}.get(char, char) for char in text]
    if sum(map(len, pieces)) <= most:
        return "".join(pieces)
    kept, length = [], 1
    for piece in pieces:
        length += len(piece)
        if length > most:
            break
        kept.append(piece)
    return "".join(kept) + "…"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
