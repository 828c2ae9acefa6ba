"""Formats notices for webhooks, Slack and mail. Sends nothing."""

from __future__ import annotations

import hmac
from html import escape
from typing import Any

import msgspec

from moorage.core.kit.clock import to_wire, to_wire_or_none
from moorage.core.kit.records import dataclass
from moorage.core.kit.texts import one_line
from moorage.products.monitors.alerts import messages
from moorage.products.monitors.alerts.messages import EVENTS, RESOLVED, NoticeContent
from moorage.products.monitors.alerts.tables import Notice

# Limits of Slack in escaped characters; the fallback text may be longer, but is shown in small places.
MAX_SLACK_TEXT, MAX_SLACK_HEADER, MAX_SLACK_SECTION = 500, 150, 3_000
MAX_SUBJECT = 200

_GREEN, _GREY = "#2eb886", "#8a8f98"
_COLOURS = {"info": "#2f80ed", "warning": "#daa038", "error": "#d0302f", "critical": "#8f1010"}


@dataclass(frozen=True, slots=True)
class Mail:
    subject: str
    text: str
    html: str
    message_id: str
    headers: dict[str, str]


def webhook_body(content: NoticeContent, notice: Notice, now: int) -> bytes:
    """Return the JSON body of a webhook. Within version 1, fields may only be added."""
    observed = content.observed
    return msgspec.json.encode(
        {
            "version": content.version,
            "id": notice.uuid,
            "event": EVENTS[content.kind],
            "sentAt": to_wire(now),
            "message": messages.headline(content),
            "incidentId": content.incident,
            "organization": content.organization,
            "alert": content.alert,
            "monitor": content.monitor,
            "observed": {
                "value": observed.value,
                "statusCode": observed.status_code,
                "responseTime": observed.response_time,
                "message": observed.message,
                "at": to_wire(observed.at),
            },
            "startedAt": to_wire_or_none(content.started_at),
            "resolvedAt": to_wire_or_none(content.resolved_at),
            "certificate": _certificate(content),
        }
    )


def webhook_headers(content: NoticeContent, notice: Notice, body: bytes, secret: str, now: int) -> dict[str, str]:
    """Return the headers of one attempt: a fixed delivery id and a new signature."""
    return {
        "Content-Type": "application/json",
        "X-Moorage-Event": EVENTS[content.kind],
        "X-Moorage-Delivery": notice.uuid,
        "Idempotency-Key": f"{notice.about}:{notice.kind}",
        "X-Moorage-Signature": signature(secret, body, now // 1000),
    }


def signature(secret: str, body: bytes, seconds: int) -> str:
    """Sign a body with its time of sending, so that receivers can reject a replay."""
    digest = hmac.digest(secret.encode(), f"{seconds}.".encode() + body, "sha256").hex()
    return f"t={seconds},v1={digest}"


def slack_body(content: NoticeContent) -> bytes:
    """Return the body of a Slack webhook: a plain text and a coloured attachment."""
    title = messages.headline(content)
    lines = [f"{content.organization.name}: {content.monitor.url}", *messages.details(content)]
    text = {"type": "mrkdwn", "text": _slack("\n".join(lines), MAX_SLACK_SECTION), "verbatim": True}
    blocks = [
        {"type": "header", "text": {"type": "plain_text", "text": _slack(title, MAX_SLACK_HEADER), "emoji": False}},
        {"type": "section", "text": text},
    ]
    attachment = {"color": _colour(content), "blocks": blocks}
    return msgspec.json.encode({"text": _slack(title, MAX_SLACK_TEXT), "attachments": [attachment]})


def mail(content: NoticeContent, notice: Notice, first: Notice | None = None) -> Mail:
    """Return a mail, in the thread of the first notice about the same subject."""
    title = messages.headline(content)
    facts = [
        f"Monitor: {one_line(content.monitor.name)}",
        f"URL: {content.monitor.url}",
        *messages.details(content),
    ]
    sender = f"Sent by Moorage for {one_line(content.organization.name)}."
    rows = "".join(f"<li>{escape(fact)}</li>" for fact in facts)
    headers = {"Auto-Submitted": "auto-generated", "X-Auto-Response-Suppress": "All"}
    if first is not None:
        headers |= {"In-Reply-To": message_id(first), "References": message_id(first)}
    return Mail(
        subject=_cut(f"[{_label(content)}] {title}", MAX_SUBJECT),
        text="\n".join([title, "", *facts, "", sender, ""]),
        html=(
            f'<h2 style="border-left:6px solid {_colour(content)};padding-left:12px">{escape(title)}</h2>'
            f"<ul>{rows}</ul><p>{escape(sender)}</p>"
        ),
        message_id=message_id(notice),
        headers=headers,
    )


def message_id(notice: Notice) -> str:
    # Short, so that it is not folded: some mail clients do not find a folded one.
    return f"<{notice.uuid}@moorage>"


def _certificate(content: NoticeContent) -> dict[str, Any] | None:
    certificate = content.certificate
    if certificate is None:
        return None
    return {
        "subject": certificate.subject,
        "issuer": certificate.issuer,
        "validTo": to_wire(certificate.valid_to),
        "daysUntilExpiry": certificate.days_left,
    }


def _label(content: NoticeContent) -> str:
    if content.kind == RESOLVED or content.alert is None:
        return content.kind
    return "test" if content.kind == messages.TEST else content.alert.severity


def _colour(content: NoticeContent) -> str:
    if content.kind == RESOLVED:
        return _GREEN
    if content.kind == messages.TEST:
        return _GREY
    return _COLOURS[content.alert.severity if content.alert else "warning"]


def _slack(text: str, most: int) -> str:
    """Escape a text for Slack and cut it, never within an escaped character."""
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
