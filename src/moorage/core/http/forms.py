"""Multipart uploads: files are hashed and streamed to disk, sizes are limited."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterable
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import IO, Any

import msgspec
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from moorage.core import disk
from moorage.core.http import models
from moorage.core.http.request import BodyTooLarge, Request
from moorage.core.http.route import Upload
from moorage.core.kit.records import dataclass
from moorage.core.kit.texts import size_text, unusable
from moorage.errors import BadRequest, bad_field
from moorage.settings import Settings

LARGE_CHUNK_BYTES = 32 * 2**10
MAX_PARTS = 64
MAX_FIELD_BYTES = 2**20


@dataclass(slots=True)
class UploadedFile:
    path: Path
    filename: str
    size: int
    sha256: str


@dataclass(slots=True)
class Form:
    fields: dict[str, str] = field(default_factory=dict)
    files: dict[str, UploadedFile] = field(default_factory=dict)

    @property
    def fingerprint(self) -> bytes:
        """Identify the content of an upload, independent of its multipart boundary."""
        files = [(name, file.sha256) for name, file in sorted(self.files.items())]
        return msgspec.json.encode([sorted(self.fields.items()), files])

    def discard(self) -> None:
        """Delete the files that no handler moved."""
        for file in self.files.values():
            file.path.unlink(missing_ok=True)


async def read(request: Request, upload: Upload, settings: Settings) -> Form:
    """Read a multipart body; raises BadRequest or DiskFull after deleting its files."""
    kind, options = parse_options_header(request.headers.get(b"content-type", ""))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise BadRequest("The body should be multipart/form-data")
    folder = settings.folder("uploads")
    check = partial(disk.check_room, folder, reserve_mb=settings.disk_reserve_mb)
    check(more_bytes=min(request.announced_bytes, upload.max_bytes))
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    reader = _Reader(upload, folder)
    unchecked = 0
    try:
        parser = MultipartParser(boundary, reader.callbacks())
        async for chunk in _chunks(request, upload):
            unchecked += len(chunk)
            if unchecked >= disk.CHECK_INTERVAL_BYTES:
                unchecked = 0
                check(more_bytes=len(chunk))
            if len(chunk) < LARGE_CHUNK_BYTES:
                parser.write(chunk)
            else:  # Hashing and writing it would block the event loop for half a millisecond.
                writing = asyncio.ensure_future(asyncio.to_thread(parser.write, chunk))
                try:
                    await asyncio.shield(writing)
                finally:  # A cancelled request deletes the file only after the thread wrote to it.
                    await asyncio.wait({writing})
        parser.finalize()
        return reader.finish()
    except FormParserError:
        reader.abandon()
        raise BadRequest("The body is not valid multipart/form-data") from None
    except BaseException:
        reader.abandon()
        raise


async def _chunks(request: Request, upload: Upload) -> AsyncIterator[bytes]:
    """Yield the body; if it is too large, the error names all files: any of them may be the reason."""
    try:
        async for chunk in request.chunks(upload.max_bytes + MAX_FIELD_BYTES):
            yield chunk
    except BodyTooLarge:
        raise _too_large(upload.files, upload) from None


def _too_large(names: Iterable[str], upload: Upload) -> BadRequest:
    message = f"is larger than {size_text(upload.max_bytes)}"
    return BadRequest("The request is not valid", fields=dict.fromkeys(names, message))


class _Reader:
    """Collects the parts of a form through callbacks of the parser."""

    def __init__(self, upload: Upload, folder: Path) -> None:
        self.upload = upload
        self.folder = folder
        self.texts = models.accepted_fields(upload.fields) if upload.fields is not None else set()
        self.form = Form()
        self.parts = 0
        self.headers: dict[bytes, bytes] = {}
        self.header_name = b""
        self.header_value = b""
        self.name = ""
        self.text = bytearray()
        self.file: IO[bytes] | None = None
        self.hash = hashlib.sha256()
        self.ignored = False
        self.ended = False

    def callbacks(self) -> Any:
        return {
            "on_part_begin": self.part_begin,
            "on_header_field": lambda data, start, end: self._append("header_name", data[start:end]),
            "on_header_value": lambda data, start, end: self._append("header_value", data[start:end]),
            "on_header_end": self.header_end,
            "on_headers_finished": self.headers_finished,
            "on_part_data": self.part_data,
            "on_part_end": self.part_end,
            "on_end": self._end,
        }

    def part_begin(self) -> None:
        self.parts += 1
        if self.parts > MAX_PARTS:
            raise BadRequest(f"The form has more than {MAX_PARTS} parts")
        self.headers = {}

    def header_end(self) -> None:
        self.headers[self.header_name.lower()] = self.header_value
        self.header_name = self.header_value = b""

    def headers_finished(self) -> None:
        _, options = parse_options_header(self.headers.get(b"content-disposition", b""))
        self.name = options.get(b"name", b"").decode("utf-8", "replace")
        is_repeated = self.name in self.form.fields or self.name in self.form.files
        if is_repeated and (self.name in self.texts or self.name in self.upload.files):
            raise bad_field(self.name, "is there twice")
        if not self.name or is_repeated:
            raise BadRequest("The form has a part without a name, or a name twice")
        self.text = bytearray()
        # Clients send a text as a file, too: a Blob of a browser has a file name.
        is_file = b"filename" in options and self.name not in self.texts
        # An undeclared file is ignored like any unknown field.
        self.ignored = is_file and self.name not in self.upload.files
        if is_file and not self.ignored:
            self._open(options[b"filename"].decode("utf-8", "replace"))

    def part_data(self, data: bytes, start: int, end: int) -> None:
        chunk = data[start:end]
        if self.file is not None:
            uploaded = self.form.files[self.name]
            uploaded.size += len(chunk)
            if uploaded.size > self.upload.max_bytes:
                # The first name is that of the documentation, and others are accepted for it.
                raise _too_large((self.upload.files[0], self.name), self.upload)
            self.hash.update(chunk)
            self.file.write(chunk)
            return
        if self.ignored:
            return
        self.text += chunk
        if len(self.text) > MAX_FIELD_BYTES:
            raise bad_field(self.name, "is too long")

    def part_end(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None
            self.form.files[self.name].sha256 = self.hash.hexdigest()
            return
        if self.ignored:
            return
        try:
            text = self.text.decode()
        except UnicodeDecodeError:
            raise bad_field(self.name, "is not UTF-8") from None
        if problem := unusable(text):
            raise bad_field(self.name, problem)
        self.form.fields[self.name] = text

    def finish(self) -> Form:
        if not self.ended:
            raise BadRequest("The body is not valid multipart/form-data: it ends early")
        return self.form

    def abandon(self) -> None:
        if self.file is not None:
            with contextlib.suppress(OSError):  # A full disk fails the flush.
                self.file.close()
        self.form.discard()

    def _open(self, filename: str) -> None:
        handle, name = tempfile.mkstemp(dir=self.folder, prefix="upload-")
        self.file = os.fdopen(handle, "wb")
        self.hash = hashlib.sha256()
        self.form.files[self.name] = UploadedFile(Path(name), filename, 0, "")

    def _append(self, attribute: str, data: bytes) -> None:
        value = getattr(self, attribute) + data
        if len(value) > 8192:
            raise BadRequest("A header of the form is too long")
        setattr(self, attribute, value)

    def _end(self) -> None:
        self.ended = True
