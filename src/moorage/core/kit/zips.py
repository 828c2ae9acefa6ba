"""Strict reader for ZIP archives from users.

The standard `zipfile` trusts its input: it reads the whole central directory before entries can be counted, believes
the declared sizes, and accepts entries with overlapping data. This reader checks the entry count before the directory
and the directory before the data, and never unpacks more than an entry declares. It refuses an archive that two
programs could read differently.
"""

import os
import re
import shutil
import stat
import struct
import unicodedata
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

from moorage.core.kit.records import dataclass

_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_END64_LOCATOR = struct.Struct("<4sLQL")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_MAX_COMMENT = 0xFFFF
_FULL16, _FULL32 = 0xFFFF, 0xFFFF_FFFF  # These values mean that a ZIP64 record holds the real one.
_ZIP64_FIELD = 0x0001
_LONG_FORMS = ((_FULL32, "Q"), (_FULL32, "Q"), (_FULL32, "Q"), (_FULL16, "L"))

_STORED, _DEFLATED = 0, 8
_ENCRYPTED = 0x0001 | 0x0040 | 0x2000
_PATCHED = 0x0020
_UTF8 = 0x0800

_CHUNK = 256 * 1024
_ROOT = "."  # name of the entry `./`, which some tools write for the packed folder itself
_MAX_COMPONENT_BYTES = 255  # NAME_MAX of Linux file systems


class BadArchive(ValueError):
    """The archive is invalid; the message for the user names the first bad entry."""


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits of an archive. Each is the largest accepted value."""

    packed_bytes: int
    unpacked_bytes: int
    entries: int = 10_000
    path_chars: int = 512
    depth: int = 32
    is_case_sensitive: bool = False  # Set only if the target file system distinguishes `A` from `a`.


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder of an archive; a relative path without trailing `/`."""

    name: str
    size: int
    is_folder: bool
    executable: bool
    packed_size: int
    deflated: bool
    crc: int
    offset: int  # of the local header; after `_check_locals`, of the data


class _Directory(NamedTuple):
    offset: int
    size: int
    entries: int


class _Raw(NamedTuple):
    """An unchecked central directory record, with values from its ZIP64 field."""

    name: bytes
    flags: int
    method: int
    crc: int
    packed_size: int
    size: int
    mode: int
    offset: int


def inspect(path: Path, caps: Caps) -> list[Entry]:
    """Check an archive without unpacking, and list the entries to extract."""
    with path.open("rb") as file:
        return _read_entries(file, caps)


def extract(path: Path, target: Path, caps: Caps, *, strip_top: bool = False) -> list[Entry]:
    """Unpack into `target`, an empty or absent folder, and list the written entries.

    With `strip_top`, a single top folder that contains all entries is left out. A failure restores `target`; only
    created parent folders stay.
    """
    with path.open("rb") as file:
        entries = _read_entries(file, caps)
        if strip_top:
            entries = _strip_top(entries)
        is_new = _open_target(target)
        try:
            _write_all(file, entries, target)
        except BaseException:
            _clear(target, remove=is_new)
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
    entries = [_check_record(raw, caps) for raw in raws]
    _check_total(entries, caps)
    _check_clashes(entries, caps)
    starts = _check_locals(file, raws, entries, directory.offset)
    placed = [replace(entry, offset=starts[entry.offset]) for entry in entries]
    return [entry for entry in placed if entry.name != _ROOT and not _is_macos_metadata(entry)]


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
    # The short record may defer a value to the ZIP64 record, but must not contradict it.
    for short_value, full_value, deferred in zip(short, full, (_FULL32, _FULL32, _FULL16), strict=True):
        if short_value not in (full_value, deferred):
            raise BadArchive("the archive is damaged: its two directories differ")
    return full, end


def _read_directory(file: BinaryIO, directory: _Directory, caps: Caps) -> list[_Raw]:
    """Read the declared number of records one by one, so that caps bound memory."""
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
        raise BadArchive(f"the archive entry {_quote_name(name)} has a path of more than {caps.path_chars} characters")
    size, packed, offset, disk = _long_values(name, file.read(extra_n), (size, packed, offset, disk))
    file.seek(comment_n, os.SEEK_CUR)
    if file.tell() > end or disk != 0:
        raise BadArchive(f"the archive is damaged at entry {_quote_name(name)}")
    return _Raw(name, flags, method, crc, packed, size, attributes >> 16, offset)


