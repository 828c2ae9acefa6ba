"""Agent in the pod that fills a volume: it writes what the platform sends, and ends when that is complete.

It runs as the user of the app, so all files belong to that user.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import shutil
import socket
import ssl
import stat
import sys
from pathlib import Path

import msgspec

from moorage.core.disk import is_full
from moorage.core.net import pod_identity
from moorage.runtime.engines.kubernetes.filling import wire
from moorage.runtime.engines.kubernetes.filling.wire import Connection, Failed

ALONE_S = 120.0  # without a connection of the platform
HANDSHAKE_S = 10.0
# Boot of the node whose files are complete where size and time match: others may not have been written to the disk.
MARKER = b".moorage-filling"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
OF_FILE_SYSTEMS = frozenset({b"lost+found"})
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
FULL = "the volume is too small for its files: give the app more disk"
BROKEN = (OSError, EOFError, msgspec.MsgspecError)


def serve(token: str, chain: str, root: Path, host: str, port: int, *, alone_s: float = ALONE_S) -> bool:
    """Serve one connection after the other; return whether the volume is complete."""
    context = pod_identity.server_context(chain)
    with socket.create_server((host, port)) as server:
        while True:
            server.settimeout(alone_s)
            try:
                plain, _ = server.accept()
            except TimeoutError:
                return False
            with contextlib.suppress(*BROKEN):
                if _serve_one(token, context, plain, root):
                    return True


def _serve_one(token: str, context: ssl.SSLContext, plain: socket.socket, root: Path) -> bool:
    plain.settimeout(HANDSHAKE_S)
    connection = Connection(context.wrap_socket(plain, server_side=True))
    try:
        hello = connection.request(wire.MAX_TOKEN_BYTES)
        if not isinstance(hello, wire.Hello) or not hmac.compare_digest(hello.token.encode(), token.encode()):
            return False
        connection.set_timeout(wire.SILENCE_S)
        with contextlib.closing(Receiver(connection, root)) as receiver:
            return receiver.run()
    finally:
        connection.close()


class Receiver:
    """The folders that are open, and the file that is being written."""

    def __init__(self, connection: Connection, root: Path) -> None:
        self._connection = connection
        self._root = os.fsencode(root)
        self._folders: list[int] = []  # descriptors, from the volume to the current folder
        self._file = -1
        self._header: wire.File | None = None
        self._trusts_times = False
        self._why = ""

    def run(self) -> bool:
        """Write until the end; return whether the volume is complete. An error is the answer to the next question."""
        while True:
            frame = self._connection.request()
            try:
                answer = self._take(frame) if not self._why else None
            except OSError as error:
                self._why = FULL if is_full(error) else f"its volume cannot be written: {error.strerror or error}"
                print(self._why, file=sys.stderr)
            if isinstance(frame, wire.Folder | wire.End):
                self._connection.send(Failed(self._why) if self._why else answer or wire.Done())
            if isinstance(frame, wire.End):
                return not self._why

    def close(self) -> None:
        for handle in (*self._folders, self._file):
            if handle >= 0:
                os.close(handle)

    def _take(self, frame: wire.Request) -> wire.Answer | None:
        match frame:
            case wire.Folder():
                return self._enter(frame.name)
            case wire.Leave():
                self._leave(frame)
            case wire.File():
                self._open(frame)
            case wire.Data():
                self._write(frame)
            case wire.Close():
                self._close_file()
            case wire.Link():
                self._link(frame)
            case wire.Remove():
                for name in frame.names:
                    self._remove(name)
            case wire.End():
                self._finish()
        return None

    def _enter(self, name: bytes) -> wire.Listing:
        if not self._folders:
            self._folders.append(os.open(self._root, FOLDER_FLAGS))
            self._begin()
        else:
            self._folders.append(self._make_folder(_check(name)))
        return wire.Listing([self._describe(each) for each in self._names()])

    def _begin(self) -> None:
        """Find out whether an earlier attempt was made in this boot, and note this one."""
        boot = BOOT_ID.read_bytes()
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(MARKER, flags, 0o600, dir_fd=self._folders[0]), "r+b") as marker:
            self._trusts_times = marker.read() == boot
            marker.seek(0)
            marker.truncate()
            marker.write(boot)

    def _make_folder(self, name: bytes) -> int:
        parent = self._folders[-1]
        status = self._status(name)
        if status is not None and not stat.S_ISDIR(status.st_mode):
            os.unlink(name, dir_fd=parent)
            status = None
        if status is None:
            os.mkdir(name, 0o700, dir_fd=parent)
        elif status.st_mode & 0o700 != 0o700:
            os.chmod(name, 0o700, dir_fd=parent)  # An earlier attempt gave it the mode of the source already.
        return os.open(name, FOLDER_FLAGS, dir_fd=parent)

    def _names(self) -> list[bytes]:
        # A descriptor lists names as text; invalid bytes are kept in it.
        names = [os.fsencode(name) for name in os.listdir(self._folders[-1])]
        hidden = OF_FILE_SYSTEMS | {MARKER} if len(self._folders) == 1 else frozenset()
        return [name for name in names if name not in hidden]

    def _describe(self, name: bytes) -> tuple[bytes, int, int]:
        status = self._status(name)
        if status is None or not stat.S_ISREG(status.st_mode) or not self._trusts_times:
            return name, wire.OTHER, 0
        return name, status.st_size, status.st_mtime_ns

    def _status(self, name: bytes) -> os.stat_result | None:
        with contextlib.suppress(FileNotFoundError):
            return os.stat(name, dir_fd=self._folders[-1], follow_symlinks=False)
        return None

    def _leave(self, frame: wire.Leave) -> None:
        handle = self._folders.pop()
        try:
            if self._folders:  # The folder of the volume itself belongs to the cluster.
                os.fchmod(handle, frame.mode)
                os.utime(handle, ns=(frame.mtime_ns, frame.mtime_ns))
        finally:
            os.close(handle)

    def _open(self, frame: wire.File) -> None:
        name = _check(frame.name)
        status = self._status(name)
        if status is not None and not (stat.S_ISREG(status.st_mode) and status.st_mode & 0o200):
            self._remove(name)
        self._file = os.open(name, FILE_FLAGS, 0o600, dir_fd=self._folders[-1])
        self._header = frame
        os.ftruncate(self._file, 0)
        os.ftruncate(self._file, frame.size)

    def _write(self, frame: wire.Data) -> None:
        view, offset = memoryview(frame.content), frame.offset
        while view:
            written = os.pwrite(self._file, view, offset)
            view, offset = view[written:], offset + written

    def _close_file(self) -> None:
        """Set the mode, and the time last: a file with the time of its source is complete."""
        header, handle = self._header, self._file
        assert header is not None
        self._file = -1
        try:
            os.fchmod(handle, header.mode)
            os.utime(handle, ns=(header.mtime_ns, header.mtime_ns))
        finally:
            os.close(handle)

    def _link(self, frame: wire.Link) -> None:
        name = _check(frame.name)
        if self._status(name) is not None:
            self._remove(name)
        os.symlink(frame.target, name, dir_fd=self._folders[-1])

    def _remove(self, name: bytes) -> None:
        status = self._status(_check(name))
        if status is not None and stat.S_ISDIR(status.st_mode):
            shutil.rmtree(name, dir_fd=self._folders[-1])
        elif status is not None:
            os.unlink(name, dir_fd=self._folders[-1])

    def _finish(self) -> None:
        handle = os.open(self._root, FOLDER_FLAGS)
        try:
            os.sync()
            os.unlink(MARKER, dir_fd=handle)
            os.fsync(handle)
        finally:
            os.close(handle)


def _check(name: bytes) -> bytes:
    if name in (b"", b".", b"..") or b"/" in name:
        raise OSError(f"{name!r} is no name of a file")
    return name
