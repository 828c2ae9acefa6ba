"""An authoritative DNS server that accepts dynamic updates (RFC 2136) signed with one TSIG key."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import cast

import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset
import dns.tsig
from dns.message import Message
from dns.update import UpdateMessage
from tests.products.domains.dns_server import Zone

KEY_NAME = "moorage-key"


@dataclass
class UpdatedZone(Zone):
    """Records of the server, and the zones that updates may change."""

    zones: set[str] = field(default_factory=set)
    secret: bytes = b"secret of the tests, of 32 bytes"
    algorithm: str = "hmac-sha256"
    hidden: bool = False  # accepts updates, and does not show them
    refused: bool = False  # the key may change no record
    lagging: set[str] = field(default_factory=set)  # names that resolvers do not see yet
    wildcard: tuple[str, str] | None = None  # the parent and the target of a wildcard CNAME
    updates: list[set[str]] = field(default_factory=list)  # the changed names of each update

    @property
    def key(self) -> dns.tsig.Key:
        return dns.tsig.Key(KEY_NAME, self.secret, self.algorithm)

    @property
    def encoded_secret(self) -> str:
        return base64.b64encode(self.secret).decode()

    def texts(self) -> dict[str, list[str]]:
        """Return the values of all TXT records by name."""
        return {name: values for (name, kind), values in self.records.items() if kind == "TXT" and values}

    def updated(self) -> set[str]:
        """Return the names that updates changed."""
        return {name for names in self.updates for name in names}

    def answer(self, data: bytes) -> Message | None:
        if (data[2] >> 3) & 15 == dns.opcode.UPDATE:
            return self._update(data)
        reply = super().answer(data)
        if reply is not None and reply.flags & dns.flags.RD and _text(reply.question[0].name) in self.lagging:
            reply.answer.clear()
        if reply is not None:
            self._expand(reply)
            name = reply.question[0].name
            if reply.question[0].rdtype == dns.rdatatype.SOA and _text(name) in self.zones:
                soa = f"ns.{name} hostmaster.{name} 1 3600 600 86400 60"
                reply.answer.append(dns.rrset.from_text(name, 60, "IN", "SOA", soa))
                reply.set_rcode(dns.rcode.NOERROR)
                reply.flags |= dns.flags.AA
        return reply

    def _expand(self, reply: Message) -> None:
        """Answer with the wildcard CNAME for a name below its parent that has no records of its own."""
        name = _text(reply.question[0].name)
        has_own = any(known == name and values for (known, _), values in self.records.items())
        if self.wildcard is not None and name.endswith(f".{self.wildcard[0]}") and not has_own:
            reply.answer.append(dns.rrset.from_text(f"{name}.", 0, "IN", "CNAME", f"{self.wildcard[1]}."))
            reply.set_rcode(dns.rcode.NOERROR)

    def _update(self, data: bytes) -> Message:
        try:
            message = dns.message.from_wire(data, keyring={self.key.name: self.key})
        except (dns.tsig.BadSignature, dns.tsig.BadAlgorithm, dns.message.UnknownTSIGKey) as error:
            is_unknown = isinstance(error, dns.message.UnknownTSIGKey)
            return self._reject(data, dns.rcode.BADKEY if is_unknown else dns.rcode.BADSIG)
        reply = dns.message.make_response(message)
        update = cast(UpdateMessage, message)
        if not message.had_tsig or self.refused:
            reply.set_rcode(dns.rcode.REFUSED)
        elif _text(update.zone[0].name) not in self.zones:
            reply.set_rcode(dns.rcode.NOTAUTH)
        else:
            self.updates.append({_text(rrset.name) for rrset in update.update})
            for rrset in update.update:
                self._change(rrset)
        return reply

    def _change(self, rrset: dns.rrset.RRset) -> None:
        name, kind = _text(rrset.name), dns.rdatatype.to_text(rrset.rdtype)
        if self.hidden:
            return
        values = self.records.setdefault((name, kind), [])
        for record in rrset:
            if rrset.deleting == dns.rdataclass.NONE:
                values.remove(record.to_text())
            else:
                values.append(record.to_text())

    def _reject(self, data: bytes, error: int) -> Message:
        """Answer with a TSIG error, as servers do for a key or a signature that is not theirs."""
        message = dns.message.from_wire(data, keyring=lambda message, name: False)
        assert message.keyname is not None
        message.keyring = dns.tsig.Key(message.keyname, self.secret, self.algorithm)
        reply = dns.message.make_response(message, tsig_error=error)
        reply.set_rcode(dns.rcode.NOTAUTH)
        return reply


def _text(name: dns.name.Name) -> str:
    return name.to_text(omit_final_dot=True).lower()
