"""Custom domains: added, proven, passed on, given up; and which of them are served.

A domain belongs to whoever proved it, until they release it or their record is gone. Every decision about that is made
here, in one transaction, from what was found in DNS just before.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass

import msgspec

from moorage.core import jobs
from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM, Actor, Target
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, move
from moorage.core.jobs import Lane
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS
from moorage.core.vault import service as vault
from moorage.errors import Conflict, NotFound, bad_field
from moorage.products.domains import grants, tables
from moorage.products.domains.dns import Finding, Outcome
from moorage.products.domains.names import is_ours
from moorage.products.domains.states import CUSTOM_DOMAIN, CertificateStatus, DomainStatus
from moorage.products.domains.tables import Domain
from moorage.products.projects import service as projects

PLATFORM = 0
CHECK_EVERY_MS = DAY_MS
GRACE_CHECKS = 3  # further checks that a record may be missing at, before the domain is given up
GRACE_EVERY_MS = DAY_MS // GRACE_CHECKS
UNKNOWN_AGAIN_MS = HOUR_MS  # A DNS server that did not answer costs nobody a domain; it is asked again soon.
PROOF = "moorage-domain="
TOKEN_CHARS = 32
# A certificate authority allows a handful of failures an hour; whoever presses `verify` must not use them up.
CERTIFICATE_AGAIN_MS = 15 * MINUTE_MS
NO_CERTIFICATE = (
    "No certificate was issued: the certificate authority has to reach this platform at the domain. Check that its "
    "records lead here, and that no CAA record forbids it."
)

C = CertificateStatus


class NoSuchDomain(NotFound):
    def __init__(self) -> None:
        super().__init__("There is no such domain")


class ServedDomainsChanged(msgspec.Struct, frozen=True, tag="domains.served_changed"):
    """An event: a project is served at other domains than before."""

    org_id: int
    project_id: int


class EnsureCertificate(msgspec.Struct, frozen=True, tag="domains.ensure_certificate"):
    """Get the certificate of a domain that was proven."""

    org_id: int
    domain_id: int


@dataclass(frozen=True, slots=True)
class Look:
    """What was found just before a decision: about a domain, and about whoever else holds it."""

    mine: Finding
    certificate: str = C.NONE  # what the gateway has
    holder_id: int | None = None
    holder: Finding | None = None

    def proves_gone(self, other: Domain) -> bool:
        """Tell whether the record of another's domain was looked for, and is gone for certain."""
        return self.holder_id == other.id and self.holder is not None and self.holder.outcome is Outcome.ABSENT


def all_of(tx: Tx, org_id: int, project_name: str) -> list[Domain]:
    project = projects.get(tx, org_id, project_name)
    return tx.all(tables.OF_PROJECT, org_id=org_id, project_id=project.id)


def find(tx: Tx, org_id: int, domain_id: int) -> Domain | None:
    return tx.find(tables.FIND, org_id=org_id, id=domain_id)


def get(tx: Tx, org_id: int, domain_id: int) -> Domain:
    found = find(tx, org_id, domain_id)
    if found is None:
        raise NoSuchDomain
    return found


def get_with_holder(tx: Tx, org_id: int, domain_id: int) -> tuple[Domain, Domain | None]:
    """Return a domain, and the row of another organization that holds it, if one does."""
    found = get(tx, org_id, domain_id)
    holder = tx.find(tables.HOLDER, domain=found.domain)
    return found, holder if holder is not None and holder.id != found.id else None


def add(tx: Tx, org_id: int, actor: Actor, project_name: str, domain: str) -> Domain:
    """Add a domain to a project; it is served once its records prove it.

    A domain that somebody else holds is refused, unless their record was missing at the latest check.
    """
    # An organization's feed has one writer at a time, so from here on its projects stay.
    audit.record(tx, org_id, actor, "domain.added", Target("project", project_name), domain=domain)
    project = projects.get(tx, org_id, project_name)
    if is_ours(tx.env.settings, domain):
        raise bad_field("domain", "should be a domain of yours: this one belongs to the platform")
    holder = tx.find(tables.HOLDER, domain=domain)
    if holder is not None and holder.org_id != org_id and holder.missed == 0:
        raise Conflict(f"Another organization has verified the domain {domain}")
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


def delete(tx: Tx, org_id: int, actor: Actor, domain_id: int) -> None:
    """Release a domain: from now on it is served no more, and others may prove it."""
    found = get(tx, org_id, domain_id)
    tx.run(tables.DELETE, org_id=org_id, id=domain_id)
    audit.record(tx, org_id, actor, "domain.removed", _target(found), domain=found.domain)
    if found.status == DomainStatus.VERIFIED:
        _announce(tx, org_id, found)


