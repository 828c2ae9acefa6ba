"""TXT records of DNS-01 challenges, by dynamic updates (RFC 2136) signed with TSIG.

A CNAME at `_acme-challenge.<domain>` delegates the record to another zone, for domains whose own DNS provider does not
accept such updates.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import socket
from collections.abc import Iterable
from dataclasses import field

import dns.asyncquery
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.tsig
import dns.update
from dns.message import Message
from dns.name import Name
from dns.rdtypes.ANY.TXT import TXT
from dns.update import UpdateMessage

from moorage.core.kit.records import dataclass
from moorage.gateway.wildcard.errors import CannotOrder
from moorage.products.domains.dns import Resolver
from moorage.products.domains.lookup_errors import LookupFailed
from moorage.settings import Settings

PREFIX = "_acme-challenge"
MAX_CNAMES = 8
QUERY_TIMEOUT_S = 10.0
VISIBLE_TIMEOUT_S = 60.0
VISIBLE_POLL_S = 0.5
TTL_S = 60


@dataclass(frozen=True, slots=True)
class Record:
    """A TXT record: its name after all CNAMEs, and the zone to update."""

    name: Name
    zone: Name


@dataclass
class DnsUpdates:
    """Adds the records of one order and removes them. Methods raise CannotOrder."""

    settings: Settings
    resolver: Resolver
    _added: list[tuple[Record, frozenset[str]]] = field(default_factory=list)

    async def add(self, domain: str, values: Iterable[str]) -> None:
        """Add the values, and return when the DNS server shows all of them."""
        name = dns.name.from_text(await self._follow(domain))
        record, wanted = Record(name, await self._zone_of(name)), frozenset(values)
        self._added.append((record, wanted))  # An update without an answer may have been made.
        try:
            await self._send(record, _addition(self._update(record), record, wanted))
        except _Refused:
            self._added.pop()
            raise
        try:
            async with asyncio.timeout(VISIBLE_TIMEOUT_S):
                await self._wait_for(name, wanted)
        except TimeoutError:
            why = f"does not show the TXT record at {_shown(name)} {VISIBLE_TIMEOUT_S:g} s after it accepted the update"
            raise CannotOrder(f"the DNS server at {self._server} {why}") from None

    async def remove_added(self) -> list[str]:
        """Remove the added values, and return the errors; other values at the same names stay. Safe to repeat."""
        errors = []
        for record, values in self._added:
            update = self._update(record)
            for value in sorted(values):
                update.delete(record.name, "TXT", value)
            try:
                await self._send(record, update)
            except CannotOrder as error:
                errors.append(str(error))
        self._added.clear()
        return errors

    @property
    def _server(self) -> str:
        return self.settings.dns_update_server

    async def _follow(self, domain: str) -> str:
        """Return the name of the TXT record: the end of the CNAMEs of `_acme-challenge.<domain>`.

        A wildcard CNAME below the domain, which routes visitors, also matches this name. It is not followed.
        """
        name = first = f"{PREFIX}.{domain}"
        try:
            for _ in range(MAX_CNAMES):
                target = await self.resolver.find_target(name)
                if target is None:
                    return name
                if name == first and target == await self.resolver.find_target(f"{secrets.token_hex(8)}.{domain}"):
                    return name
                name = target
        except LookupFailed as error:
            raise CannotOrder(f"cannot look up a CNAME of {name}: {error}") from error
        raise CannotOrder(f"{first} leads to more than {MAX_CNAMES} CNAMEs")

    async def _zone_of(self, name: Name) -> Name:
        if self.settings.dns_update_zone:
            zone = dns.name.from_text(self.settings.dns_update_zone)
            if not name.is_subdomain(zone):
                raise CannotOrder(
                    f"MOORAGE_DNS_UPDATE_ZONE: {_shown(name)} is not below {_shown(zone)}; delegate it to that zone "
                    "with a CNAME"
                )
            return zone
        zone = name
        while zone != dns.name.root:
            answer = await self._exchange(dns.message.make_query(zone, "SOA", flags=0))
            soa = answer.get_rrset(answer.answer, zone, dns.rdataclass.IN, dns.rdatatype.SOA)
            if soa is not None and answer.flags & dns.flags.AA:
                return zone
            zone = zone.parent()
        raise CannotOrder(
            f"the DNS server at {self._server} has no zone for {_shown(name)}; set MOORAGE_DNS_UPDATE_ZONE, or "
            "delegate the name to one of its zones with a CNAME"
        )

    def _update(self, record: Record) -> UpdateMessage:
        secret = base64.b64decode(self.settings.dns_update_key.get_secret_value())
        key = dns.tsig.Key(self.settings.dns_update_key_name, secret, self.settings.dns_update_algorithm.value)
        return UpdateMessage(record.zone, keyring=key)

    async def _send(self, record: Record, update: UpdateMessage) -> None:
        answer = await self._exchange(update)
        rcode = dns.rcode.to_text(answer.rcode())
        if answer.rcode() == dns.rcode.NOERROR:
            return
        why = f"refuses to update the TXT record at {_shown(record.name)} in the zone {_shown(record.zone)}: {rcode}"
        advice = f"may the key {self.settings.dns_update_key_name} change it, and is the server the zone's primary?"
        raise _Refused(f"the DNS server at {self._server} {why} ({advice})")

    async def _wait_for(self, name: Name, wanted: frozenset[str]) -> None:
        while True:
            if wanted <= await self._texts(name):
                return
            await asyncio.sleep(VISIBLE_POLL_S)

    async def _texts(self, name: Name) -> set[str]:
        answer = await self._exchange(dns.message.make_query(name, "TXT", flags=0))
        records = [record for rrset in answer.answer if rrset.name == name for record in rrset]
        return {b"".join(record.strings).decode(errors="replace") for record in records if isinstance(record, TXT)}

    async def _exchange(self, message: Message) -> Message:
        """Send a message over TCP: neither updates nor their answers get lost or forged there."""
        try:
            # The library's own timeout can lose a cancellation, by `asyncio.wait_for` of Python 3.11.
            async with asyncio.timeout(QUERY_TIMEOUT_S):
                host, port = await self._address()
                return await dns.asyncquery.tcp(message, host, port=port)
        except dns.tsig.PeerError as error:
            raise _Refused(self._explain(error)) from error
        except (dns.exception.DNSException, OSError, EOFError) as error:
            raise CannotOrder(self._explain(error)) from error

    async def _address(self) -> tuple[str, int]:
        host, _, port = self._server.rpartition(":")
        lookup = asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        return str((await lookup)[0][4][0]), int(port)

    def _explain(self, error: Exception) -> str:
        at, name = f"the DNS server at {self._server}", self.settings.dns_update_key_name
        match error:
            case dns.tsig.PeerBadKey():
                return f"{at} does not know the key {name} with {self.settings.dns_update_algorithm.value}"
            case dns.tsig.PeerBadSignature():
                return f"{at} refuses the signature of the key {name}: is MOORAGE_DNS_UPDATE_KEY the server's?"
            case dns.tsig.PeerBadTime():
                return f"{at} has another time than this machine; keep both clocks right"
            case TimeoutError():
                return f"{at} did not answer in {QUERY_TIMEOUT_S:g} s"
            case OSError():
                return f"cannot reach {at}: {error.strerror or error}"
            case EOFError():
                return f"{at} closed the connection without an answer"
        return f"{at} sent an invalid answer: {error or type(error).__name__}"


class _Refused(CannotOrder):
    """The server answered, and made no update."""


def _addition(update: UpdateMessage, record: Record, values: frozenset[str]) -> UpdateMessage:
    for value in sorted(values):
        update.add(record.name, TTL_S, "TXT", value)
    return update


def _shown(name: Name) -> str:
    return name.to_text(omit_final_dot=True)
