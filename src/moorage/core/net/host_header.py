"""Check of the `Host` header (RFC 9110, 7.2, and RFC 9112, 3.2).

All servers on the path of a request must see the same host. A request with several `Host` headers, also equal ones, or
with an invalid value is ambiguous and refused. HTTP/1.0 has no `Host` header, so it may be absent there.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

ABSENT = "The request has no Host header"
SEVERAL = "The request has more than one Host header"
MALFORMED = "The Host header is not a host name or address with an optional port"

_WITHOUT_HOST = ("0.9", "1.0")
# A comma is refused although RFC 3986 allows it: a proxy that joins two headers puts a comma between their values.
_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+;=%-]+|\[[A-Za-z0-9._~:%-]+\])(?::[0-9]{0,5})?")


def is_host(value: bytes) -> bool:
    """Check that a value of the header is a host with an optional port."""
    return _HOST.fullmatch(value) is not None


def is_own(value: str, names: Collection[str]) -> bool:
    """Check that a value of the header is an IP address, `localhost` or one of some names.

    A web page whose own name resolves to this machine (DNS rebinding) sends that name.
    """
    try:
        host = (urlsplit(f"//{value}").hostname or "").removesuffix(".")
    except ValueError:  # an address in brackets that is none
        return False
    if host == "localhost" or host.endswith(".localhost") or host in names:
        return True
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        return True
    return False


def find_problem(headers: Iterable[tuple[bytes, bytes]], http_version: str) -> str | None:
    """Return the problem of the `Host` header, or None; names are in lower case."""
    hosts = [value for name, value in headers if name == b"host"]
    if not hosts:
        return None if http_version in _WITHOUT_HOST else ABSENT
    if len(hosts) > 1:
        return SEVERAL
    return None if is_host(hosts[0]) else MALFORMED
