"""The custom domains of projects."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core.db.tx import Tx
from moorage.core.http.idempotency.once import Write
from moorage.core.http.models import Output
from moorage.core.http.route import Router
from moorage.products.domains import service
from moorage.products.domains.dns import Addresses
from moorage.products.domains.names import is_apex
from moorage.products.domains.schemas import AddCustomDomainInput, CustomDomain
from moorage.products.domains.tables import Domain
from moorage.products.domains.verifying import Verifier
from moorage.products.projects import service as projects


class DomainDeleted(Output, frozen=True):
    deleted: bool


def make_router(verifier: Verifier) -> Router:
    router = Router("Domains")
    db = verifier.db
    addresses = Addresses(db.env.settings, verifier.resolver)

    async def shower(domain: str, project_name: str) -> Callable[[Domain], CustomDomain]:
        """Return what shows a domain, with DNS asked beforehand: a transaction cannot wait for it."""
        host = projects.host_of(db.env.settings, project_name)
        return partial(CustomDomain.of, host=host, addresses=await addresses.of(host) if is_apex(domain) else ())

    @router.get("/projects/{name}/domains")
    async def list_domains(caller: Caller, name: str) -> list[CustomDomain]:
        """List the custom domains of a project, oldest first."""
        found = await db.read(lambda tx: service.all_of(tx, caller.org_id, name))
        return [(await shower(each.domain, each.project_name))(each) for each in found]

    @router.post("/projects/{name}/domains", floor=Role.MEMBER)
    async def add_domain(caller: Caller, name: str, body: AddCustomDomainInput, write: Write) -> CustomDomain:
        """Add a custom domain to a project.

        `records` lists what to set in DNS. The domain is served once `verify` found the TXT record, or a CNAME record
        from the domain to the project. Keep the record: it is looked for again every day.
        """
        project = await db.peek(lambda tx: projects.get(tx, caller.org_id, name))
        show = await shower(body.domain, project.name)
        return await write(lambda tx: show(service.add(tx, caller.org_id, caller.as_actor, name, body.domain)))

    @router.post("/domains/{domain_id}/verify")
    async def verify_domain(caller: Caller, domain_id: int, write: Write) -> CustomDomain:
        """Look at a domain's DNS records now, and return the domain with what came of it.

        It takes as long as DNS does, at most 5 seconds. `lastError` says what was found in place of the record.
        """
        found, look = await verifier.look(caller.org_id, domain_id)
        show = await shower(found.domain, found.project_name)
        return await write(lambda tx: show(service.settle(tx, caller.org_id, caller.as_actor, domain_id, look)))

    @router.delete("/domains/{domain_id}", floor=Role.MEMBER)
    def delete_domain(tx: Tx, caller: Caller, domain_id: int) -> DomainDeleted:
        """Release a domain. It is served no more, and others may verify it."""
        service.delete(tx, caller.org_id, caller.as_actor, domain_id)
        return DomainDeleted(deleted=True)

    return router
