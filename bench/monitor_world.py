"""Targets, webhook receiver and mail server for the monitor benchmarks, in their own process.

What arrives is written to a file line by line, so that a benchmark can count it.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any, cast

import httptools
import uvloop
from aiosmtpd.smtp import SMTP

BODY = b"<!doctype html><title>Harbor</title>" + b"<p>All ships are in.</p>" * 20


class Exchange(asyncio.Protocol):
    """One request on one connection, as checks make them."""

    def __init__(self, arrived: Path) -> None:
        self._arrived = arrived
        self._parser = httptools.HttpRequestParser(self)
        self._url, self._body = b"", b""
        self._headers: dict[str, str] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._url.startswith(b"/hook"):
            told = json.loads(self._body)
            note(self._arrived, "webhook", self._headers["x-moorage-delivery"], told["event"], told["monitor"]["id"])
        status = b"500 Internal Server Error" if self._url.startswith(b"/broken") else b"200 OK"
        head = b"HTTP/1.1 %b\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        self._transport.write(head % (status, len(BODY)) + BODY)
        self._transport.close()


class Mailbox:
    def __init__(self, arrived: Path) -> None:
        self._arrived = arrived

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd calls it
        mail = message_from_bytes(envelope.content, policy=policy.default)
        note(self._arrived, "email", str(mail["Message-ID"]), str(mail["Subject"]), 0)
        return "250 OK"


def note(arrived: Path, channel: str, key: str, event: str, monitor: int) -> None:
    line = json.dumps({"channel": channel, "key": key, "event": event, "monitor": monitor, "at": time.time()})
    with arrived.open("a") as file:
        file.write(line + "\n")


async def main(folder: Path) -> None:
    loop = asyncio.get_running_loop()
    arrived = folder / "arrived.jsonl"
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    plain = await loop.create_server(lambda: Exchange(arrived), "127.0.0.1", 0, backlog=4096)
    secure = await loop.create_server(lambda: Exchange(arrived), "127.0.0.1", 0, ssl=tls, backlog=4096)
    mail = await loop.create_server(lambda: SMTP(Mailbox(arrived), hostname="localhost"), "127.0.0.1", 0)
    ports = [each.sockets[0].getsockname()[1] for each in (plain, secure, mail)]
    print("ready: " + json.dumps(ports), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1])))
