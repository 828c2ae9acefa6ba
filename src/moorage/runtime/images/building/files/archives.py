"""Archives that ADD unpacks: tar files, plain or compressed, from an untrusted source."""

from __future__ import annotations

import contextlib
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from moorage.runtime.images.building.files.tree import TreeError
from moorage.runtime.images.building.files.writing import LayerWriter, Owner, Parts
from moorage.runtime.images.packed.compression import MAGIC, CountingReader, NeedsMemory, open_archive
from moorage.runtime.images.packed.headers import BROKEN, BadLayer, LimitedHeader

MAX_DEPTH = 128
_BLOCK = 2**20
_TAR_AT, _TAR = 257, b"ustar"


def is_archive(path: str, writer: LayerWriter) -> bool:
    """Return whether a file is a tar file, or compressed with a tar file inside."""
    with open(path, "rb") as file:
        start = file.read(_TAR_AT + len(_TAR))
    if start[_TAR_AT:] == _TAR:
        return True
    if not start.startswith(MAGIC):
        return False
    try:
        with _opened(path, writer) as archive:
            return archive.next() is not None
    except TreeError:
        raise
    except NeedsMemory:
        return True  # `unpack` fails with the reason.
    except (*BROKEN, OSError, BadLayer):
        return False


def unpack(path: str, writer: LayerWriter, target: Parts, owner: Owner | None) -> None:
    """Unpack an archive below a folder of the layer; raises TreeError."""
    try:
        with _opened(path, writer) as archive:
            while (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # Else `tarfile` keeps every header.
                _put(archive, member, writer, target, owner)
    except TreeError:
        raise
    except (*BROKEN, OSError, BadLayer) as error:
        raise TreeError(f"the archive cannot be unpacked: {error}") from None


@contextlib.contextmanager
def _opened(path: str, writer: LayerWriter) -> Iterator[tarfile.TarFile]:
    with open_archive(Path(path)) as source:
        reader = cast("IO[bytes]", CountingReader(source, writer.budget.read))
        with tarfile.open(fileobj=reader, mode="r|", bufsize=_BLOCK, tarinfo=LimitedHeader) as archive:
            yield archive


def _put(
    archive: tarfile.TarFile, member: tarfile.TarInfo, writer: LayerWriter, target: Parts, owner: Owner | None
) -> None:
    parts = _parts(member.name)
    if not parts:
        return
    # Links of the image or of the archive are followed inside the image only.
    above = writer.tree.resolve("/".join(parts[:-1]), "/" + "/".join(target))
    place = (*above, parts[-1])
    own = owner if owner is not None else (member.uid & 0xFFFF, member.gid & 0xFFFF)
    mtime_ns = max(int(member.mtime), 0) * 10**9
    writer.ensure_folder(above, owner or (0, 0))
    if member.isdir():
        writer.put_folder(place, own, member.mode & 0o7777, mtime_ns)
    elif member.isreg():
        content = cast("IO[bytes]", archive.extractfile(member))
        writer.put_stream(place, content, member.size, own, member.mode & 0o7777, mtime_ns)
    elif member.issym():
        writer.put_link(place, member.linkname, own, mtime_ns)
    elif member.islnk():
        first = _parts(member.linkname)
        writer.put_hard_link(place, writer.tree.resolve("/".join(first), "/" + "/".join(target), follows_last=False))


def _parts(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in name or len(parts) > MAX_DEPTH:
        raise TreeError(f"the archive has a file with the forbidden name {name[:200]!r}")
    return parts