def _long_values(name: bytes, extra: bytes, short: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """Return size, packed size, offset and disk, also from the ZIP64 field."""
    long = _extra_field(extra, _ZIP64_FIELD)
    if long is None:
        return short
    formats = [form if value == blank else "" for value, (blank, form) in zip(short, _LONG_FORMS, strict=True)]
    layout = struct.Struct("<" + "".join(formats))
    if len(long) < layout.size:
        raise BadArchive(f"the archive is damaged at entry {_quote_name(name)}")
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


def _check_record(raw: _Raw, caps: Caps) -> Entry:
    is_folder = raw.name.endswith(b"/")
    name = _without_dots(_decode_name(raw).removesuffix("/"), is_folder)
    if problem := _name_problem(name, is_folder, caps) or _kind_problem(raw, is_folder):
        raise BadArchive(f"the archive entry {_quote_name(raw.name)} {problem}")
    executable = not is_folder and bool(raw.mode & stat.S_IXUSR)
    return Entry(name, raw.size, is_folder, executable, raw.packed_size, raw.method == _DEFLATED, raw.crc, raw.offset)


def _decode_name(raw: _Raw) -> str:
    """Try UTF-8 first: many tools write it without setting its flag."""
    try:
        return raw.name.decode("utf-8")
    except UnicodeDecodeError:
        if raw.flags & _UTF8:
            raise BadArchive(f"the archive entry {_quote_name(raw.name)} has a name that is not valid UTF-8") from None
        return raw.name.decode("cp437")


def _without_dots(name: str, is_folder: bool) -> str:
    """Remove the parts `.` of a path; a file named `.` keeps its name, which is refused."""
    *folders, last = name.split("/")
    parts = [part for part in folders if part != "."]
    if not (is_folder and last == "."):
        parts.append(last)
    return "/".join(parts) if parts else _ROOT


def _name_problem(name: str, is_folder: bool, caps: Caps) -> str | None:
    parts = name.split("/")
    if any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in name):
        return "has a control character in its name"
    if "\\" in name:
        return "has a backslash in its name"
    if name.startswith("/") or re.match("[A-Za-z]:", name):
        return "has an absolute path"
    if ".." in parts:
        return "leaves the folder"
    if "" in parts or (parts[-1] == "." and not is_folder):
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
    """Refuse names that are equal on some file system."""
    files: set[str] = set()
    folders: set[str] = set()
    for entry in entries:
        parts = [part if caps.is_case_sensitive else _fold_case(part) for part in entry.name.split("/")]
        key = "/".join(parts)
        if key in files or (not entry.is_folder and key in folders):
            raise BadArchive(f"the archive entry {entry.name!r} has the same name as another one")
        above = ["/".join(parts[:depth]) for depth in range(1, len(parts))]
        if not files.isdisjoint(above):
            raise BadArchive(f"the archive entry {entry.name!r} uses a file as a folder")
        folders.update(above)
        (folders if entry.is_folder else files).add(key)


def _fold_case(part: str) -> str:
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", part).casefold())


def _check_locals(file: BinaryIO, raws: list[_Raw], entries: list[Entry], end: int) -> dict[int, int]:
    """Check local headers in file order; map their offsets to those of the data.

    Overlapping entries let a small archive unpack to a huge one, so no entry may start before the previous one ends.
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
        raise BadArchive(f"the archive entry {_quote_name(raw.name)} is not where the directory says")
    name_n: int
    extra_n: int
    _, _, flags, method, _, _, _, _, _, name_n, extra_n = _LOCAL.unpack(head)
    name = file.read(name_n)
    if name != raw.name:
        raise BadArchive(f"the archive entry {_quote_name(raw.name)} has another name at its data, {_quote_name(name)}")
    if method != raw.method or flags & _ENCRYPTED:
        raise BadArchive(f"the archive entry {_quote_name(raw.name)} differs between the directory and its data")
    return raw.offset + _LOCAL.size + name_n + extra_n


def _is_macos_metadata(entry: Entry) -> bool:
    top, _, rest = entry.name.partition("/")
    is_resource_fork = top == "__MACOSX" and (entry.is_folder or rest != "")
    return is_resource_fork or entry.name.rpartition("/")[2] == ".DS_Store"


def _strip_top(entries: list[Entry]) -> list[Entry]:
    tops = {entry.name.partition("/")[0] for entry in entries}
    if len(tops) != 1 or any("/" not in entry.name and not entry.is_folder for entry in entries):
        return entries
    inside = [entry for entry in entries if "/" in entry.name]
    return [replace(entry, name=entry.name.partition("/")[2]) for entry in inside]


def _open_target(target: Path) -> bool:
    """Ensure that the folder exists and is empty; return whether it was created."""
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
    existing = {target}
    for entry in entries:
        path = target / entry.name
        _make_folders(path if entry.is_folder else path.parent, existing)
        if not entry.is_folder:
            _write_file(file, entry, path)


def _make_folders(path: Path, existing: set[Path]) -> None:
    if path in existing:
        return
    _make_folders(path.parent, existing)
    path.mkdir()
    path.chmod(0o755)  # independent of the umask
    existing.add(path)


def _write_file(file: BinaryIO, entry: Entry, path: Path) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as out:
        for chunk in _read_verified(file, entry):
            out.write(chunk)
        os.fchmod(handle, 0o755 if entry.executable else 0o644)


def _read_verified(file: BinaryIO, entry: Entry) -> Iterator[bytes]:
    """Yield the data of an entry, at most its declared size."""
    size = crc = 0
    for chunk in _inflate(file, entry) if entry.deflated else _read_packed(file, entry):
        size += len(chunk)
        if size > entry.size:
            raise BadArchive(
                f"the archive entry {entry.name!r} unpacks to more than the {entry.size} bytes it declares"
            )
        crc = zlib.crc32(chunk, crc)
        yield chunk
    if size != entry.size or crc != entry.crc:
        raise BadArchive(f"the archive entry {entry.name!r} is damaged: its size or checksum is wrong")


def _read_packed(file: BinaryIO, entry: Entry) -> Iterator[bytes]:
    file.seek(entry.offset)
    left = entry.packed_size
    while chunk := file.read(min(_CHUNK, left)):
        left -= len(chunk)
        yield chunk


def _inflate(file: BinaryIO, entry: Entry) -> Iterator[bytes]:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    packed = _read_packed(file, entry)
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


def _quote_name(name: bytes) -> str:
    """Return a name for a message: short, with control characters escaped."""
    return repr(name[:100].decode("utf-8", "replace")) + ("..." if len(name) > 100 else "")
