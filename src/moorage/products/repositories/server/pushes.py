"""Parse the commands of a push, and build the response that rejects it."""

from __future__ import annotations

from typing import BinaryIO

from moorage.core.kit.records import dataclass
from moorage.errors import BadRequest
from moorage.products.repositories.server import pktline
from moorage.products.repositories.server.pktline import ANSWER, FLUSH, PROGRESS, BadPacket, band, packet

MAX_COMMANDS = 10_000
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
    """Read the commands at the start of a push; raises BadRequest."""
    commands: list[Command] = []
    capabilities: frozenset[str] = frozenset()
    try:
        while (data := pktline.read_packet(file)) is not None:
            line, _, after = data.partition(b"\0")
            capabilities |= frozenset(after.decode(errors="replace").split())
            words = line.decode(errors="surrogateescape").rstrip("\n").split(" ", 2)
            if words[0] == "shallow":
                continue
            commands.append(Command(*words))
            if len(commands) > MAX_COMMANDS:
                raise BadRequest(f"A push may change {MAX_COMMANDS} references at most")
    except (BadPacket, TypeError):
        raise BadRequest("The body is not a push") from None
    return PushRequest(tuple(commands), capabilities)


def refusal(request: PushRequest, why: str, short: str) -> bytes:
    """Return a rejection: `why` is shown after `remote:`, `short` per reference."""
    lines = ["unpack ok", *(f"ng {command.reference} {short}" for command in request.commands)]
    report = b"".join(packet(f"{line}\n".encode(errors="surrogateescape")) for line in lines) + FLUSH
    if "report-status" not in request.capabilities and "report-status-v2" not in request.capabilities:
        report = b""
    if not request.room:
        return report
    return band(PROGRESS, f"{why}\n".encode(), request.room) + band(ANSWER, report, request.room) + FLUSH
