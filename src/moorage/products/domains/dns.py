"""What DNS says about a domain, by real queries, in words that its owner understands.

Two records prove a domain: a TXT record that holds the organization's token, or a CNAME that leads to the project. What
could not be asked is kept apart from what is not there: only the latter may ever cost somebody a domain.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from moorage.settings import BadSettings, Settings, is_loopback

if TYPE_CHECKING:
    from moorage.products.domains.queries import Queries

TIMEOUT_S = 5.0
ADDRESSES_S = 2.0
ADDRESSES_KEPT_S = 300.0
DNS_PORT = 53
PREFIX = "_moorage."
SHOWN_VALUES = 3
SHOWN_CHARS = 80


class Outcome(StrEnum):
    PROVEN = "proven"  # a record is there
    ABSENT = "absent"  # DNS answered, and there is no such record
    UNKNOWN = "unknown"  # DNS did not answer


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look at DNS found."""

    outcome: Outcome
    by: str = ""  # `TXT` or `CNAME`, where it proves
    error: str | None = None  # else what is wrong, for the owner


@dataclass(frozen=True, slots=True)
class Wanted:
    """What would prove a domain."""

    domain: str
    token: str
    target: str  # the project's own host


class CannotTell(Exception):
    """DNS did not say whether there is such a record. The message is for the domain's owner."""


class Resolver:
    """Asks the resolver of the settings, or the system's."""

    def __init__(self, settings: Settings) -> None:
        self._server = _server(settings.resolver) if settings.resolver else None

    async def look(self, wanted: Wanted, timeout_s: float = TIMEOUT_S) -> Finding:
        """Look for either record; takes no longer than the timeout, and raises nothing that DNS could cause."""
        queries = self._queries(timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                by_txt, by_cname = await asyncio.gather(
                    _look_for_txt(queries, wanted), _look_for_cname(queries, wanted)
                )
        except TimeoutError:
            return Finding(Outcome.UNKNOWN, error=no_answer(wanted.domain))
        return _sum_up(by_txt, by_cname)

    async def addresses(self, host: str, timeout_s: float = ADDRESSES_S) -> list[str]:
        """Return the addresses of a host, those of IPv4 first; none where DNS has none or does not say."""
        queries = self._queries(timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                found = await asyncio.gather(*(queries.addresses(host, kind) for kind in ("A", "AAAA")))
        except (TimeoutError, CannotTell):
            return []
        return [address for addresses in found for address in addresses]

    def _queries(self, timeout_s: float) -> Queries:
        from moorage.products.domains.queries import Queries  # It takes time to load, and most processes never ask.

        return Queries(self._server, timeout_s)


async def _look_for_txt(queries: Queries, wanted: Wanted) -> Finding:
    name = PREFIX + wanted.domain
    try:
        values = await queries.texts(name)
    except CannotTell as error:
        return Finding(Outcome.UNKNOWN, error=str(error))
    if wanted.token.encode() in (value.strip(b' "') for value in values):
        return Finding(Outcome.PROVEN, by="TXT")
    if not values:
        return Finding(Outcome.ABSENT, error=f"There is no TXT record at {name}.")
    return Finding(Outcome.ABSENT, error=f"The TXT record at {name} holds {_shown(values)}, not {wanted.token}.")


async def _look_for_cname(queries: Queries, wanted: Wanted) -> Finding:
    try:
        targets = await queries.targets(wanted.domain)
    except CannotTell as error:
        return Finding(Outcome.UNKNOWN, error=str(error))
    if any(queries.is_same(target, wanted.target) for target in targets):
        return Finding(Outcome.PROVEN, by="CNAME")
    if not targets:
        return Finding(Outcome.ABSENT, error=f"There is no CNAME record from {wanted.domain} to {wanted.target}.")
    leads = _shown([target.to_text(omit_final_dot=True).encode() for target in targets])
    return Finding(Outcome.ABSENT, error=f"The CNAME record of {wanted.domain} leads to {leads}, not {wanted.target}.")


@dataclass
class Addresses:
    """Where the apex of a domain has to lead: the addresses that the platform's own hosts have, asked now and then."""

    settings: Settings
    resolver: Resolver
    _found: list[str] = field(default_factory=list)
    _until: float = 0.0

    async def of(self, host: str) -> list[str]:
        """Return the addresses; none where nobody knows. One host stands for all, which differ only in their name."""
        now = asyncio.get_running_loop().time()
        if now >= self._until:
            self._found = await self._look(host)
            self._until = now + ADDRESSES_KEPT_S
        return self._found

    async def _look(self, host: str) -> list[str]:
        if not is_loopback(host) and (found := await self.resolver.addresses(host)):
            return found
        try:
            own = ipaddress.ip_address(self.settings.host)
        except ValueError:
            return []
        return [] if own.is_unspecified else [str(own)]


def _server(text: str) -> tuple[str, int]:
    """Read `host:port`; a name, such as localhost, is looked up once, at start."""
    host, _, port = text.rpartition(":") if text.count(":") == 1 or "]:" in text else (text, "", "")
    try:
        number = int(port or DNS_PORT)
        if not 0 < number < 65536:
            raise ValueError(number)
        found = socket.getaddrinfo(host.strip("[]"), number, type=socket.SOCK_DGRAM)
    except (ValueError, OSError):
        raise BadSettings(f"MOORAGE_RESOLVER: should be the host:port of a DNS resolver, not {text}") from None
    return str(found[0][4][0]), number


def _sum_up(by_txt: Finding, by_cname: Finding) -> Finding:
    for finding in (by_txt, by_cname):
        if finding.outcome is Outcome.PROVEN:
            return finding
    for finding in (by_txt, by_cname):
        if finding.outcome is Outcome.UNKNOWN:
            return finding
    return Finding(Outcome.ABSENT, error=f"{by_txt.error} {by_cname.error}")


def no_answer(name: str) -> str:
    return f"The DNS servers of {name} did not answer in time. Try again later."


def _shown(values: list[bytes]) -> str:
    """Return what was found, as much of it as a person would read."""
    shown = [_printable(value) for value in sorted(values)[:SHOWN_VALUES]]
    rest = len(values) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def _printable(value: bytes) -> str:
    text = "".join(character if character.isprintable() else "?" for character in value.decode(errors="replace"))
    return f"“{text[:SHOWN_CHARS]}…”" if len(text) > SHOWN_CHARS else f"“{text}”"
