"""A real DNS server on loopback, over UDP and, for large answers, TCP."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import cast

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset

DATAGRAM_BYTES = 1232


@dataclass
class Zone:
    """Records of the server; a test may change them while it runs."""

    records: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)  # names without any answer
    broken: set[str] = field(default_factory=set)  # names with a SERVFAIL answer
    strays: dict[str, str] = field(default_factory=dict)  # names answered with the records of another name
    asked: list[tuple[str, str]] = field(default_factory=list)

    def put(self, name: str, kind: str, *values: str) -> None:
        self.records[name, kind] = list(values)

    def put_txt(self, name: str, *values: str) -> None:
        self.put(name, "TXT", *(_quoted(value) for value in values))

    def add_txt(self, name: str, value: str) -> None:
        self.records.setdefault((name, "TXT"), []).append(_quoted(value))

    def remove(self, name: str, kind: str) -> None:
        del self.records[name, kind]

    def clear(self) -> None:
        for held in (self.records, self.silent, self.broken, self.strays, self.asked):
            held.clear()

    def answer(self, data: bytes) -> dns.message.Message | None:
        query = dns.message.from_wire(data)
        question = query.question[0]
        name, kind = question.name.to_text(omit_final_dot=True).lower(), dns.rdatatype.to_text(question.rdtype)
        self.asked.append((name, kind))
        if name in self.silent:
            return None
        reply = dns.message.make_response(query, recursion_available=True)
        if name in self.broken:
            reply.set_rcode(dns.rcode.SERVFAIL)
        else:
            self._fill(reply, name, kind)
        return reply

    def _fill(self, reply: dns.message.Message, name: str, kind: str) -> None:
        source = self.strays.get(name, name)
        # A resolver follows CNAMEs, and a loop of them up to its limit.
        for _ in range(20):
            if values := self.records.get((source, kind)):
                reply.answer.append(dns.rrset.from_text(source + ".", 0, "IN", kind, *values))
                return
            if not (alias := self.records.get((source, "CNAME"))):
                break
            reply.answer.append(dns.rrset.from_text(source + ".", 0, "IN", "CNAME", *alias))
            source = alias[0].rstrip(".")
        if not any(known == name for known, _ in self.records):
            reply.set_rcode(dns.rcode.NXDOMAIN)


@dataclass(frozen=True)
class DnsServer:
    zone: Zone
    port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, zone: Zone) -> None:
        self.zone = zone

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        reply = self.zone.answer(data)
        if reply is None:
            return
        wire = reply.to_wire(max_size=65535)
        if len(wire) > DATAGRAM_BYTES:
            reply.answer.clear()
            reply.flags |= dns.flags.TC
            wire = reply.to_wire()
        self.transport.sendto(wire, addr)


async def _talk(zone: Zone, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        (length,) = struct.unpack("!H", await reader.readexactly(2))
        reply = zone.answer(await reader.readexactly(length))
        if reply is not None:
            wire = reply.to_wire(max_size=65535)
            writer.write(struct.pack("!H", len(wire)) + wire)
            await writer.drain()
    writer.close()


@contextmanager
def running_dns(zone: Zone | None = None) -> Iterator[DnsServer]:
    """Serve in a thread, so that a test that blocks its event loop still gets answers."""
    zone, started, loop = zone or Zone(), threading.Event(), asyncio.new_event_loop()
    ports: list[int] = []

    async def start() -> None:
        server = await asyncio.start_server(lambda r, w: _talk(zone, r, w), "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        await loop.create_datagram_endpoint(lambda: _Datagrams(zone), local_addr=("127.0.0.1", ports[0]))
        started.set()

    def serve() -> None:
        loop.run_until_complete(start())
        loop.run_forever()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield DnsServer(zone, ports[0])
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def _quoted(text: str) -> str:
    """Return a TXT value in presentation form: quoted pieces of at most 255 bytes."""
    pieces = [text[start : start + 255] for start in range(0, len(text), 255)] or [""]
    return " ".join('"' + "".join(_escaped(character) for character in piece) + '"' for piece in pieces)


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if character.isprintable() and character.isascii() else f"\\{ord(character):03d}"
