"""Parse the commands of a push, and build the response that rejects it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from moorage.core.kit.records import dataclass
from moorage.core.kit.texts import size_text
from moorage.errors import BadRequest
from moorage.products.repositories.server import pktline
from moorage.products.repositories.server.pktline import ANSWER, FLUSH, PROGRESS, BadPacket, band, packet

MAX_COMMANDS = 10_000  # `shallow` lines included
MAX_LIST_BYTES = 4 * 2**20
MAX_REFERENCE_BYTES = 1000
HEADS = "refs/heads/"


@dataclass(frozen=True, slots=True)
class Command:
    """Update of one reference from the id that the client saw to a new one."""

    old: str
    new: str
    reference: str

    @property
    def deletes(self) -> bool:
        return not self.new.strip("0")


@dataclass(frozen=True, slots=True)
class PushRequest:
    commands: tuple[Command, ...]
    capabilities: frozenset[str]

    @property
    def room(self) -> int:
        """Maximum data of a side-band packet; 0 for a client without side-band."""
        if "side-band-64k" in self.capabilities:
            return pktline.MAX_PACKET_BYTES - 5
        return 995 if "side-band" in self.capabilities else 0


def read(file: BinaryIO) -> PushRequest:
    """Read the commands at the start of a push; raises BadRequest.

    Runs in a thread: the list may have thousands of packets.
    """
    commands: list[Command] = []
    capabilities: frozenset[str] = frozenset()
    try:
        for data in _packets(file):
            line, _, after = data.partition(b"\0")
            words = line.rstrip(b"\n").split(b" ", 2)
            if max(map(len, words)) > MAX_REFERENCE_BYTES:
                raise BadRequest(f"The name of a reference may have {MAX_REFERENCE_BYTES} bytes at most")
            if words[0] == b"shallow":
                continue
            if not commands:  # The protocol sends them once, so later ones are ignored.
                capabilities = frozenset(after.decode(errors="replace").split())
            commands.append(Command(*(word.decode(errors="surrogateescape") for word in words)))
    except (BadPacket, TypeError):
        raise BadRequest("The body is not a push") from None
    return PushRequest(tuple(commands), capabilities)


def _packets(file: BinaryIO) -> Iterator[bytes]:
    """Yield the packets of the command list; raises BadPacket, and BadRequest over a limit."""
    count = size = 0
    while (data := pktline.read_packet(file)) is not None:
        count += 1
        size += len(data)
        if count > MAX_COMMANDS:
            raise BadRequest(f"A push may change {MAX_COMMANDS} references at most")
        if size > MAX_LIST_BYTES:
            raise BadRequest(f"The list of references of a push may have {size_text(MAX_LIST_BYTES)} at most")
        yield data


def refusal(request: PushRequest, why: str, short: str) -> bytes:
    """Return a rejection: `why` is shown after `remote:`, `short` per reference."""
    lines = ["unpack ok", *(f"ng {command.reference} {short}" for command in request.commands)]
    report = b"".join(packet(f"{line}\n".encode(errors="surrogateescape")) for line in lines) + FLUSH
    if "report-status" not in request.capabilities and "report-status-v2" not in request.capabilities:
        report = b""
    if not request.room:
        return report
    return band(PROGRESS, f"{why}\n".encode(), request.room) + band(ANSWER, report, request.room) + FLUSH
