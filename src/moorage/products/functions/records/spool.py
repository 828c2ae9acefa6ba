"""Reader of the spool folder: its files, and the unread records of each."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections import Counter
from pathlib import Path

from moorage.products.functions.records import similar
from moorage.products.functions.records.similar import UniformRun
from moorage.runtime.edge import spool
from moorage.runtime.edge.spool import END, HEAD_SIZE, LENGTH_SIZE, SUFFIX, UNBORN, Record, Torn

# Usually only a few records are new, so the first read is small and further reads are large.
FIRST_READ_BYTES = 64 * 2**10
CHUNK_BYTES = 2 * spool.MB
ID_FILE = "spool.id"
TORN = ".torn"  # suffix of a file with an unreadable record, kept for inspection


class Chunk:
    """Part of a file that starts with a record; records are decoded on demand.

    The file is read twice, and a record is taken from the second read (`data`) only if the first read (`seen`) had its
    length: on a CPU with weak memory ordering the length may become visible before the record.
    """

    def __init__(self, seen: bytes, data: bytes, position: int, file_size: int) -> None:
        self.position = position  # offset in the file of the next record
        self.is_last = False  # the file had no further record when the chunk was read
        self.problem: str | None = None  # why the next record cannot be read
        self._seen = seen
        self._data = data
        self._at = 0
        self._file_size = file_size

    def take(self, count: int, size: int) -> list[Record]:
        """Return the next records: at most `count`, and at most `size` bytes if several."""
        records: list[Record] = []
        seen, data, at = self._seen, self._data, self._at
        full = at + size
        while length := spool.length_at(seen, at):
            start = at + LENGTH_SIZE
            if len(records) == count or (records and start + length > full) or self._is_cut_off(start, length):
                break
            try:
                records.append(spool.decode(data, start, length))
            except Torn as error:
                self.problem = f"at byte {self.position + at - self._at}: {error}"
                break
            at = start + length
        else:
            # The file may continue after the chunk.
            self.is_last = len(seen) - at >= LENGTH_SIZE or self.position + len(seen) - self._at >= self._file_size
        self.position, self._at = self.position + at - self._at, at
        return records

    def take_run(self, surplus: Counter[int]) -> UniformRun | None:
        """Take a run of plain records if one comes next and its function has a surplus."""
        _, _, function_id = spool.glance_at(self._seen, self._at)
        most = surplus.get(function_id, 0)
        run = similar.find_run(self._seen, self._data, self._at, most) if most >= similar.MIN_RUN else None
        if run is not None:
            size = run.calls * similar.SIZE
            self.position, self._at = self.position + size, self._at + size
        return run

    def _is_cut_off(self, start: int, length: int) -> bool:
        """Return whether a record continues after the end of the chunk."""
        in_file = self.position + start - self._at + length
        return length >= HEAD_SIZE and start + length > len(self._data) and in_file <= self._file_size

    def ends_of_functions(self) -> Counter[int]:
        """Count the ended calls of each function in the chunk."""
        at = self._at
        plain = similar.count_functions(self._seen, at)
        if plain is not None:
            return plain
        counts: Counter[int] = Counter()
        while True:
            length, kind, function_id = spool.glance_at(self._seen, at)
            if not length:
                return counts
            counts[function_id] += kind == END
            at += LENGTH_SIZE + length

    def __len__(self) -> int:
        return len(self._data)


class SpoolFile:
    """One spool file and its read position."""

    def __init__(self, path: Path, position: int) -> None:
        self.path = path
        self.position = position
        self.problem: str | None = None  # why the next record cannot be read
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    @property
    def name(self) -> str:
        return self.path.name

    def is_abandoned(self) -> bool:
        """Return whether the writer is gone; a read after this call is then complete."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def has_more(self) -> bool:
        """Return whether there is an unread record; costs one small read."""
        if self.problem is not None:
            return False
        head = os.pread(self._fd, LENGTH_SIZE, self.position)
        return spool.length_at(head, 0) != 0

    def read(self, max_bytes: int) -> Chunk:
        """Return at most `max_bytes` after the position, but at least one whole record."""
        size = os.fstat(self._fd).st_size
        seen = os.pread(self._fd, max_bytes, self.position)
        length = spool.length_at(seen, 0) + LENGTH_SIZE
        if len(seen) < length <= size - self.position:
            seen = self._pread_all(self.position, length)
        return Chunk(seen, self._pread_all(self.position, len(seen)), self.position, size)

    def _pread_all(self, position: int, length: int) -> bytes:
        """Read `length` bytes; a single pread may return fewer."""
        parts: list[bytes] = []
        while length > 0 and (part := os.pread(self._fd, length, position)):
            parts.append(part)
            position, length = position + len(part), length - len(part)
        return b"".join(parts)

    def delete(self) -> None:
        """Remove the file and fsync: it must not reappear after a power loss."""
        self.path.unlink(missing_ok=True)
        _sync(self.path.parent)

    def set_aside(self) -> None:
        """Rename a torn file, so that it is kept but not read again."""
        self.path.rename(self.path.with_suffix(TORN))
        _sync(self.path.parent)

    def close(self) -> None:
        os.close(self._fd)


def names_in(folder: Path) -> list[str]:
    """Return the spool file names, oldest first; removes leftovers of died writers."""
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False):
                names.append(entry.name)
            elif entry.name.endswith(UNBORN):
                _remove_unborn(entry.path)
    return sorted(names)


def _remove_unborn(path: str) -> None:
    """Remove a file that never got its final name, unless its writer still runs."""
    with contextlib.suppress(FileNotFoundError, BlockingIOError):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
        finally:
            os.close(fd)


def ensure_id(folder: Path, name: str = ID_FILE) -> str:
    """Return the id of a folder from its id file; the first call creates the file.

    The id distinguishes the folders of several machines in one database, and moves with the folder.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / name
    if not path.exists():
        draft = folder / f"{name}.{secrets.token_hex(8)}"
        with draft.open("w") as file:
            file.write(secrets.token_hex(16))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
        _sync(folder)
    return path.read_text()


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
