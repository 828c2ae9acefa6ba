"""A client of the OCI distribution API: what `docker pull` does on the wire, without an account.

Everything passes the platform's guarded client, since a user chose the registry, and the registry chooses where its
sign-in and its blobs are. That client gives answers as a whole, so a blob is fetched in pieces: only one piece is in
memory at a time, and a connection that breaks costs one piece.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import BinaryIO

from yarl import URL

from moorage.core.net.calls import Answer, OutboundError
from moorage.core.net.client import GuardedClient
from moorage.core.net.targets import TargetPolicy, TargetRefused
from moorage.runtime.images.manifests import ACCEPTED, BadImage, Descriptor, Index, Manifest, parse_manifest
from moorage.runtime.images.references import HUB, PullFailed, Reference, is_digest

MB = 2**20
MOST_MANIFEST_BYTES = 4 * MB
MOST_ERROR_BYTES = 16 * 1024  # A registry's complaint may be longer than what it was asked for.
MOST_REDIRECTS = 5
LONGEST_REASON = 200
_API_HOSTS = {HUB: "registry-1.docker.io"}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_BUSY = frozenset({429, 500, 502, 503, 504})
_FINAL_PHASES = frozenset({"tls", "protocol"})  # Asking again would change nothing about these.
_FIELD = re.compile(r'(\w+)\s*=\s*(?:"([^"]*)"|([^\s,"]+))')
_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}")
_UNSHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\s]+")


@dataclass(frozen=True, slots=True)
class Terms:
    """How patiently a registry is asked, and how much of it at once."""

    tries: int = 4  # of one request, while the registry is busy or away
    wait_s: float = 1  # before the second try; doubled before each further one
    longest_wait_s: float = 30  # also where the registry asks for more
    answer_s: float = 30  # for a manifest or a token
    piece_s: float = 300  # for one piece of a blob
    piece_bytes: int = 16 * MB
    whole_bytes: int = 64 * MB  # The largest blob that is fetched in one piece, from a registry that knows no pieces.


class Registry:
    """A conversation with one registry about one repository. Not for concurrent use."""

    def __init__(
        self, client: GuardedClient, targets: TargetPolicy, reference: Reference, terms: Terms | None = None
    ) -> None:
        self._client = client
        self._targets = targets
        self._repository = reference.repository
        self._terms = terms or Terms()
        self._base = base_url(reference.registry, targets)
        self._token: str | None = None

    async def manifest(self, wanted: str) -> tuple[str, Manifest | Index]:
        """Return what a tag or a digest stands for, and its digest; raises PullFailed."""
        headers = {"Accept": ", ".join(ACCEPTED)}
        url = self._base / f"v2/{self._repository}/manifests/{wanted}"
        answer = await self._ask(url, headers, timeout_s=self._terms.answer_s, most=MOST_MANIFEST_BYTES)
        if answer.status != 200:
            raise _refused(answer)
        if answer.truncated:
            raise BadImage(f"the image's manifest is larger than {MOST_MANIFEST_BYTES // MB} MB")
        digest = _checked_digest(answer, wanted)
        return digest, parse_manifest(answer.body, answer.headers.get("Content-Type", ""))

    async def read(self, part: Descriptor, most: int) -> bytes:
        """Return a small part of an image; raises PullFailed."""
        if part.size > most:
            raise BadImage(f"the image's configuration is larger than {most // MB} MB")
        body = b"".join([piece async for piece in self._pieces(part)])
        _check(part, len(body), hashlib.sha256(body).hexdigest())
        return body

    async def download(self, part: Descriptor, target: Path) -> None:
        """Write a part of an image into a new file; raises PullFailed, also where it is not what its digest says."""
        digest, size = hashlib.sha256(), 0
        with target.open("xb") as file:
            async for piece in self._pieces(part):
                size += len(piece)
                await asyncio.to_thread(_keep, piece, file, digest)
        _check(part, size, digest.hexdigest())

    async def _pieces(self, part: Descriptor) -> AsyncIterator[bytes]:
        offset = 0
        while offset < part.size:
            piece = await self._piece(part, offset)
            if not piece:
                raise PullFailed("the registry sent less of the image than it should")
            offset += len(piece)
            yield piece

    async def _piece(self, part: Descriptor, offset: int) -> bytes:
        length = min(self._terms.piece_bytes, part.size - offset)
        answer = await self._blob(part, {"Range": f"bytes={offset}-{offset + length - 1}"}, most=length)
        if answer.status == 206:
            return answer.body[:length]
        if answer.status != 200:
            raise _refused(answer)
        if answer.truncated:  # A registry that knows no pieces sends the whole.
            answer = await self._whole(part)
        return answer.body[offset:]

    async def _whole(self, part: Descriptor) -> Answer:
        if part.size > self._terms.whole_bytes:
            raise PullFailed(f"the registry cannot send a part of {part.size // MB} MB in pieces")
        answer = await self._blob(part, {}, most=part.size)
        if answer.status != 200:
            raise _refused(answer)
        return answer

    async def _blob(self, part: Descriptor, headers: dict[str, str], *, most: int) -> Answer:
        url = self._base / f"v2/{self._repository}/blobs/{part.digest}"
        # What is hashed is what is stored: nothing between here and there may pack it once more.
        sent = headers | {"Accept-Encoding": "identity"}
        return await self._ask(url, sent, timeout_s=self._terms.piece_s, most=max(most, MOST_ERROR_BYTES))

    async def _ask(
        self, url: URL, headers: Mapping[str, str], *, timeout_s: float, most: int, may_sign_in: bool = True
    ) -> Answer:
        """Ask until there is an answer that is not about the moment: signs in once, and waits while it is busy."""
        tries, wait_s = self._terms.tries, self._terms.wait_s
        while True:
            tries -= 1
            answer = await self._try(url, headers, timeout_s, most, is_last=tries <= 0)
            if answer is not None and answer.status == 401 and may_sign_in:
                may_sign_in, tries = False, tries + 1
                await self._sign_in(answer)
                continue
            if answer is not None and (answer.status not in _BUSY or tries <= 0):
                return answer
            await asyncio.sleep(min(_asked_wait_s(answer) or wait_s, self._terms.longest_wait_s))
            wait_s *= 2

    async def _try(
        self, url: URL, headers: Mapping[str, str], timeout_s: float, most: int, *, is_last: bool
    ) -> Answer | None:
        """Make one try; None where the registry could not be reached and another try is left."""
        try:
            return await self._follow(url, headers, timeout_s, most)
        except TargetRefused as error:
            raise PullFailed(str(error)) from None
        except OutboundError as error:
            if is_last or error.phase in _FINAL_PHASES:
                raise PullFailed(str(error)) from None
            return None

    async def _follow(self, url: URL, headers: Mapping[str, str], timeout_s: float, most: int) -> Answer:
        """Follow redirects by hand: the token stays with the registry, what is asked for goes along."""
        for _ in range(MOST_REDIRECTS + 1):
            self._check_scheme(url)
            sent = dict(headers)
            if self._token is not None and url.origin() == self._base.origin():
                sent["Authorization"] = f"Bearer {self._token}"
            answer = await self._client.request(
                "GET", str(url), headers=sent, timeout_s=timeout_s, max_body_bytes=most, follow=0
            )
            location = answer.headers.get("Location")
            if answer.status not in _REDIRECTS or not location:
                return answer
            url = _joined(url, location)
        raise PullFailed(f"the registry sent {MOST_REDIRECTS} redirects in a row")

    def _check_scheme(self, url: URL) -> None:
        if url.scheme != "https" and not _may_be_plain(url, self._targets):
            raise PullFailed(f"the registry leads to {url.host or 'an address'} without https")

    async def _sign_in(self, challenged: Answer) -> None:
        """Get the token that everybody may have, from where the registry says."""
        challenge = _challenge(challenged.headers.get("WWW-Authenticate", ""))
        if challenge is None:
            raise PullFailed("the registry wants a password, and only public images can be pulled")
        query = {"scope": challenge.get("scope") or f"repository:{self._repository}:pull"}
        if "service" in challenge:
            query["service"] = challenge["service"]
        self._token = None
        url = _joined(self._base, challenge["realm"]).update_query(query)
        answer = await self._ask(url, {}, timeout_s=self._terms.answer_s, most=MB, may_sign_in=False)
        if answer.status != 200:
            raise _refused(answer)
        self._token = _token(answer)


def base_url(registry: str, targets: TargetPolicy) -> URL:
    """Return where a registry's API is. Plain HTTP is spoken only to this machine itself, where that is allowed."""
    try:
        url = URL(f"https://{_API_HOSTS.get(registry, registry)}")
    except ValueError:
        raise PullFailed(f"{registry!r} is not the address of a registry") from None
    return url.with_scheme("http") if _may_be_plain(url, targets) else url


