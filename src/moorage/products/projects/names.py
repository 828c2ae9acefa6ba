"""Availability of names, which are subdomains, for projects and previews.

A name is not available if it is reserved, used by a project or an open preview, recently freed by another organization,
or of the form `<project>-pr-<number>` for a project of another organization.
"""

from __future__ import annotations

import re

from moorage.accounts.identity.organizations import freed_names
from moorage.accounts.identity.organizations.freed_names import NameKind
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.net import function_hosts
from moorage.products.projects import tables
from moorage.settings import Settings

RESERVED = frozenset(("www", "api", "edge", "console", "admin", "git", "check-name", "static-upload"))
MAX_NAME_CHARS = 63  # of a DNS label
_PREVIEW = re.compile(r"(.+)-pr-([1-9][0-9]*)")


def preview_name(name: str, number: int) -> str:
    return f"{name}-pr-{number}"


def is_available(tx: Tx, org_id: int, name: str) -> bool:
    """Return whether an organization may use a name for a new project or preview."""
    if is_reserved(tx.env.settings, name) or _is_taken(tx, name):
        return False
    if freed_names.is_reserved(tx, org_id, NameKind.PROJECT, name):
        return False
    preview = _PREVIEW.fullmatch(name)
    return preview is None or not _belongs_to_another(tx, org_id, preview[1])


def is_reserved(settings: Settings, name: str) -> bool:
    """Return whether the platform itself or a function host uses a name."""
    domain = settings.function_hosts_domain
    return name in RESERVED or function_hosts.is_reserved(name, domain, settings.domain)


def _belongs_to_another(tx: Tx, org_id: int, base: str) -> bool:
    """Return whether another organization has, or recently freed, that project name."""
    owner = tx.find(tables.OWNER_OF_NAME, name=base)
    if owner is not None:
        return owner != org_id
    return freed_names.is_reserved(tx, org_id, NameKind.PROJECT, base)


@across_organizations("a name is a subdomain, unique on the whole platform")
def _is_taken(tx: Tx, name: str) -> bool:
    return tx.find(tables.IS_TAKEN, name=name) is not None
