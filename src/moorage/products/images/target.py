"""A request for a repository, and the headers of its answers."""

from __future__ import annotations

from collections.abc import AsyncIterator

from moorage.accounts.identity.caller import Caller
from moorage.core.http.answer import Answer, Headers, Stream
from moorage.core.http.request import Request
from moorage.core.kit.records import dataclass
from moorage.products.images.failures import Refused


@dataclass(frozen=True, slots=True)
class Target:
    """An admitted request with the repository that it names."""

    request: Request
    caller: Caller
    owner: str  # slug of the organization
    name: str

    @property
    def path(self) -> str:
        return f"/v2/{self.owner}/{self.name}"

    def wrong_method(self) -> Refused:
        return Refused(405, "UNSUPPORTED", f"{self.request.method} is not supported here")


def located(status: int, location: str, **headers: str) -> Answer:
    """Return an answer without a body that names a resource."""
    return Answer(status, b"", [(b"location", location.encode()), *header_list(headers)])


def header_list(headers: dict[str, str]) -> Headers:
    return [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]


def head_only(headers: Headers) -> Stream:
    """Return an answer to HEAD, with the Content-Length of the body that GET would send."""
    return Stream(_nothing(), headers)


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield  # makes this function a generator
