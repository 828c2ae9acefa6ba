"""Jobs of domains: issue certificates, recheck DNS, clean up after deletions."""

from __future__ import annotations

import asyncio

import msgspec

from moorage.accounts.identity.organizations.service import OrganizationDeleted
from moorage.core.db.tx import Tx
from moorage.core.worker.run import Handlers, Run
from moorage.errors import RetryLater
from moorage.products.domains import grants, service
from moorage.products.domains.service import EnsureCertificate, ServedDomainsChanged
from moorage.products.domains.states import CertificateStatus, DomainStatus
from moorage.products.domains.tables import Domain
from moorage.products.domains.verifying import Verifier

KIND = "domains.recheck"
CRON = "*/10 * * * *"
# Certificate authorities allow a handful of failures an hour for a name, so the delays grow fast.
RETRY_S = (60, 300, 1800, 3600, 7200, 14_400, 28_800)


class RecheckDomains(msgspec.Struct, frozen=True, tag="domains.recheck_domains"):
    """Recheck the DNS records of the verified domains that are due."""


def register(handlers: Handlers, verifier: Verifier) -> None:
    """Register the jobs, the tick and the deletion hooks.

    The process that runs the gateway listens to `ServedDomainsChanged` as well.
    """

    async def recheck(run: Run, _: RecheckDomains) -> None:
        await verifier.recheck_due(run.write)

    async def ensure_certificate(run: Run, job: EnsureCertificate) -> None:
        domain = await run.read(lambda tx: service.find(tx, job.org_id, job.domain_id))
        if domain is None or domain.status != DomainStatus.VERIFIED:
            return
        status = await _issue(run, verifier, domain)
        await run.write(lambda tx: service.note_certificate(tx, job.org_id, job.domain_id, status))
        if status in (CertificateStatus.PENDING, CertificateStatus.FAILED):
            after_s = RETRY_S[min(run.attempt, len(RETRY_S)) - 1]
            raise RetryLater(after_s=after_s, why=f"the certificate of {domain.domain} is {status}")

    handlers.maintain(KIND, CRON, RecheckDomains(), recheck)
    handlers.add(EnsureCertificate, ensure_certificate)
    handlers.listen(ServedDomainsChanged)
    handlers.listen(OrganizationDeleted, remove_organization)


async def _issue(run: Run, verifier: Verifier, domain: Domain) -> str:
    """Make the gateway get a certificate, unless the weekly budget is used up."""
    refusal = await run.read(lambda tx: grants.why_no_certificate(tx, domain.org_id, domain.domain))
    is_issued = await asyncio.to_thread(verifier.certificates.status, domain.domain) == "issued"
    if refusal is not None and not is_issued:
        return CertificateStatus.FAILED
    return await verifier.certificates.ensure(domain.domain)


def remove_organization(tx: Tx, event: OrganizationDeleted) -> None:
    grants.remove_of_organization(tx, event.org_id)
    service.remove_of_organization(tx, event.org_id)
