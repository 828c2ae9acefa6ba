"""Mail: through a real SMTP server on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from aiosmtpd.smtp import AuthResult
from tests.builders import make_org, make_user, session_for
from tests.client import Client
from tests.conftest import RunJobs
from tests.core.mail.support import Inbox, mailer, serving
from tests.ports import free_port

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.jobs import send_invitation
from moorage.accounts.identity.organizations import invitations
from moorage.accounts.identity.organizations.invitations import SendInvitation
from moorage.accounts.identity.roles import Role
from moorage.accounts.plans.service import Standing
from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, ManualClock
from moorage.core.mail.sender import MailRefused
from moorage.errors import RetryLater

pytestmark = pytest.mark.anyio


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with serving() as inbox:
        yield inbox


async def test_a_mail_arrives_as_text_and_html(inbox: Inbox) -> None:
    await mailer(inbox.url).send(
        to="ada@example.com", subject="Hélló", text="plain", html="<b>rich</b>", message_id="<one@moorage>"
    )

    mail = inbox.mails[0]
    assert (mail["To"], mail["Subject"], mail["Message-ID"]) == ("ada@example.com", "Hélló", "<one@moorage>")
    assert mail["From"] == "Moorage <no-reply@harbor.example>"
    assert {part.get_content_type() for part in mail.iter_parts()} == {"text/plain", "text/html"}


async def test_further_headers_go_along(inbox: Inbox) -> None:
    headers = {"In-Reply-To": "<one@moorage>", "References": "<one@moorage>", "Auto-Submitted": "auto-generated"}

    await mailer(inbox.url).send(to="ada@example.com", subject="x", text="y", headers=headers)

    assert {name: inbox.mails[0][name] for name in headers} == headers


@pytest.mark.parametrize("name", ["subject", "header"])
async def test_no_text_can_add_a_header_of_its_own(inbox: Inbox, name: str) -> None:
    text = "fine\r\nBcc: everybody@example.com"
    options = {"subject": text} if name == "subject" else {"subject": "x", "headers": {"References": text}}

    with pytest.raises(ValueError, match="Header values"):
        await mailer(inbox.url).send(to="ada@example.com", text="y", **options)

    assert inbox.mails == []


@pytest.mark.parametrize("answer", ["451 try again", "421 too busy"])
async def test_a_server_that_is_busy_is_tried_again(inbox: Inbox, answer: str) -> None:
    inbox.answer = answer

    with pytest.raises(RetryLater):
        await mailer(inbox.url).send(to="ada@example.com", subject="x", text="y")


async def test_a_server_that_is_too_busy_for_a_recipient_is_tried_again(inbox: Inbox) -> None:
    inbox.recipient = "450 mailbox is locked"

    with pytest.raises(RetryLater, match="said 450"):
        await mailer(inbox.url).send(to="ada@example.com", subject="x", text="y")


@pytest.mark.parametrize("at", ["answer", "recipient"])
async def test_a_server_that_refuses_for_good_is_not_tried_again(inbox: Inbox, at: str) -> None:
    setattr(inbox, at, "550 no such user")

    with pytest.raises(MailRefused, match="550 no such user"):
        await mailer(inbox.url).send(to="ada@example.com", subject="x", text="y")

    assert inbox.mails == []


async def test_a_server_that_is_away_is_tried_again() -> None:
    with pytest.raises(RetryLater, match="cannot be reached"):
        await mailer(f"smtp://127.0.0.1:{free_port()}").send(to="ada@example.com", subject="x", text="y")


async def test_a_server_that_does_not_let_the_platform_in_is_tried_again_until_the_operator_mends_it() -> None:
    def refuse(*_: Any) -> AuthResult:
        return AuthResult(success=False, handled=False)

    with serving(authenticator=refuse, auth_require_tls=False) as inbox:
        sender = mailer(inbox.url.replace("://", "://ada:wrong@"))
        with pytest.raises(RetryLater, match="rejects the platform's login"):
            await sender.send(to="ada@example.com", subject="x", text="y")

    assert inbox.mails == []


async def test_an_invitation_is_mailed_once_under_an_id_that_a_second_run_repeats(
    db: Database, api: Client, inbox: Inbox, run_jobs: RunJobs
) -> None:
    owner = await make_user(db)
    org = await make_org(db, owner, name="Harbor & <Sons>")
    body = {"email": "grace@example.com", "role": "viewer"}
    response = await api.post(f"/v1/orgs/{org.id}/invitations", token=session_for(db, owner), json=body)
    payload = SendInvitation(org.id, response.data["id"])

    class Unfenced:
        def __init__(self) -> None:
            self.db = db
            self.write = db.write

    for _ in range(2):
        await send_invitation(Unfenced(), payload, mailer(inbox.url))  # type: ignore[arg-type]

    assert [mail["To"] for mail in inbox.mails] == ["grace@example.com"] * 2
    assert len({mail["Message-ID"] for mail in inbox.mails}) == 1
    rich = inbox.mails[0].get_body(("html",))
    assert rich is not None
    assert "Harbor &amp; &lt;Sons&gt;" in rich.get_content()


async def test_an_invitation_is_mailed_where_the_name_of_the_organization_has_line_breaks(
    db: Database, inbox: Inbox
) -> None:
    owner = await make_user(db)
    # Logins of a provider and earlier releases took such names.
    org = await make_org(db, owner, name="Harbor\r\nBcc: eve@example.com")
    caller = Caller(owner.id, owner.email, "", None, org.id, Role.OWNER, Standing("pro", True))
    made = await db.write(lambda tx: invitations.create(tx, org.id, caller, "grace@example.com", Role.VIEWER))

    class Unfenced:
        def __init__(self) -> None:
            self.db = db
            self.write = db.write

    await send_invitation(Unfenced(), SendInvitation(org.id, made.id), mailer(inbox.url))  # type: ignore[arg-type]

    mail = inbox.mails[0]
    assert (mail["To"], mail["Bcc"]) == ("grace@example.com", None)
    assert mail["Subject"] == "Join Harbor Bcc: eve@example.com on Moorage"


@pytest.mark.boundary("tenant-to-tenant", "Invitations of many organizations do not fill the mailbox of an address.")
async def test_an_address_gets_a_bounded_number_of_mails_a_day(
    db: Database, inbox: Inbox, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invitations, "MAX_DAILY_MAILS_OF_ADDRESS", 2)
    owner = await make_user(db)

    class Unfenced:
        def __init__(self) -> None:
            self.db = db
            self.write = db.write

    async def invite(email: str) -> None:
        org = await make_org(db, owner)
        caller = Caller(owner.id, owner.email, "", None, org.id, Role.OWNER, Standing("pro", True))
        made = await db.write(lambda tx: invitations.create(tx, org.id, caller, email, Role.VIEWER))
        await send_invitation(Unfenced(), SendInvitation(org.id, made.id), mailer(inbox.url))  # type: ignore[arg-type]

    for email in ("grace@example.com", "grace@example.com", "grace@example.com", "alan@example.com"):
        await invite(email)
    clock.advance(DAY_MS)
    await invite("grace@example.com")

    assert [mail["To"].partition("@")[0] for mail in inbox.mails] == ["grace", "grace", "alan", "grace"]
