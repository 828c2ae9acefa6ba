"""Models of the group domains. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from moorage.client.model import List, Model


class CustomDomain(Model, kw_only=True):
    id: int
    project_id: int
    domain: str
    status: DomainStatus
    verification: DnsRecord
    records: List[DnsRecord]
    certificate_status: CertificateStatus
    last_error: str | None
    verified_at: str | None
    created_at: str
    updated_at: str


DomainStatus = str


class DnsRecord(Model, kw_only=True):
    type: str
    name: str
    value: str


CertificateStatus = str


class DomainDeleted(Model, kw_only=True):
    deleted: bool


class AddCustomDomainInput(Model, kw_only=True):
    # A host name, such as `www.example.com`.
    domain: str