def remove_of_project(tx: Tx, org_id: int, project_id: int) -> None:
    """Remove the domains of a project, in the transaction that deletes it. Safe to repeat."""
    if tx.all(tables.TAKE_OF_PROJECT, org_id=org_id, project_id=project_id):
        jobs.add(tx, ServedDomainsChanged(org_id, project_id))


def remove_of_organization(tx: Tx, org_id: int) -> None:
    if tx.all(tables.TAKE_OF_ORG, org_id=org_id):
        jobs.add(tx, ServedDomainsChanged(org_id, 0))


def settle(tx: Tx, org_id: int, actor: Actor, domain_id: int, look: Look) -> Domain:
    """Draw the consequences of a look at DNS, and return the domain as it is then."""
    everyone = tx.all(tables.LOCK, domain=get(tx, org_id, domain_id).domain)
    found = next((each for each in everyone if each.id == domain_id), None)
    if found is None:
        raise NoSuchDomain
    mine = _weigh(tx, org_id, found, look.mine)
    if mine.outcome is not Outcome.PROVEN:
        _note_absence(tx, org_id, found, mine)
    elif found.status == DomainStatus.VERIFIED:
        _note_presence(tx, org_id, found, look.certificate)
    else:
        _claim(tx, org_id, actor, found, [each for each in everyone if each is not found], look)
    return get(tx, org_id, domain_id)


def note_certificate(tx: Tx, org_id: int, domain_id: int, certificate: str) -> None:
    """Record what became of asking for a certificate, for as long as the domain is served."""
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
    """Return every domain that is served, with its project's id."""
    return dict(tx.all(tables.SERVED))


def hosts_of(tx: Tx, org_id: int, project_id: int) -> list[str]:
    """Return the domains that a project is served at."""
    return tx.all(tables.HOSTS_OF, org_id=org_id, project_id=project_id)


@across_organizations("a host leads to whoever has it")
def find_owner(tx: Tx, host: str) -> tuple[int, int] | None:
    """Return whose a domain that is served is: the organization's id and the project's."""
    return tx.find(tables.OWNER, domain=host)


@across_organizations("the domains of every organization are looked at again")
def due(tx: Tx, most: int) -> list[Domain]:
    return tx.all(tables.DUE, now=tx.now, most=most)


def _weigh(tx: Tx, org_id: int, found: Domain, finding: Finding) -> Finding:
    """Refuse a CNAME as the only proof of a domain that was another organization's.

    It leads to a project's name. When the project is deleted the record often stays, and whoever takes the name next
    must not get the domain with it.
    """
    if finding.outcome is not Outcome.PROVEN or finding.by != "CNAME":
        return finding
    if tx.find(tables.LAST_HOLDER, domain=found.domain) in (None, org_id):
        return finding
    why = "Another organization had this domain before, so a CNAME record is not enough: set the TXT record."
    return Finding(Outcome.ABSENT, error=why)


def _note_absence(tx: Tx, org_id: int, found: Domain, finding: Finding) -> None:
    """Say what is wrong. A verified domain stays served meanwhile, but not for longer than its grace."""
    missed, again = found.missed, found.next_check_at
    if found.status == DomainStatus.VERIFIED:
        if finding.outcome is Outcome.UNKNOWN:
            again = max(again, tx.now + UNKNOWN_AGAIN_MS)
        # Somebody who presses a button four times must not use up the grace.
        elif missed == 0 or tx.now >= again:
            missed, again = missed + 1, tx.now + GRACE_EVERY_MS
        if missed > GRACE_CHECKS:
            _give_up(tx, org_id, found, f"{finding.error} The domain is no longer served.")
            return
    tx.run(
        tables.NOTE_CHECK,
        org_id=org_id,
        id=found.id,
        error=finding.error,
        missed=missed,
        next_check_at=again,
        certificate=found.certificate_status,
        now=tx.now,
    )


def _note_presence(tx: Tx, org_id: int, found: Domain, certificate: str) -> None:
    shown = _certificate_of(tx, org_id, found, certificate)
    tx.run(
        tables.NOTE_CHECK,
        org_id=org_id,
        id=found.id,
        error=_why_no_certificate(tx, org_id, found) if shown == C.FAILED else None,
        missed=0,
        next_check_at=tx.now + CHECK_EVERY_MS,
        certificate=shown,
        now=tx.now,
    )


