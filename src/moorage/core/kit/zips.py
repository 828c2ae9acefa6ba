"""The one door through which archives from users come in.

The standard `zipfile` is made for archives one trusts: it reads the whole directory before anybody can count it, takes
the sizes in it for true, and does not mind two entries that share their bytes. So the format is read here, strictly and
in the order that costs an attacker most: the count before the directory, the directory before the data, and of the
data never more than was declared. An archive that two programs could read in two ways is refused, not interpreted.
"""

import os
import re
import shutil
import stat
import struct
import unicodedata
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_END64_LOCATOR = struct.Struct("<4sLQL")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_MAX_COMMENT = 0xFFFF
_FULL16, _FULL32 = 0xFFFF, 0xFFFF_FFFF  # A field this full says: the value stands in a ZIP64 record.
_ZIP64_FIELD = 0x0001
_LONG_FORMS = ((_FULL32, "Q"), (_FULL32, "Q"), (_FULL32, "Q"), (_FULL16, "L"))

_STORED, _DEFLATED = 0, 8
_ENCRYPTED = 0x0001 | 0x0040 | 0x2000
_PATCHED = 0x0020
_UTF8 = 0x0800

_CHUNK = 256 * 1024
_MAX_COMPONENT_BYTES = 255  # What Linux file systems take.


class BadArchive(ValueError):
    """The archive cannot be used; the text is a sentence for the user that names the first bad entry."""


