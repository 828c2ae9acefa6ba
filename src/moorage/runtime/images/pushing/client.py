"""Client of the OCI distribution API for pushes to the operator's own registry.

The operator chooses the registry, so its address is trusted, unlike the registries of users' images.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import httpx2
import yarl

from moorage.core.net.calls import Answer
from moorage.runtime.images.manifests import ACCEPTED
from moorage.runtime.images.references import PullFailed
from moorage.runtime.images.sign_in import Credentials, read_challenge, read_token

TIMEOUT_S = 60.0
UPLOAD_TIMEOUT_S = 600.0
TRIES = 4
FIRST_WAIT_S = 0.5
CHUNK_BYTES = 2**20
_BUSY = frozenset({429, 500, 502, 503, 504})

Body = Callable[[], AsyncIterator[bytes]]  # called for each try


class PushFailed(Exception):
    """The registry does not take an image; the message is a sentence for the operator."""


class PushClient:
    """The registry of this platform. Safe for concurrent use."""

    def __init__(
        self, url: str, username: str = "", password: str = "", *, ca: str = "", wait_s: float = FIRST_WAIT_S
    ) -> None:
        self._base = yarl.URL(url)
        self._credentials = Credentials(self.host, username, password) if username else None
        self._authorizations: dict[str, str] = {}  # by repository
        self._ca = ca
        self._wait_s = wait_s
        self._http: httpx2.AsyncClient | None = None

    @property
    def host(self) -> str:
        """Host and port as in the reference of an image."""
        return self._base.host_port_subcomponent or ""

    @property
    def credentials(self) -> Credentials | None:
        return self._credentials

    def repository_of(self, org_id: int) -> str:
        return "/".join(filter(None, (self._base.path.strip("/"), f"org-{org_id}")))

    def reference(self, repository: str, digest: str) -> str:
        return f"{self.host}/{repository}@{digest}"

    async def check(self) -> None:
        """Raise PushFailed unless the registry answers and accepts the account."""
        answer = await self._send("GET", self._base.origin() / "v2/", "")
        if answer.status_code != 200:
            raise self._refused(answer)

    async def has(self, repository: str, kind: str, digest: str) -> bool:
        """Whether the registry has a blob (`blobs`) or a manifest (`manifests`)."""
        headers = {"Accept": ", ".join(ACCEPTED)}
        answer = await self._send("HEAD", self._url(repository, kind, digest), repository, headers=headers)
        if answer.status_code not in (200, 404):
            raise self._refused(answer)
        return answer.status_code == 200

    async def mount(self, repository: str, digest: str, origin: str) -> bool:
        """Let a repository have a blob of another one of this registry; return False where it has to be uploaded."""
        url = self._url(repository, "blobs", "uploads/").with_query({"mount": digest, "from": origin})
        answer = await self._send("POST", url, repository, origin=origin)
        if answer.status_code == 202 and (location := answer.headers.get("Location", "")):
            # The registry has begun an upload instead.
            await self._send("DELETE", self._base.join(yarl.URL(location)), repository)
        return answer.status_code == 201

    async def put_blob(self, repository: str, digest: str, path: Path) -> None:
        started = await self._send("POST", self._url(repository, "blobs", "uploads/"), repository)
        location = started.headers.get("Location", "")
        if started.status_code != 202 or not location:
            raise self._refused(started)
        target = self._base.join(yarl.URL(location)).update_query(digest=digest)
        size = (await asyncio.to_thread(path.stat)).st_size
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        answer = await self._send("PUT", target, repository, headers=headers, body=lambda: _chunks(path))
        if answer.status_code != 201:
            raise self._refused(answer)

    async def put_manifest(self, repository: str, digest: str, body: bytes, media_type: str) -> None:
        """Store a manifest under a tag, because many registries collect manifests without one."""
        tag = digest.removeprefix("sha256:")
        url, headers = self._url(repository, "manifests", tag), {"Content-Type": media_type}
        answer = await self._send("PUT", url, repository, headers=headers, body=lambda: _once(body))
        if answer.status_code != 201:
            raise self._refused(answer)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    def _url(self, repository: str, kind: str, name: str) -> yarl.URL:
        return self._base.origin() / f"v2/{repository}/{kind}/{name}"

    async def _send(
        self,
        method: str,
        url: yarl.URL,
        repository: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        origin: str = "",
    ) -> httpx2.Response:
        """Send a request, again while the registry is busy or away; sign in once on status 401.

        The account also needs to read the repository `origin`, if there is one.
        """
        may_sign_in, wait_s = True, self._wait_s
        for left in reversed(range(TRIES)):
            try:
                answer = await self._try(method, url, repository, headers or {}, body)
                if answer.status_code == 401 and may_sign_in:
                    may_sign_in = False
                    await self._sign_in(answer, repository, origin)
                    answer = await self._try(method, url, repository, headers or {}, body)
            except httpx2.HTTPError as error:
                if not left:
                    why = str(error) or type(error).__name__
                    raise PushFailed(f"the registry {self.host} does not answer: {why}") from None
            else:
                if answer.status_code not in _BUSY or not left:
                    return answer
            await asyncio.sleep(wait_s)
            wait_s *= 2
        raise AssertionError("unreachable")

    async def _try(
        self, method: str, url: yarl.URL, repository: str, headers: Mapping[str, str], body: Body | None
    ) -> httpx2.Response:
        own = {}
        if url.host == self._base.host and (known := self._authorizations.get(repository)):
            own = {"Authorization": known}
        return await self._client().request(
            method,
            str(url),
            headers={**headers, **own},
            content=body() if body is not None else None,
            follow_redirects=method in ("GET", "HEAD"),
            timeout=UPLOAD_TIMEOUT_S if body is not None else TIMEOUT_S,
        )

    def _client(self) -> httpx2.AsyncClient:
        if self._http is None:
            context = ssl.create_default_context()
            if self._ca:
                context.load_verify_locations(self._ca)
            self._http = httpx2.AsyncClient(verify=context, trust_env=False)
        return self._http

    async def _sign_in(self, challenged: httpx2.Response, repository: str, origin: str) -> None:
        try:
            challenge = read_challenge(_as_answer(challenged))
        except PullFailed as error:
            raise PushFailed(str(error)) from None
        if challenge is None or self._credentials is None:
            raise PushFailed(
                f"the registry {self.host} wants an account: set MOORAGE_REGISTRY_USERNAME and its password"
            )
        if not challenge.realm:
            self._authorizations[repository] = self._credentials.basic
            return
        query = [("service", challenge.service)] if challenge.service else []
        if repository:
            query.append(("scope", f"repository:{repository}:pull,push"))
        if origin:
            query.append(("scope", f"repository:{origin}:pull"))
        url = self._base.join(yarl.URL(challenge.realm)).extend_query(query)
        headers = {"Authorization": self._credentials.basic}
        answer = await self._client().get(str(url), headers=headers, timeout=TIMEOUT_S)
        if answer.status_code != 200:
            raise self._refused(answer)
        try:
            self._authorizations[repository] = f"Bearer {read_token(_as_answer(answer))}"
        except PullFailed as error:
            raise PushFailed(str(error)) from None

    def _refused(self, answer: httpx2.Response) -> PushFailed:
        return PushFailed(
            f"the registry {self.host} refuses it: status {answer.status_code} {answer.text[:200]}".strip()
        )


def _as_answer(response: httpx2.Response) -> Answer:
    return Answer(response.status_code, response.headers, response.content, False, str(response.url), 0.0, None)


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body
