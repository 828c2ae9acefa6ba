"""A real SMTP server on loopback, and the mails it received."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.controller import Controller
from tests.ports import free_port

from moorage.core.mail.sender import Mailer
from moorage.core.validated import SecretStr
from moorage.settings import Settings


@dataclass
class Inbox:
    """The received mails, and the replies to the next mail."""

    url: str = ""
    mails: list[EmailMessage] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)  # the same, as raw bytes
    answer: str = "250 OK"  # reply to a whole mail
    recipient: str = "250 OK"  # reply to an address
    is_held: bool = False  # accepts a mail without a reply

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any) -> str:  # noqa: N802 - aiosmtpd calls it
        envelope.rcpt_tos.append(address)
        return self.recipient

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd calls it
        if self.answer.startswith("250"):
            self.raw.append(envelope.content)
            self.mails.append(message_from_bytes(envelope.content, policy=policy.default))
        while self.is_held:
            await asyncio.sleep(0.01)
        return self.answer

    def to(self, address: str) -> list[EmailMessage]:
        return [mail for mail in self.mails if mail["To"] == address]


@contextmanager
def serving(**options: Any) -> Iterator[Inbox]:
    """Serve SMTP on loopback; the options are aiosmtpd's."""
    port = free_port()
    inbox = Inbox(f"smtp://127.0.0.1:{port}")
    controller = Controller(inbox, hostname="127.0.0.1", port=port, **options)
    controller.start()
    try:
        yield inbox
    finally:
        inbox.is_held = False
        controller.stop()


def mailer(url: str) -> Mailer:
    options = {"smtp_url": SecretStr(url), "mail_from": "Moorage <no-reply@harbor.example>"}
    return Mailer(Settings(**options))
