"""Routes of custom domains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core.db.tx import Tx
from moorage.core.http.idempotency.once import Write
from moorage.core.http.models import Output
from moorage.core.http.route import Router
from moorage.core.http.waiting import Progress
from moorage.core.kit.clock import to_wire
from moorage.products.domains import service
from moorage.products.domains.dns import Addresses
from moorage.products.domains.names import is_apex
from moorage.products.domains.schemas import AddCustomDomainInput, CustomDomain
from moorage.products.domains.states import CertificateStatus, DomainStatus
from moorage.products.domains.tables import Domain
from moorage.products.domains.verifying import Verifier
from moorage.products.projects import service as projects


class DomainDeleted(Output, frozen=True):
    deleted: bool


def _follow_certificate(tx: Tx, caller: Caller, answer: CustomDomain, path: Mapping[str, Any]) -> Progress:
    """Follow the certificate of a domain that was just verified."""
    domain = service.get(tx, caller.org_id, answer.id)
    current = msgspec.structs.replace(
        answer,
        status=DomainStatus(domain.status),
        certificate_status=CertificateStatus(domain.certificate_status),
        last_error=domain.last_error,
        updated_at=to_wire(domain.updated_at),
    )
    return Progress(current, domain.certificate_status != CertificateStatus.PENDING)


def make_router(verifier: Verifier) -> Router:
    router = Router("Domains")
    db = verifier.db
    addresses = Addresses(db.env.settings, verifier.resolver)

    async def make_presenter(domain: str, project_name: str) -> Callable[[Domain], CustomDomain]:
        """Query DNS, and return a function that builds the response in a transaction."""
        host = projects.host_of(db.env.settings, project_name)
        return partial(CustomDomain.of, host=host, addresses=await addresses.of(host) if is_apex(domain) else ())

    @router.get("/projects/{name}/domains")
    async def list_domains(caller: Caller, name: str) -> list[CustomDomain]:
        """List the custom domains of a project, oldest first."""
        domains = await db.read(lambda tx: service.all_of(tx, caller.org_id, name))
        return [(await make_presenter(each.domain, each.project_name))(each) for each in domains]

    @router.post("/projects/{name}/domains", min_role=Role.MEMBER, follow=_follow_certificate)
    async def add_domain(caller: Caller, name: str, body: AddCustomDomainInput, write: Write) -> CustomDomain:
        """Add a custom domain to a project.

        `records` lists the DNS records to set. The domain is served once `verify` finds the TXT record, or a CNAME
        record from the domain to the project. Keep the record: the platform checks it again every day.
        """
        project = await db.peek(lambda tx: projects.get(tx, caller.org_id, name))
        show = await make_presenter(body.domain, project.name)
        return await write(lambda tx: show(service.add(tx, caller.org_id, caller.as_actor, name, body.domain)))

    @router.post("/domains/{domain_id}/verify", follow=_follow_certificate)
    async def verify_domain(caller: Caller, domain_id: int, write: Write) -> CustomDomain:
        """Check a domain's DNS records now, and return the updated domain.

        The check waits for DNS, at most 5 seconds. `lastError` describes any other record found.
        """
        domain, evidence = await verifier.gather_evidence(caller.org_id, domain_id)
        show = await make_presenter(domain.domain, domain.project_name)
        apply = partial(service.apply_evidence, org_id=caller.org_id, actor=caller.as_actor, domain_id=domain_id)
        return await write(lambda tx: show(apply(tx, evidence=evidence)))

    @router.delete("/domains/{domain_id}", min_role=Role.MEMBER)
    def delete_domain(tx: Tx, caller: Caller, domain_id: int) -> DomainDeleted:
        """Release a domain. It is no longer served, and other organizations may verify it."""
        service.delete(tx, caller.org_id, caller.as_actor, domain_id)
        return DomainDeleted(deleted=True)

    return router
