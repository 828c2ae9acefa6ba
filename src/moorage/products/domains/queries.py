"""Questions to DNS, as they go over the wire.

They stand apart from what their answers mean because their library takes a twentieth of a second to load, and most
processes never ask.
"""

from __future__ import annotations

import dns.asyncresolver
import dns.exception
import dns.name
import dns.resolver
from dns.name import Name
from dns.rdtypes.ANY.CNAME import CNAME
from dns.rdtypes.ANY.TXT import TXT

from moorage.products.domains.dns import CannotTell, no_answer

TRY_S = 2.0  # One lost datagram should not cost the whole time.


class Queries:
    """Asks one server, or whom the system asks. What is not there is an empty list; raises CannotTell."""

    def __init__(self, server: tuple[str, int] | None, timeout_s: float) -> None:
        self._server = server
        self._timeout_s = timeout_s

    async def texts(self, name: str) -> list[bytes]:
        records = await self._ask(name, "TXT")
        return [b"".join(record.strings) for record in records if isinstance(record, TXT)]

    async def targets(self, name: str) -> list[Name]:
        """Return where a name leads. Only the first step counts: whoever owns a later one could lead it elsewhere."""
        records = await self._ask(name, "CNAME")
        return [record.target for record in records if isinstance(record, CNAME)]

    async def addresses(self, host: str, kind: str) -> list[str]:
        return [str(getattr(record, "address", "")) for record in await self._ask(host, kind)]

    @staticmethod
    def is_same(target: Name, host: str) -> bool:
        """Return whether a name in an answer is this host; the case of letters means nothing."""
        return bool(target == dns.name.from_text(host))

    async def _ask(self, name: str, kind: str) -> list[object]:
        """Return the records of a name; none where there are none. A name is never searched for below another."""
        try:
            answer = await self._resolver().resolve(
                dns.name.from_text(name), kind, raise_on_no_answer=False, search=False, lifetime=self._timeout_s
            )
        except dns.resolver.NXDOMAIN:
            return []
        except (dns.exception.DNSException, OSError, ValueError) as error:
            raise CannotTell(_why(name, error)) from error
        return list(answer.rrset) if answer.rrset is not None else []

    def _resolver(self) -> dns.asyncresolver.Resolver:
        # The system's resolver is read anew each time: its file changes while we run.
        resolver = dns.asyncresolver.Resolver(configure=self._server is None)
        if self._server is not None:
            resolver.nameservers, resolver.port = [self._server[0]], self._server[1]
        resolver.timeout = min(TRY_S, self._timeout_s)
        return resolver


def _why(name: str, error: Exception) -> str:
    if isinstance(error, dns.exception.Timeout):
        return no_answer(name)
    if isinstance(error, dns.resolver.NoResolverConfiguration):
        return "This platform has no DNS resolver, so it cannot look at any record."
    # Also where aliases go in a circle, or what came back is no answer to what was asked.
    return f"The DNS servers of {name} answered with an error. Try again later."
