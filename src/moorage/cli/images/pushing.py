"""Uploads an image to a repository of the platform, over the OCI distribution API."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import IO, Any

import httpx2 as httpx

from moorage.cli.images.layouts import INDEXES, Layout, NotAnImage
from moorage.client.exchange import UPLOAD_TIMEOUT_S

MB = 2**20


class PushFailed(Exception):
    """The platform refused a part of the image; the message is for the user."""


class Push:
    """One push; `report` gets a line for each part."""

    def __init__(self, http: httpx.Client, repository: str, layout: Layout, report: Callable[[str], None]) -> None:
        self._http = http
        self._path = f"/v2/{repository}"
        self._layout = layout
        self._report = report

    def run(self, descriptor: dict[str, Any], tag: str) -> str:
        """Push an image with all its parts under a tag; return its digest."""
        return self._push_manifest(descriptor, tag)

    def _push_manifest(self, descriptor: dict[str, Any], reference: str) -> str:
        digest = str(descriptor.get("digest"))
        body = self._layout.document(digest)
        document = _parse(body)
        media_type = str(document.get("mediaType") or descriptor.get("mediaType"))
        if media_type in INDEXES:
            for child in document.get("manifests", []):
                if self._layout.size(str(child.get("digest"))) is not None:  # `docker save` may have one of many.
                    self._push_manifest(child, str(child["digest"]))
        else:
            for part in (document.get("config") or {}, *document.get("layers", [])):
                self._push_blob(str(part.get("digest")))
        answer = self._http.put(
            f"{self._path}/manifests/{reference}", content=body, headers={"content-type": media_type}
        )
        _check(answer, 201)
        return f"sha256:{hashlib.sha256(body).hexdigest()}"

    def _push_blob(self, digest: str) -> None:
        size = self._layout.size(digest)
        short = digest.removeprefix("sha256:")[:12]
        if self._http.head(f"{self._path}/blobs/{digest}").status_code == 200:
            self._report(f"{short} exists")
            return
        if size is None:
            raise NotAnImage(f"the image has no blob {digest}")
        self._report(f"{short} {size / MB:.1f} MB")
        begun = self._http.post(f"{self._path}/blobs/uploads/")
        _check(begun, 202)
        with self._layout.open(digest) as file:
            answer = self._http.put(
                begun.headers["location"],
                params={"digest": digest},
                content=_chunks(file),
                headers={"content-type": "application/octet-stream", "content-length": str(size)},
                timeout=httpx.Timeout(UPLOAD_TIMEOUT_S),
            )
        _check(answer, 201)


def _chunks(file: IO[bytes]) -> Any:
    while chunk := file.read(MB):
        yield chunk


def _parse(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise NotAnImage("the manifest of the image is not a JSON object")
    return document


def _check(answer: httpx.Response, status: int) -> None:
    if answer.status_code == status:
        return
    try:
        error = answer.json()
        first = error["errors"][0] if "errors" in error else error["error"]
        message = str(first["message"])
    except (ValueError, LookupError, TypeError):
        message = f"HTTP status {answer.status_code}"
    raise PushFailed(message)
