"""Custom domains: add, verify, transfer, release, and list the served ones.

A domain belongs to the organization that verified it, until that organization releases it or its DNS record is gone.
This module makes every ownership decision, in one transaction, from DNS answers fetched just before.
"""

from __future__ import annotations

import hmac
import secrets

import msgspec

from moorage.core import jobs
from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM, Actor, AuditTarget
from moorage.core.db.scope import PLATFORM_ORG_ID, across_organizations
from moorage.core.db.tx import Tx, move
from moorage.core.jobs import Lane
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS
from moorage.core.kit.records import dataclass
from moorage.core.vault import service as vault
from moorage.errors import Conflict, NotFound, bad_field
from moorage.products.domains import grants, tables
from moorage.products.domains.dns import Finding, Outcome
from moorage.products.domains.names import is_ours
from moorage.products.domains.states import CUSTOM_DOMAIN, CertificateStatus, DomainStatus
from moorage.products.domains.tables import Domain
from moorage.products.projects import service as projects

# The gateway and the DNS checks hold every domain.
MAX_OF_PROJECT = 100
MAX_OF_ORGANIZATION = 500
CHECK_EVERY_MS = DAY_MS
GRACE_CHECKS = 3  # checks after the first miss that may miss the record too, before the domain fails
GRACE_CHECK_INTERVAL_MS = DAY_MS // GRACE_CHECKS
UNKNOWN_RECHECK_MS = HOUR_MS  # An unanswered DNS query never fails a domain; the check is repeated soon.
RECORD_PREFIX = "moorage-domain="
TOKEN_CHARS = 32
# A certificate authority allows a handful of failures an hour; repeated calls of `verify` must not use them up.
CERTIFICATE_RETRY_MS = 15 * MINUTE_MS
NO_CERTIFICATE = (
    "No certificate was issued: the certificate authority has to reach this platform at the domain. Check that its "
    "records lead here, and that no CAA record forbids it."
)

C = CertificateStatus


class NoSuchDomain(NotFound):
    def __init__(self) -> None:
        super().__init__("There is no such domain")


class ServedDomainsChanged(msgspec.Struct, frozen=True, tag="domains.served_changed"):
    """Event: the set of domains that a project is served at has changed."""

    org_id: int
    project_id: int


class EnsureCertificate(msgspec.Struct, frozen=True, tag="domains.ensure_certificate"):
    """Get the certificate of a verified domain."""

    org_id: int
    domain_id: int


@dataclass(frozen=True, slots=True)
class DnsEvidence:
    """DNS answers for a domain, and for the other organization's claim on it."""

    mine: Finding
    certificate: str = C.NONE  # status at the gateway
    holder_id: int | None = None
    holder: Finding | None = None

    def proves_gone(self, other: Domain) -> bool:
        """Return whether DNS answered for the other claim and has no record for it."""
        return self.holder_id == other.id and self.holder is not None and self.holder.outcome is Outcome.ABSENT


def all_of(tx: Tx, org_id: int, project_name: str) -> list[Domain]:
    project = projects.get(tx, org_id, project_name)
    return tx.all(tables.OF_PROJECT, org_id=org_id, project_id=project.id)


def has_any(tx: Tx, org_id: int, project_id: int) -> bool:
    """Return whether a project has a domain."""
    return bool(tx.all(tables.OF_PROJECT, org_id=org_id, project_id=project_id))


def find(tx: Tx, org_id: int, domain_id: int) -> Domain | None:
    return tx.find(tables.FIND, org_id=org_id, id=domain_id)


def get(tx: Tx, org_id: int, domain_id: int) -> Domain:
    domain = find(tx, org_id, domain_id)
    if domain is None:
        raise NoSuchDomain
    return domain


def get_with_holder(tx: Tx, org_id: int, domain_id: int) -> tuple[Domain, Domain | None]:
    """Return a domain, and the verified domain of another organization, if any."""
    domain = get(tx, org_id, domain_id)
    holder = tx.find(tables.HOLDER, domain=domain.domain)
    return domain, holder if holder is not None and holder.id != domain.id else None


