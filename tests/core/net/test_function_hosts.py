"""Hosts of the organizations' functions, by configuration."""

from __future__ import annotations

import pytest

from moorage.core.net import function_hosts


@pytest.mark.parametrize(
    ("given", "edge_url", "apps_domain", "is_production", "domain"),
    [
        ("", "", "", False, "localhost"),
        ("", "", "apps.example.net", False, "localhost"),
        ("", "", "apps.example.net", True, "edge.apps.example.net"),
        ("", "https://Fn.example.com:8443/", "apps.example.net", True, "fn.example.com"),
        ("", "https://apps.example.net", "Apps.example.net", True, "edge.apps.example.net"),
        ("", "http://localhost:8082", "localhost", False, "localhost"),
        ("", "http://127.0.0.1:8082", "", False, "localhost"),
        ("", "http://[::1]:8082", "", False, "localhost"),
        ("", "http://192.0.2.7:8082", "", True, ""),
        ("fn.example.com", "https://other.example.com", "apps.example.net", True, "fn.example.com"),
    ],
)
def test_the_domain_is_chosen_or_follows_from_the_edge_url(
    given: str, edge_url: str, apps_domain: str, is_production: bool, domain: str
) -> None:
    assert function_hosts.domain_of(given, edge_url, apps_domain, is_production=is_production) == domain


@pytest.mark.parametrize(
    ("host", "org_id"),
    [
        ("org-1.fn.example.com", 1),
        ("org-9223372036854775807.fn.example.com", 2**63 - 1),
        *((host, None) for host in ("fn.example.com", "org-0.fn.example.com", "org-01.fn.example.com", "org-1", "")),
        *((host, None) for host in ("a.org-1.fn.example.com", "org-1.example.com", "org-1x.fn.example.com")),
    ],
)
def test_a_host_names_its_organization(host: str, org_id: int | None) -> None:
    assert function_hosts.find_org(host, "fn.example.com") == org_id
    assert function_hosts.find_org(host, "") is None


@pytest.mark.parametrize(
    ("label", "expected"),
    [("org-1", True), ("org-42", True), ("fn", True), ("org-", False), ("org-1a", False), ("fnx", False)],
)
def test_a_project_cannot_be_named_like_a_host_of_functions(label: str, expected: bool) -> None:
    assert function_hosts.is_reserved(label, "fn.example.net", "example.net") is expected


@pytest.mark.parametrize("domain", ["", "a b", "a..b", "-a.b", "a:80", "127.0.0.1", "::1", "a/b", "a." * 120 + "b"])
def test_what_is_no_domain_is_refused(domain: str) -> None:
    with pytest.raises(ValueError, match=r"functions\.example\.com"):
        function_hosts.check_domain(domain)
