"""Runs one check of a target: its attempts, and the outcome of the last one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import lru_cache
from http import HTTPStatus

from multidict import CIMultiDict

from moorage.core.kit.records import dataclass
from moorage.core.net.calls import Answer, OutboundError
from moorage.core.net.client import GuardedClient
from moorage.core.net.dns import Resolver
from moorage.core.net.targets import TargetPolicy, TargetRefused
from moorage.products.monitors.probing import certificates, charsets
from moorage.products.monitors.probing.beats import Certificate, Outcome, Phase
from moorage.products.monitors.probing.codes import Codes

MAX_MESSAGE_CHARS = 300
MAX_REDIRECTS = 10
MAX_BODY_BYTES = 1 << 20
MAX_RETRY_DELAY_S = 2.0
DNS_CACHE_S = 5.0  # Many monitors of one host are due at about the same time.


@dataclass(frozen=True, slots=True)
class CheckTarget:
    """Settings of a monitor that a check needs."""

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
    def retry_delay_s(self) -> float:
        """Delay before the next attempt, so that all attempts fit into an interval."""
        return min(MAX_RETRY_DELAY_S, self.interval_s / (self.retries + 1))


class Checker:
    """Checks targets that the policy allows. Safe for concurrent use."""

    def __init__(
        self,
        policy: TargetPolicy,
        *,
        resolver: Resolver | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = GuardedClient(policy, resolver=resolver, user_agent="Moorage-Monitor", keep_names_s=DNS_CACHE_S)
        self._pause = pause

    async def close(self) -> None:
        await self._client.close()

    async def check(self, target: CheckTarget) -> Outcome:
        """Try until an attempt succeeds or none is left; the last attempt counts.

        A failure of the target is an outcome and never raised. The outcome has the last certificate of all attempts.
        """
        outcome, certificate = await self._attempt(target), None
        for retries in range(1, target.retries + 1):
            if outcome.is_up:
                break
            certificate = outcome.certificate or certificate
            await self._pause(target.retry_delay_s)
            outcome = await self._attempt(target)
            if outcome.is_up:
                times = "1 retry" if retries == 1 else f"{retries} retries"
                outcome = replace(outcome, message=f"{outcome.message} after {times}")
        return replace(outcome, certificate=certificate) if outcome.certificate is None and certificate else outcome

    async def _attempt(self, target: CheckTarget) -> Outcome:
        try:
            answer = await self._client.request(
                target.method,
                target.url,
                headers=CIMultiDict(target.headers),
                body=target.body,
                timeout_s=target.timeout_ms / 1000,
                max_body_bytes=MAX_BODY_BYTES,
                follow=0 if target.codes.accepts_redirects else MAX_REDIRECTS,
                verify_tls=not target.ignore_tls_error,
                want_certificate=True,
                tenant=target.org_id,
            )
        except OutboundError as error:
            return _down(error.stage, error.message, certificate=_read_certificate(error.certificate))
        except (TargetRefused, ValueError) as error:  # Nothing was sent: the URL, method or a header is invalid.
            return _down("connect", str(error))
        return _judge(target, answer)


def _judge(target: CheckTarget, answer: Answer) -> Outcome:
    """Judge a response by the settings. Its content never gets into the message."""
    status = status_text(answer.status)
    if not target.codes.accepts(answer.status):
        return _down("status", f"{status} is not among {target.codes.text}", answer)
    if target.keyword and target.keyword not in charsets.decode(answer.body, answer.headers.get("Content-Type", "")):
        return _down("keyword", "the answer does not contain it", answer)
    return Outcome(
        True, status, round(answer.elapsed_ms), answer.status, certificate=_read_certificate(answer.certificate)
    )


def _down(phase: Phase, why: str, answer: Answer | None = None, *, certificate: Certificate | None = None) -> Outcome:
    message = f"{phase}: {why}"
    if len(message) > MAX_MESSAGE_CHARS:
        message = f"{message[: MAX_MESSAGE_CHARS - 1]}…"
    if answer is None:
        return Outcome(False, message, phase=phase, certificate=certificate)
    return Outcome(
        False, message, round(answer.elapsed_ms), answer.status, phase, _read_certificate(answer.certificate)
    )


@lru_cache(maxsize=600)
def status_text(code: int) -> str:
    """Return a code with its standard phrase, never with the server's own."""
    try:
        return f"{code} {HTTPStatus(code).phrase}"
    except ValueError:
        return str(code)


def _read_certificate(der: bytes | None) -> Certificate | None:
    try:
        return certificates.read(der) if der else None
    except ValueError:  # TLS accepted the certificate, but it cannot be parsed.
        return None