def add(tx: Tx, org_id: int, actor: Actor, project_name: str, domain: str) -> Domain:
    """Add a domain to a project; it is served once a DNS record proves it.

    Refuses a domain that another organization holds, unless the holder's record was missing at the latest check.
    """
    # The audit feed of an organization has one writer at a time: no other transaction can delete its projects or add
    # domains now.
    audit.record(tx, org_id, actor, "domain.added", AuditTarget("project", project_name), domain=domain)
    project = projects.get(tx, org_id, project_name)
    if is_ours(tx.env.settings, domain):
        raise bad_field("domain", "should be a domain of yours: this one belongs to the platform")
    holder = tx.find(tables.HOLDER, domain=domain)
    if holder is not None and holder.org_id != org_id and holder.missed == 0:
        raise Conflict(f"Another organization has verified the domain {domain}")
    _check_room(tx, org_id, project.id)
    domain_id = tx.find(
        tables.ADD,
        org_id=org_id,
        project_id=project.id,
        domain=domain,
        token=_token(tx, org_id, domain),
        status=DomainStatus.PENDING,
        certificate_status=C.NONE,
        missed=0,
        next_check_at=tx.now,
        created_at=tx.now,
        updated_at=tx.now,
    )
    if domain_id is None:
        raise Conflict(f"The domain {domain} has been added already")
    return get(tx, org_id, domain_id)


def _check_room(tx: Tx, org_id: int, project_id: int) -> None:
    if tx.one(tables.COUNT_OF_PROJECT, org_id=org_id, project_id=project_id) >= MAX_OF_PROJECT:
        raise Conflict(f"A project has at most {MAX_OF_PROJECT} domains")
    if tx.one(tables.COUNT_OF_ORG, org_id=org_id) >= MAX_OF_ORGANIZATION:
        raise Conflict(f"An organization has at most {MAX_OF_ORGANIZATION} domains")


def delete(tx: Tx, org_id: int, actor: Actor, domain_id: int) -> None:
    """Release a domain: it is no longer served, and other organizations may verify it."""
    domain = get(tx, org_id, domain_id)
    tx.run(tables.DELETE, org_id=org_id, id=domain_id)
    audit.record(tx, org_id, actor, "domain.removed", _target(domain), domain=domain.domain)
    if domain.status == DomainStatus.VERIFIED:
        _emit_served_changed(tx, org_id, domain)


def remove_of_project(tx: Tx, org_id: int, project_id: int) -> None:
    """Remove the domains of a project in the transaction that deletes it. Idempotent."""
    if tx.all(tables.TAKE_OF_PROJECT, org_id=org_id, project_id=project_id):
        jobs.add(tx, ServedDomainsChanged(org_id, project_id))


def remove_of_organization(tx: Tx, org_id: int) -> None:
    if tx.all(tables.TAKE_OF_ORG, org_id=org_id):
        jobs.add(tx, ServedDomainsChanged(org_id, 0))


def apply_evidence(tx: Tx, org_id: int, actor: Actor, domain_id: int, evidence: DnsEvidence) -> Domain:
    """Update a domain and the other claims on it from DNS answers; return the domain."""
    claims = tx.all(tables.LOCK, domain=get(tx, org_id, domain_id).domain)
    domain = next((claim for claim in claims if claim.id == domain_id), None)
    if domain is None:
        raise NoSuchDomain
    mine = _reject_inherited_cname(tx, org_id, domain, evidence.mine)
    if mine.outcome is not Outcome.PROVEN:
        _record_missing(tx, org_id, domain, mine)
    elif domain.status == DomainStatus.VERIFIED:
        _record_present(tx, org_id, domain, evidence.certificate)
    else:
        _claim(tx, org_id, actor, domain, [claim for claim in claims if claim is not domain], evidence)
    return get(tx, org_id, domain_id)


