"""Settings: read once, judged at once, and a bad one names itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from moorage.core.kit.secret_text import decode_secret, weakness
from moorage.settings import BadSettings, Settings, Substitution, as_environment, load


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("MOORAGE_"):
            monkeypatch.delenv(name)


def read(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    for name, value in variables.items():
        monkeypatch.setenv(f"MOORAGE_{name}", value)
    return load()


def test_the_defaults_are_those_of_one_machine() -> None:
    settings = load()

    assert (settings.api_url, settings.functions_url) == ("http://localhost:8080", "http://localhost:8082")
    assert (settings.domain, settings.rate_limit, settings.session_hours) == ("localhost", 300, 24)
    assert (settings.mode, settings.billing, settings.signup) == ("development", "none", "open")
    assert settings.substitution is Substitution.ANY
    assert settings.data == Path.cwd() / ".moorage"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("WORKERS", "many", "MOORAGE_WORKERS: should be a whole number"),
        ("API_PORT", "0", "MOORAGE_API_PORT: input should be greater than or equal to 1"),
        ("MODE", "prod", "MOORAGE_MODE: input should be 'development' or 'production'"),
        ("BILLING", "paypal", "MOORAGE_BILLING: input should be 'none', 'manual' or 'stripe'"),
        ("ALLOW_PRIVATE_TARGETS", "maybe", "MOORAGE_ALLOW_PRIVATE_TARGETS: should be 1, 0, true or false"),
        ("DATABASE_URL", "mysql://x", "MOORAGE_DATABASE_URL: should start with postgresql://"),
        ("ARTIFACTS_URL", "ftp://x", "MOORAGE_ARTIFACTS_URL: should start with s3://"),
        ("OIDC_ISSUERS", "http://example.com", "http://example.com should be https, or http on loopback"),
        ("TRUSTED_PROXIES", "nonsense", "MOORAGE_TRUSTED_PROXIES"),
        ("REGISTRY_MIRRORS", "mirror", "MOORAGE_REGISTRY_MIRRORS: 'mirror' should be like docker.io="),
        ("MASTER_KEY", "abc", "MOORAGE_MASTER_KEY"),
        ("ENGINE", "docker", "MOORAGE_ENGINE: there is no engine docker; use local, which runs images and Dockerfiles"),
        ("ENGINE", "kubernetes", "MOORAGE_REGISTRY_URL: is needed with MOORAGE_ENGINE=kubernetes"),
        ("REGISTRY_URL", "registry.example.com", "MOORAGE_REGISTRY_URL: should be like https://registry.example.com/"),
        (
            "REGISTRY_URL",
            "https://a:b@example.com",
            "MOORAGE_REGISTRY_URL: should be like https://registry.example.com/",
        ),
        ("KUBERNETES_PREFIX", "Big_Name", "MOORAGE_KUBERNETES_PREFIX: should match"),
        ("FUNCTIONS_DOMAIN", "https://fn.example.com", "MOORAGE_FUNCTIONS_DOMAIN: should be a domain such as"),
        ("FUNCTIONS_DOMAIN", "192.0.2.1", "MOORAGE_FUNCTIONS_DOMAIN: should be a domain such as"),
        ("DNS_UPDATE_SERVER", "ns1.example.com", "MOORAGE_DNS_UPDATE_SERVER: should be the host:port of a DNS server"),
        ("DNS_UPDATE_KEY", "not base64", "MOORAGE_DNS_UPDATE_KEY: should be base64, as in the DNS server's key file"),
        ("DNS_UPDATE_ALGORITHM", "hmac-md5", "input should be 'hmac-sha256' or 'hmac-sha512'"),
        ("DNS_UPDATE_ZONE", "example.net", "MOORAGE_DNS_UPDATE_SERVER: is needed with MOORAGE_DNS_UPDATE_ZONE"),
    ],
)
def test_a_bad_value_names_itself(monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str) -> None:
    with pytest.raises(BadSettings) as refused:
        read(monkeypatch, **{name: value, "OIDC_AUDIENCE": "x"})

    assert says in str(refused.value)


DNS_UPDATES = {
    "DNS_UPDATE_SERVER": "ns1.example.com:53",
    "DNS_UPDATE_KEY_NAME": "moorage",
    "DNS_UPDATE_KEY": "c2VjcmV0",
    "APPS_DOMAIN": "apps.example.net",
    "HTTPS_PORT": "443",
}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"DNS_UPDATE_KEY_NAME": ""}, "MOORAGE_DNS_UPDATE_KEY_NAME: is needed with MOORAGE_DNS_UPDATE_SERVER"),
        ({"DNS_UPDATE_KEY": ""}, "MOORAGE_DNS_UPDATE_KEY: is needed with MOORAGE_DNS_UPDATE_SERVER"),
        ({"APPS_DOMAIN": ""}, "MOORAGE_APPS_DOMAIN: is needed with MOORAGE_DNS_UPDATE_SERVER"),
        ({"APPS_DOMAIN": "apps.localhost"}, "MOORAGE_APPS_DOMAIN: is needed with MOORAGE_DNS_UPDATE_SERVER"),
        ({"HTTPS_PORT": ""}, "MOORAGE_HTTPS_PORT: is needed with MOORAGE_DNS_UPDATE_SERVER"),
        ({"TLS_CERT": "a.crt", "TLS_KEY": "a.key"}, "the certificate in MOORAGE_TLS_CERT would take the place"),
    ],
)
def test_dns_updates_need_all_their_settings_and_no_certificate_in_files(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], says: str
) -> None:
    with pytest.raises(BadSettings) as refused:
        read(monkeypatch, **{**DNS_UPDATES, **changed})

    assert says in str(refused.value)


def test_the_key_of_dns_updates_masks_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read(monkeypatch, **DNS_UPDATES)

    assert DNS_UPDATES["DNS_UPDATE_KEY"] not in repr(settings)
    assert settings.orders_certificate


def test_functions_do_not_share_the_domain_of_projects(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadSettings) as refused:
        read(monkeypatch, FUNCTIONS_DOMAIN="Apps.example.net", APPS_DOMAIN="apps.example.net")

    assert "MOORAGE_FUNCTIONS_DOMAIN: should not be MOORAGE_APPS_DOMAIN" in str(refused.value)


@pytest.mark.parametrize(("text", "value"), [("1", True), ("0", False), ("true", True), ("false", False)])
def test_switches_take_ones_and_words(monkeypatch: pytest.MonkeyPatch, text: str, value: bool) -> None:
    assert read(monkeypatch, ALLOW_PRIVATE_TARGETS=text).allow_private_targets is value


def test_an_empty_variable_is_one_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, API_PORT="").api_port == 8080


def test_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read(monkeypatch, OIDC_ISSUERS="https://a.example, http://127.0.0.1:9000", OIDC_AUDIENCE="one,two")

    assert settings.oidc_issuers == ("https://a.example", "http://127.0.0.1:9000")
    assert settings.oidc_audience == ("one", "two")


def test_issuers_need_an_audience(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadSettings, match="MOORAGE_OIDC_AUDIENCE"):
        read(monkeypatch, OIDC_ISSUERS="https://a.example")


def test_secrets_mask_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    key = os.urandom(32).hex()
    settings = read(monkeypatch, MASTER_KEY=key, DATABASE_URL="postgresql://u:hunter2@h/d")

    assert key not in repr(settings)
    assert "hunter2" not in repr(settings)


def test_a_child_reads_the_same_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: dict[str, Any] = {"data": str(tmp_path), "api_port": "9000", "signup": "closed", "oidc_audience": "a,b"}
    settings = load(**given, master_key=os.urandom(32).hex(), allow_private_targets="0")

    for name, value in as_environment(settings).items():
        monkeypatch.setenv(name, value)

    assert load() == settings


@pytest.mark.parametrize(
    ("secret", "is_weak"),
    [(bytes(range(7, 39)).hex(), False), ("A" * 64, True), ("ab" * 8, True), ("not a key", True), ("", True)],
)
def test_a_weak_secret_is_told_from_a_strong_one(secret: str, is_weak: bool) -> None:
    assert (weakness(secret) is not None) == is_weak


def test_a_secret_may_be_hex_or_base64() -> None:
    import base64

    raw = os.urandom(32)

    assert decode_secret(raw.hex()) == raw
    assert decode_secret(base64.b64encode(raw).decode()) == raw
    assert decode_secret(base64.urlsafe_b64encode(raw).decode().rstrip("=")) == raw


def test_users_urls_reach_the_platforms_public_ports_of_this_machine_and_no_others() -> None:
    keys = {"master_key": os.urandom(32).hex(), "session_secret": os.urandom(32).hex()}
    settings = load(
        mode="production",
        base_url="https://api.example.com:8443",
        edge_url="https://fn.example.com",
        gateway_port="8181",
        sandbox_block="198.51.100.0/24",
        **keys,
    )
    own = ("203.0.113.7/32",)

    open_ports = [port for port in range(1, 65536) if settings.targets.refusal("203.0.113.7", port, own=own) is None]

    assert open_ports == [80, 443, 8181, 8443]
    assert settings.targets.refusal("198.51.100.9") is not None
