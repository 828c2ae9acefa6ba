"""Domain verification: waits for DNS and the gateway outside of transactions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal, Protocol

from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.records import dataclass
from moorage.products.domains import service
from moorage.products.domains.dns import ExpectedRecords, Finding, Resolver
from moorage.products.domains.service import DnsEvidence, NoSuchDomain
from moorage.products.domains.states import CertificateStatus
from moorage.products.domains.tables import Domain
from moorage.products.projects import service as projects

RECHECK_BATCH = 20
Write = Callable[[Callable[[Tx], Domain]], Awaitable[Domain]]


class Certificates(Protocol):
    """Certificates of the gateway."""

    def status(self, host: str) -> Literal["none", "pending", "issued", "failed"]: ...

    async def ensure(self, host: str) -> Literal["none", "pending", "issued", "failed"]: ...


@dataclass(frozen=True)
class Verifier:
    db: Database
    resolver: Resolver
    certificates: Certificates

    async def gather_evidence(self, org_id: int, domain_id: int) -> tuple[Domain, DnsEvidence]:
        """Look up the records of a domain and of its current holder."""
        domain, holder = await self.db.read(lambda tx: service.get_with_holder(tx, org_id, domain_id))
        mine, theirs = await asyncio.gather(self._look_up(domain), self._look_up_holder(holder))
        return domain, DnsEvidence(mine, await self._certificate(domain), holder.id if holder else None, theirs)

    async def recheck_due(self, write: Write) -> None:
        """Recheck every verified domain that is due."""
        while due := await self.db.read(lambda tx: service.due(tx, RECHECK_BATCH)):
            findings = await asyncio.gather(*map(self._look_up, due))
            for domain, finding in zip(due, findings, strict=True):
                evidence = DnsEvidence(finding, await self._certificate(domain))
                # The owner may have released the domain during the lookup.
                with contextlib.suppress(NoSuchDomain):
                    apply = partial(service.apply_evidence, org_id=domain.org_id, domain_id=domain.id)
                    await write(partial(apply, actor=THE_PLATFORM, evidence=evidence))

    async def _look_up(self, domain: Domain) -> Finding:
        target = projects.host_of(self.db.env.settings, domain.project_name)
        return await self.resolver.look_up(ExpectedRecords(domain.domain, domain.token, target))

    async def _look_up_holder(self, holder: Domain | None) -> Finding | None:
        return None if holder is None else await self._look_up(holder)

    async def _certificate(self, domain: Domain) -> CertificateStatus:
        return CertificateStatus(await asyncio.to_thread(self.certificates.status, domain.domain))
