"""ACME client (RFC 8555) for an order whose names are proven by DNS-01."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey
from joserfc.util import urlsafe_b64encode

from moorage.core.kit.records import dataclass
from moorage.core.net.calls import Answer, OutboundError
from moorage.core.net.client import GuardedClient
from moorage.core.net.targets import TargetRefused
from moorage.gateway.wildcard.errors import CannotOrder

ALGORITHM = "ES256"
CALL_TIMEOUT_S = 30
NONCE_ATTEMPTS = 8
DEFAULT_POLL_S, MAX_POLL_S = 2.0, 30.0
BAD_NONCE = "urn:ietf:params:acme:error:badNonce"
_HEADERS = {"Content-Type": "application/jose+json"}
# `nonce` and `url` are headers of ACME, which the registry of JWS does not list.
_REGISTRY = jws.JWSRegistry(algorithms=[ALGORITHM], strict_check_header=False)


@dataclass(frozen=True)
class Challenge:
    domain: str  # without the wildcard
    authorization: str  # its URL
    url: str
    value: str  # of the TXT record


@dataclass(frozen=True)
class Order:
    url: str
    authorizations: tuple[str, ...]
    finalize: str


@dataclass
class AcmeClient:
    """One account at one certificate authority. Every method raises CannotOrder."""

    http: GuardedClient
    directory: str
    key: ECKey
    _urls: dict[str, Any] = field(default_factory=dict)
    _account: str = ""
    _nonce: str = ""

    async def log_in(self, email: str) -> None:
        """Read the directory and find the account of the key, or create it."""
        self._urls = _document(await self._call("GET", self.directory))
        contact = {"contact": [f"mailto:{email}"]} if email else {}
        answer = await self._post(self._url_of("newAccount"), {"termsOfServiceAgreed": True, **contact})
        self._account = _location(answer)

    async def order(self, names: Sequence[str]) -> Order:
        identifiers = [{"type": "dns", "value": name} for name in names]
        answer = await self._post(self._url_of("newOrder"), {"identifiers": identifiers})
        document = _document(answer)
        authorizations = tuple(map(str, document.get("authorizations") or ()))
        return Order(_location(answer), authorizations, str(document.get("finalize")))

    async def find_challenge(self, authorization: str) -> Challenge | None:
        """Return the DNS-01 challenge of a name; None if the account has proven the name lately."""
        document = _document(await self._post(authorization, None))
        if document.get("status") == "valid":
            return None
        domain = str(document.get("identifier", {}).get("value"))
        for each in document.get("challenges", ()):
            if each.get("type") == "dns-01":
                proof = f"{each['token']}.{self.key.thumbprint()}"
                value = urlsafe_b64encode(hashlib.sha256(proof.encode()).digest()).decode()
                return Challenge(domain, authorization, str(each["url"]), value)
        raise CannotOrder(f"the certificate authority offers no DNS-01 challenge for {domain}")

    async def begin(self, challenge: Challenge) -> None:
        """Let the authority look up the record."""
        await self._post(challenge.url, {})

    async def check(self, challenge: Challenge) -> None:
        """Return when the authority has accepted the record."""
        document = await self._wait(challenge.authorization, ("pending", "processing"))
        if document.get("status") != "valid":
            errors = [each["error"] for each in document.get("challenges", ()) if each.get("error")]
            raise CannotOrder(f"the certificate authority rejects {challenge.domain}: {_detail(errors)}")

    async def finish(self, order: Order, request: bytes) -> bytes:
        """Send the certificate request in DER form; return the chain in PEM form."""
        await self._post(order.finalize, {"csr": urlsafe_b64encode(request).decode()})
        document = await self._wait(order.url, ("pending", "ready", "processing"))
        if document.get("status") != "valid":
            raise CannotOrder(f"the certificate authority issues no certificate: {_detail([document.get('error')])}")
        return (await self._post(str(document.get("certificate")), None)).body

    async def _wait(self, url: str, pending: tuple[str, ...]) -> dict[str, Any]:
        while True:
            answer = await self._post(url, None)
            document = _document(answer)
            if document.get("status") not in pending:
                return document
            await asyncio.sleep(min(_retry_after_s(answer.headers) or DEFAULT_POLL_S, MAX_POLL_S))

    async def _post(self, url: str, payload: dict[str, Any] | None) -> Answer:
        """Send a signed request; without a payload it only reads."""
        body = b"" if payload is None else json.dumps(payload).encode()
        for _ in range(NONCE_ATTEMPTS):
            if not self._nonce:
                await self._call("HEAD", self._url_of("newNonce"))
            answer = await self._call("POST", url, self._sign(url, body))
            if answer.status < 400:
                return answer
            problem = _problem(answer)
            if problem.get("type") != BAD_NONCE:
                why = f"{url} answered {answer.status}: {_detail([problem])}"
                raise CannotOrder(f"the certificate authority refused a request: {why}", _retry_after_s(answer.headers))
        raise CannotOrder(f"the certificate authority refused {NONCE_ATTEMPTS} nonces that it had sent")

    def _sign(self, url: str, payload: bytes) -> bytes:
        signer = {"kid": self._account} if self._account else {"jwk": self.key.as_dict(private=False)}
        header = {"alg": ALGORITHM, "nonce": self._nonce, "url": url, **signer}
        self._nonce = ""  # A nonce is valid once.
        signed = jws.serialize_json({"protected": header}, payload, self.key, registry=_REGISTRY)
        return json.dumps(signed).encode()

    async def _call(self, method: str, url: str, body: bytes | None = None) -> Answer:
        headers = _HEADERS if body is not None else None
        try:
            answer = await self.http.request(
                method, url, headers=headers, body=body, timeout_s=CALL_TIMEOUT_S, follow=0
            )
        except (OutboundError, TargetRefused, ValueError) as error:
            raise CannotOrder(f"cannot reach the certificate authority at {self.directory}: {error}") from error
        self._nonce = answer.headers.get("Replay-Nonce", "")
        return answer

    def _url_of(self, name: str) -> str:
        url = self._urls.get(name)
        if not isinstance(url, str):
            raise CannotOrder(f"{self.directory} is not an ACME directory: it has no {name}")
        return url


def _document(answer: Answer) -> dict[str, Any]:
    document = _object(answer)
    if answer.status >= 400 or document is None:
        raise CannotOrder(f"{answer.url} answered {answer.status} without a JSON object (is it an ACME server?)")
    return document


def _problem(answer: Answer) -> dict[str, Any]:
    return _object(answer) or {}


def _object(answer: Answer) -> dict[str, Any] | None:
    """Return the JSON object of a body; None for another body."""
    try:
        value = answer.json()
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _location(answer: Answer) -> str:
    location = answer.headers.get("Location")
    if not location:
        raise CannotOrder(f"{answer.url} answered without a Location")
    return location


def _detail(problems: Sequence[Any]) -> str:
    """Return the descriptions of problems (RFC 7807), with those of single names."""
    texts = []
    for problem in (each for each in problems if isinstance(each, dict)):
        texts.append(str(problem.get("detail") or problem.get("type") or ""))
        texts += [str(each.get("detail")) for each in problem.get("subproblems") or () if each.get("detail")]
    return "; ".join(filter(None, texts)) or "no reason given"


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """Return the delay in seconds that a response asks for; 0 without one, or with a date."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdecimal() else 0.0
