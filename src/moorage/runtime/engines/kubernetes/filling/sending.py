"""Sends the folder of a volume to the pod that fills the claim; the folder is only read, and no link is followed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
import time
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path

import msgspec

from moorage.core.kit.records import dataclass
from moorage.core.net import pod_identity
from moorage.runtime.engines.kubernetes.filling import wire
from moorage.runtime.engines.kubernetes.filling.receiving import FOLDER_FLAGS
from moorage.runtime.engines.kubernetes.filling.wire import Connection, Failed, Listing

CONNECT_TIMEOUT_S = 10.0
REACH_WITHIN_S = 60.0  # The program of the pod starts, and the network of the cluster learns of the pod.
RETRY_S = 0.3
MAX_DEPTH = 200  # of folders; each holds a descriptor
MODE_BITS = 0o777
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
BROKEN = (OSError, EOFError, msgspec.MsgspecError)


class CannotFill(Exception):
    """The volume is not complete; the text is a sentence."""


@dataclass
class Sent:
    files: int = 0  # of the folder, also those that an earlier attempt sent
    copied_bytes: int = 0
    left_out: int = 0  # sockets, devices, and folders that are too deep


@dataclass
class Transfer:
    """One attempt; what an earlier attempt sent is not sent again."""

    host: str
    token: str = field(repr=False)
    authority: str
    port: int = wire.PORT
    _socket: socket.socket | None = None
    _is_cancelled: bool = False

    async def run(self, source: Path) -> Sent:
        """Send a folder and wait until the pod has it on its disk; raises CannotFill."""
        task = asyncio.ensure_future(asyncio.to_thread(self._send, source))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._cancel()
            await asyncio.wait({task})
            with contextlib.suppress(Exception):
                task.result()
            raise

    def _cancel(self) -> None:
        self._is_cancelled = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _send(self, source: Path) -> Sent:
        connection = self._connect()
        try:
            connection.send(wire.Hello(self.token))
            return Sender(connection).send(source)
        except BROKEN as error:
            raise CannotFill(f"copying was interrupted: {error or type(error).__name__}") from error
        finally:
            connection.close()

    def _connect(self) -> Connection:
        context = pod_identity.client_context(self.authority)
        until = time.monotonic() + REACH_WITHIN_S
        while True:
            try:
                self._socket = plain = socket.create_connection((self.host, self.port), CONNECT_TIMEOUT_S)
                secure = context.wrap_socket(plain, server_hostname=wire.HOST)
                secure.settimeout(wire.SILENCE_S)
                self._socket = secure
                return Connection(secure)
            except OSError as error:
                if self._is_cancelled or time.monotonic() > until:
                    raise CannotFill(f"its pod cannot be reached at {self.host}:{self.port}: {error}") from error
            time.sleep(RETRY_S)


class Sender:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sent = Sent()

    def send(self, source: Path) -> Sent:
        handle = os.open(source, FOLDER_FLAGS)
        try:
            self._send_folder(handle, b"", 0)
        finally:
            os.close(handle)
        self._connection.send(wire.End())
        self._answer()
        return self._sent

    def _send_folder(self, handle: int, name: bytes, depth: int) -> None:
        self._connection.send(wire.Folder(name))
        answer = self._answer()
        assert isinstance(answer, Listing)
        there = {each: (size, mtime) for each, size, mtime in answer.entries}
        # A descriptor lists names as text; invalid bytes are kept in it.
        names = [os.fsencode(each) for each in os.listdir(handle)]
        if surplus := there.keys() - set(names):
            self._connection.send(wire.Remove(sorted(surplus)))
        for each in names:
            self._send_entry(handle, each, there.get(each), depth)
        status = os.fstat(handle)
        self._connection.send(wire.Leave(status.st_mode & MODE_BITS, status.st_mtime_ns))

    def _send_entry(self, folder: int, name: bytes, there: tuple[int, int] | None, depth: int) -> None:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            self._sent.files += 1
            if there != (status.st_size, status.st_mtime_ns):
                self._send_file(folder, name)
        elif stat.S_ISLNK(status.st_mode):
            self._connection.send(wire.Link(name, os.readlink(name, dir_fd=folder)))
        elif stat.S_ISDIR(status.st_mode) and depth < MAX_DEPTH:
            handle = os.open(name, FOLDER_FLAGS, dir_fd=folder)
            try:
                self._send_folder(handle, name, depth + 1)
            finally:
                os.close(handle)
        else:
            self._sent.left_out += 1

    def _send_file(self, folder: int, name: bytes) -> None:
        handle = os.open(name, READ_FLAGS, dir_fd=folder)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(f"{name!r} was replaced while its volume was copied")
            header = wire.File(name, status.st_size, status.st_mode & MODE_BITS, status.st_mtime_ns)
            self._connection.send(header)
            for start, end in _extents(handle, status.st_size):
                self._send_extent(handle, start, end)
            self._connection.send(wire.Close())
        finally:
            os.close(handle)

    def _send_extent(self, handle: int, start: int, end: int) -> None:
        offset = start
        while offset < end:
            content = os.pread(handle, min(wire.CHUNK_BYTES, end - offset), offset)
            if not content:
                raise OSError("a file became shorter while its volume was copied")
            self._connection.send(wire.Data(offset, content))
            offset += len(content)
            self._sent.copied_bytes += len(content)

    def _answer(self) -> wire.Answer:
        answer = self._connection.answer()
        if isinstance(answer, Failed):
            raise CannotFill(answer.why)
        return answer


def _extents(handle: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a file that are not holes."""
    offset = 0
    while offset < size:
        try:
            start = os.lseek(handle, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # The rest is a hole.
                return
            raise
        offset = os.lseek(handle, start, os.SEEK_HOLE)
        yield start, min(offset, size)
