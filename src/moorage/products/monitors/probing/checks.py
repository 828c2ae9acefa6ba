"""One check of one target: all of its tries, and what is said about them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from http import HTTPStatus

from multidict import CIMultiDict

from moorage.core.net.calls import Answer, OutboundError
from moorage.core.net.client import GuardedClient
from moorage.core.net.dns import Resolver
from moorage.core.net.targets import TargetPolicy, TargetRefused
from moorage.products.monitors.probing import certificates, charsets
from moorage.products.monitors.probing.beats import Certificate, Outcome, Phase
from moorage.products.monitors.probing.codes import Codes

LONGEST_MESSAGE = 300
MOST_REDIRECTS = 10
MOST_BODY_BYTES = 1 << 20
LONGEST_GAP_S = 2.0
KEEP_NAMES_S = 5.0  # Many monitors of one host come at about the same time.


@dataclass(frozen=True, slots=True)
class Target:
    """What a check needs to know of a monitor."""

    monitor_id: int
    org_id: int
    url: str
    method: str
    headers: tuple[tuple[str, str], ...]
    body: bytes | None
    keyword: str | None
    codes: Codes
    interval_s: int
    timeout_ms: int
    retries: int
    ignore_tls_error: bool

    @property
    def gap_s(self) -> float:
        """How long is waited before another try, so that all of them fit into an interval."""
        return min(LONGEST_GAP_S, self.interval_s / (self.retries + 1))


class Checker:
    """Checks targets within a policy. Safe for concurrent use in one event loop; close it when done."""

    def __init__(
        self,
        policy: TargetPolicy,
        *,
        resolver: Resolver | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = GuardedClient(policy, resolver=resolver, user_agent="Moorage-Monitor", keep_names_s=KEEP_NAMES_S)
        self._pause = pause

    async def close(self) -> None:
        """Drop the connections that are still open. Closing twice succeeds."""
        await self._client.close()

    async def check(self, target: Target) -> Outcome:
        """Try until an answer is good or no try is left; the last try is what counts.

        Whatever a target does is an outcome and never raised. Of the certificates that the tries saw the last is told.
        """
        outcome, certificate = await self._try(target), None
        for retries in range(1, target.retries + 1):
            if outcome.is_up:
                break
            certificate = outcome.certificate or certificate
            await self._pause(target.gap_s)
            outcome = await self._try(target)
            if outcome.is_up:
                times = "1 retry" if retries == 1 else f"{retries} retries"
                outcome = replace(outcome, message=f"{outcome.message} after {times}")
        return replace(outcome, certificate=certificate) if outcome.certificate is None and certificate else outcome

    async def _try(self, target: Target) -> Outcome:
        try:
            answer = await self._client.request(
                target.method,
                target.url,
                headers=CIMultiDict(target.headers),
                body=target.body,
                timeout_s=target.timeout_ms / 1000,
                max_body_bytes=MOST_BODY_BYTES,
                follow=0 if target.codes.accepts_redirects else MOST_REDIRECTS,
                verify_tls=not target.ignore_tls_error,
                want_certificate=True,
            )
        except OutboundError as error:
            return _down(error.stage, error.message, certificate=_read(error.certificate))
        except (TargetRefused, ValueError) as error:  # Nothing was sent: the URL, the method or a header cannot be.
            return _down("connect", str(error))
        return _judge(target, answer)


def _judge(target: Target, answer: Answer) -> Outcome:
    """Tell whether an answer is as it should be. What it says never gets into the message."""
    said = _named(answer.status)
    if not target.codes.accepts(answer.status):
        return _down("status", f"{said} is not among {target.codes.text}", answer)
    if target.keyword and target.keyword not in charsets.decode(answer.body, answer.headers.get("Content-Type", "")):
        return _down("keyword", "the answer does not contain it", answer)
    return Outcome(True, said, round(answer.elapsed_ms), answer.status, certificate=_read(answer.certificate))


def _down(phase: Phase, why: str, answer: Answer | None = None, *, certificate: Certificate | None = None) -> Outcome:
    message = f"{phase}: {why}"
    if len(message) > LONGEST_MESSAGE:
        message = f"{message[: LONGEST_MESSAGE - 1]}…"
    if answer is None:
        return Outcome(False, message, phase=phase, certificate=certificate)
    return Outcome(False, message, round(answer.elapsed_ms), answer.status, phase, _read(answer.certificate))


@lru_cache(maxsize=600)
def _named(code: int) -> str:
    """Write a code with its name. The server's own words for it are not repeated."""
    try:
        return f"{code} {HTTPStatus(code).phrase}"
    except ValueError:
        return str(code)


def _read(der: bytes | None) -> Certificate | None:
    try:
        return certificates.read(der) if der else None
    except ValueError:  # TLS took it, and it is nothing that could be told to anybody.
        return None