def note_certificate(tx: Tx, org_id: int, domain_id: int, certificate: str) -> None:
    """Record the certificate status of a domain, if the domain is still served."""
    tx.run(
        tables.NOTE_CERTIFICATE,
        org_id=org_id,
        id=domain_id,
        certificate=certificate,
        error=_why_no_certificate(tx, org_id, find(tx, org_id, domain_id)) if certificate == C.FAILED else None,
        now=tx.now,
    )


@across_organizations("the gateway serves the domains of every organization")
def served(tx: Tx) -> dict[str, int]:
    """Return the project id of every served domain."""
    return dict(tx.all(tables.SERVED))


def hosts_of(tx: Tx, org_id: int, project_id: int) -> list[str]:
    """Return the served domains of a project."""
    return tx.all(tables.HOSTS_OF, org_id=org_id, project_id=project_id)


@across_organizations("the host name determines the organization")
def find_owner(tx: Tx, host: str) -> tuple[int, int] | None:
    """Return the organization id and the project id of a served domain."""
    return tx.find(tables.OWNER, domain=host)


@across_organizations("the platform rechecks the domains of every organization")
def due(tx: Tx, most: int) -> list[Domain]:
    return tx.all(tables.DUE, now=tx.now, most=most)


def _reject_inherited_cname(tx: Tx, org_id: int, domain: Domain, finding: Finding) -> Finding:
    """Refuse a CNAME as the only proof if another organization held the domain last.

    The CNAME points to a project's name. It often outlives the project, and the next project with that name must not
    get the domain with it.
    """
    if finding.outcome is not Outcome.PROVEN or finding.by != "CNAME":
        return finding
    if tx.find(tables.LAST_HOLDER, domain=domain.domain) in (None, org_id):
        return finding
    why = "Another organization had this domain before, so a CNAME record is not enough: set the TXT record."
    return Finding(Outcome.ABSENT, error=why)


def _record_missing(tx: Tx, org_id: int, domain: Domain, finding: Finding) -> None:
    """Store the error. A verified domain is served until its grace checks are used up."""
    missed, next_check_at = domain.missed, domain.next_check_at
    if domain.status == DomainStatus.VERIFIED:
        if finding.outcome is Outcome.UNKNOWN:
            next_check_at = max(next_check_at, tx.now + UNKNOWN_RECHECK_MS)
        # Only checks at their due time count, so that repeated calls of `verify` cannot use up the grace.
        elif missed == 0 or tx.now >= next_check_at:
            missed, next_check_at = missed + 1, tx.now + GRACE_CHECK_INTERVAL_MS
        if missed > GRACE_CHECKS:
            _give_up(tx, org_id, domain, f"{finding.error} The domain is no longer served.")
            return
    tx.run(
        tables.NOTE_CHECK,
        org_id=org_id,
        id=domain.id,
        error=finding.error,
        missed=missed,
        next_check_at=next_check_at,
        certificate=domain.certificate_status,
        now=tx.now,
    )


def _record_present(tx: Tx, org_id: int, domain: Domain, certificate: str) -> None:
    status = _certificate_of(tx, org_id, domain, certificate)
    tx.run(
        tables.NOTE_CHECK,
        org_id=org_id,
        id=domain.id,
        error=_why_no_certificate(tx, org_id, domain) if status == C.FAILED else None,
        missed=0,
        next_check_at=tx.now + CHECK_EVERY_MS,
        certificate=status,
        now=tx.now,
    )


def _claim(tx: Tx, org_id: int, actor: Actor, domain: Domain, others: list[Domain], evidence: DnsEvidence) -> None:
    """Verify the domain, unless the record of the current holder may still exist."""
    holder = next((other for other in others if other.status == DomainStatus.VERIFIED), None)
    if holder is not None:
        if not evidence.proves_gone(holder):
            why = "Another organization has verified this domain. It passes on once their record is gone."
            _lose(tx, org_id, domain, why)
            return
        _give_up(tx, holder.org_id, holder, "The record is gone, and another organization has verified this domain.")
    for other in others:
        if other.status == DomainStatus.PENDING:
            _lose(tx, other.org_id, other, "Another organization has verified this domain.")
    _grant(tx, org_id, actor, domain, evidence)


