"""Public URLs of functions: on their organization's host, or on the shared host."""

from __future__ import annotations

from urllib.parse import urlsplit

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.net import function_hosts
from moorage.products.functions import service
from moorage.settings import Settings

HTTPS = 443


def url_of(settings: Settings, org_id: int, name: str) -> str:
    """Return a function's URL on its organization's host, or on the shared host."""
    domain = settings.function_hosts_domain
    if not domain:
        return f"{settings.functions_url}/api/v1/web/org_{org_id}/default/{name}"
    return f"{_scheme(settings)}://{function_hosts.host_of(domain, org_id)}{_port(settings)}/default/{name}"


@across_organizations("the host name determines the organization")
def find_owner(tx: Tx, host: str) -> int | None:
    """Return the organization id of a function host; None if it has no functions."""
    org_id = function_hosts.find_org(host, tx.env.settings.function_hosts_domain)
    return org_id if org_id is not None and service.count(tx, org_id) else None


def _uses_edge_url(settings: Settings) -> bool:
    """Return whether the hosts share the scheme and port of the edge URL."""
    if not settings.functions_domain:
        return bool(settings.edge_url) or not (settings.is_production and settings.apps_domain)
    return urlsplit(settings.functions_url).hostname == settings.functions_domain


def _scheme(settings: Settings) -> str:
    if _uses_edge_url(settings):
        return urlsplit(settings.functions_url).scheme
    return "https" if settings.is_production or settings.https_port else "http"


def _port(settings: Settings) -> str:
    if _uses_edge_url(settings):
        port = urlsplit(settings.functions_url).port
        return f":{port}" if port else ""
    if settings.is_production or settings.https_port:
        return f":{settings.https_port}" if settings.https_port not in (0, HTTPS) else ""
    return f":{settings.edge_port}"
