"""Routes of the group Domains. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from moorage.client import models
from moorage.client.asynchronous import AsyncTransport
from moorage.client.exchange import Call, path_part
from moorage.client.model import List


class AsyncDomains:
    """Methods of the group Domains."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, name: str) -> List[models.CustomDomain]:
        """List the custom domains of a project, oldest first."""
        return await self._transport.call(
            Call("GET", f"/v1/projects/{path_part(name)}/domains"), List[models.CustomDomain]
        )

    async def add(
        self, name: str, *, domain: str, wait: int | None = None, idempotency_key: str | None = None
    ) -> models.CustomDomain:
        """Add a custom domain to a project.

        `records` lists the DNS records to set. The domain is served once `verify` finds the TXT record, or
        a CNAME record from the domain to the project. Keep the record: the platform checks it again every
        day.
        """
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/projects/{path_part(name)}/domains",
                query={"wait": wait},
                body=models.AddCustomDomainInput(domain=domain),
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.CustomDomain,
        )

    async def verify(
        self, domain_id: int | str, *, wait: int | None = None, idempotency_key: str | None = None
    ) -> models.CustomDomain:
        """Check a domain's DNS records now, and return the updated domain.

        The check waits for DNS, at most 5 seconds. `lastError` describes any other record found.
        """
        return await self._transport.call(
            Call(
                "POST",
                f"/v1/domains/{path_part(domain_id)}/verify",
                query={"wait": wait},
                key=idempotency_key,
                wait_s=wait or 0,
            ),
            models.CustomDomain,
        )

    async def delete(self, domain_id: int | str, *, idempotency_key: str | None = None) -> models.DomainDeleted:
        """Release a domain. It is no longer served, and other organizations may verify it."""
        return await self._transport.call(
            Call("DELETE", f"/v1/domains/{path_part(domain_id)}", key=idempotency_key), models.DomainDeleted
        )
