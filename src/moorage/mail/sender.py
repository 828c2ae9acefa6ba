"""Sending mail: text and HTML, over the operator's server."""

from __future__ import annotations

from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from urllib.parse import unquote, urlsplit

from moorage.errors import RetryLater
from moorage.settings import Settings


class Mailer:
    """Without `MOORAGE_SMTP_URL` nothing is sent, and `is_configured` says so."""

    def __init__(self, settings: Settings) -> None:
        self._url = urlsplit(settings.smtp_url.get_secret_value())
        self._from = settings.mail_from

    @property
    def is_configured(self) -> bool:
        return bool(self._url.hostname)

    async def send(self, *, to: str, subject: str, text: str, html: str | None = None, message_id: str = "") -> None:
        """Send one mail; a server that cannot take it now raises RetryLater, one that refuses it raises."""
        import aiosmtplib  # It takes time to load, and many platforms send no mail.

        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = self._from, to, subject
        message["Date"] = formatdate()
        # The same id on a second try lets the receiver drop the copy.
        message["Message-ID"] = message_id or make_msgid(domain="moorage")
        message.set_content(text)
        if html is not None:
            message.add_alternative(html, subtype="html")
        try:
            await aiosmtplib.send(
                message,
                hostname=self._url.hostname,
                port=self._url.port,
                username=unquote(self._url.username) if self._url.username else None,
                password=unquote(self._url.password) if self._url.password else None,
                use_tls=self._url.scheme == "smtps",
                timeout=30,
            )
        except aiosmtplib.SMTPResponseException as error:
            if 400 <= error.code < 500:
                raise RetryLater(after_s=60, why=f"the mail server said {error.code}") from error
            raise
        except (aiosmtplib.SMTPException, OSError) as error:
            raise RetryLater(after_s=60, why=f"the mail server cannot be reached: {error}") from error