def _grant(tx: Tx, org_id: int, actor: Actor, domain: Domain, evidence: DnsEvidence) -> None:
    move(
        tx,
        CUSTOM_DOMAIN,
        domain,
        to=DomainStatus.VERIFIED,
        verified_at=tx.now,
        last_error=None,
        missed=0,
        next_check_at=tx.now + CHECK_EVERY_MS,
        certificate_status=_certificate_of(tx, org_id, domain, evidence.certificate),
    )
    _remember_holder(tx, org_id, domain.domain)
    audit.record(tx, org_id, actor, "domain.verified", _target(domain), domain=domain.domain, by=evidence.mine.by)
    _emit_served_changed(tx, org_id, domain)


def _lose(tx: Tx, org_id: int, domain: Domain, why: str) -> None:
    """Fail a claim on a domain that belongs to another organization."""
    if domain.status == DomainStatus.PENDING:
        move(tx, CUSTOM_DOMAIN, domain, to=DomainStatus.FAILED, last_error=why)
        return
    tx.run(
        tables.NOTE_CHECK,
        org_id=org_id,
        id=domain.id,
        error=why,
        missed=0,
        next_check_at=domain.next_check_at,
        certificate=domain.certificate_status,
        now=tx.now,
    )


def _give_up(tx: Tx, org_id: int, domain: Domain, why: str) -> None:
    """Stop serving a verified domain whose DNS record is gone."""
    move(tx, CUSTOM_DOMAIN, domain, to=DomainStatus.FAILED, last_error=why, certificate_status=C.NONE)
    audit.record(tx, org_id, THE_PLATFORM, "domain.failed", _target(domain), domain=domain.domain, why=why)
    _emit_served_changed(tx, org_id, domain)


def _certificate_of(tx: Tx, org_id: int, domain: Domain, certificate: str) -> str:
    """Return the certificate status; request a certificate if none is issued."""
    if certificate == C.ISSUED or not tx.env.settings.https_port:
        return certificate
    job, key = EnsureCertificate(org_id, domain.id), f"certificate:{domain.id}"
    is_waiting = jobs.add(tx, job, dedupe_key=key, lane=Lane.CHORES) is None
    if is_waiting and tx.now - (domain.certificate_at or tx.now) >= CERTIFICATE_RETRY_MS:
        # The next scheduled retry may be hours away, and a call of `verify` often follows a corrected record.
        jobs.add(tx, job, dedupe_key=f"{key}:now", lane=Lane.CHORES, max_attempts=1)
    return C.FAILED if domain.certificate_status == C.FAILED else C.PENDING


def _why_no_certificate(tx: Tx, org_id: int, domain: Domain | None) -> str:
    refusal = grants.why_no_certificate(tx, org_id, domain.domain) if domain is not None else None
    return refusal or NO_CERTIFICATE


def _remember_holder(tx: Tx, org_id: int, domain: str) -> None:
    if tx.find(tables.ADD_HOLDER, domain=domain, org_id=org_id, at=tx.now) is None:
        tx.run(tables.SET_HOLDER, domain=domain, org_id=org_id, now=tx.now)


def _emit_served_changed(tx: Tx, org_id: int, domain: Domain) -> None:
    jobs.add(tx, ServedDomainsChanged(org_id, domain.project_id))


def _target(domain: Domain) -> AuditTarget:
    return AuditTarget("project", domain.project_name)


def _token(tx: Tx, org_id: int, domain: str) -> str:
    """Return the verification token: stable and unique per organization and domain."""
    key = vault.find(tx, PLATFORM_ORG_ID, "domains", "key")
    if key is None:
        key = secrets.token_hex(32)
        vault.put(tx, PLATFORM_ORG_ID, "domains", "key", key)
    digest = hmac.digest(bytes.fromhex(key), f"{org_id} {domain}".encode(), "sha256")
    return RECORD_PREFIX + digest.hex()[:TOKEN_CHARS]
