"""Formats of notices: text, webhook JSON, Slack message and mail."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace
from tests.core.mail.support import mailer, serving

from moorage.products.monitors.alerts import channels, messages
from moorage.products.monitors.alerts.messages import (
    AlertPart,
    CertificatePart,
    MonitorPart,
    NoticeContent,
    Observed,
    OrganizationPart,
)
from moorage.products.monitors.alerts.tables import Notice

START, END = 1_767_225_600_000, 1_767_229_500_000  # 65 minutes


def make_content(
    kind: str = "triggered", *, value: float | None = 0.0, name: str = "Shop", **given: Any
) -> NoticeContent:
    alert = AlertPart(7, "status", "eq", 0.0, 5, "critical")
    content = NoticeContent(
        kind=kind,
        organization=OrganizationPart(3, "Harbor"),
        monitor=MonitorPart(5, name, "https://shop.example/?a=1&b=2"),
        observed=Observed(value, 500, 120, "status: 500 is not among 200-299", START),
        alert=replace(alert, **given.pop("alert", {})),
        incident="0b0e",
        started_at=START,
        resolved_at=END if kind == "resolved" else None,
    )
    return replace(content, **given)


def a_certificate(days: int) -> NoticeContent:
    part = CertificatePart("shop.example", "Let's Encrypt", END, days)
    return replace(make_content("certificate", certificate=part), alert=None, incident=None, started_at=None)


def a_notice(kind: str = "triggered", uuid: str = "9f1c1f3e-0b0e-4a5e-8f5e-2f1d2c3b4a59") -> Notice:
    return Notice(
        1, uuid, 3, 5, 7, 9, "0b0e", kind, "webhook", "", "{}", "pending", 0, None, None, START, START
    )  # fmt: skip


RESPONSE_TIME = {"metric": "response_time", "condition": "gt", "threshold": 2000.0}


@pytest.mark.parametrize(
    ("content", "headline"),
    [
        (make_content(), "Shop is down"),
        (make_content(value=1.0), "Shop is up"),
        (make_content("resolved", value=1.0), "Shop: resolved, it is up"),
        (
            make_content("resolved", value=None, message="The monitor was paused"),
            "Shop: resolved. The monitor was paused",
        ),
        (make_content("flapping"), "Shop is flapping: it is down"),
        (make_content("test", value=None), "Test notice for Shop"),
        (make_content(value=2345.5, alert=RESPONSE_TIME), "Shop: response time is 2345.5 ms"),
        (make_content("resolved", value=80.0, alert=RESPONSE_TIME), "Shop: resolved, response time is 80 ms"),
        (make_content(value=500.0, alert={"metric": "status_code"}), "Shop: status code is 500"),
        (make_content(value=100 / 3, alert={"metric": "error_rate"}), "Shop: error rate is 33.33 %"),
        (make_content(value=6.0, alert={"metric": "ssl_expiry"}), "Shop: certificate's time left is 6 days"),
        (a_certificate(14), "The certificate of Shop expires in 14 days"),
        (a_certificate(1), "The certificate of Shop expires in 1 day"),
        (a_certificate(0), "The certificate of Shop expires within a day"),
        (a_certificate(-3), "The certificate of Shop has expired"),
    ],
)
def test_a_headline_says_what_happened(content: NoticeContent, headline: str) -> None:
    assert messages.headline(content) == headline


def test_details_name_the_rule_and_the_time() -> None:
    lines = messages.details(make_content("resolved", value=1.0, alert=RESPONSE_TIME))

    assert lines == [
        "status: 500 is not among 200-299",
        "Rule: response time above 2000 ms for 5 min",
        "Since: 2026-01-01 00:00:00 UTC",
        "Until: 2026-01-01 01:05:00 UTC (1 h 5 min)",
    ]


@pytest.mark.parametrize(
    ("alert", "rule"),
    [
        ({}, "status equal to down for 5 min"),
        ({"condition": "lt", "threshold": 1.0}, "status below up for 5 min"),
        ({"metric": "error_rate", "condition": "gt", "threshold": 12.5}, "error rate above 12.5 % for 5 min"),
        ({"metric": "status_code", "condition": "neq", "threshold": 200.0}, "status code other than 200 for 5 min"),
        ({"metric": "ssl_expiry", "condition": "lt"}, "certificate's time left below 0 days for 5 min"),
    ],
)  # fmt: skip
def test_a_rule_reads_like_a_sentence(alert: dict[str, Any], rule: str) -> None:
    content = make_content(alert=alert)

    assert content.alert is not None
    assert messages.rule(content.alert) == rule


def test_a_webhook_is_told_everything_in_version_one() -> None:
    body = json.loads(channels.webhook_body(make_content("resolved", value=1.0), a_notice("resolved"), END))

    assert body == {
        "version": 1,
        "id": "9f1c1f3e-0b0e-4a5e-8f5e-2f1d2c3b4a59",
        "event": "alert.resolved",
        "sentAt": "2026-01-01T01:05:00.000Z",
        "message": "Shop: resolved, it is up",
        "incidentId": "0b0e",
        "organization": {"id": 3, "name": "Harbor"},
        "alert": {
            "id": 7, "metric": "status", "condition": "eq", "threshold": 0.0, "duration": 5, "severity": "critical",
        },
        "monitor": {"id": 5, "name": "Shop", "url": "https://shop.example/?a=1&b=2"},
        "observed": {
            "value": 1.0, "statusCode": 500, "responseTime": 120, "message": "status: 500 is not among 200-299",
            "at": "2026-01-01T00:00:00.000Z",
        },
        "startedAt": "2026-01-01T00:00:00.000Z",
        "resolvedAt": "2026-01-01T01:05:00.000Z",
        "certificate": None,
    }  # fmt: skip


def test_a_webhook_about_a_certificate_has_no_alert() -> None:
    body = json.loads(channels.webhook_body(a_certificate(6), a_notice("certificate"), END))

    assert (body["event"], body["alert"], body["incidentId"]) == ("certificate.expiring", None, None)
    assert body["certificate"] == {
        "subject": "shop.example",
        "issuer": "Let's Encrypt",
        "validTo": "2026-01-01T01:05:00.000Z",
        "daysUntilExpiry": 6,
    }


def test_a_signature_covers_the_moment_and_the_body() -> None:
    signed = channels.signature("whs_abc", b"{}", 1_767_225_600)

    assert signed == "t=1767225600,v1=0e31de94e19715834e0e084254899c083ee7f23bb3a7793fc1d231ecf16fc454"
    assert signed != channels.signature("whs_abc", b"{}", 1_767_225_601)
    assert signed != channels.signature("whs_abc", b"{ }", 1_767_225_600)


def test_slack_shows_what_users_wrote_as_text() -> None:
    message = json.loads(channels.slack_body(make_content(name="<!channel> & Sons")))

    title, section = message["attachments"][0]["blocks"]
    assert message["text"] == title["text"]["text"] == "&lt;!channel&gt; &amp; Sons is down"
    assert section["text"]["text"].splitlines()[0] == "Harbor: https://shop.example/?a=1&amp;b=2"
    assert section["text"]["verbatim"] is True
    assert message["attachments"][0]["color"] == "#8f1010"


@pytest.mark.parametrize("name", ["&" * 5_000, "x" * 5_000])
def test_slack_gets_no_more_than_it_takes_and_no_half_of_an_escape(name: str) -> None:
    content = make_content(name=name)
    content = replace(content, observed=replace(content.observed, message=name))

    message = json.loads(channels.slack_body(content))

    title, section = message["attachments"][0]["blocks"]
    for text, most in ((message["text"], 500), (title["text"]["text"], 150), (section["text"]["text"], 3_000)):
        assert most - 5 <= len(text) <= most
        assert text.endswith(("&amp;…", "x…"))


@pytest.mark.parametrize(
    ("kind", "colour"),
    [("triggered", "#8f1010"), ("resolved", "#2eb886"), ("test", "#8a8f98"), ("flapping", "#8f1010")],
)
def test_the_colour_tells_good_news_from_bad(kind: str, colour: str) -> None:
    message = json.loads(channels.slack_body(make_content(kind)))

    assert message["attachments"][0]["color"] == colour


def test_a_name_can_neither_add_a_header_nor_markup_to_a_mail() -> None:
    content = make_content(name="Shop\r\nBcc: all@example.com\n\n<script>alert(1)</script>\u202e")

    mail = channels.mail(content, a_notice())

    assert mail.subject == "[critical] Shop Bcc: all@example.com <script>alert(1)</script> is down"
    assert "<script>" not in mail.html
    assert "&lt;script&gt;" in mail.html


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["x" * 5_000, "ü" * 5_000, "word " * 1_000])
async def test_a_mail_arrives_whole_however_long_a_name_is(name: str) -> None:
    made = channels.mail(make_content(name=name), a_notice(), a_notice(uuid="11111111-2222-4333-8444-555555555555"))

    with serving() as inbox:
        await mailer(inbox.url).send(
            to="ada@example.com",
            subject=made.subject,
            text=made.text,
            html=made.html,
            message_id=made.message_id,
            headers=made.headers,
        )

    assert inbox.mails[0]["Subject"] == made.subject
    assert len(made.subject) <= 200
    # Not encoded, for mail clients that compare raw headers.
    assert b"\r\nMessage-ID: <9f1c1f3e-0b0e-4a5e-8f5e-2f1d2c3b4a59@moorage>\r\n" in inbox.raw[0]
    assert b"\r\nIn-Reply-To: <11111111-2222-4333-8444-555555555555@moorage>\r\n" in inbox.raw[0]
    assert b"\r\nReferences: <11111111-2222-4333-8444-555555555555@moorage>\r\n" in inbox.raw[0]


@pytest.mark.parametrize(
    ("content", "label"),
    [(make_content(), "critical"), (make_content("resolved"), "resolved"), (make_content("test"), "test"),
     (a_certificate(3), "certificate")],
)  # fmt: skip
def test_a_subject_begins_with_how_bad_it_is(content: NoticeContent, label: str) -> None:
    assert channels.mail(content, a_notice()).subject.startswith(f"[{label}] ")