def _claim(tx: Tx, org_id: int, actor: Actor, found: Domain, others: list[Domain], look: Look) -> None:
    """Give a proven domain to who proved it, unless somebody else holds it whose record may still be there."""
    holder = next((other for other in others if other.status == DomainStatus.VERIFIED), None)
    if holder is not None:
        if not look.proves_gone(holder):
            why = "Another organization has verified this domain. It passes on once their record is gone."
            _lose(tx, org_id, found, why)
            return
        _give_up(tx, holder.org_id, holder, "The record is gone, and another organization has verified this domain.")
    for other in others:
        if other.status == DomainStatus.PENDING:
            _lose(tx, other.org_id, other, "Another organization has verified this domain.")
    _grant(tx, org_id, actor, found, look)


def _grant(tx: Tx, org_id: int, actor: Actor, found: Domain, look: Look) -> None:
    move(
        tx,
        CUSTOM_DOMAIN,
        found,
        to=DomainStatus.VERIFIED,
        verified_at=tx.now,
        last_error=None,
        missed=0,
        next_check_at=tx.now + CHECK_EVERY_MS,
        certificate_status=_certificate_of(tx, org_id, found, look.certificate),
    )
    _remember_holder(tx, org_id, found.domain)
    audit.record(tx, org_id, actor, "domain.verified", _target(found), domain=found.domain, by=look.mine.by)
    _announce(tx, org_id, found)


def _lose(tx: Tx, org_id: int, found: Domain, why: str) -> None:
    """Tell somebody who wants a domain that it is another's."""
    if found.status == DomainStatus.PENDING:
        move(tx, CUSTOM_DOMAIN, found, to=DomainStatus.FAILED, last_error=why)
        return
    tx.run(
        tables.NOTE_CHECK,
        org_id=org_id,
        id=found.id,
        error=why,
        missed=0,
        next_check_at=found.next_check_at,
        certificate=found.certificate_status,
        now=tx.now,
    )


def _give_up(tx: Tx, org_id: int, found: Domain, why: str) -> None:
    """Take a domain from its owner, whose record is gone."""
    move(tx, CUSTOM_DOMAIN, found, to=DomainStatus.FAILED, last_error=why, certificate_status=C.NONE)
    audit.record(tx, org_id, THE_PLATFORM, "domain.failed", _target(found), domain=found.domain, why=why)
    _announce(tx, org_id, found)


def _certificate_of(tx: Tx, org_id: int, found: Domain, certificate: str) -> str:
    """Return the state of a served domain's certificate, and ask for one where there is none yet."""
    if certificate == C.ISSUED or not tx.env.settings.https_port:
        return certificate
    wanted, key = EnsureCertificate(org_id, found.id), f"certificate:{found.id}"
    is_waiting = jobs.add(tx, wanted, dedupe_key=key, lane=Lane.CHORES) is None
    if is_waiting and tx.now - (found.certificate_at or tx.now) >= CERTIFICATE_AGAIN_MS:
        # The next regular try may be hours away, and whoever asks now has often just set a record.
        jobs.add(tx, wanted, dedupe_key=f"{key}:now", lane=Lane.CHORES, max_attempts=1)
    return C.FAILED if found.certificate_status == C.FAILED else C.PENDING


def _why_no_certificate(tx: Tx, org_id: int, found: Domain | None) -> str:
    refusal = grants.why_no_certificate(tx, org_id, found.domain) if found is not None else None
    return refusal or NO_CERTIFICATE


def _remember_holder(tx: Tx, org_id: int, domain: str) -> None:
    if tx.find(tables.ADD_HOLDER, domain=domain, org_id=org_id, at=tx.now) is None:
        tx.run(tables.SET_HOLDER, domain=domain, org_id=org_id, now=tx.now)


def _announce(tx: Tx, org_id: int, found: Domain) -> None:
    jobs.add(tx, ServedDomainsChanged(org_id, found.project_id))


def _target(found: Domain) -> Target:
    return Target("project", found.project_name)


def _token(tx: Tx, org_id: int, domain: str) -> str:
    """Return what proves that an organization has a domain: the same whenever it is asked for, and no other's."""
    key = vault.find(tx, PLATFORM, "domains", "key")
    if key is None:
        key = secrets.token_hex(32)
        vault.put(tx, PLATFORM, "domains", "key", key)
    digest = hmac.digest(bytes.fromhex(key), f"{org_id} {domain}".encode(), "sha256")
    return PROOF + digest.hex()[:TOKEN_CHARS]
