"""Looking at DNS and drawing the consequences: the waiting is done here, outside of any transaction."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.products.domains import service
from moorage.products.domains.dns import Finding, Resolver, Wanted
from moorage.products.domains.service import Look, NoSuchDomain
from moorage.products.domains.states import CertificateStatus
from moorage.products.domains.tables import Domain
from moorage.products.projects import service as projects

AT_ONCE = 20
Write = Callable[[Callable[[Tx], Domain]], Awaitable[Domain]]


class Certificates(Protocol):
    """What the gateway knows of certificates."""

    def status(self, host: str) -> Literal["none", "pending", "issued", "failed"]: ...

    async def ensure(self, host: str) -> Literal["none", "pending", "issued", "failed"]: ...


@dataclass(frozen=True)
class Verifier:
    db: Database
    resolver: Resolver
    certificates: Certificates

    async def look(self, org_id: int, domain_id: int) -> tuple[Domain, Look]:
        """Look at a domain's records, and at those of the organization that holds it; `service.settle` decides."""
        found, holder = await self.db.read(lambda tx: service.get_with_holder(tx, org_id, domain_id))
        mine, theirs = await asyncio.gather(self._look(found), self._look_if(holder))
        return found, Look(mine, await self._certificate(found), holder.id if holder else None, theirs)

    async def recheck_due(self, write: Write) -> None:
        """Look again at every verified domain whose time has come."""
        while due := await self.db.read(lambda tx: service.due(tx, AT_ONCE)):
            findings = await asyncio.gather(*map(self._look, due))
            for found, finding in zip(due, findings, strict=True):
                look = Look(finding, await self._certificate(found))
                # Its owner may have released it while we looked.
                with contextlib.suppress(NoSuchDomain):
                    settle = partial(service.settle, org_id=found.org_id, actor=THE_PLATFORM, domain_id=found.id)
                    await write(partial(settle, look=look))

    async def _look(self, found: Domain) -> Finding:
        target = projects.host_of(self.db.env.settings, found.project_name)
        return await self.resolver.look(Wanted(found.domain, found.token, target))

    async def _look_if(self, found: Domain | None) -> Finding | None:
        return None if found is None else await self._look(found)

    async def _certificate(self, found: Domain) -> CertificateStatus:
        return CertificateStatus(await asyncio.to_thread(self.certificates.status, found.domain))
