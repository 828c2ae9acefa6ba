"""What the routes of custom domains take and give, by its names on the wire."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, Field

from moorage.core.http.models import Input, Output
from moorage.core.kit.clock import to_wire, to_wire_or_none
from moorage.products.domains.dns import PREFIX
from moorage.products.domains.names import LONGEST, is_apex, parse_domain
from moorage.products.domains.states import CertificateStatus, DomainStatus
from moorage.products.domains.tables import Domain

DomainName = Annotated[
    str,
    Field(min_length=1, max_length=LONGEST + 1, description="A host name, such as `www.example.com`."),
    AfterValidator(parse_domain),
]


class AddCustomDomainInput(Input):
    domain: DomainName


class DnsRecord(Output, frozen=True):
    type: str
    name: str
    value: str


class CustomDomain(Output, frozen=True):
    id: int
    project_id: int
    domain: str
    status: DomainStatus
    verification: DnsRecord
    records: list[DnsRecord]
    certificate_status: CertificateStatus
    last_error: str | None
    verified_at: str | None
    created_at: str
    updated_at: str

    @classmethod
    def of(cls, found: Domain, host: str, addresses: Iterable[str]) -> CustomDomain:
        """Show a domain. `host` is its project's own, `addresses` are where the platform is."""
        proof = DnsRecord("TXT", PREFIX + found.domain, found.token)
        return cls(
            id=found.id,
            project_id=found.project_id,
            domain=found.domain,
            status=DomainStatus(found.status),
            verification=proof,
            records=[proof, *leading_records(found.domain, host, addresses)],
            certificate_status=CertificateStatus(found.certificate_status),
            last_error=found.last_error,
            verified_at=to_wire_or_none(found.verified_at),
            created_at=to_wire(found.created_at),
            updated_at=to_wire(found.updated_at),
        )


def leading_records(domain: str, host: str, addresses: Iterable[str]) -> list[DnsRecord]:
    """Return the records that lead visitors here: a CNAME, or at an apex, where none can stand, addresses."""
    if not is_apex(domain):
        return [DnsRecord("CNAME", domain, host)]
    found = [DnsRecord(_kind_of(address), domain, address) for address in addresses]
    # Without a known address there is what many providers offer in place of a CNAME.
    return found or [DnsRecord("ALIAS", domain, host)]


def _kind_of(address: str) -> str:
    return "AAAA" if ipaddress.ip_address(address).version == 6 else "A"
