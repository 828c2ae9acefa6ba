"""Validation and normalisation of domain names."""

from __future__ import annotations

import pytest

from moorage.products.domains.names import LONGEST, is_apex, is_ours, parse_domain
from moorage.settings import Settings


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("example.com", "example.com"),
        ("WWW.Example.COM", "www.example.com"),
        ("shop.example.com.", "shop.example.com"),
        ("Bücher.example.com", "xn--bcher-kva.example.com"),
        ("xn--bcher-kva.example.com", "xn--bcher-kva.example.com"),
        ("straße。example.com", "xn--strae-oqa.example.com"),
        ("a--b.example.com", "a--b.example.com"),
        ("1.example.com", "1.example.com"),
        ("shop.invalid", "shop.invalid"),
        ("www.shop.test", "www.shop.test"),
        (".".join(["a" * 61] * 4 + ["com"]), ".".join(["a" * 61] * 4 + ["com"])),
    ],
)
def test_a_domain_is_kept_in_lower_case_and_punycode_without_a_closing_dot(given: str, kept: str) -> None:
    assert parse_domain(given) == kept


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("", "host name"),
        (".", "host name"),
        ("com", "two labels"),
        ("*.example.com", "wildcard"),
        ("192.0.2.1", "IP address"),
        ("2001:db8::1", "IP address"),
        ("[2001:db8::1]", "IP address"),
        ("192.0.2.1.", "IP address"),
        ("1.2.3.0x7f", "IP address"),
        ("host.123", "IP address"),
        ("https://example.com", "without a scheme"),
        ("example.com:443", "port"),
        ("example.com/path", "path"),
        ("user@example.com", "host name"),
        ("exa mple.com", "host name"),
        ("-a.example.com", "host name"),
        ("a-.example.com", "host name"),
        ("a_b.example.com", "host name"),
        ("a..example.com", "host name"),
        (".example.com", "host name"),
        ("example.com..", "host name"),
        ("example.com\n", "host name"),
        ("../../etc.com", "host name"),
        ("x" * 64 + ".com", "host name"),
        ("xn--a.example.com", "international"),
        ("bü_cher.example.com", "international"),
        ("ü" * 300 + ".com", str(LONGEST)),
        (".".join(["a" * 62] * 4 + ["com"]), "host name"),
        ("printer.local", "public"),
        ("a.localhost", "public"),
        ("printer.internal", "public"),
        ("invalid", "two labels"),
        ("ready.invalid", "public"),
        ("www.moorage.invalid", "public"),
    ],
)
def test_what_is_no_public_host_name_is_refused_with_a_reason(given: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_domain(given)


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        ("example.com", True),
        ("www.example.com", False),
        ("example.co.uk", True),
        ("www.example.co.uk", False),
        ("shop.example.de", False),
    ],
)
def test_the_top_of_a_zone_is_told_by_its_name(domain: str, expected: bool) -> None:
    assert is_apex(domain) is expected


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        ("apps.example.net", True),
        ("harbor.apps.example.net", True),
        ("api.example.org", True),
        ("fn.example.org", True),
        ("org-1.fn.example.org", True),
        ("notapps.example.net", False),
        ("example.net", False),
        ("example.org", False),
    ],
)
@pytest.mark.settings(base_url="https://API.example.org", edge_url="https://fn.example.org/")
def test_the_platforms_own_names_are_known(settings: Settings, domain: str, expected: bool) -> None:
    assert is_ours(settings, domain) is expected
