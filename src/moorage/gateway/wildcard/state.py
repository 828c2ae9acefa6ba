"""The ordered certificate and the state of its orders.

Both are in the vault: one process orders, and each gateway of the platform copies the certificate to its data folder.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from moorage.core.db.scope import PLATFORM_ORG_ID, across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.crypto import sign
from moorage.core.kit.decoding import decode
from moorage.core.vault import service as vault
from moorage.gateway.operator_certificate import is_match
from moorage.settings import Settings, is_loopback

T = TypeVar("T")
_RESOURCE = "gateway.wildcard"
_WHY = "the certificate belongs to the platform itself"


class Ordered(msgspec.Struct, frozen=True):
    """The latest certificate."""

    directory: str  # of the authority that issued it
    bundle: str  # its key and its chain, in PEM form


class Failures(msgspec.Struct, frozen=True):
    """Consecutive orders without a certificate, with the same settings; the latest may not have ended."""

    settings: str  # fingerprint: with other settings, the next order is not delayed
    count: int
    next_at: int  # earliest time of the next order
    error: str


def names_of(settings: Settings) -> tuple[str, ...]:
    """Return the names of the certificate. An authority refuses names that another one covers."""
    names = [f"*.{settings.domain.lower()}", settings.domain.lower()]
    functions = settings.function_hosts_domain.lower()
    if "." in functions and not is_loopback(functions):
        names += [name for name in (f"*.{functions}", functions) if not any(is_match(each, name) for each in names)]
    return tuple(names)


@across_organizations(_WHY)
def fingerprint(tx: Tx) -> str:
    """Return a fingerprint of the settings of an order; it does not reveal the TSIG key."""
    settings = tx.env.settings
    parts = (
        *(settings.acme_directory, settings.acme_ca, settings.acme_email, *names_of(settings)),
        *(settings.dns_update_server, settings.dns_update_zone, settings.dns_update_key_name),
        *(settings.dns_update_key.get_secret_value(), settings.dns_update_algorithm.value, settings.resolver),
    )
    return sign(tx.env.app_key, msgspec.json.encode(parts))


@across_organizations(_WHY)
def find_ordered(tx: Tx) -> Ordered | None:
    return _find(tx, "certificate", Ordered)


@across_organizations(_WHY)
def find_failures(tx: Tx) -> Failures | None:
    """Return the failures with the present settings, unless the latest order was successful."""
    failures = _find(tx, "failures", Failures)
    return failures if failures is not None and failures.settings == fingerprint(tx) else None


@across_organizations(_WHY)
def put_ordered(tx: Tx, ordered: Ordered) -> None:
    """Store a certificate, and forget the failures before it."""
    vault.put(tx, PLATFORM_ORG_ID, _RESOURCE, "certificate", msgspec.json.encode(ordered).decode())
    vault.remove(tx, PLATFORM_ORG_ID, _RESOURCE, "failures")


@across_organizations(_WHY)
def put_failures(tx: Tx, failures: Failures) -> None:
    vault.put(tx, PLATFORM_ORG_ID, _RESOURCE, "failures", msgspec.json.encode(failures).decode())


@across_organizations(_WHY)
def _find(tx: Tx, name: str, kind: type[T]) -> T | None:
    stored = vault.find(tx, PLATFORM_ORG_ID, _RESOURCE, name)
    return None if stored is None else decode(stored, kind)
