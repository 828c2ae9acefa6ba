"""The spool folder as its reader sees it: which files there are, and what of each was not read yet."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections import Counter
from pathlib import Path

from moorage.products.functions.records import similar as alike
from moorage.products.functions.records.similar import Alike
from moorage.runtime.edge import spool
from moorage.runtime.edge.spool import END, HEAD_SIZE, LENGTH_SIZE, SUFFIX, UNBORN, Record, Torn

# Most of the time a handful of records is new, so that little is read at first; then a lot at once.
FIRST = 64 * 2**10
CHUNK = 8 * spool.MB
ID_FILE = "spool.id"
TORN = ".torn"  # what a file that cannot be read on is renamed to, for somebody to look at


class Chunk:
    """A piece of a file that starts with a record, taken apart as it is asked for.

    It is read twice, and a record is taken from the second look only if the first one saw its length: the writer may
    run on a processor that lets others see the length a moment before the record.
    """

    def __init__(self, seen: bytes, data: bytes, position: int, file_size: int) -> None:
        self.position = position  # in the file; what is before it was taken
        self.is_last = False  # there was nothing more in the file when the chunk was read
        self.problem: str | None = None  # why it cannot be read on
        self._seen = seen
        self._data = data
        self._at = 0
        self._file_size = file_size

    def take(self, count: int, size: int) -> list[Record]:
        """Return the next records, up to a count and, if there is more than one, a number of bytes."""
        taken: list[Record] = []
        seen, data, at = self._seen, self._data, self._at
        full = at + size
        while length := spool.length_at(seen, at):
            start = at + LENGTH_SIZE
            if len(taken) == count or (taken and start + length > full) or self._goes_on(start, length):
                break
            try:
                taken.append(spool.decode(data, start, length))
            except Torn as error:
                self.problem = f"at byte {self.position + at - self._at}: {error}"
                break
            at = start + length
        else:
            # Where the data ends the file may go on.
            self.is_last = len(seen) - at >= LENGTH_SIZE or self.position + len(seen) - self._at >= self._file_size
        self.position, self._at = self.position + at - self._at, at
        return taken

    def take_run(self, surplus: Counter[int]) -> Alike | None:
        """Take what stands next if it is a run of plain records of one function that has too many of them."""
        _, _, function_id = spool.glance_at(self._seen, self._at)
        most = surplus.get(function_id, 0)
        run = alike.find_run(self._seen, self._data, self._at, most) if most >= alike.FEWEST else None
        if run is not None:
            size = run.calls * alike.SIZE
            self.position, self._at = self.position + size, self._at + size
        return run

    def _goes_on(self, start: int, length: int) -> bool:
        """Tell whether a record is cut off only by the end of the chunk."""
        in_file = self.position + start - self._at + length
        return length >= HEAD_SIZE and start + length > len(self._data) and in_file <= self._file_size

    def ends_of_functions(self) -> Counter[int]:
        """Count the calls of each function that come to an end in it."""
        at = self._at
        plain = alike.count_functions(self._seen, at)
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
    """One file and how far it was read."""

    def __init__(self, path: Path, position: int) -> None:
        self.path = path
        self.position = position
        self.problem: str | None = None  # why it cannot be read on
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    @property
    def name(self) -> str:
        return self.path.name

    def is_abandoned(self) -> bool:
        """Tell whether nobody writes to it any more; asked before reading, so that what is read then is all."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def has_more(self) -> bool:
        """Look whether a record stands where reading ended; one small read of memory."""
        if self.problem is not None:
            return False
        head = os.pread(self._fd, LENGTH_SIZE, self.position)
        return spool.length_at(head, 0) != 0

    def read(self, most: int) -> Chunk:
        """Return what stands after the position: so many bytes, or a whole record where that is more."""
        size = os.fstat(self._fd).st_size
        seen = os.pread(self._fd, most, self.position)
        length = spool.length_at(seen, 0) + LENGTH_SIZE
        if len(seen) < length <= size - self.position:
            seen = self._whole(self.position, length)
        return Chunk(seen, self._whole(self.position, len(seen)), self.position, size)

    def _whole(self, position: int, length: int) -> bytes:
        """Read so many bytes; one call may return less than was asked for."""
        parts: list[bytes] = []
        while length > 0 and (part := os.pread(self._fd, length, position)):
            parts.append(part)
            position, length = position + len(part), length - len(part)
        return b"".join(parts)

    def delete(self) -> None:
        """Remove the file for good: it must not come back, after a loss of power, once its row is gone."""
        self.path.unlink(missing_ok=True)
        _sync(self.path.parent)

    def set_aside(self) -> None:
        """Keep a file that cannot be read on out of the way."""
        self.path.rename(self.path.with_suffix(TORN))
        _sync(self.path.parent)

    def close(self) -> None:
        os.close(self._fd)


def names_in(folder: Path) -> list[str]:
    """Return the names of the spool's files, oldest first; leftovers of a writer that died at birth are removed."""
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False):
                names.append(entry.name)
            elif entry.name.endswith(UNBORN):
                _remove_unborn(entry.path)
    return sorted(names)


def _remove_unborn(path: str) -> None:
    """Remove a file that never got its name, unless its writer is just about to give it one."""
    with contextlib.suppress(FileNotFoundError, BlockingIOError):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
        finally:
            os.close(fd)


def ensure_id(folder: Path, name: str = ID_FILE) -> str:
    """Return the folder's own id, which is in the file of this name, made the first time.

    It tells the files of several machines apart in one store, and goes with the folder where that is moved.
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
