"""Delivery of notices by mail to a real SMTP server."""

from __future__ import annotations

from collections.abc import Iterator
from email.message import EmailMessage

import pytest
from tests.core.mail.support import Inbox, mailer, serving
from tests.ports import free_port
from tests.products.monitors.delivery_support import AGAIN_S, Harbor, make_harbor, statuses

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.organizations import members
from moorage.accounts.identity.roles import Role
from moorage.core.db.store import Database

pytestmark = pytest.mark.anyio


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with serving() as inbox:
        yield inbox


@pytest.fixture
async def harbor(db: Database) -> Harbor:
    return await make_harbor(db)


async def test_a_crash_after_a_mail_was_taken_sends_it_again_under_the_same_id(harbor: Harbor, inbox: Inbox) -> None:
    inbox.is_held = True
    await harbor.tell(await harbor.alert(by_email=True))

    await harbor.die_when(lambda: len(inbox.mails) == 1, mailer(inbox.url))
    inbox.is_held = False
    await harbor.deliver(mailer(inbox.url))

    first, second = inbox.mails
    assert first["Message-ID"] == second["Message-ID"]
    assert await statuses(harbor) == ["delivered"]


async def test_an_alert_and_its_recovery_are_one_thread_of_mails(harbor: Harbor, inbox: Inbox) -> None:
    grace = await harbor.member()
    alert = await harbor.alert(by_email=True)
    incident = await harbor.tell(alert)
    await harbor.deliver(mailer(inbox.url))

    await harbor.tell(alert, "resolved", of=incident)
    await harbor.deliver(mailer(inbox.url))

    for person in (harbor.owner, grace):
        down, up = inbox.to(person.email)
        assert (down["Subject"], up["Subject"]) == ("[warning] Shop is down", "[resolved] Shop: resolved, it is up")
        assert up["In-Reply-To"] == up["References"] == down["Message-ID"]
        assert down["In-Reply-To"] is None
        assert {mail["Auto-Submitted"] for mail in (down, up)} == {"auto-generated"}
    assert len({mail["Message-ID"] for mail in inbox.mails}) == 4


async def test_mail_says_what_happened_in_text_and_html(harbor: Harbor, inbox: Inbox) -> None:
    await harbor.tell(await harbor.alert(by_email=True))

    await harbor.deliver(mailer(inbox.url))

    for part in ("plain", "html"):
        body = content(inbox.mails[0], part)
        assert "Shop is down" in body
        assert "https://shop.example/health" in body
        assert "connect: nothing listens there" in body


async def test_without_a_mail_server_a_mail_fails_and_people_still_see_it_in_the_product(harbor: Harbor) -> None:
    await harbor.tell(await harbor.alert(by_email=True))

    await harbor.deliver()

    [notice] = await harbor.notices()
    assert (notice.status, notice.attempts, notice.last_error) == ("failed", 0, "no mail server is configured")
    assert [each.title for each in await harbor.told(harbor.owner)] == ["Shop is down"]


@pytest.mark.parametrize("at", ["answer", "recipient"])
async def test_a_mail_that_is_refused_for_good_is_given_up(harbor: Harbor, inbox: Inbox, at: str) -> None:
    setattr(inbox, at, "550 no such user")
    await harbor.tell(await harbor.alert(by_email=True))

    await harbor.deliver(mailer(inbox.url))

    [notice] = await harbor.notices()
    assert (notice.status, notice.attempts) == ("failed", 1)
    assert notice.last_error == "the mail server refused it: 550 no such user"
    assert await harbor.actions() == ["alert.notice_failed"]


async def test_a_mail_server_that_is_busy_or_away_is_tried_again(harbor: Harbor, inbox: Inbox) -> None:
    inbox.answer = "451 later"
    await harbor.tell(await harbor.alert(by_email=True))
    await harbor.deliver(mailer(inbox.url))
    [busy] = await harbor.notices()

    await harbor.deliver(mailer(f"smtp://127.0.0.1:{free_port()}"), after_s=AGAIN_S)
    [away] = await harbor.notices()
    inbox.answer = "250 OK"
    await harbor.deliver(mailer(inbox.url), after_s=2 * AGAIN_S)

    assert (busy.last_error, away.last_error) == ("the mail server said 451", "the mail server cannot be reached")
    assert await statuses(harbor) == ["delivered"]
    assert len(inbox.mails) == 1


async def test_who_left_meanwhile_gets_no_mail(harbor: Harbor, inbox: Inbox) -> None:
    grace = await harbor.member()
    await harbor.tell(await harbor.alert(by_email=True))
    owner = harbor.owner
    caller = Caller(owner.id, owner.email, owner.name, None, harbor.org_id, Role.OWNER, None)
    await harbor.db.write(lambda tx: members.remove(tx, harbor.org_id, caller, grace.id))

    await harbor.deliver(mailer(inbox.url))

    assert [mail["To"] for mail in inbox.mails] == [owner.email]
    assert await statuses(harbor) == ["delivered", "failed"]


def content(mail: EmailMessage, kind: str) -> str:
    part = mail.get_body((kind,))
    assert part is not None
    return str(part.get_content())
