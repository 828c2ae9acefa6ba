"""Protocol that fills a volume: the platform connects to a pod that mounts the claim, and sends folders and files.

Frames are a length and MessagePack. The platform waits for an answer only after `Folder` and `End`, so the latency of
the network counts once for each folder.
"""

from __future__ import annotations

import ssl
import struct

import msgspec

PORT = 8443
HOST = "volume.moorage.internal"  # in the certificate of a pod, which has no name of its own
TOKEN_VARIABLE = "MOORAGE_FILL_TOKEN"  # noqa: S105 - name of a variable
CERTIFICATE_VARIABLE = "MOORAGE_FILL_CERTIFICATE"
CHUNK_BYTES = 2**20
MAX_FRAME_BYTES = 2**28  # the listing of a folder with millions of files
MAX_TOKEN_BYTES = 2**10  # of the first frame
SILENCE_S = 120.0
OTHER = -1  # size of an entry that is no file, or whose content is not known
_LENGTH = struct.Struct(">I")


class Hello(msgspec.Struct, frozen=True, tag="hello", array_like=True):
    token: str


class Folder(msgspec.Struct, frozen=True, tag="folder", array_like=True):
    """Begin a folder of the current one; b"" is the volume itself. The answer is a Listing."""

    name: bytes


class Leave(msgspec.Struct, frozen=True, tag="leave", array_like=True):
    """End the current folder."""

    mode: int
    mtime_ns: int


class File(msgspec.Struct, frozen=True, tag="file", array_like=True):
    """Begin a file of the current folder; frames of Data and one of Close follow."""

    name: bytes
    size: int
    mode: int
    mtime_ns: int


class Data(msgspec.Struct, frozen=True, tag="data", array_like=True):
    offset: int
    content: bytes


class Close(msgspec.Struct, frozen=True, tag="close", array_like=True):
    """The file is complete."""


class Link(msgspec.Struct, frozen=True, tag="link", array_like=True):
    """Symbolic link of the current folder; its target is text that nobody follows here."""

    name: bytes
    target: bytes


class Remove(msgspec.Struct, frozen=True, tag="remove", array_like=True):
    """Entries of the current folder that the source does not have."""

    names: list[bytes]


class End(msgspec.Struct, frozen=True, tag="end", array_like=True):
    """All was sent. The answer, Done, follows once it is on the disk."""


class Listing(msgspec.Struct, frozen=True, tag="listing", array_like=True):
    entries: list[tuple[bytes, int, int]]  # name, size or OTHER, time of the last change in nanoseconds


class Done(msgspec.Struct, frozen=True, tag="done", array_like=True):
    pass


class Failed(msgspec.Struct, frozen=True, tag="failed", array_like=True):
    why: str


Request = Hello | Folder | Leave | File | Data | Close | Link | Remove | End
Answer = Listing | Done | Failed
_encode = msgspec.msgpack.Encoder().encode
# Described once here: msgspec describes a type at its first use, which is not safe in several threads.
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


class Connection:
    """Frames on a socket, for blocking use in a thread. Raises OSError, EOFError and msgspec.MsgspecError."""

    def __init__(self, socket: ssl.SSLSocket) -> None:
        self._socket = socket
        self._reader = socket.makefile("rb", buffering=2**16)

    def send(self, frame: Request | Answer) -> None:
        encoded = _encode(frame)
        self._socket.sendall(_LENGTH.pack(len(encoded)) + encoded)

    def request(self, max_bytes: int = MAX_FRAME_BYTES) -> Request:
        return _requests.decode(self._receive(max_bytes))

    def answer(self) -> Answer:
        return _answers.decode(self._receive(MAX_FRAME_BYTES))

    def _receive(self, max_bytes: int) -> bytes:
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > max_bytes:
            raise EOFError(f"a frame of {length} bytes")
        return self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        content: bytes = self._reader.read(size)
        if len(content) < size:
            raise EOFError("the connection has ended")
        return content

    def set_timeout(self, seconds: float) -> None:
        self._socket.settimeout(seconds)

    def close(self) -> None:
        self._reader.close()
        self._socket.close()
