"""Protocol between the platform and the agent in the pod of a build, over TLS.

The platform connects to the pod, so the pod needs no way to the platform. Each connection has one request, a line of
JSON with the token of the build. The agent numbers its events, so a connection that breaks loses and repeats none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from moorage.core.kit.decoding import decoder_of
from moorage.core.net import pod_identity
from moorage.core.net.pod_identity import PodIdentity
from moorage.runtime.builds.ports import BuildRequest, Plan, Stream

PORT = 8443
HOST = "build.moorage.internal"  # in the certificate of a pod, which has no name of its own
# Variables of the agent.
TOKEN_VARIABLE = "MOORAGE_BUILD_TOKEN"  # noqa: S105 - name of a variable
CERTIFICATE_VARIABLE = "MOORAGE_BUILD_CERTIFICATE"
SANDBOX_VARIABLE = "MOORAGE_BUILD_SANDBOX"  # "1" where the pod has the rights to make sandboxes

ACCEPTED = b"ok\n"  # answer to `begin`; any other line is the reason of a refusal
MAX_LINE_BYTES = 2**20
CHUNK_BYTES = 2**16
PING_S = 5.0


class Account(msgspec.Struct, frozen=True):
    """Credentials of a registry that the Dockerfile names."""

    registry: str
    username: str
    secret: str
    token_host: str = ""

    def __repr__(self) -> str:
        return f"Account({self.registry!r})"


class Order(msgspec.Struct, frozen=True):
    """Everything that a build needs besides its source."""

    request: BuildRequest
    accounts: list[Account] = []
    extra_ca: str = ""  # certificates as PEM


class Call(msgspec.Struct, frozen=True):
    """First line of a connection."""

    token: str
    verb: Literal["begin", "events", "part"]
    order_bytes: int = 0  # of `begin`: the order and an archive of the source follow
    source_bytes: int = 0
    after: int = 0  # of `events`: number of the last one that the platform has
    name: str = ""  # of `part`


class Part(msgspec.Struct, frozen=True):
    """File of the result."""

    name: str  # PACKAGE, or the digest of a part of an image
    size: int


PACKAGE = "package"


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """Output of a build, or its end."""

    number: int  # 0 for a ping
    stream: Stream | Literal[""] = ""
    text: str = ""
    error: str = ""  # sentence for the user: the build failed
    fault: str = ""  # the agent failed
    plan: Plan | None = None  # the build succeeded
    files: int = 0
    parts: list[Part] = []

    @property
    def is_last(self) -> bool:
        return bool(self.plan or self.error or self.fault)


def _encode_path(value: Any) -> str:
    return str(value)


def encode(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value, enc_hook=_encode_path)


decode_call = decoder_of(Call).decode
decode_event = decoder_of(Event).decode
decode_order = decoder_of(Order).decode


def make_identity() -> PodIdentity:
    return pod_identity.make(HOST, "Moorage build")


async def send_file(writer: asyncio.StreamWriter, path: Path) -> None:
    with path.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, 16 * CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()


async def receive_file(
    reader: asyncio.StreamReader, size: int, path: Path, check: Callable[[bytes], None] = lambda _: None
) -> None:
    """Write the next bytes of a connection to a file; raises IncompleteReadError if it ends before."""
    left = size
    with path.open("wb") as file:
        while left:
            chunk = await reader.read(min(left, CHUNK_BYTES))
            if not chunk:
                raise asyncio.IncompleteReadError(b"", left)
            check(chunk)
            await asyncio.to_thread(file.write, chunk)
            left -= len(chunk)
