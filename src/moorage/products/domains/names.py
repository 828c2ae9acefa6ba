"""Validation of domain names, and the normalised form that is stored."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

import idna

from moorage.settings import Settings

LONGEST = 253
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
# Last label of an IPv4 address, in each notation that browsers accept.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
# Reserved top-level names that cannot be registered. `.test` and `.invalid` are for tests: their names never verify.
_SPECIAL = frozenset(("localhost", "local", "internal", "onion", "arpa"))
_OF_PROBES = frozenset(("ready.invalid", "moorage.invalid"))  # hosts of the platform's requests to its own gateway
# Below a country code these labels are public suffixes, so that a name of three labels is an apex there.
_REGISTRIES = frozenset(("ac", "co", "com", "edu", "go", "gob", "gov", "gv", "ne", "net", "nom", "or", "org"))


def parse_domain(text: str) -> str:
    """Return the domain in lower case punycode, without final dot; raises ValueError."""
    if "*" in text:
        raise ValueError("should be one host name: wildcards are not supported")
    if _is_address(text):
        raise ValueError("should be a host name, not an IP address")
    domain = _to_ascii(text.removesuffix("."))
    labels = domain.split(".")
    if len(domain) > LONGEST or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("should be a host name such as www.example.com, without a scheme, port or path")
    if len(labels) < 2:
        raise ValueError("should have at least two labels, such as example.com")
    if _NUMBER.fullmatch(labels[-1]):
        raise ValueError("should be a host name, not an IP address")
    if labels[-1] in _SPECIAL:
        raise ValueError(f"should be a public host name: .{labels[-1]} is none")
    if any(is_below(domain, host) for host in _OF_PROBES):
        raise ValueError(f"should be a public host name: {domain} is none")
    return domain


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True


def _to_ascii(text: str) -> str:
    lowered = text.lower()
    # ASCII names skip IDNA: its rules refuse some names that exist, such as `a--b`.
    if lowered.isascii() and "xn--" not in lowered:
        return lowered
    if len(text) > LONGEST:
        raise ValueError(f"should have at most {LONGEST} characters")
    try:
        return idna.encode(lowered, uts46=True, std3_rules=True).decode()
    except idna.IDNAError:
        raise ValueError("should be a host name: its international characters are not valid") from None


def is_below(domain: str, parent: str) -> bool:
    """Return whether a domain equals `parent` or is a subdomain of it."""
    return domain == parent or domain.endswith(f".{parent}")


def is_apex(domain: str) -> bool:
    """Guess from the labels whether a name is a zone apex, where DNS allows no CNAME."""
    labels = domain.split(".")
    is_registered_below = len(labels) == 3 and len(labels[2]) == 2 and labels[1] in _REGISTRIES
    return len(labels) == 2 or is_registered_below


def own_hosts(settings: Settings) -> frozenset[str]:
    """Return the host names of the platform itself."""
    urls = (settings.api_url, settings.functions_url)
    hosts = {urlsplit(url).hostname or "" for url in urls} | {settings.domain, f"edge.{settings.domain}"}
    hosts.add(settings.function_hosts_domain)
    return frozenset(host.lower() for host in hosts if host)


def is_ours(settings: Settings, domain: str) -> bool:
    """Return whether a domain belongs to the platform; no project may claim it."""
    return any(is_below(domain, host) for host in own_hosts(settings))
