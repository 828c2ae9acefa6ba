"""Permission to issue certificates for served names, within a weekly budget.

A certificate authority issues a few dozen certificates a week for a domain, and all projects share one domain. Only the
first certificate of a name counts; later requests for the same name, to load or to renew it, are free.
"""

from __future__ import annotations

import asyncio
from dataclasses import field
from typing import Any, Protocol

from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM, AuditTarget
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import HOUR_MS
from moorage.core.kit.records import dataclass
from moorage.errors import MoorageError
from moorage.products.domains import grants, service
from moorage.products.domains.grants import Kind
from moorage.products.domains.names import own_hosts
from moorage.products.functions import addresses
from moorage.products.projects.service import MOVED_MS

MAX_LOGGED_HOSTS = 1000


class Certificates(Protocol):
    """Certificates of the gateway on this machine."""

    def status(self, host: str) -> str: ...

    def is_covered(self, host: str) -> bool:
        """Return whether the operator's own certificate is valid for a host."""
        ...


class BudgetUsedUp(MoorageError):
    code = "quota_exceeded"


@dataclass(frozen=True, slots=True)
class Claim:
    """Owner of a host, and whether the host may have a certificate."""

    org_id: int
    kind: Kind
    name: str
    is_granted: bool
    refusal: str | None  # message if the budget allows no new certificate


@dataclass
class Permission:
    """Decides whether the gateway may get, load or renew a certificate."""

    db: Database
    certificates: Certificates
    log: Any
    _logged_at: dict[str, int] = field(default_factory=dict)  # time of the latest logged refusal, by host

    async def ask(self, domain: str) -> bool:
        host = domain.lower()
        if not host.isascii() or not host.isprintable() or await asyncio.to_thread(self.certificates.is_covered, host):
            return False
        if host in own_hosts(self.db.env.settings):
            return True
        claim = await self.db.peek(lambda tx: find_claim(tx, host))
        if claim is None or claim.is_granted:
            return claim is not None
        # Issued before grants were recorded, or issued for a former name of the project.
        if await asyncio.to_thread(self.certificates.status, host) == "issued":
            return True
        if claim.kind is Kind.FORMER:
            return False
        if claim.refusal is None:
            try:
                await self.db.write(lambda tx: grant(tx, claim.org_id, claim.kind, claim.name, host))
            except BudgetUsedUp as error:
                self._log_refusal(host, claim.org_id, error.message)
                return False
            return True
        self._log_refusal(host, claim.org_id, claim.refusal)
        return False

    def _log_refusal(self, host: str, org_id: int, why: str) -> None:
        """Log a refusal at most once an hour per host: each TLS handshake repeats it."""
        now = self.db.env.clock.now()
        if now - self._logged_at.get(host, -HOUR_MS) < HOUR_MS:
            return
        if len(self._logged_at) >= MAX_LOGGED_HOSTS:
            self._logged_at.clear()
        self._logged_at[host] = now
        self.log.warning("a certificate was refused", host=host, organization=org_id, why=why)


@across_organizations("the host name determines the organization")
def find_claim(tx: Tx, host: str) -> Claim | None:
    """Return the claim on a host; None if the platform does not serve the host."""
    owner = _find_owner(tx, host)
    if owner is None:
        return None
    org_id, kind, name = owner
    # A former name was granted, if at all, as the project's subdomain.
    stored = Kind.SUBDOMAIN if kind is Kind.FORMER else kind
    is_granted = grants.is_granted(tx, org_id, stored, name)
    refusal = None if is_granted else grants.why_refused(tx, org_id)
    return Claim(org_id, kind, name, is_granted, refusal)


@across_organizations("the host name determines the organization")
def _find_owner(tx: Tx, host: str) -> tuple[int, Kind, str] | None:
    name = host.removesuffix(f".{tx.env.settings.domain}")
    if name != host:
        owner = tx.find(grants.OWNER_OF_SUBDOMAIN, name=name)
        if owner is not None:
            return owner, Kind.SUBDOMAIN, name
        owner = tx.find(grants.OWNER_OF_FORMER, name=name, since=tx.now - MOVED_MS)
        if owner is not None:
            return owner, Kind.FORMER, name
    org_id = addresses.find_owner(tx, host)
    if org_id is not None:
        return org_id, Kind.FUNCTIONS, ""
    served = service.find_owner(tx, host)
    return None if served is None else (served[0], Kind.DOMAIN, host)


def grant(tx: Tx, org_id: int, kind: Kind, name: str, host: str) -> None:
    """Count a name's first certificate; raises BudgetUsedUp. Safe to repeat."""
    # The audit feed of an organization has one writer at a time, so two names cannot both take the last grant.
    audit.record(tx, org_id, THE_PLATFORM, "certificate.granted", AuditTarget("certificate", host))
    if why := grants.why_refused(tx, org_id):
        raise BudgetUsedUp(why)
    grants.add(tx, org_id, kind, name)
