"""Sign-in in the browser: OpenID Connect, authorization code with PKCE (S256), on a loopback port.

The provider redirects the browser to a server of this process. `state` ties the redirect to this sign-in, `nonce` ties
the ID token to it, and the code verifier never leaves this process before the exchange. The platform verifies the
signature of the ID token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import queue
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2 as httpx
import msgspec

from moorage.cli.output.terminal import note, plain, stop
from moorage.cli.overview.opening import has_browser, show_page
from moorage.core.kit.decoding import decode

SCOPE: Final = "openid email profile"
CALLBACK_PATH: Final = "/callback"
LOOPBACK: Final = "127.0.0.1"
FETCH_TIMEOUT_S: Final = 20.0
# Colours of the console.
_STYLE: Final = (
    ":root{color-scheme:light dark;--back:#f9f9fb;--card:#fff;--text:#1c2024;--soft:#60646c;--line:#e0e1e6}"
    "@media(prefers-color-scheme:dark){:root{--back:#111113;--card:#151719;--text:#edeef0;--soft:#b0b4ba;"
    "--line:#24282b}}"
    "body{display:grid;place-items:center;min-height:100vh;margin:0;padding:16px;box-sizing:border-box;"
    "background:var(--back);color:var(--text);font:14px/20px system-ui,sans-serif}"
    "main{box-sizing:border-box;width:100%;max-width:480px;padding:28px;border:1px solid var(--line);"
    "border-radius:8px;background:var(--card)}h1{margin:0 0 8px;font-size:20px;line-height:28px;font-weight:600}"
    "p{margin:0;color:var(--soft)}"
)
_PAGE: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<title>Moorage</title><style>{style}</style><main><h1>{title}</h1><p>{text}</p></main>"
)
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS: Final = {
    "content-type": "text/html; charset=utf-8",
    "cache-control": "no-store",
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'",
    "referrer-policy": "no-referrer",
    "connection": "close",
}


class SignInFailed(Exception):
    """The provider or the user refused, or an answer does not belong to this sign-in."""


@dataclass(frozen=True, slots=True)
class Provider:
    """An identity provider of the platform, and the client id of the platform there."""

    issuer: str
    client_id: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """Random values of one sign-in."""

    state: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))

    @property
    def challenge(self) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class Endpoints(msgspec.Struct):
    """The part of a discovery document that a sign-in needs."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str


def sign_in(provider: Provider, *, port: int = 0, timeout_s: float = 300) -> str:
    """Return an ID token of the user; exits with the reason if there is none."""
    attempt = Attempt()
    try:
        endpoints = discover(provider.issuer)
        with _listening(attempt.state, port) as (redirect_uri, answers):
            _show(_authorization_url(endpoints, provider, attempt, redirect_uri))
            code = _code(answers, timeout_s)
            token = _exchange(endpoints, provider, attempt, redirect_uri, code)
        check_claims(token, provider, attempt.nonce)
    except SignInFailed as error:
        stop(f"cannot sign in: {plain(error)}")
    return token


def discover(issuer: str) -> Endpoints:
    """Return the endpoints of an issuer; they have to use https, or be on this machine."""
    try:
        response = httpx.get(f"{issuer.rstrip('/')}/.well-known/openid-configuration", timeout=FETCH_TIMEOUT_S)
        endpoints = decode(response.content, Endpoints)
    except (httpx.HTTPError, httpx.InvalidURL, msgspec.DecodeError) as error:
        raise SignInFailed(f"the identity provider {issuer} does not answer as expected: {error}") from error
    if endpoints.issuer != issuer:
        raise SignInFailed(f"the identity provider {issuer} calls itself {endpoints.issuer}")
    for address in (endpoints.authorization_endpoint, endpoints.token_endpoint):
        parts = urlsplit(address)
        if parts.scheme != "https" and parts.hostname not in (LOOPBACK, "localhost", "::1"):
            raise SignInFailed(f"{address} of the identity provider does not use https")
    return endpoints


def _authorization_url(endpoints: Endpoints, provider: Provider, attempt: Attempt, redirect_uri: str) -> str:
    query = {
        "response_type": "code",
        "client_id": provider.client_id,
        "redirect_uri": redirect_uri,
        "scope": SCOPE,
        "state": attempt.state,
        "nonce": attempt.nonce,
        "code_challenge": attempt.challenge,
        "code_challenge_method": "S256",
    }
    address = endpoints.authorization_endpoint
    return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"


