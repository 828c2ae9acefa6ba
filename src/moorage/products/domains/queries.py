"""DNS queries with dnspython.

A module of its own because dnspython takes 50 ms to import, and most processes send no DNS query.
"""

from __future__ import annotations

import dns.asyncresolver
import dns.exception
import dns.name
import dns.resolver
from dns.name import Name
from dns.rdtypes.ANY.CNAME import CNAME
from dns.rdtypes.ANY.TXT import TXT

from moorage.products.domains.lookup_errors import LookupFailed, no_answer

ATTEMPT_TIMEOUT_S = 2.0  # shorter than the whole timeout, so that a lost datagram is sent again


class Queries:
    """Queries one DNS server, or the resolver of the system.

    Returns an empty list where no record exists; raises LookupFailed.
    """

    def __init__(self, server: tuple[str, int] | None, timeout_s: float) -> None:
        self._server = server
        self._timeout_s = timeout_s

    async def texts(self, name: str) -> list[bytes]:
        records = await self._resolve(name, "TXT")
        return [b"".join(record.strings) for record in records if isinstance(record, TXT)]

    async def targets(self, name: str) -> list[Name]:
        """Return the CNAME targets of a name.

        Later CNAMEs of the chain do not count: the owner of such a name could change its target.
        """
        records = await self._resolve(name, "CNAME")
        return [record.target for record in records if isinstance(record, CNAME)]

    async def addresses(self, host: str, kind: str) -> list[str]:
        return [str(getattr(record, "address", "")) for record in await self._resolve(host, kind)]

    @staticmethod
    def is_same(target: Name, host: str) -> bool:
        """Return whether a name in an answer equals this host, ignoring case."""
        return bool(target == dns.name.from_text(host))

    async def _resolve(self, name: str, kind: str) -> list[object]:
        """Return the records of a fully qualified name; search domains do not apply."""
        try:
            answer = await self._resolver().resolve(
                dns.name.from_text(name), kind, raise_on_no_answer=False, search=False, lifetime=self._timeout_s
            )
        except dns.resolver.NXDOMAIN:
            return []
        except (dns.exception.DNSException, OSError, ValueError) as error:
            raise LookupFailed(_message(name, error)) from error
        return list(answer.rrset) if answer.rrset is not None else []

    def _resolver(self) -> dns.asyncresolver.Resolver:
        # Read /etc/resolv.conf for each query: it may change while the process runs.
        resolver = dns.asyncresolver.Resolver(configure=self._server is None)
        if self._server is not None:
            resolver.nameservers, resolver.port = [self._server[0]], self._server[1]
        resolver.timeout = min(ATTEMPT_TIMEOUT_S, self._timeout_s)
        return resolver


def _message(name: str, error: Exception) -> str:
    if isinstance(error, dns.exception.Timeout):
        return no_answer(name)
    if isinstance(error, dns.resolver.NoResolverConfiguration):
        return "This platform has no DNS resolver, so it cannot look at any record."
    # Also a CNAME loop, or a response that does not match the query.
    return f"The DNS servers of {name} answered with an error. Try again later."
