"""Sign-in of the console: the platform exchanges a provider's code, at a real OpenID provider."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.cookiejar
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.accounts.identity.openid.provider import Provider, running_provider
from tests.core.http.live_server import live_platform

CLIENT = "moorage-native"
RETURN = "http://127.0.0.1:9/sign-in/return"  # nothing listens there
VERIFIER = "v" * 64
pytestmark = pytest.mark.group("oidc-code")


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with running_provider() as started:
        yield started


Start = Callable[..., str]


@pytest.fixture(scope="module")
def start(provider: Provider, tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Start]:
    """Start a platform whose console is a client of the provider, and return its address."""
    with contextlib.ExitStack() as stack:

        def started(client: str, **settings: str) -> str:
            given: dict[str, Any] = {"oidc_issuers": (provider.issuer,), "oidc_audience": (client,), **settings}
            folder = tmp_path_factory.mktemp("code")
            return stack.enter_context(live_platform(folder, sqlite_template, **given)).server.url

        yield started


@pytest.fixture(scope="module")
def url(start: Start) -> str:
    return start(CLIENT)


def call(url: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"{url}{path}", data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())["data"]
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["error"]


class Stop(urllib.request.HTTPRedirectHandler):
    """Follows redirects until one leads back to the console."""

    returned = ""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str) -> Any:
        if newurl.startswith(RETURN):
            self.returned = newurl
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def sign_in_at(address: str, user: str) -> dict[str, list[str]]:
    """Open the provider's page as a browser, and return the parameters of the redirect back."""
    stop = Stop()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()), stop)
    with pytest.raises(urllib.error.HTTPError):
        opener.open(f"{address}&login_hint={user}", timeout=30)
    return parse_qs(urlsplit(stop.returned).query)


def begin(url: str, provider: Provider, **changes: str) -> tuple[int, Any]:
    digest = hashlib.sha256(VERIFIER.encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    body = {
        "issuer": provider.issuer,
        "redirect_uri": RETURN,
        "state": "a-state-of-the-page",
        "code_challenge": challenge,
    }
    return call(url, "/v1/auth/oidc/begin", body | changes)


def exchange(url: str, provider: Provider, code: str, verifier: str = VERIFIER, **changes: str) -> tuple[int, Any]:
    body = {"issuer": provider.issuer, "redirect_uri": RETURN, "code": code, "code_verifier": verifier}
    return call(url, "/v1/auth/oidc/token", body | changes)


def test_the_methods_name_the_provider(url: str, provider: Provider) -> None:
    assert call(url, "/v1/auth/methods")[1]["providers"] == [{"issuer": provider.issuer, "clientId": CLIENT}]


def test_a_code_becomes_an_id_token_and_a_session(url: str, provider: Provider) -> None:
    status, begun = begin(url, provider)
    returned = sign_in_at(begun["url"], "ada")
    _, exchanged = exchange(url, provider, returned["code"][0])

    login = call(url, "/v1/auth/social", {"auth_secret": exchanged["id_token"], "terms_accepted": True})

    assert status == 200
    assert returned["state"] == ["a-state-of-the-page"]
    assert login[0] == 200
    assert login[1]["access_token"]


def test_a_code_needs_its_verifier_and_works_once(url: str, provider: Provider) -> None:
    code = sign_in_at(begin(url, provider)[1]["url"], "grace")["code"][0]

    wrong = exchange(url, provider, code, "w" * 64)
    first, again = exchange(url, provider, code), exchange(url, provider, code)

    assert [wrong[0], first[0], again[0]] == [401, 200, 401]


@pytest.mark.parametrize("client", ["moorage-basic", "moorage-post"])
def test_a_provider_that_wants_a_secret_gets_it_from_the_platform(
    start: Start, provider: Provider, client: str
) -> None:
    url = start(client, oidc_client_secret=f"{client}-secret")
    code = sign_in_at(begin(url, provider)[1]["url"], "hopper")["code"][0]

    status, exchanged = exchange(url, provider, code)

    assert (status, list(exchanged)) == (200, ["id_token"])
    assert call(url, "/v1/auth/methods")[1]["providers"] == [{"issuer": provider.issuer, "clientId": client}]


def test_a_wrong_secret_is_refused_and_not_repeated_to_anybody(start: Start, provider: Provider) -> None:
    url = start("moorage-basic", oidc_client_secret="nobody-else-knows")
    code = sign_in_at(begin(url, provider)[1]["url"], "hopper")["code"][0]

    status, error = exchange(url, provider, code)

    assert status == 401
    assert "nobody-else-knows" not in json.dumps(error)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"issuer": "https://other.example.com"}, id="another issuer"),
        pytest.param({"redirect_uri": "https://evil.example.com/sign-in/return"}, id="another host"),
        pytest.param({"redirect_uri": "http://127.0.0.1:9/sign-in/return?next=evil"}, id="a longer address"),
        pytest.param({"redirect_uri": "http://127.0.0.1:9/other"}, id="another path"),
        pytest.param({"redirect_uri": "http://[x/sign-in/return"}, id="a malformed host"),
    ],
)
def test_only_this_platform_and_its_providers_are_accepted(
    url: str, provider: Provider, changes: dict[str, str]
) -> None:
    answers = [begin(url, provider, **changes), exchange(url, provider, "a-code", **changes)]

    assert [(status, list(error["fields"])) for status, error in answers] == [(400, list(changes))] * 2
