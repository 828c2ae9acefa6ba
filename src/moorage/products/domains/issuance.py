"""Permission to get certificates: for names that the platform serves, within a weekly budget of each organization.

A certificate authority grants a domain a few dozen certificates a week, and all projects share one domain. The first
certificate of a name counts; asking again for the same name, to load or to renew it, is free.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Protocol

from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM, Target
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import HOUR_MS
from moorage.errors import MoorageError
from moorage.products.domains import grants, service
from moorage.products.domains.grants import Kind
from moorage.products.domains.names import own_hosts
from moorage.products.functions import addresses
from moorage.products.projects.service import MOVED_MS

MOST_NOTED = 1000


class Certificates(Protocol):
    """Certificates that the gateway of this machine has."""

    def status(self, host: str) -> str: ...

    def is_covered(self, host: str) -> bool:
        """Tell whether the operator's own certificate is valid for a host, so that none has to be issued."""
        ...


class BudgetUsedUp(MoorageError):
    code = "quota_exceeded"


@dataclass(frozen=True, slots=True)
class Claim:
    """Whose a host is, and whether it may have a certificate."""

    org_id: int
    kind: Kind
    name: str
    is_granted: bool
    refusal: str | None  # why it gets no new one


@dataclass
class Permission:
    """Answers the gateway's question before it gets, loads or renews a certificate."""

    db: Database
    certificates: Certificates
    log: Any
    _noted: dict[str, int] = field(default_factory=dict)  # when a refusal was logged last, by host

    async def ask(self, domain: str) -> bool:
        host = domain.lower()
        if not host.isascii() or not host.isprintable() or await asyncio.to_thread(self.certificates.is_covered, host):
            return False
        if host in own_hosts(self.db.env.settings):
            return True
        claim = await self.db.peek(lambda tx: find_claim(tx, host))
        if claim is None or claim.is_granted:
            return claim is not None
        # It was got before grants were recorded, or belongs to a name that the project has left.
        if await asyncio.to_thread(self.certificates.status, host) == "issued":
            return True
        if claim.kind is Kind.FORMER:
            return False
        if claim.refusal is None:
            try:
                await self.db.write(lambda tx: grant(tx, claim.org_id, claim.kind, claim.name, host))
            except BudgetUsedUp as error:
                self._note(host, claim.org_id, error.message)
                return False
            return True
        self._note(host, claim.org_id, claim.refusal)
        return False

    def _note(self, host: str, org_id: int, why: str) -> None:
        """Log a refusal, once an hour for a host: clients repeat their handshakes as often as they like."""
        now = self.db.env.clock.now()
        if now - self._noted.get(host, -HOUR_MS) < HOUR_MS:
            return
        if len(self._noted) >= MOST_NOTED:
            self._noted.clear()
        self._noted[host] = now
        self.log.warning("a certificate was refused", host=host, organization=org_id, why=why)


@across_organizations("a host leads to whoever has it")
def find_claim(tx: Tx, host: str) -> Claim | None:
    """Return whose a host is; None where the platform serves nothing there."""
    found = _find_owner(tx, host)
    if found is None:
        return None
    org_id, kind, name = found
    # A name that a project has left was granted, if at all, while it was the project's.
    stored = Kind.SUBDOMAIN if kind is Kind.FORMER else kind
    is_granted = grants.is_granted(tx, org_id, stored, name)
    refusal = None if is_granted else grants.why_refused(tx, org_id)
    return Claim(org_id, kind, name, is_granted, refusal)


@across_organizations("a host leads to whoever has it")
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
    # An organization's feed has one writer at a time, so two names cannot take the last place together.
    audit.record(tx, org_id, THE_PLATFORM, "certificate.granted", Target("certificate", host))
    if why := grants.why_refused(tx, org_id):
        raise BudgetUsedUp(why)
    grants.add(tx, org_id, kind, name)
