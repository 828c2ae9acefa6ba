"""Check that the host names of functions and of the API share no cookies."""

from __future__ import annotations

from urllib.parse import urlsplit

from moorage.platform.doctor.findings import Check, State
from moorage.settings import Settings

FIX = "set MOORAGE_FUNCTIONS_DOMAIN to a domain that neither contains the API's host nor is below it"


def problem(settings: Settings) -> str | None:
    """Return why pages of functions could set cookies for the API, or None."""
    if not settings.is_production:
        return None
    domain, api = settings.function_hosts_domain, urlsplit(settings.api_url).hostname or ""
    if not domain:
        return "functions are at an IP address, so organizations have no hosts of their own"
    if f".{api}".endswith(f".{domain}") or domain.endswith(f".{api}"):
        return f"the hosts of functions (below {domain}) share cookies with the API ({api})"
    return None


def check(settings: Settings) -> Check:
    if found := problem(settings):
        return Check("functions: hosts", State.WARN, found, FIX)
    return Check("functions: hosts", State.OK, f"org-<id>.{settings.function_hosts_domain or '-'}")
