"""The client of a command: the selected context, and options that hold for all commands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from moorage.cli.output.terminal import stop
from moorage.cli.session import contexts

if TYPE_CHECKING:  # Slow to import, and `--help` does not need it.
    import ssl

    from moorage.client import Client

RETRIES = 2  # A person waits for the answer.


@dataclass(slots=True)
class Options:
    """Options of `moorage` itself, before the command."""

    context: str | None = None
    organization: str | None = None


options = Options()


def selected() -> contexts.Context:
    try:
        return contexts.selected(options.context, options.organization)[1]
    except contexts.BadContextFile as error:
        stop(str(error))


@cache
def client() -> Client:
    """Return the client of this command; exits with advice when there is no credential."""
    from moorage.client import Client

    context = selected()
    if not context.token:
        stop(
            f"not signed in to {context.url}; use `moorage login`, or `moorage login --demo` for a platform in "
            "development, or set MOORAGE_TOKEN"
        )
    trust: dict[str, Any] = {} if context.url.startswith("https:") else {"verify": _no_trust()}
    return Client(context.url, token=context.token, organization=context.organization, retries=RETRIES, **trust)


def _no_trust() -> ssl.SSLContext:
    """Return a TLS context without certificates, for http: the load of the system's takes longer than most answers."""
    import ssl

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