def _may_be_plain(url: URL, targets: TargetPolicy) -> bool:
    host = url.host or ""
    address = "127.0.0.1" if f".{host.rstrip('.')}".endswith(".localhost") else host
    try:
        return ip_address(address).is_loopback and targets.refusal(address) is None
    except ValueError:
        return False


def _joined(base: URL, location: str) -> URL:
    try:
        return base.join(URL(location))
    except ValueError:
        raise PullFailed("the registry leads to an address that is none") from None


def _challenge(header: str) -> dict[str, str] | None:
    """Read `Bearer realm="…",service="…",scope="…"`; None for every other way to sign in."""
    scheme, _, rest = header.strip().partition(" ")
    fields = {name.lower(): quoted or bare for name, quoted, bare in _FIELD.findall(rest)}
    return fields if scheme.lower() == "bearer" and fields.get("realm") else None


def _token(answer: Answer) -> str:
    try:
        found = json.loads(answer.body)
        token = found.get("token") or found["access_token"]
        if _TOKEN.fullmatch(token):
            return str(token)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        pass  # Whatever it is, it is no token.
    raise PullFailed("the registry's sign-in gave no token")


def _asked_wait_s(answer: Answer | None) -> float:
    text = answer.headers.get("Retry-After", "") if answer else ""
    return float(text) if text.isascii() and text.isdigit() else 0


