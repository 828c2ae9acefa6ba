"""Client of the OCI distribution API for pulls.

All requests use the guarded client, because users choose the registry, and the registry chooses the hosts of its
sign-in and its blobs. The guarded client returns complete bodies, so blobs are fetched with range requests: one piece
is in memory at a time, and a broken connection costs one piece. Credentials go to the registry's origin and to the host
of its tokens, and never along with a redirect to another origin.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import BinaryIO

import yarl

from moorage.core.kit.records import dataclass
from moorage.core.net.calls import Answer, OutboundError
from moorage.core.net.client import GuardedClient
from moorage.core.net.targets import TargetPolicy, TargetRefused
from moorage.runtime.images.manifests import ACCEPTED, BadImage, Descriptor, Index, Manifest, parse_manifest, read_json
from moorage.runtime.images.mirrors import Mirror
from moorage.runtime.images.references import HUB, PullFailed, Reference, is_digest
from moorage.runtime.images.sign_in import Credentials, joined, read_challenge, read_token

MB = 2**20
MAX_MANIFEST_BYTES = 4 * MB
MAX_ERROR_BYTES = 16 * 1024  # An error body may be longer than the requested piece.
MAX_REDIRECTS = 5
MAX_REASON = 200
NEEDS_CREDENTIALS = "a private image needs credentials of its registry (POST /v1/registries)"
_API_HOSTS = {HUB: "registry-1.docker.io"}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_BUSY = frozenset({429, 500, 502, 503, 504})
_FINAL_PHASES = frozenset({"tls", "protocol"})  # not retried
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\s]+")


@dataclass(frozen=True, slots=True)
class PullSettings:
    """Retries, timeouts and sizes of requests to a registry."""

    tries: int = 4  # per request, while the registry is busy or unreachable
    wait_s: float = 1  # before the second try; doubles before each further one
    max_wait_s: float = 30  # also if Retry-After is longer
    answer_s: float = 30  # timeout of a manifest or token
    piece_s: float = 300  # timeout of one piece of a blob
    piece_bytes: int = 16 * MB
    whole_bytes: int = 64 * MB  # largest blob that is fetched whole, from a registry without range requests


class Registry:
    """Client of one repository at one registry. Not for concurrent use."""

    def __init__(
        self,
        client: GuardedClient,
        targets: TargetPolicy,
        reference: Reference,
        settings: PullSettings | None = None,
        *,
        credentials: Credentials | None = None,
        mirror: Mirror | None = None,
    ) -> None:
        """With a `mirror`, all requests go to the mirror, and credentials are not sent."""
        self._client = client
        self._targets = targets
        self._mirror = mirror
        self._repository = mirror.repository(reference) if mirror else reference.repository
        self._settings = settings or PullSettings()
        self._base = mirror.base if mirror else base_url(reference.registry, targets)
        self._credentials = None if mirror else credentials
        self._authorization: str | None = None
        self.used_credentials = False  # the registry requested and got them

    async def manifest(self, wanted: str) -> tuple[str, Manifest | Index]:
        """Return digest and manifest of a tag or digest; raises PullFailed."""
        digest, answer = await self._manifest(wanted)
        return digest, parse_manifest(answer.body, answer.headers.get("Content-Type", ""))

    async def document(self, digest: str) -> tuple[bytes, str]:
        """Return the bytes of a manifest and their media type; raises PullFailed."""
        _, answer = await self._manifest(digest)
        return answer.body, answer.headers.get("Content-Type", "").partition(";")[0].strip()

    async def _manifest(self, wanted: str) -> tuple[str, Answer]:
        headers = {"Accept": ", ".join(ACCEPTED)}
        url = self._base / f"v2/{self._repository}/manifests/{wanted}"
        answer = await self._get(url, headers, timeout_s=self._settings.answer_s, max_bytes=MAX_MANIFEST_BYTES)
        if answer.status != 200:
            raise self._refused(answer)
        if answer.truncated:
            raise BadImage(f"the image's manifest is larger than {MAX_MANIFEST_BYTES // MB} MB")
        return _checked_digest(answer, wanted), answer

    async def read(self, part: Descriptor, max_bytes: int) -> bytes:
        """Return a small blob; raises PullFailed."""
        if part.size > max_bytes:
            raise BadImage(f"the image's configuration is larger than {max_bytes // MB} MB")
        body = b"".join([piece async for piece in self._pieces(part)])
        _check(part, len(body), hashlib.sha256(body).hexdigest())
        return body

    async def download(self, part: Descriptor, target: Path) -> None:
        """Write a blob into a file, and continue after the bytes that it has; raises PullFailed.

        A file with a wrong digest is emptied, and downloaded once more if some of its bytes came from an earlier try.
        After any other failure it keeps its bytes for the next try.
        """
        with target.open("a+b") as file:
            while True:
                digest, started_at = await asyncio.to_thread(_read_start, file, part.size)
                size = started_at
                async for piece in self._pieces(part, size):
                    size += len(piece)
                    await asyncio.to_thread(_write_piece, piece, file, digest)
                try:
                    return _check(part, size, digest.hexdigest())
                except PullFailed:
                    file.truncate(0)
                    if not started_at:
                        raise

    async def _pieces(self, part: Descriptor, offset: int = 0) -> AsyncIterator[bytes]:
        while offset < part.size:
            piece = await self._piece(part, offset)
            if not piece:
                raise PullFailed("the registry sent less of the image than the manifest says")
            offset += len(piece)
            yield piece

    async def _piece(self, part: Descriptor, offset: int) -> bytes:
        length = min(self._settings.piece_bytes, part.size - offset)
        answer = await self._blob(part, {"Range": f"bytes={offset}-{offset + length - 1}"}, max_bytes=length)
        if answer.status == 206:
            return answer.body[:length]
        if answer.status != 200:
            raise self._refused(answer)
        if answer.truncated:  # A registry without range requests sends the whole blob.
            answer = await self._whole(part)
        return answer.body[offset:]

    async def _whole(self, part: Descriptor) -> Answer:
        if part.size > self._settings.whole_bytes:
            raise PullFailed(f"the registry does not support range requests; a blob has {part.size // MB} MB")
        answer = await self._blob(part, {}, max_bytes=part.size)
        if answer.status != 200:
            raise self._refused(answer)
        return answer

    async def _blob(self, part: Descriptor, headers: dict[str, str], *, max_bytes: int) -> Answer:
        url = self._base / f"v2/{self._repository}/blobs/{part.digest}"
        # The digest is of the blob as stored, so a transfer encoding must not change it.
        headers = headers | {"Accept-Encoding": "identity"}
        max_bytes = max(max_bytes, MAX_ERROR_BYTES)
        return await self._get(url, headers, timeout_s=self._settings.piece_s, max_bytes=max_bytes)

    async def _get(
        self, url: yarl.URL, headers: Mapping[str, str], *, timeout_s: float, max_bytes: int, signs_in: bool = True
    ) -> Answer:
        """GET with retries while the registry is busy; signs in once on status 401."""
        tries, wait_s, may_sign_in = self._settings.tries, self._settings.wait_s, signs_in
        while True:
            tries -= 1
            own = {"Authorization": self._authorization} if signs_in and self._authorization else {}
            answer = await self._try(url, {**headers, **own}, timeout_s, max_bytes, is_last=tries <= 0)
            if answer is not None and answer.status == 401 and may_sign_in:
                may_sign_in, tries = False, tries + 1
                await self._sign_in(answer)
                continue
            if answer is not None and (answer.status not in _BUSY or tries <= 0):
                return answer
            await asyncio.sleep(min(_retry_after_s(answer) or wait_s, self._settings.max_wait_s))
            wait_s *= 2

    async def _try(
        self, url: yarl.URL, headers: Mapping[str, str], timeout_s: float, max_bytes: int, *, is_last: bool
    ) -> Answer | None:
        """Make one try; None if the registry is unreachable and tries are left."""
        try:
            return await self._follow(url, headers, timeout_s, max_bytes)
        except TargetRefused as error:
            raise PullFailed(str(error)) from None
        except OutboundError as error:
            if is_last or error.phase in _FINAL_PHASES:
                raise PullFailed(str(error)) from None
            return None

    async def _follow(self, url: yarl.URL, headers: Mapping[str, str], timeout_s: float, max_bytes: int) -> Answer:
        """Follow redirects; only the origin of the first request gets the authorization."""
        first = url.origin()
        for _ in range(MAX_REDIRECTS + 1):
            is_mirror = self._mirror is not None and url.origin() == self._base.origin()
            if not is_mirror:
                self._check_scheme(url)
            request_headers = dict(headers)
            if url.origin() != first:
                request_headers.pop("Authorization", None)
            client = self._mirror.client if self._mirror and is_mirror else self._client
            answer = await client.request(
                "GET", str(url), headers=request_headers, timeout_s=timeout_s, max_body_bytes=max_bytes, follow=0
            )
            location = answer.headers.get("Location")
            if answer.status not in _REDIRECTS or not location:
                return answer
            url = joined(url, location)
        raise PullFailed(f"the registry sent more than {MAX_REDIRECTS} redirects in a row")

    def _check_scheme(self, url: yarl.URL) -> None:
        if url.scheme != "https" and not _may_use_http(url, self._targets):
            raise PullFailed(f"the registry refers to {url.host or 'an address'} without https")

    async def _sign_in(self, challenged: Answer) -> None:
        """Answer a challenge: with the credentials, or with a token of the realm, which may be anonymous."""
        challenge, credentials = read_challenge(challenged), self._credentials
        if challenge is None or (not challenge.realm and credentials is None):
            raise PullFailed(f"the registry wants a password; {NEEDS_CREDENTIALS}")
        self._authorization = None
        if not challenge.realm:
            assert credentials is not None
            self._authorization, self.used_credentials = credentials.basic, True
            return
        url = challenge.token_url(self._base, self._repository)
        headers = {}
        if credentials is not None:
            if not credentials.may_go_to(url, self._base):
                raise PullFailed(
                    f"the registry wants the password at {url.host_port_subcomponent}; set tokenHost of its "
                    "credentials to that host if it may have the password"
                )
            headers, self.used_credentials = {"Authorization": credentials.basic}, True
        answer = await self._get(url, headers, timeout_s=self._settings.answer_s, max_bytes=MB, signs_in=False)
        if answer.status != 200:
            raise self._refused(answer)
        self._authorization = f"Bearer {read_token(answer)}"

    def _refused(self, answer: Answer) -> PullFailed:
        reason = _reason(answer)
        if answer.status not in (401, 403):
            return PullFailed(f"the registry says: {reason}")
        if self._credentials is None:
            return PullFailed(f"the registry says: {reason}; {NEEDS_CREDENTIALS}")
        return PullFailed(f"the registry says: {reason}; it was asked as {self._credentials.username!r}")


def base_url(registry: str, targets: TargetPolicy) -> yarl.URL:
    """Return the API's base URL; plain HTTP only for allowed loopback addresses."""
    try:
        url = yarl.URL(f"https://{_API_HOSTS.get(registry, registry)}")
    except ValueError:
        raise PullFailed(f"{registry!r} is not the address of a registry") from None
    return url.with_scheme("http") if _may_use_http(url, targets) else url


