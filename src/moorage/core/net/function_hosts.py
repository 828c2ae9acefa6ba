"""Host names of functions: one per organization, below one domain.

Browsers isolate storage, service workers and documents by origin, so functions of two organizations must not share a
host.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

LOCAL = "localhost"
LONGEST_DOMAIN = 253 - len("org-9223372036854775807.")
_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_ORG_LABEL = re.compile(r"org-([1-9][0-9]{0,18})")


def check_domain(domain: str) -> str:
    """Return a domain in lower case; raises ValueError for an unusable one."""
    lowered = domain.lower()
    is_name = _DOMAIN.fullmatch(lowered) is not None and not _is_address(lowered)
    if not is_name or len(lowered) > LONGEST_DOMAIN:
        raise ValueError("should be a domain such as functions.example.com, without a scheme, port or path")
    return lowered


def domain_of(configured: str, edge_url: str, apps_domain: str, *, is_production: bool) -> str:
    """Return the domain of organizations' hosts; empty for an IP address.

    `configured` is the operator's choice. The default is the host of `edge_url`, but never the domain of projects,
    because a project may have any name.
    """
    if configured:
        return configured.lower()
    if not edge_url:
        return f"edge.{apps_domain.lower()}" if is_production and apps_domain else LOCAL
    host = (urlsplit(edge_url).hostname or "").lower()
    if _is_address(host):
        return LOCAL if ipaddress.ip_address(host).is_loopback else ""
    is_clash = host == apps_domain.lower() and host != LOCAL
    return f"edge.{host}" if is_clash else host if _DOMAIN.fullmatch(host) else ""


def host_of(domain: str, org_id: int) -> str:
    return f"org-{org_id}.{domain}"


def find_org(host: str, domain: str) -> int | None:
    """Return the organization of a host in lower case without port."""
    label = host.removesuffix(f".{domain}") if domain else host
    match = _ORG_LABEL.fullmatch(label) if label != host else None
    return int(match[1]) if match else None


def is_reserved(label: str, domain: str, apps_domain: str) -> bool:
    """Check whether a project's name would clash with hosts of functions."""
    return _ORG_LABEL.fullmatch(label) is not None or f"{label}.{apps_domain}" == domain


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
