"""Sending mail: text and HTML, over the operator's server."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from moorage.errors import RetryLater
from moorage.settings import Settings

if TYPE_CHECKING:
    import aiosmtplib

TIMEOUT_S, GOODBYE_S = 30, 2
RETRY_S = 60
_NONE: Mapping[str, str] = MappingProxyType({})


class MailRefused(Exception):
    """The mail server will not take this mail, however often it is asked."""


class Mailer:
    """Without `MOORAGE_SMTP_URL` nothing is sent, and `is_configured` says so."""

    def __init__(self, settings: Settings) -> None:
        self._url = urlsplit(settings.smtp_url.get_secret_value())
        self._from = settings.mail_from

    @property
    def is_configured(self) -> bool:
        return bool(self._url.hostname)

    async def send(
        self,
        *,
        to: str,
        subject: str,
        text: str,
        html: str | None = None,
        message_id: str = "",
        headers: Mapping[str, str] = _NONE,
    ) -> None:
        """Send one mail; a server that cannot take it now raises RetryLater, one that refuses it MailRefused.

        `headers` are further ones, such as those that tie mails into a thread.
        """
        import aiosmtplib  # It takes time to load, and many platforms send no mail.

        message = self._compose(to, subject, text, html, message_id, headers)
        client = aiosmtplib.SMTP(
            hostname=self._url.hostname,
            port=self._url.port,
            username=unquote(self._url.username) if self._url.username else None,
            password=unquote(self._url.password) if self._url.password else None,
            use_tls=self._url.scheme == "smtps",
            timeout=TIMEOUT_S,
        )
        try:
            await client.connect()
            await client.send_message(message)
            # The mail is taken by now, however the goodbye goes.
            with suppress(aiosmtplib.SMTPException, OSError):
                await client.quit(timeout=GOODBYE_S)
        except aiosmtplib.SMTPRecipientsRefused as error:
            raise _explain(error.recipients[0]) from error
        except aiosmtplib.SMTPAuthenticationError as error:
            # That is about the platform, and not about this mail: it goes out once the operator has set it right.
            raise RetryLater(after_s=RETRY_S, why="the mail server does not let the platform in") from error
        except aiosmtplib.SMTPResponseException as error:
            raise _explain(error) from error
        except (aiosmtplib.SMTPException, OSError) as error:
            raise RetryLater(after_s=RETRY_S, why=f"the mail server cannot be reached: {error}") from error
        finally:
            client.close()

    def _compose(
        self, to: str, subject: str, text: str, html: str | None, message_id: str, headers: Mapping[str, str]
    ) -> EmailMessage:
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = self._from, to, subject
        message["Date"] = formatdate()
        # The same id on a second try lets the receiver drop the copy.
        message["Message-ID"] = message_id or make_msgid(domain="moorage")
        for name, value in headers.items():
            message[name] = value
        message.set_content(text)
        if html is not None:
            message.add_alternative(html, subtype="html")
        return message


def _explain(error: aiosmtplib.SMTPResponseException) -> RetryLater | MailRefused:
    """Tell a server that is busy from one that says no; only the second says it with a code from 500 on."""
    if error.code < 500:
        return RetryLater(after_s=RETRY_S, why=f"the mail server said {error.code}")
    return MailRefused(f"the mail server refused it: {error.code} {error.message}")