def _may_use_http(url: yarl.URL, targets: TargetPolicy) -> bool:
    host = url.host or ""
    address = "127.0.0.1" if f".{host.rstrip('.')}".endswith(".localhost") else host
    try:
        return ip_address(address).is_loopback and targets.refusal(address) is None
    except ValueError:
        return False


def _retry_after_s(answer: Answer | None) -> float:
    text = answer.headers.get("Retry-After", "") if answer else ""
    return float(text) if text.isascii() and text.isdigit() else 0


def _checked_digest(answer: Answer, wanted: str) -> str:
    """Return the manifest's digest; raises unless it is the announced one."""
    digest = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
    expected = wanted if is_digest(wanted) else answer.headers.get("Docker-Content-Digest", digest)
    if expected.startswith("sha256:") and expected != digest:
        raise PullFailed("the registry sent a manifest that does not match its digest")
    return digest


def _read_start(file: BinaryIO, size: int) -> tuple[hashlib._Hash, int]:
    """Hash the bytes of an earlier try; a file that is too long is emptied."""
    if os.fstat(file.fileno()).st_size > size:
        file.truncate(0)
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(MB):
        digest.update(piece)
    return digest, file.tell()


def _write_piece(piece: bytes, file: BinaryIO, digest: hashlib._Hash) -> None:
    digest.update(piece)
    file.write(piece)


def _check(part: Descriptor, size: int, digest: str) -> None:
    if size != part.size or f"sha256:{digest}" != part.digest:
        raise PullFailed("the registry sent a part of the image that does not match its digest")


def _reason(answer: Answer) -> str:
    try:
        error = read_json(answer.body)["errors"][0]
        text = error.get("message") or error["code"].replace("_", " ").lower()
        return _UNPRINTABLE.sub(" ", text).strip()[:MAX_REASON] or f"HTTP status {answer.status}"
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return f"HTTP status {answer.status}"
