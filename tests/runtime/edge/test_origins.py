"""Replies in browsers: at the shared address, and at the organization's host."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.runtime.edge.connections import origins, web
from moorage.runtime.edge.connections.origins import (
    ABSENT,
    DOCUMENT,
    INERT,
    NOSNIFF,
    SANDBOX,
    OwnOrigin,
    SharedOrigin,
)
from moorage.runtime.workers import frames

PATH = "/api/v1/web/org_12/default/hello"
SHARED = SharedOrigin(PATH)
OWN = OwnOrigin("org-12.localhost")
TARGETS = web.TargetCache("fn.example.com")


def lines(*headers: tuple[str, str], origin: origins.Origin = SHARED) -> list[str]:
    return web.reply_head(json.dumps(headers).encode(), origin).lines.decode().splitlines()


# Addresses.


@pytest.mark.parametrize(
    "host", [b"org-12.fn.example.com", b"ORG-12.Fn.Example.com:8082", b"org-12.fn.example.com:443"]
)
def test_the_host_of_an_organization_leads_to_its_functions(host: bytes) -> None:
    found = TARGETS.find(b"/default/hello.http/a/b?x=1", host)

    assert found is not None
    assert (found.org, found.name, found.rest, found.query) == ("12", "hello", b"/a/b", b'"x":"1"')
    assert not found.origin.is_shared


@pytest.mark.boundary(
    "tenant-to-tenant", "The host of one organization never leads to another organization's function."
)
@pytest.mark.parametrize(
    "target",
    [b"/", b"/default/", b"/hello", b"/api/v1/web/org_13/default/hello", PATH.encode(), b"/default/a/../../b?#"],
)
def test_at_the_host_of_an_organization_any_other_path_is_nothing(target: bytes) -> None:
    assert TARGETS.find(target, b"org-12.fn.example.com") is None


@pytest.mark.parametrize(
    "host",
    [
        *(b"fn.example.com", b"org-0.fn.example.com", b"org-012.fn.example.com", b"org-12.fn.example.com.", b""),
        *(
            b"org-12xfn.example.com",
            b"a.org-12.fn.example.com",
            b"org-12.fn.example.com.evil.test",
            b"org-12.localhost",
        ),
        *(b"org-12.fn.example.com:", b"org-12.fn.example.com:1:2", b"xorg-12.fn.example.com", b"org-12.fnxexample.com"),
    ],
)
def test_any_other_host_has_the_shared_address_only(host: bytes) -> None:
    shared = TARGETS.find(PATH.encode(), host)

    assert shared is not None
    assert shared.origin.is_shared
    assert TARGETS.find(b"/default/hello", host) is None


def test_an_address_is_remembered_with_its_host() -> None:
    hosts = (b"org-1.fn.example.com", b"org-2.fn.example.com", b"org-1.fn.example.com")

    found = [TARGETS.find(b"/default/hello", host) for host in hosts]

    assert [each.org for each in found if each is not None] == ["1", "2", "1"]


# Origin-wide headers.


@pytest.mark.boundary("tenant-to-tenant", "A function cannot set headers that count for the origin of all functions.")
@pytest.mark.parametrize(
    "name",
    [
        "Service-Worker-Allowed",
        "CLEAR-SITE-DATA",
        "Strict-Transport-Security",
        "Alt-Svc",
        "NEL",
        "Origin-Agent-Cluster",
    ],
)
def test_a_header_for_the_whole_origin_is_sent_from_the_own_host_only(name: str) -> None:
    assert lines((name, "1"), ("x-a", "b")) == ["x-a: b"]
    assert lines((name, "1"), ("x-a", "b"), origin=OWN) == [f"{name}: 1", "x-a: b"]


@pytest.mark.boundary("tenant-to-tenant", "A browser's password for one function is not sent to another's realm.")
@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ('Basic realm="bank"', ['WWW-Authenticate: Basic realm="org_12/default/hello", charset="UTF-8"']),
        ('Bearer, bAsIc realm="bank"', ['WWW-Authenticate: Basic realm="org_12/default/hello", charset="UTF-8"']),
        ('Bearer realm="a", error="b"', ['WWW-Authenticate: Bearer realm="a", error="b"']),
        ("Bearer", ["WWW-Authenticate: Bearer"]),
        ('Digest realm="bank", nonce="1"', []),
        ('Bearer realm="a", Digest realm="bank"', []),
        ("Negotiate", []),
    ],
)
def test_a_challenge_names_a_realm_of_the_function_s_own(asked: str, sent: list[str]) -> None:
    assert lines(("WWW-Authenticate", asked)) == sent
    assert lines(("WWW-Authenticate", asked), origin=OWN) == [f"WWW-Authenticate: {asked}"]


# Cookies.


@pytest.mark.boundary("tenant-to-tenant", "A cookie of a function is sent to that function only.")
@pytest.mark.parametrize(
    ("cookie", "sent"),
    [
        ("a=1", f"a=1; Path={PATH}"),
        ("a=1; Path=/", f"a=1; Path={PATH}"),
        ("a=1;path=/;Secure; HttpOnly", f"a=1; Secure; HttpOnly; Path={PATH}"),
        (f"a=1; Path={PATH}/in", f"a=1; Path={PATH}/in"),
        (f"a=1; Path={PATH}", f"a=1; Path={PATH}"),
        (f"a=1; Path={PATH}2", f"a=1; Path={PATH}"),
        (f"a=1; Path={PATH}/in; PATH = /", f"a=1; Path={PATH}"),
        ("a=1; Domain=example.com; Max-Age=5", f"a=1; Max-Age=5; Path={PATH}"),
        ("a=1;\tdomain\t=.example.com", f"a=1; Path={PATH}"),
        ("__Secure-a=1; Secure; Path=/", f"__Secure-a=1; Secure; Path={PATH}"),
        ("__Host-a=1; Secure; Path=/", None),
        (" =__host-a=1; Secure; Path=/", None),
    ],
)
def test_a_cookie_at_the_shared_address_is_for_the_function_s_path(cookie: str, sent: str | None) -> None:
    assert lines(("Set-Cookie", cookie)) == ([] if sent is None else [f"Set-Cookie: {sent}"])


@pytest.mark.boundary("tenant-to-tenant", "A function cannot set a cookie for the hosts of other organizations.")
@pytest.mark.parametrize(
    ("cookie", "sent"),
    [
        ("a=1; Path=/; Secure", "a=1; Path=/; Secure"),
        ("__Host-a=1; Secure; Path=/", "__Host-a=1; Secure; Path=/"),
        ("a=1; Domain=localhost; Path=/", "a=1; Path=/"),
        ("a=1; DOMAIN = .localhost", "a=1"),
        ("a=1; Domain=org-1.localhost", "a=1"),
        ("a=1; Domain=.Org-12.localhost; Path=/", "a=1; Domain=.Org-12.localhost; Path=/"),
    ],
)
def test_a_cookie_at_the_own_host_keeps_all_but_a_wider_domain(cookie: str, sent: str) -> None:
    assert lines(("Set-Cookie", cookie), origin=OWN) == [f"Set-Cookie: {sent}"]


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=60))
def test_the_last_path_of_a_cookie_is_always_within_the_function(rest: str) -> None:
    [line] = lines(("Set-Cookie", f"a=1;{rest}"))

    *_, last = line.split(";")
    name, _, path = last.strip().partition("=")
    assert name == "Path"
    assert path == PATH or path.startswith(f"{PATH}/")


# Documents.


@pytest.mark.parametrize(
    "kind",
    [
        *("application/json", "Text/Plain; charset=utf-8", "image/png", "text/css", "application/problem+json"),
        *("video/mp4", "text/javascript", "application/pdf", " text/event-stream ", "font/woff2", "image/png ; a=b"),
    ],
)
def test_a_type_without_scripts_stays_what_it_is(kind: str) -> None:
    head = web.reply_head(json.dumps([["Content-Type", kind]]).encode(), SHARED)

    assert head.declared == INERT
    assert SHARED.protection(frames.DECLARED, head.declared) == NOSNIFF


@pytest.mark.boundary("tenant-to-tenant", "A document that a function answers at the shared address has no origin.")
@pytest.mark.parametrize(
    "headers",
    [
        *([["content-type", kind]] for kind in ("text/html", "application/xhtml+xml", "image/svg+xml", "text/xml", "")),
        *([["content-type", kind]] for kind in ("application/xml", "a/b", "TEXT/HTML;a", "multipart/x-mixed-replace")),
        # Browsers use the last of several types.
        *([["content-type", kind]] for kind in ("text/plain, text/html", "text/plain;, text/html", "image/png,a/b")),
        [["content-type", "text/plain"], ["Content-Type", "text/html"]],
        [["content-type", "text/mar\u212adown"]],
        # A policy in a `304` replaces that of the cached document.
        [["content-type", "text/plain"], ["Content-Security-Policy", "default-src *"]],
        [["Content-Security-Policy", "sandbox allow-same-origin"], ["content-type", "text/plain"]],
    ],
)
def test_anything_that_may_be_a_document_is_sandboxed(headers: list[list[str]]) -> None:
    head = web.reply_head(json.dumps(headers).encode(), SHARED)

    assert head.declared == DOCUMENT
    assert SHARED.protection(frames.DECLARED, head.declared) == SANDBOX


@pytest.mark.parametrize(
    ("kind", "declared", "sent"),
    [
        (frames.JSON, ABSENT, b""),
        (frames.HTML, ABSENT, SANDBOX),
        (frames.NO_BODY, ABSENT, SANDBOX),
        (frames.DECLARED, ABSENT, SANDBOX),
        (frames.HTML, INERT, SANDBOX),
        (frames.JSON, INERT, SANDBOX),
        (frames.JSON, DOCUMENT, SANDBOX),
    ],
)
def test_a_process_that_contradicts_itself_is_sandboxed(kind: int, declared: int, sent: bytes) -> None:
    assert SHARED.protection(kind, declared) == sent
    assert OWN.protection(kind, declared) == b""
    assert b"allow-same-origin" not in SANDBOX