def _checked_digest(answer: Answer, wanted: str) -> str:
    """Return the digest of a manifest, which has to be the one that was asked for or that the registry names."""
    digest = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
    said = wanted if is_digest(wanted) else answer.headers.get("Docker-Content-Digest", digest)
    if said.startswith("sha256:") and said != digest:
        raise PullFailed("the registry sent a manifest that is not what its digest says")
    return digest


def _keep(piece: bytes, file: BinaryIO, digest: hashlib._Hash) -> None:
    digest.update(piece)
    file.write(piece)


def _check(part: Descriptor, size: int, digest: str) -> None:
    if size != part.size or f"sha256:{digest}" != part.digest:
        raise PullFailed("the registry sent a part of the image that is not what its digest says")


def _refused(answer: Answer) -> PullFailed:
    reason = _reason(answer)
    if answer.status in (401, 403):
        return PullFailed(f"the registry says: {reason}; only public images can be pulled")
    return PullFailed(f"the registry says: {reason}")


def _reason(answer: Answer) -> str:
    """Return the registry's own words, else the status."""
    try:
        error = json.loads(answer.body)["errors"][0]
        said = error.get("message") or error["code"].replace("_", " ").lower()
        return _UNSHOWN.sub(" ", said).strip()[:LONGEST_REASON] or f"HTTP status {answer.status}"
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return f"HTTP status {answer.status}"
