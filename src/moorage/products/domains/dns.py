"""DNS lookups that verify a domain, with error messages for its owner.

Either of two records verifies a domain: a TXT record with the organization's token, or a CNAME to the project's host. A
failed query is kept apart from a missing record: only a missing record may fail a verified domain.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from moorage.core.kit.records import dataclass
from moorage.products.domains.lookup_errors import LookupFailed, no_answer
from moorage.settings import BadSettings, Settings, is_loopback

if TYPE_CHECKING:
    from moorage.products.domains.queries import Queries

TIMEOUT_S = 5.0
ADDRESSES_TIMEOUT_S = 2.0
ADDRESSES_CACHE_S = 300.0
DNS_PORT = 53
PREFIX = "_moorage."
SHOWN_VALUES = 3
SHOWN_CHARS = 80


class Outcome(StrEnum):
    PROVEN = "proven"  # one of the records exists
    ABSENT = "absent"  # DNS answered, and neither record exists
    UNKNOWN = "unknown"  # DNS did not answer


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one DNS lookup."""

    outcome: Outcome
    by: str = ""  # `TXT` or `CNAME` if proven
    error: str | None = None  # message for the owner if not proven


@dataclass(frozen=True, slots=True)
class ExpectedRecords:
    """The values of the records that verify a domain."""

    domain: str
    token: str
    target: str  # the project's own host


class Resolver:
    """Sends queries to the resolver of the settings, or to the system's."""

    def __init__(self, settings: Settings) -> None:
        self._server = _server(settings.resolver) if settings.resolver else None

    async def look_up(self, expected: ExpectedRecords, timeout_s: float = TIMEOUT_S) -> Finding:
        """Look up both records within the timeout; DNS errors are returned, not raised."""
        queries = self._queries(timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                by_txt, by_cname = await asyncio.gather(
                    _look_up_txt(queries, expected), _look_up_cname(queries, expected)
                )
        except TimeoutError:
            return Finding(Outcome.UNKNOWN, error=no_answer(expected.domain))
        return _combine(by_txt, by_cname)

    async def addresses(self, host: str, timeout_s: float = ADDRESSES_TIMEOUT_S) -> list[str]:
        """Return the IPv4, then the IPv6 addresses of a host; none if DNS does not answer."""
        queries = self._queries(timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                answers = await asyncio.gather(*(queries.addresses(host, kind) for kind in ("A", "AAAA")))
        except (TimeoutError, LookupFailed):
            return []
        return [address for addresses in answers for address in addresses]

    async def find_target(self, name: str, timeout_s: float = TIMEOUT_S) -> str | None:
        """Return the target of the first CNAME record of a name; raises LookupFailed."""
        targets = await self._queries(timeout_s).targets(name)
        return targets[0].to_text(omit_final_dot=True).lower() if targets else None

    def _queries(self, timeout_s: float) -> Queries:
        from moorage.products.domains.queries import Queries  # slow to import, rarely needed

        return Queries(self._server, timeout_s)


async def _look_up_txt(queries: Queries, expected: ExpectedRecords) -> Finding:
    name = PREFIX + expected.domain
    try:
        values = await queries.texts(name)
    except LookupFailed as error:
        return Finding(Outcome.UNKNOWN, error=str(error))
    if expected.token.encode() in (value.strip(b' "') for value in values):
        return Finding(Outcome.PROVEN, by="TXT")
    if not values:
        return Finding(Outcome.ABSENT, error=f"There is no TXT record at {name}.")
    return Finding(
        Outcome.ABSENT, error=f"The TXT record at {name} holds {_quote_values(values)}, not {expected.token}."
    )


async def _look_up_cname(queries: Queries, expected: ExpectedRecords) -> Finding:
    try:
        targets = await queries.targets(expected.domain)
    except LookupFailed as error:
        return Finding(Outcome.UNKNOWN, error=str(error))
    if any(queries.is_same(target, expected.target) for target in targets):
        return Finding(Outcome.PROVEN, by="CNAME")
    if not targets:
        return Finding(Outcome.ABSENT, error=f"There is no CNAME record from {expected.domain} to {expected.target}.")
    leads = _quote_values([target.to_text(omit_final_dot=True).encode() for target in targets])
    return Finding(
        Outcome.ABSENT, error=f"The CNAME record of {expected.domain} leads to {leads}, not {expected.target}."
    )


@dataclass
class Addresses:
    """Cached IP addresses of the platform, which an apex domain must point to."""

    settings: Settings
    resolver: Resolver
    _cached: list[str] = field(default_factory=list)
    _expires_at: float = 0.0

    async def of(self, host: str) -> list[str]:
        """Return the addresses; none if unknown.

        All hosts of the platform share their addresses, so the cache holds one entry.
        """
        now = asyncio.get_running_loop().time()
        if now >= self._expires_at:
            self._cached = await self._look_up(host)
            self._expires_at = now + ADDRESSES_CACHE_S
        return self._cached

    async def _look_up(self, host: str) -> list[str]:
        if not is_loopback(host) and (addresses := await self.resolver.addresses(host)):
            return addresses
        try:
            own = ipaddress.ip_address(self.settings.host)
        except ValueError:
            return []
        return [] if own.is_unspecified else [str(own)]


def _server(text: str) -> tuple[str, int]:
    """Parse `host:port`; a host name, such as localhost, is resolved once, at start."""
    host, _, port = text.rpartition(":") if text.count(":") == 1 or "]:" in text else (text, "", "")
    try:
        number = int(port or DNS_PORT)
        if not 0 < number < 65536:
            raise ValueError(number)
        infos = socket.getaddrinfo(host.strip("[]"), number, type=socket.SOCK_DGRAM)
    except (ValueError, OSError):
        raise BadSettings(f"MOORAGE_RESOLVER: should be the host:port of a DNS resolver, not {text}") from None
    return str(infos[0][4][0]), number


def _combine(by_txt: Finding, by_cname: Finding) -> Finding:
    for finding in (by_txt, by_cname):
        if finding.outcome is Outcome.PROVEN:
            return finding
    for finding in (by_txt, by_cname):
        if finding.outcome is Outcome.UNKNOWN:
            return finding
    return Finding(Outcome.ABSENT, error=f"{by_txt.error} {by_cname.error}")


def _quote_values(values: list[bytes]) -> str:
    """Return the first values of a record, each shortened, for an error message."""
    shown = [_printable(value) for value in sorted(values)[:SHOWN_VALUES]]
    rest = len(values) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def _printable(value: bytes) -> str:
    text = "".join(character if character.isprintable() else "?" for character in value.decode(errors="replace"))
    return f"“{text[:SHOWN_CHARS]}…”" if len(text) > SHOWN_CHARS else f"“{text}”"
