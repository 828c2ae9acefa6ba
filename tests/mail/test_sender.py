"""Mail: through a real SMTP server on loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from pydantic import SecretStr
from tests.builders import make_org, make_user, session_for
from tests.client import Client
from tests.conftest import RunJobs

from moorage.db.store import Database
from moorage.errors import RetryLater
from moorage.identity.invitations import SendInvitation
from moorage.identity.jobs import send_invitation
from moorage.mail.sender import Mailer
from moorage.settings import Settings

pytestmark = pytest.mark.anyio


class Inbox:
    """What the server took, and what it says to the next mail."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.answer = "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd calls it
        if self.answer.startswith("250"):
            self.mails.append(message_from_bytes(envelope.content, policy=policy.default))
        return self.answer


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    inbox = Inbox()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    controller = Controller(inbox, hostname="127.0.0.1", port=port)
    controller.start()
    inbox.url = f"smtp://127.0.0.1:{port}"  # type: ignore[attr-defined]
    yield inbox
    controller.stop()


def mailer(url: str) -> Mailer:
    given = {"smtp_url": SecretStr(url), "mail_from": "Moorage <no-reply@harbor.example>"}
    return Mailer(Settings(**given))  # type: ignore[arg-type]


async def test_a_mail_arrives_as_text_and_html(inbox: Inbox) -> None:
    await mailer(inbox.url).send(  # type: ignore[attr-defined]
        to="ada@example.com", subject="Hélló", text="plain", html="<b>rich</b>", message_id="<one@moorage>"
    )

    mail = inbox.mails[0]
    assert (mail["To"], mail["Subject"], mail["Message-ID"]) == ("ada@example.com", "Hélló", "<one@moorage>")
    assert mail["From"] == "Moorage <no-reply@harbor.example>"
    assert {part.get_content_type() for part in mail.iter_parts()} == {"text/plain", "text/html"}


@pytest.mark.parametrize("answer", ["451 try again", "421 too busy"])
async def test_a_server_that_is_busy_is_tried_again(inbox: Inbox, answer: str) -> None:
    inbox.answer = answer

    with pytest.raises(RetryLater):
        await mailer(inbox.url).send(to="ada@example.com", subject="x", text="y")  # type: ignore[attr-defined]


async def test_a_server_that_refuses_for_good_is_not_tried_again(inbox: Inbox) -> None:
    inbox.answer = "550 no such user"

    with pytest.raises(Exception, match="550") as refused:
        await mailer(inbox.url).send(to="ada@example.com", subject="x", text="y")  # type: ignore[attr-defined]

    assert not isinstance(refused.value, RetryLater)


async def test_a_server_that_is_away_is_tried_again() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    with pytest.raises(RetryLater, match="cannot be reached"):
        await mailer(f"smtp://127.0.0.1:{port}").send(to="ada@example.com", subject="x", text="y")


async def test_an_invitation_is_mailed_once_under_an_id_that_a_second_run_repeats(
    db: Database, api: Client, inbox: Inbox, run_jobs: RunJobs
) -> None:
    owner = await make_user(db)
    org = await make_org(db, owner, name="Harbor & <Sons>")
    body = {"email": "grace@example.com", "role": "viewer"}
    made = await api.post(f"/v1/orgs/{org.id}/invitations", token=session_for(db, owner), json=body)
    payload = SendInvitation(org.id, made.data["id"])

    class Unfenced:
        def __init__(self) -> None:
            self.db = db
            self.write = db.write

    for _ in range(2):
        await send_invitation(Unfenced(), payload, mailer(inbox.url))  # type: ignore[arg-type,attr-defined]

    assert [mail["To"] for mail in inbox.mails] == ["grace@example.com"] * 2
    assert len({mail["Message-ID"] for mail in inbox.mails}) == 1
    rich = inbox.mails[0].get_body(("html",))
    assert rich is not None
    assert "Harbor &amp; &lt;Sons&gt;" in rich.get_content()
