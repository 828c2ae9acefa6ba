"""Public addresses of functions: on the host of their organization, and at the address that all functions share."""

from __future__ import annotations

from urllib.parse import urlsplit

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.net import function_hosts
from moorage.products.functions import service
from moorage.settings import Settings

HTTPS = 443


def url_of(settings: Settings, org_id: int, name: str) -> str:
    """Return where a function is called: the host of its organization, or the shared address where there is none."""
    domain = settings.function_hosts_domain
    if not domain:
        return f"{settings.functions_url}/api/v1/web/org_{org_id}/default/{name}"
    return f"{_scheme(settings)}://{function_hosts.host_of(domain, org_id)}{_port(settings)}/default/{name}"


@across_organizations("a host name belongs to one organization, and any client may connect to it")
def find_owner(tx: Tx, host: str) -> int | None:
    """Return the organization whose functions answer at a host; None where it has no functions."""
    org_id = function_hosts.find_org(host, tx.env.settings.function_hosts_domain)
    return org_id if org_id is not None and service.count(tx, org_id) else None


def _is_at_edge_url(settings: Settings) -> bool:
    """Tell whether the hosts are reached in the way that the edge URL says."""
    if not settings.functions_domain:
        return bool(settings.edge_url) or not (settings.is_production and settings.apps_domain)
    return urlsplit(settings.functions_url).hostname == settings.functions_domain


def _scheme(settings: Settings) -> str:
    if _is_at_edge_url(settings):
        return urlsplit(settings.functions_url).scheme
    return "https" if settings.is_production or settings.https_port else "http"


def _port(settings: Settings) -> str:
    if _is_at_edge_url(settings):
        port = urlsplit(settings.functions_url).port
        return f":{port}" if port else ""
    if settings.is_production or settings.https_port:
        return f":{settings.https_port}" if settings.https_port not in (0, HTTPS) else ""
    return f":{settings.edge_port}"
