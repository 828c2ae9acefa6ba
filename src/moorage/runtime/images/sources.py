"""All places that may serve an image: the mirrors of its registry, then the registry itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import TypeVar

from moorage.core.kit.records import dataclass
from moorage.core.net.client import GuardedClient
from moorage.core.net.registry_mirrors import MirrorAddress
from moorage.core.net.targets import TargetPolicy
from moorage.runtime.images.manifests import Descriptor, Index, Manifest
from moorage.runtime.images.mirrors import TRUSTED, Mirror
from moorage.runtime.images.references import PullFailed, Reference
from moorage.runtime.images.registry import PullSettings, Registry
from moorage.runtime.images.sign_in import Credentials, FindCredentials

T = TypeVar("T")

USER_AGENT = "Moorage-Images"
MIRROR_TRIES = 2  # The registry itself is the next try.


async def no_credentials(org_id: int, registry: str) -> Credentials | None:
    return None


@dataclass(frozen=True)
class Source:
    """One image at its mirrors and its registry, in the order of requests. Not for concurrent use."""

    registries: tuple[Registry, ...]

    @property
    def is_private(self) -> bool:
        """Whether an answer depended on the organization's credentials."""
        return any(each.used_credentials for each in self.registries)

    async def manifest(self, wanted: str) -> tuple[str, Manifest | Index]:
        return await self._first(lambda registry: registry.manifest(wanted))

    async def document(self, digest: str) -> tuple[bytes, str]:
        return await self._first(lambda registry: registry.document(digest))

    async def read(self, part: Descriptor, max_bytes: int) -> bytes:
        return await self._first(lambda registry: registry.read(part, max_bytes))

    async def download(self, part: Descriptor, target: Path) -> None:
        await self._first(lambda registry: registry.download(part, target))

    async def _first(self, ask: Callable[[Registry], Awaitable[T]]) -> T:
        *mirrors, last = self.registries
        for mirror in mirrors:
            try:
                return await ask(mirror)
            except PullFailed:
                continue
        return await ask(last)


@dataclass(frozen=True)
class Sources:
    """Opens the sources of images for an organization."""

    targets: TargetPolicy
    settings: PullSettings = field(default_factory=PullSettings)
    credentials: FindCredentials = no_credentials
    mirrors: Mapping[str, tuple[MirrorAddress, ...]] = field(default_factory=dict)
    authorities: str = ""  # file with CA certificates of registries, besides the usual ones

    @asynccontextmanager
    async def open(self, reference: Reference, org_id: int | None) -> AsyncIterator[Source]:
        """Yield the source of an image. An organization with credentials for the registry does not use its mirrors."""
        credentials = await self.credentials(org_id, reference.registry) if org_id is not None else None
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(self._client(self.targets))
            mirrors = []
            for address in () if credentials else self.mirrors.get(reference.registry, ()):
                trusted = await stack.enter_async_context(self._client(TRUSTED))
                mirrors.append(Mirror(address, trusted))
            quick = replace(self.settings, tries=min(MIRROR_TRIES, self.settings.tries))
            yield Source(
                (
                    *(Registry(client, self.targets, reference, quick, mirror=each) for each in mirrors),
                    Registry(client, self.targets, reference, self.settings, credentials=credentials),
                )
            )

    def _client(self, policy: TargetPolicy) -> GuardedClient:
        return GuardedClient(policy, user_agent=USER_AGENT, authorities=self.authorities)