def _show(url: str) -> None:
    """Open the provider's page; a browser that stays in the foreground must not hold up the redirect."""
    note("Sign in on this page; it opens in your browser:" if has_browser() else "Open this page to sign in:")
    note(f"  {plain(url)}")
    if has_browser():
        threading.Thread(target=show_page, args=(url,), daemon=True).start()


def _code(answers: queue.Queue[dict[str, str]], timeout_s: float) -> str:
    try:
        answer = answers.get(timeout=timeout_s)
    except queue.Empty:
        raise SignInFailed(f"no answer of the browser within {timeout_s:.0f} seconds; start again") from None
    if "code" not in answer:
        reason = answer.get("error_description") or answer.get("error") or "no code in its answer"
        raise SignInFailed(f"the identity provider refused: {reason}")
    return answer["code"]


def _exchange(endpoints: Endpoints, provider: Provider, attempt: Attempt, redirect_uri: str, code: str) -> str:
    form = {
        "grant_type": "authorization_code",
        "client_id": provider.client_id,
        "code": code,
        "code_verifier": attempt.verifier,
        "redirect_uri": redirect_uri,
    }
    try:
        response = httpx.post(endpoints.token_endpoint, data=form, timeout=FETCH_TIMEOUT_S)
        answer: Any = response.json()
    except (httpx.HTTPError, ValueError) as error:
        raise SignInFailed(f"the identity provider did not exchange the code: {error}") from error
    token = answer.get("id_token") if isinstance(answer, dict) else None
    if not response.is_success or not isinstance(token, str):
        reason = answer.get("error_description") or answer.get("error") if isinstance(answer, dict) else ""
        raise SignInFailed(f"the identity provider did not exchange the code: {reason or response.status_code}")
    return token


def check_claims(token: str, provider: Provider, nonce: str) -> None:
    """Check that an ID token belongs to this sign-in: its issuer, its audience and its nonce."""
    try:
        payload = token.split(".")[1]
        claims: Any = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        audience = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        is_ours = claims["iss"] == provider.issuer and provider.client_id in audience
        is_same = hmac.compare_digest(str(claims["nonce"]).encode(), nonce.encode())
    except (IndexError, KeyError, TypeError, ValueError, msgspec.DecodeError) as error:
        raise SignInFailed("the identity provider sent no usable ID token") from error
    if not is_ours:
        raise SignInFailed("the ID token is for another application")
    if not is_same:
        raise SignInFailed("the ID token belongs to another sign-in (its nonce differs); start again")


@contextmanager
def _listening(state: str, port: int) -> Iterator[tuple[str, queue.Queue[dict[str, str]]]]:
    """Serve the redirect on loopback within the block; gives the address, and a queue with its parameters."""
    answers: queue.Queue[dict[str, str]] = queue.Queue()
    try:
        server = ThreadingHTTPServer((LOOPBACK, port), _handler(state, answers))
    except OSError as error:
        raise SignInFailed(
            f"port {port} of this machine is in use ({error.strerror}); choose another --port"
        ) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_port}{CALLBACK_PATH}", answers
    finally:
        server.shutdown()
        server.server_close()


def _handler(state: str, answers: queue.Queue[dict[str, str]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 30  # Browsers open connections that they do not use.

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path != CALLBACK_PATH:
                self._answer(404, "Not found", "This address is used for a sign-in only.")
                return
            given = {name: values[0] for name, values in parse_qs(parts.query).items()}
            if not hmac.compare_digest(given.get("state", "").encode(), state.encode()):
                # Other pages can send requests here too: they are refused, and the sign-in goes on.
                self._answer(400, "Not signed in", "This answer belongs to another sign-in. Start again.")
                return
            if "code" in given:
                self._answer(200, "Signed in", "You may close this page and go back to the terminal.")
            else:
                self._answer(400, "Not signed in", "The terminal shows the reason.")
            answers.put(given)

        def _answer(self, status: int, title: str, text: str) -> None:
            body = _PAGE.format(style=_STYLE, title=title, text=text).encode()
            self.send_response(status)
            for name, value in _HEADERS.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
