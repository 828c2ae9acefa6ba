"""Images as files: OCI layout folders, and archives of `docker save` and `podman save`."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
REF_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
MAX_DOCUMENT_BYTES = 8 * 2**20
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
GZIP_LEVEL = 3  # Faster than the default; the upload takes most of the time.


class NotAnImage(Exception):
    """A file is not an image; the message is for the user."""


class Files(Protocol):
    """The files of a layout, in a folder or an archive."""

    def find(self, name: str) -> int | None:
        """Return the size of a file, or None."""
        ...

    def open(self, name: str) -> IO[bytes]: ...

    def has(self, name: str, digest: str) -> bool:
        """Report whether a file may be sent as the blob of a digest. Registries check blobs inside of the layout."""
        ...


@dataclass(frozen=True)
class Folder:
    path: Path

    def find(self, name: str) -> int | None:
        path = self.path / name
        return path.stat().st_size if path.is_file() else None

    def open(self, name: str) -> IO[bytes]:
        return (self.path / name).open("rb")

    def has(self, name: str, digest: str) -> bool:
        """Build tools link blobs of a shared store; other links that lead out of the folder lead to private files."""
        path = (self.path / name).resolve()
        return path.is_relative_to(self.path.resolve()) or digest_of(path) == digest


@dataclass(frozen=True)
class Archive:
    archive: tarfile.TarFile

    def find(self, name: str) -> int | None:
        try:
            member = self.archive.getmember(name)
        except KeyError:
            return None
        return member.size if member.isreg() else self._linked(member)

    def _linked(self, member: tarfile.TarInfo) -> int | None:
        """Return the size of a linked file: equal layers are links in some archives."""
        try:
            opened = self.archive.extractfile(member)
        except KeyError:
            return None
        with opened or open("/dev/null", "rb") as file:
            return file.seek(0, 2) if opened else None

    def open(self, name: str) -> IO[bytes]:
        opened = self.archive.extractfile(name)
        assert opened is not None
        return opened

    def has(self, name: str, digest: str) -> bool:
        return True


@dataclass(frozen=True)
class Layout:
    """An OCI layout: blobs by digest, and an index of images."""

    files: Files

    def size(self, digest: str) -> int | None:
        return self.files.find(_name(digest))

    def open(self, digest: str) -> IO[bytes]:
        """Open a blob; raises NotAnImage for a link out of the layout to anything but this blob."""
        name = _name(digest)
        if not self.files.has(name, digest):
            raise NotAnImage(f"{name} is a link to a file with another digest; copy the blob into the layout")
        return self.files.open(name)

    def document(self, digest: str) -> bytes:
        size = self.size(digest)
        if size is None or size > MAX_DOCUMENT_BYTES:
            raise NotAnImage(f"the image has no document {digest}")
        with self.open(digest) as file:
            return file.read()

    def choose(self, name: str) -> dict[str, Any]:
        """Return the descriptor of the only image, or of that with a name or tag."""
        with self.files.open("index.json") as file:
            entries = _list(json.loads(file.read(MAX_DOCUMENT_BYTES)), "manifests")
        named = [each for each in entries if _has_name(each, name)]
        chosen = named or entries
        if len(chosen) != 1:
            raise NotAnImage(f"it has {len(entries)} images; name one of them with --tag")
        entry: dict[str, Any] = chosen[0]
        return entry


@contextmanager
def opened(path: Path, scratch: Path) -> Iterator[Layout]:
    """Open a layout folder or an archive; raises NotAnImage. `scratch` is for converted layers."""
    if path.is_dir():
        files: Files = Folder(path)
        if files.find("index.json") is None:
            raise NotAnImage(f"{path} has no index.json: it is no OCI layout folder")
        yield Layout(files)
        return
    try:
        with tarfile.open(path) as archive:
            files = Archive(archive)
            if files.find("index.json") is not None:
                yield Layout(files)
            elif files.find("manifest.json") is not None:
                yield _convert(files, scratch)
            else:
                raise NotAnImage(f"{path} is no archive of an image: it has neither index.json nor manifest.json")
    except tarfile.TarError as error:
        raise NotAnImage(f"{path} cannot be read as an archive: {error}") from None


def _convert(files: Files, scratch: Path) -> Layout:
    """Write the image of an older `docker save` archive as a layout, with compressed layers."""
    with files.open("manifest.json") as file:
        images = json.loads(file.read(MAX_DOCUMENT_BYTES))
    if not isinstance(images, list) or len(images) != 1 or not isinstance(images[0], dict):
        raise NotAnImage("the archive should have one image; save one at a time")
    (scratch / "blobs" / "sha256").mkdir(parents=True)
    names = [images[0].get("Config"), *_list(images[0], "Layers")]
    if missing := [name for name in names if not isinstance(name, str) or files.find(name) is None]:
        raise NotAnImage(f"the archive has no file {missing[0]}")
    config = _describe(_store(files, names[0], scratch), CONFIG)
    layers = [_describe(_store(files, name, scratch, packs=True), LAYER) for name in names[1:]]
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
    (scratch / "manifest").write_bytes(json.dumps(manifest).encode())
    entry = _describe(_move(scratch / "manifest", scratch), MANIFEST)
    (scratch / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    return Layout(Folder(scratch))


def _store(files: Files, name: str, scratch: Path, *, packs: bool = False) -> Path:
    """Copy a file of an archive to its place in a layout; a layer is compressed, the same way each time."""
    target = scratch / "incoming"
    with files.open(name) as source, target.open("wb") as file:
        if not packs:
            shutil.copyfileobj(source, file)
        else:
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=GZIP_LEVEL, mtime=0) as packed:
                shutil.copyfileobj(source, packed, 2**20)
    return _move(target, scratch)


def _move(path: Path, scratch: Path) -> Path:
    return path.rename(scratch / _name(digest_of(path)))


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _describe(blob: Path, media_type: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{blob.name}", "size": blob.stat().st_size}


def _list(document: Any, name: str) -> list[Any]:
    value = document.get(name) if isinstance(document, dict) else None
    if not isinstance(value, list):
        raise NotAnImage(f"the image has no list of {name}")
    return value


def _has_name(entry: Any, name: str) -> bool:
    annotations = entry.get("annotations") if isinstance(entry, dict) else None
    known = [annotations.get(each) for each in REF_NAMES] if isinstance(annotations, dict) else []
    return any(isinstance(each, str) and (each == name or each.endswith(f":{name}")) for each in known)


def _name(digest: str) -> str:
    """Return the path of a blob; raises NotAnImage for a digest that could be another path."""
    if _DIGEST.fullmatch(digest) is None:
        raise NotAnImage(f"the image names {digest!r}, which is no SHA-256 digest")
    return f"blobs/{digest.replace(':', '/', 1)}"
