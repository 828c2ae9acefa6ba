"""Sends mail, as text and HTML, through the operator's SMTP server."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from email import message as email_message
from email.utils import formatdate, make_msgid
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from moorage.errors import RetryLater
from moorage.settings import Settings

if TYPE_CHECKING:
    import aiosmtplib

TIMEOUT_S, QUIT_TIMEOUT_S = 30, 2
RETRY_DELAY_S = 60
_NONE: Mapping[str, str] = MappingProxyType({})


class MailRefused(Exception):
    """The mail server permanently refuses this mail."""


class Mailer:
    """Sends mails if `MOORAGE_SMTP_URL` is set (`is_configured`)."""

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
        """Send one mail; raises RetryLater, or MailRefused for a permanent failure.

        `headers` are additional headers, such as those of a mail thread.
        """
        import aiosmtplib  # Imported on first use: it is slow to load, and many platforms send no mail.

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
            # The server has accepted the mail; errors of QUIT do not matter.
            with suppress(aiosmtplib.SMTPException, OSError):
                await client.quit(timeout=QUIT_TIMEOUT_S)
        except aiosmtplib.SMTPRecipientsRefused as error:
            raise _explain(error.recipients[0]) from error
        except aiosmtplib.SMTPAuthenticationError as error:
            # A configuration error, not a fault of this mail: it is sent after the operator fixes the credentials.
            raise RetryLater(after_s=RETRY_DELAY_S, why="the mail server rejects the platform's login") from error
        except aiosmtplib.SMTPResponseException as error:
            raise _explain(error) from error
        except (aiosmtplib.SMTPException, OSError) as error:
            raise RetryLater(after_s=RETRY_DELAY_S, why=f"the mail server cannot be reached: {error}") from error
        finally:
            client.close()

    def _compose(
        self, to: str, subject: str, text: str, html: str | None, message_id: str, headers: Mapping[str, str]
    ) -> email_message.EmailMessage:
        message = email_message.EmailMessage()
        message["From"], message["To"], message["Subject"] = self._from, to, subject
        message["Date"] = formatdate()
        # The same id in a retry lets the receiver drop the duplicate.
        message["Message-ID"] = message_id or make_msgid(domain="moorage")
        for name, value in headers.items():
            message[name] = value
        message.set_content(text)
        if html is not None:
            message.add_alternative(html, subtype="html")
        return message


def _explain(error: aiosmtplib.SMTPResponseException) -> RetryLater | MailRefused:
    """Classify an SMTP error: codes below 500 are temporary, others permanent."""
    if error.code < 500:
        return RetryLater(after_s=RETRY_DELAY_S, why=f"the mail server said {error.code}")
    return MailRefused(f"the mail server refused it: {error.code} {error.message}")
