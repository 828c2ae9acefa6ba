"""Which names an organization may give a project or a preview. A name is a subdomain of the whole platform.

A name is refused that is reserved, that a project or an open preview has, that rests after another organization gave it
up, and that is or would be the preview of another organization's project: `<project>-pr-<number>`.
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
_PREVIEW = re.compile(r"(.+)-pr-([1-9][0-9]*)")


def preview_name(name: str, number: int) -> str:
    """Return the subdomain of a pull request's preview."""
    return f"{name}-pr-{number}"


def is_available(tx: Tx, org_id: int, name: str) -> bool:
    """Tell whether an organization may take a name that nothing has."""
    if is_reserved(tx.env.settings, name) or _is_taken(tx, name):
        return False
    if freed_names.is_reserved(tx, org_id, NameKind.PROJECT, name):
        return False
    preview = _PREVIEW.fullmatch(name)
    return preview is None or not _is_of_another(tx, org_id, preview[1])


def is_reserved(settings: Settings, name: str) -> bool:
    """Tell whether a name is the platform's own, or that of a host of functions."""
    domain = settings.function_hosts_domain
    return name in RESERVED or function_hosts.is_reserved(name, domain, settings.domain)


def _is_of_another(tx: Tx, org_id: int, base: str) -> bool:
    """Tell whether another organization has a project of that name, or had one lately."""
    owner = tx.find(tables.OWNER_OF_NAME, name=base)
    if owner is not None:
        return owner != org_id
    return freed_names.is_reserved(tx, org_id, NameKind.PROJECT, base)


@across_organizations("a name is a subdomain, and there is one of each")
def _is_taken(tx: Tx, name: str) -> bool:
    return tx.find(tables.IS_TAKEN, name=name) is not None