@dataclass(frozen=True, slots=True)
class Caps:
    """How much an archive may hold. Every limit is the largest value that is still accepted."""

    packed_bytes: int
    unpacked_bytes: int
    entries: int = 10_000
    path_chars: int = 512
    depth: int = 32
    is_case_sensitive: bool = False  # It is only ever unpacked where `A` and `a` are two files.


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder of an archive. The name is relative, with `/` between its parts and none at the end."""

    name: str
    size: int
    is_folder: bool
    executable: bool
    packed_size: int
    deflated: bool
    crc: int
    offset: int  # Of the local header; once that has been checked, of the data.


class _Directory(NamedTuple):
    offset: int
    size: int
    entries: int


class _Raw(NamedTuple):
    """A central record as it stands, with the sizes and the offset from its ZIP64 field where it has one."""

    name: bytes
    flags: int
    method: int
    crc: int
    packed_size: int
    size: int
    mode: int
    offset: int


def inspect(path: Path, caps: Caps) -> list[Entry]:
    """Check all that can be known without unpacking, and list what `extract` would write."""
    with path.open("rb") as file:
        return _read_entries(file, caps)


def extract(path: Path, target: Path, caps: Caps, *, strip_top: bool = False) -> list[Entry]:
    """Unpack into `target`, an empty or absent folder, and list what was written.

    With `strip_top`, a single top folder that holds everything is left out. On any failure `target` is as before;
    only folders above it that were missing stay.
    """
    with path.open("rb") as file:
        entries = _read_entries(file, caps)
        if strip_top:
            entries = _without_top(entries)
        made = _open_target(target)
        try:
            _write_all(file, entries, target)
        except BaseException:
            _clear(target, remove=made)
            raise
    return entries


def _read_entries(file: BinaryIO, caps: Caps) -> list[Entry]:
    packed = os.fstat(file.fileno()).st_size
    if packed > caps.packed_bytes:
        raise BadArchive(f"the archive has {packed} bytes; at most {caps.packed_bytes} are allowed")
    directory = _find_directory(file, packed)
    if directory.entries > caps.entries:
        raise BadArchive(f"the archive has {directory.entries} entries; at most {caps.entries} are allowed")
    raws = _read_directory(file, directory, caps)
    entries = [_checked(raw, caps) for raw in raws]
    _check_total(entries, caps)
    _check_clashes(entries, caps)
    starts = _check_locals(file, raws, entries, directory.offset)
    placed = [replace(entry, offset=starts[entry.offset]) for entry in entries]
    return [entry for entry in placed if not _is_litter(entry)]


def _find_directory(file: BinaryIO, packed: int) -> _Directory:
    start = max(0, packed - _END.size - _MAX_COMMENT - _END64_LOCATOR.size)
    tail = _read_at(file, start, packed - start)
    position = tail.rfind(b"PK\5\6")
    while position >= 0 and not _ends_here(tail, position):
        position = tail.rfind(b"PK\5\6", 0, position)
    if position < 0:
        raise BadArchive("the file is not a ZIP archive, or it is cut short")
    _, disk, first_disk, here, count, size, offset, _ = _END.unpack_from(tail, position)
    end = start + position
    directory = _Directory(offset, size, count)
    if tail[max(0, position - _END64_LOCATOR.size) : position].startswith(b"PK\6\7"):
        directory, end = _find_directory64(file, packed, tail[position - _END64_LOCATOR.size : position], directory)
    elif (disk, first_disk) != (0, 0) or here != count:
        raise BadArchive("the archive is one part of several, which is not supported")
    if directory.offset + directory.size != end:
        raise BadArchive("the archive is damaged: its directory is not where it should be")
    return directory


def _ends_here(tail: bytes, position: int) -> bool:
    comment = len(tail) - position - _END.size
    return comment >= 0 and _END.unpack_from(tail, position)[-1] == comment


def _find_directory64(file: BinaryIO, packed: int, locator: bytes, short: _Directory) -> tuple[_Directory, int]:
    _, _, end, disks = _END64_LOCATOR.unpack(locator)
    record = _read_at(file, end, _END64.size) if end < packed else b""
    if len(record) < _END64.size or not record.startswith(b"PK\6\6"):
        raise BadArchive("the archive is damaged: its ZIP64 directory is not where it should be")
    _, _, _, _, disk, first_disk, here, count, size, offset = _END64.unpack(record)
    if (disk, first_disk) != (0, 0) or disks > 1 or here != count:
        raise BadArchive("the archive is one part of several, which is not supported")
    full = _Directory(offset, size, count)
    # The short record may leave a value to the long one, but must not tell another story.
    for told, meant, blank in zip(short, full, (_FULL32, _FULL32, _FULL16), strict=True):
        if told not in (meant, blank):
            raise BadArchive("the archive is damaged: its two directories differ")
    return full, end


def _read_directory(file: BinaryIO, directory: _Directory, caps: Caps) -> list[_Raw]:
    """Read exactly the records that were counted, one at a time, so that memory is bounded by the caps."""
    file.seek(directory.offset)
    end = directory.offset + directory.size
    raws = [_read_record(file, end, caps) for _ in range(directory.entries)]
    if file.tell() != end:
        raise BadArchive("the archive is damaged: its directory has another length than it declares")
    return raws


def _read_record(file: BinaryIO, end: int, caps: Caps) -> _Raw:
    head = file.read(_CENTRAL.size)
    if len(head) < _CENTRAL.size or not head.startswith(b"PK\1\2"):
        raise BadArchive("the archive is damaged: its directory has fewer entries than it declares")
    _, _, _, flags, method, _, _, crc, packed, size, name_n, extra_n, comment_n, disk, _, attributes, offset = (
        _CENTRAL.unpack(head)
    )
    name = file.read(name_n)
    if name_n > 4 * caps.path_chars + 1:
        raise BadArchive(f"the archive entry {_shown(name)} has a path of more than {caps.path_chars} characters")
    size, packed, offset, disk = _long_values(name, file.read(extra_n), (size, packed, offset, disk))
    file.seek(comment_n, os.SEEK_CUR)
    if file.tell() > end or disk != 0:
        raise BadArchive(f"the archive is damaged at entry {_shown(name)}")
    return _Raw(name, flags, method, crc, packed, size, attributes >> 16, offset)


def _long_values(name: bytes, extra: bytes, short: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """Take size, packed size, offset and disk from the ZIP64 field where the record leaves them to it."""
    long = _extra_field(extra, _ZIP64_FIELD)
    if long is None:
        return short
    formats = [form if value == blank else "" for value, (blank, form) in zip(short, _LONG_FORMS, strict=True)]
    layout = struct.Struct("<" + "".join(formats))
    if len(long) < layout.size:
        raise BadArchive(f"the archive is damaged at entry {_shown(name)}")
    values = iter(layout.unpack_from(long))
    size, packed, offset, disk = (next(values) if form else value for form, value in zip(formats, short, strict=True))
    return size, packed, offset, disk


def _extra_field(extra: bytes, wanted: int) -> bytes | None:
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<2H", extra)
        if kind == wanted:
            return extra[4 : 4 + length]
        extra = extra[4 + length :]
    return None


def _checked(raw: _Raw, caps: Caps) -> Entry:
    is_folder = raw.name.endswith(b"/")
    name = _decoded(raw).removesuffix("/")
    if problem := _name_problem(name, caps) or _kind_problem(raw, is_folder):
        raise BadArchive(f"the archive entry {_shown(raw.name)} {problem}")
    executable = not is_folder and bool(raw.mode & stat.S_IXUSR)
    return Entry(name, raw.size, is_folder, executable, raw.packed_size, raw.method == _DEFLATED, raw.crc, raw.offset)


def _decoded(raw: _Raw) -> str:
    """A name without the UTF-8 mark should be in an old code page, but many tools write UTF-8 and do not say so."""
    try:
        return raw.name.decode("utf-8")
    except UnicodeDecodeError:
        if raw.flags & _UTF8:
            raise BadArchive(f"the archive entry {_shown(raw.name)} has a name that is not valid UTF-8") from None
        return raw.name.decode("cp437")


def _name_problem(name: str, caps: Caps) -> str | None:
    parts = name.split("/")
    if any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in name):
        return "has a control character in its name"
    if "\\" in name:
        return "has a backslash in its name"
    if name.startswith("/") or re.match("[A-Za-z]:", name):
        return "has an absolute path"
    if ".." in parts:
        return "leaves the folder"
    if "" in parts or "." in parts:
        return "has an empty part in its path"
    if len(name) > caps.path_chars:
        return f"has a path of more than {caps.path_chars} characters"
    if max(len(part.encode()) for part in parts) > _MAX_COMPONENT_BYTES:
        return f"has a name of more than {_MAX_COMPONENT_BYTES} bytes"
    if len(parts) > caps.depth:
        return f"is more than {caps.depth} folders deep"
    return None


def _kind_problem(raw: _Raw, is_folder: bool) -> str | None:
    if stat.S_IFMT(raw.mode) not in (0, stat.S_IFDIR if is_folder else stat.S_IFREG):
        return "is a link or another special file"
    if raw.flags & _ENCRYPTED:
        return "is encrypted"
    if raw.method not in (_STORED, _DEFLATED) or raw.flags & _PATCHED:
        return f"is compressed in a way that is not supported (method {raw.method})"
    if is_folder and raw.size:
        return "is a folder with data of its own"
    if raw.method == _STORED and raw.size != raw.packed_size:
        return "declares two different sizes"
    return None


def _check_total(entries: list[Entry], caps: Caps) -> None:
    total = 0
    for entry in entries:
        total += entry.size
        if total > caps.unpacked_bytes:
            raise BadArchive(f"the archive unpacks to more than {caps.unpacked_bytes} bytes, at entry {entry.name!r}")


def _check_clashes(entries: list[Entry], caps: Caps) -> None:
    """Refuse names that are one name on some file system, which would let one entry overwrite another."""
    files: set[str] = set()
    folders: set[str] = set()
    for entry in entries:
        parts = [part if caps.is_case_sensitive else _folded(part) for part in entry.name.split("/")]
        key = "/".join(parts)
        if key in files or (not entry.is_folder and key in folders):
            raise BadArchive(f"the archive entry {entry.name!r} has the same name as another one")
        above = ["/".join(parts[:depth]) for depth in range(1, len(parts))]
        if not files.isdisjoint(above):
            raise BadArchive(f"the archive entry {entry.name!r} uses a file as a folder")
        folders.update(above)
        (folders if entry.is_folder else files).add(key)


def _folded(part: str) -> str:
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", part).casefold())


def _check_locals(file: BinaryIO, raws: list[_Raw], entries: list[Entry], end: int) -> dict[int, int]:
    """Check each local header in the order of the file; return where the data starts for every header's offset.

    Bytes that belong to two entries are how a small archive unpacks to a huge one, so no entry may start before the
    one in front of it has ended.
    """
    starts: dict[int, int] = {}
    previous_end = 0
    for raw, entry in sorted(zip(raws, entries, strict=True), key=lambda pair: pair[0].offset):
        if raw.offset < previous_end:
            raise BadArchive(f"the archive entry {entry.name!r} overlaps another one")
        starts[raw.offset] = _data_start(file, raw, end)
        previous_end = starts[raw.offset] + raw.packed_size
        if previous_end > end:
            raise BadArchive(f"the archive entry {entry.name!r} is cut short")
    return starts


def _data_start(file: BinaryIO, raw: _Raw, end: int) -> int:
    head = _read_at(file, raw.offset, _LOCAL.size) if raw.offset + _LOCAL.size <= end else b""
    if not head.startswith(b"PK\3\4"):
        raise BadArchive(f"the archive entry {_shown(raw.name)} is not where the directory says")
    name_n: int
    extra_n: int
    _, _, flags, method, _, _, _, _, _, name_n, extra_n = _LOCAL.unpack(head)
    name = file.read(name_n)
    if name != raw.name:
        raise BadArchive(f"the archive entry {_shown(raw.name)} has another name at its data, {_shown(name)}")
    if method != raw.method or flags & _ENCRYPTED:
        raise BadArchive(f"the archive entry {_shown(raw.name)} differs between the directory and its data")
    return raw.offset + _LOCAL.size + name_n + extra_n


def _is_litter(entry: Entry) -> bool:
    """What macOS adds to archives for itself."""
    top, _, rest = entry.name.partition("/")
    is_resource_fork = top == "__MACOSX" and (entry.is_folder or rest != "")
    return is_resource_fork or entry.name.rpartition("/")[2] == ".DS_Store"


def _without_top(entries: list[Entry]) -> list[Entry]:
    tops = {entry.name.partition("/")[0] for entry in entries}
    if len(tops) != 1 or any("/" not in entry.name and not entry.is_folder for entry in entries):
        return entries
    inside = [entry for entry in entries if "/" in entry.name]
    return [replace(entry, name=entry.name.partition("/")[2]) for entry in inside]


def _open_target(target: Path) -> bool:
    """Make sure that the folder is there and empty; say whether it was made."""
    if target.is_symlink():
        raise FileExistsError(f"cannot unpack into {target}: it is a link")
    if target.is_dir():
        if any(target.iterdir()):
            raise FileExistsError(f"cannot unpack into {target}: it is not empty")
        return False
    target.mkdir(parents=True)
    target.chmod(0o755)
    return True


def _clear(target: Path, *, remove: bool) -> None:
    if remove:
        shutil.rmtree(target)
        return
    for child in target.iterdir():
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        else:
            child.unlink()


def _write_all(file: BinaryIO, entries: list[Entry], target: Path) -> None:
    made = {target}
    for entry in entries:
        path = target / entry.name
        _make_folders(path if entry.is_folder else path.parent, made)
        if not entry.is_folder:
            _write_file(file, entry, path)


def _make_folders(path: Path, made: set[Path]) -> None:
    if path in made:
        return
    _make_folders(path.parent, made)
    path.mkdir()
    path.chmod(0o755)  # Whatever the umask of this process is.
    made.add(path)


def _write_file(file: BinaryIO, entry: Entry, path: Path) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as out:
        for chunk in _verified(file, entry):
            out.write(chunk)
        os.fchmod(handle, 0o755 if entry.executable else 0o644)


def _verified(file: BinaryIO, entry: Entry) -> Iterator[bytes]:
    """The data of an entry, never more than it declares; with the sum of what all declare, the total is capped too."""
    size = crc = 0
    for chunk in _inflated(file, entry) if entry.deflated else _packed(file, entry):
        size += len(chunk)
        if size > entry.size:
            raise BadArchive(
                f"the archive entry {entry.name!r} unpacks to more than the {entry.size} bytes it declares"
            )
        crc = zlib.crc32(chunk, crc)
        yield chunk
    if size != entry.size or crc != entry.crc:
        raise BadArchive(f"the archive entry {entry.name!r} is damaged: its size or checksum is wrong")


def _packed(file: BinaryIO, entry: Entry) -> Iterator[bytes]:
    file.seek(entry.offset)
    left = entry.packed_size
    while chunk := file.read(min(_CHUNK, left)):
        left -= len(chunk)
        yield chunk


def _inflated(file: BinaryIO, entry: Entry) -> Iterator[bytes]:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    packed = _packed(file, entry)
    try:
        while not inflater.eof:
            data = inflater.unconsumed_tail or next(packed, b"")
            chunk = inflater.decompress(data, _CHUNK)
            if not (data or chunk or inflater.eof):
                raise BadArchive(f"the archive entry {entry.name!r} is cut short")
            yield chunk
    except zlib.error:
        raise BadArchive(f"the archive entry {entry.name!r} is damaged: it cannot be unpacked") from None
    if inflater.unused_data or next(packed, b""):
        raise BadArchive(f"the archive entry {entry.name!r} is damaged: it has more data than it needs")


def _read_at(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)


def _shown(name: bytes) -> str:
    """A name for a message: short, and with whatever could confuse a terminal or a page escaped."""
    return repr(name[:100].decode("utf-8", "replace")) + ("..." if len(name) > 100 else "")
