"""Credentials of a registry, and the challenges with which a registry requests them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field

import yarl

from moorage.core.kit.records import dataclass
from moorage.core.net.calls import Answer
from moorage.runtime.images.references import HUB, PullFailed

MAX_CHALLENGE_CHARS = 4096  # of a header; those of registries have a few hundred
_FIELD = re.compile(r'\b(\w{1,64})\s{0,8}=\s{0,8}(?:"([^"]*)"|([^\s,"]+))')
_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}")
_TOKEN_HOSTS = {HUB: "auth.docker.io"}  # hosts of the tokens of well-known registries


@dataclass(frozen=True, slots=True)
class Credentials:
    """An account at a registry. The secret is a password or an access token."""

    registry: str  # host with optional port, as in a reference
    username: str
    secret: str = field(repr=False)
    token_host: str = ""  # a further host that may get them, in exchange for a token

    @property
    def basic(self) -> str:
        pair = f"{self.username}:{self.secret}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"

    def may_go_to(self, realm: yarl.URL, base: yarl.URL) -> bool:
        """Whether the credentials may be sent to the host of tokens: the registry itself, or the configured one."""
        if realm.origin() == base.origin():
            return True
        hosts = {self.token_host, _TOKEN_HOSTS.get(self.registry, "")} - {""}
        return realm.scheme == "https" and realm.host_port_subcomponent in hosts


# Returns the credentials of an organization for a registry.
FindCredentials = Callable[[int, str], Awaitable[Credentials | None]]


@dataclass(frozen=True, slots=True)
class Challenge:
    """Challenge of a registry: Basic credentials, or a token of a realm."""

    realm: str = ""  # "" for Basic
    service: str = ""
    scope: str = ""

    def token_url(self, base: yarl.URL, repository: str) -> yarl.URL:
        query = {"scope": self.scope or f"repository:{repository}:pull"}
        if self.service:
            query["service"] = self.service
        return joined(base, self.realm).update_query(query)


def read_challenge(answer: Answer) -> Challenge | None:
    """Return the challenge of an answer with status 401, preferably for a token; None if it has none.

    Raises PullFailed for a header that is too long.
    """
    headers = [value for name, value in answer.headers.items() if name.lower() == "www-authenticate"]
    if any(len(each) > MAX_CHALLENGE_CHARS for each in headers):
        raise PullFailed(f"the registry's challenge has more than {MAX_CHALLENGE_CHARS:,} characters")
    parsed = [each for each in map(_parse, headers) if each is not None]
    return _first_with_realm(parsed) or (parsed[0] if parsed else None)


def _first_with_realm(challenges: Sequence[Challenge]) -> Challenge | None:
    return next((each for each in challenges if each.realm), None)


def _parse(header: str) -> Challenge | None:
    """Parse `Bearer realm="…",service="…",scope="…"` or `Basic realm="…"`."""
    scheme, _, rest = header.strip().partition(" ")
    fields = {name.lower(): quoted or bare for name, quoted, bare in _FIELD.findall(rest)}
    if scheme.lower() == "basic":
        return Challenge()
    if scheme.lower() != "bearer" or not fields.get("realm"):
        return None
    return Challenge(fields["realm"], fields.get("service", ""), fields.get("scope", ""))


def read_token(answer: Answer) -> str:
    try:
        document = json.loads(answer.body)
        token = document.get("token") or document["access_token"]
        if _TOKEN.fullmatch(token):
            return str(token)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        pass
    raise PullFailed("the registry's sign-in gave no token")


def joined(base: yarl.URL, location: str) -> yarl.URL:
    """Resolve an address that a registry sent; raises PullFailed."""
    try:
        return base.join(yarl.URL(location))
    except (ValueError, IndexError):  # IndexError: yarl fails so for http://[]@
        raise PullFailed(f"the registry refers to an invalid address: {location[:200]!r}") from None
