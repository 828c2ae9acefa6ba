"""Host names of functions: each organization has one, below one domain.

A web origin is what browsers keep storage, service workers and documents apart by, so what belongs to one organization
needs a host that no other organization's function answers at.
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
    """Return a domain in lower case; raises ValueError where no organization could have a host below it."""
    lowered = domain.lower()
    is_name = _DOMAIN.fullmatch(lowered) is not None and not _is_address(lowered)
    if not is_name or len(lowered) > LONGEST_DOMAIN:
        raise ValueError("should be a domain such as functions.example.com, without a scheme, port or path")
    return lowered


def domain_of(given: str, edge_url: str, apps_domain: str, *, is_production: bool) -> str:
    """Return the domain of the organizations' hosts; empty where the address of functions is an IP address.

    `given` is the operator's choice. Otherwise it is the host of `edge_url`, but never the domain of projects: a
    project may have any name.
    """
    if given:
        return given.lower()
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
    """Return whose host this is, a name in lower case without a port."""
    label = host.removesuffix(f".{domain}") if domain else host
    found = _ORG_LABEL.fullmatch(label) if label != host else None
    return int(found[1]) if found else None


def is_reserved(label: str, domain: str, apps_domain: str) -> bool:
    """Tell whether a project of this name would be at a host of functions, or share cookies with one."""
    return _ORG_LABEL.fullmatch(label) is not None or f"{label}.{apps_domain}" == domain


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
