"""Request and response models of the custom domain routes."""

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
    def of(cls, row: Domain, host: str, addresses: Iterable[str]) -> CustomDomain:
        """Build the response from the project's own host and the platform's addresses."""
        proof = DnsRecord("TXT", PREFIX + row.domain, row.token)
        return cls(
            id=row.id,
            project_id=row.project_id,
            domain=row.domain,
            status=DomainStatus(row.status),
            verification=proof,
            records=[proof, *routing_records(row.domain, host, addresses)],
            certificate_status=CertificateStatus(row.certificate_status),
            last_error=row.last_error,
            verified_at=to_wire_or_none(row.verified_at),
            created_at=to_wire(row.created_at),
            updated_at=to_wire(row.updated_at),
        )


def routing_records(domain: str, host: str, addresses: Iterable[str]) -> list[DnsRecord]:
    """Return the records that route visitors to the platform.

    This is a CNAME; at an apex, where DNS allows no CNAME, these are A and AAAA records.
    """
    if not is_apex(domain):
        return [DnsRecord("CNAME", domain, host)]
    records = [DnsRecord(_record_type(address), domain, address) for address in addresses]
    # Many DNS providers offer ALIAS in place of a CNAME at an apex.
    return records or [DnsRecord("ALIAS", domain, host)]


def _record_type(address: str) -> str:
    return "AAAA" if ipaddress.ip_address(address).version == 6 else "A"
