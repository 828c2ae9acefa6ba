"""Certificates of custom domains, from a real certificate authority."""

from __future__ import annotations

import datetime
import os
import ssl
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.ports import free_port
from tests.products.domains.dns_server import DnsServer, Zone
from tests.products.domains.gateway_support import protocol_of, running_gateway, serving_ask, visit
from tests.products.domains.pebble_server import Pebble, running_pebble
from tests.products.domains.support import Desk, add_function

from moorage.core.db.store import Database
from moorage.core.kit.clock import MINUTE_MS, SECOND_MS, ManualClock
from moorage.core.telemetry import Telemetry
from moorage.gateway import caddy, sites
from moorage.gateway.config import tls
from moorage.products.domains import grants
from moorage.products.domains.issuance import Permission
from moorage.products.domains.jobs import RETRY_S
from moorage.settings import Settings, load

# One process runs all of them, so that the authority and the gateway start once.
pytestmark = [pytest.mark.anyio, pytest.mark.group("certificates")]


def make_settings(data: Path, authority: Pebble | None = None, **fields: Any) -> Settings:
    if authority is not None:
        fields |= {"acme_directory": authority.directory, "acme_ca": str(authority.ca_file)}
    given = {"apps_domain": "apps.example.net", "api_port": free_port(), "edge_port": free_port(), **fields}
    return load(data=data, rate_limit=1_000_000, **given)


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {"gateway_port": free_port(), "https_port": free_port()}


@pytest.fixture(scope="module")
def authority(
    tmp_path_factory: pytest.TempPathFactory, dns_server: DnsServer, ports: dict[str, int]
) -> Iterator[Pebble]:
    folder = tmp_path_factory.mktemp("pebble")
    http_port, tls_port = ports.values()
    with running_pebble(folder, dns=dns_server.address, http_port=http_port, tls_port=tls_port) as pebble:
        yield pebble


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, dns_server: DnsServer, authority: Pebble, ports: dict[str, int]
) -> Iterator[Settings]:
    own = {"resolver": dns_server.address, "functions_domain": "fn.example.net"}
    settings = make_settings(tmp_path_factory.mktemp("gw"), authority, **own, **ports)
    with running_gateway(settings):
        yield settings


@pytest.fixture
def settings(gateway: Settings) -> Settings:
    return gateway


@pytest.fixture
async def requested_hosts(db: Database, settings: Settings) -> AsyncIterator[list[str]]:
    """The names in the gateway's permission requests."""
    permission = Permission(db, tls.GatewayCertificates(settings), Telemetry(quiet=True).log)
    async with serving_ask(settings.api_port, permission.ask) as names:
        yield names


def make_site(settings: Settings, folder: Path, host: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "index.html").write_text("moored")
    sites.publish(settings, host, folder)


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_a_verified_domain_gets_a_certificate_and_is_served_under_it(
    desk: Desk, zone: Zone, authority: Pebble, settings: Settings, requested_hosts: list[str], tmp_path: Path
) -> None:
    zone.put("shop.example.com", "A", "127.0.0.1")
    make_site(settings, tmp_path / "site", "shop.example.com")
    team = await desk.make_team("harbor")

    verified = await desk.make_verified(team, "shop.example.com")
    await desk.run_jobs()
    issued = await team.only()

    page = await visit(settings.https_port, "shop.example.com", root=authority.root())
    assert (verified["certificateStatus"], issued["certificateStatus"]) == ("pending", "issued")
    assert (page.status, page.body) == (200, "moored")
    assert "strict-transport-security" not in page.headers
    assert await protocol_of(settings.https_port, "shop.example.com", authority.root()) == "h2"
    assert tls.certificate_status(settings, "shop.example.com") == "issued"
    assert (await team.verify(verified))["certificateStatus"] == "issued"
    assert requested_hosts == ["shop.example.com"]


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_a_project_gets_a_certificate_for_its_own_host_at_the_first_visit(
    desk: Desk, zone: Zone, authority: Pebble, settings: Settings, requested_hosts: list[str], tmp_path: Path
) -> None:
    zone.put("quay.apps.example.net", "A", "127.0.0.1")
    make_site(settings, tmp_path / "site", "quay.apps.example.net")
    await desk.make_team("quay")

    page = await visit(settings.https_port, "quay.apps.example.net", root=authority.root())

    assert (page.status, page.body) == (200, "moored")


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_the_host_of_an_organization_gets_a_certificate_once_it_has_a_function(
    desk: Desk, db: Database, zone: Zone, authority: Pebble, settings: Settings, requested_hosts: list[str]
) -> None:
    team = await desk.make_team("pier")
    host = f"org-{team.org_id}.fn.example.net"
    zone.put(host, "A", "127.0.0.1")

    with pytest.raises(ssl.SSLError):
        await visit(settings.https_port, host, root=authority.root())
    await add_function(db, team.org_id, "hello")
    reply = await visit(settings.https_port, host, "/default/hello", root=authority.root())

    assert reply.status == 502  # proxied, but no edge runs in this test
    assert "The server of this address does not answer" in reply.body
    assert requested_hosts[-1] == host


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_a_domain_that_is_not_verified_gets_no_certificate(
    desk: Desk, zone: Zone, authority: Pebble, settings: Settings, requested_hosts: list[str]
) -> None:
    zone.put("pending.example.com", "A", "127.0.0.1")
    team = await desk.make_team("harbor")
    await team.add("pending.example.com")

    with pytest.raises(ssl.SSLError):
        await visit(settings.https_port, "pending.example.com", root=authority.root())
    became = await tls.ensure_certificate(settings, "pending.example.com")

    assert became == "failed"
    assert tls.certificate_status(settings, "pending.example.com") == "none"
    assert set(requested_hosts) == {"pending.example.com"}


@pytest.mark.boundary("tenant-to-tenant", "Renames give an organization no certificates beyond its weekly budget.")
@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_an_organization_that_used_up_its_budget_gets_no_certificate_from_the_authority(
    desk: Desk, db: Database, zone: Zone, authority: Pebble, settings: Settings, requested_hosts: list[str]
) -> None:
    zone.put("over.example.com", "A", "127.0.0.1")
    zone.put("over.apps.example.net", "A", "127.0.0.1")
    team = await desk.make_team("over")
    for number in range(settings.certificates_per_week):
        await db.write(lambda tx, name=f"name-{number}": grants.add(tx, team.org_id, grants.Kind.SUBDOMAIN, name))  # type: ignore[misc]

    await desk.make_verified(team, "over.example.com")
    await desk.run_jobs()
    for host in ("over.example.com", "over.apps.example.net"):
        with pytest.raises(ssl.SSLError):
            await visit(settings.https_port, host, root=authority.root())

    found = await team.only()
    assert found["certificateStatus"] == "failed"
    assert "the most that are allowed" in found["lastError"]
    assert set(requested_hosts) == {"over.example.com", "over.apps.example.net"}
    assert tls.certificate_status(settings, "over.apps.example.net") == "none"


@pytest.fixture
async def hasty_desk(db: Database, zone: Zone, settings: Settings) -> AsyncIterator[Desk]:
    """A desk that does not wait for the gateway's retries, which take minutes."""
    desk = Desk(db, zone, tls.GatewayCertificates(settings, timeout_s=0.3))
    yield desk
    await desk.close()


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_a_domain_that_does_not_lead_here_is_served_and_says_what_is_wrong(
    hasty_desk: Desk, requested_hosts: list[str]
) -> None:
    team = await hasty_desk.make_team("harbor")
    verified = await hasty_desk.make_verified(team, "astray.example.com")

    await hasty_desk.run_jobs()

    failed, again = await team.only(), await team.verify(verified)
    assert (failed["status"], failed["certificateStatus"]) == ("verified", "failed")
    assert "certificate authority has to reach this platform" in failed["lastError"]
    assert (again["certificateStatus"], again["lastError"]) == ("failed", failed["lastError"])
    assert await hasty_desk.served() == {"astray.example.com": team.project.id}


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_verifying_tries_for_the_certificate_at_once_but_not_over_and_over(
    hasty_desk: Desk, requested_hosts: list[str], clock: ManualClock
) -> None:
    team = await hasty_desk.make_team("harbor")
    verified = await hasty_desk.make_verified(team, "adrift.example.com")
    for wait_s in (0, *RETRY_S[:2]):
        clock.advance(wait_s * SECOND_MS)
        await hasty_desk.run_jobs()

    tries = []
    for wait_ms in (MINUTE_MS, 15 * MINUTE_MS):
        clock.advance(wait_ms)
        looked = await team.verify(verified)
        clock.advance(SECOND_MS)
        await hasty_desk.run_jobs()
        tries.append((await team.only())["updatedAt"] > looked["updatedAt"])

    assert tries == [False, True]


@pytest.fixture
def unreachable_by_tls(dns_server: DnsServer, tmp_path: Path) -> Iterator[Settings]:
    """A gateway with a TLS port that the authority cannot reach."""
    http_port = free_port()
    with running_pebble(tmp_path, dns=dns_server.address, http_port=http_port, tls_port=free_port()) as authority:
        settings = make_settings(tmp_path / "data", authority, gateway_port=http_port, https_port=free_port())
        with running_gateway(settings):
            yield settings


async def test_the_authority_may_validate_over_plain_http(zone: Zone, unreachable_by_tls: Settings) -> None:
    zone.put("plain.example.com", "A", "127.0.0.1")

    async def grant(domain: str) -> bool:
        return True

    async with serving_ask(unreachable_by_tls.api_port, grant):
        became = await tls.ensure_certificate(unreachable_by_tls, "plain.example.com")

    assert became == "issued"


async def test_plain_requests_are_sent_on_with_their_path_and_query(settings: Settings) -> None:
    sent_on = await visit(settings.gateway_port, "shop.example.com", "/a/b?c=d&e=//f")

    assert sent_on.status == 308
    assert sent_on.headers["location"] == f"https://shop.example.com:{settings.https_port}/a/b?c=d&e=//f"
    assert "server" not in sent_on.headers


async def test_on_the_usual_port_the_redirect_names_none(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, https_port=443, gateway_port=80)

    config = tls.apply_tls(caddy.config(settings, admin_socket=tmp_path / "admin"), settings)

    redirect = config["apps"]["http"]["servers"]["public"]["routes"][0]["handle"][-1]
    assert redirect["headers"]["Location"] == ["https://{http.request.host}{http.request.uri}"]


@pytest.mark.parametrize(
    ("host", "path"),
    [("localhost", "/"), ("127.0.0.1", "/"), ("shop.example.com", "/.well-known/acme-challenge/x"), ("A_b", "/")],
)
async def test_loopback_challenges_and_broken_hosts_are_answered_in_plain(
    settings: Settings, host: str, path: str
) -> None:
    answer = await visit(settings.gateway_port, host, path)

    assert answer.status == 404


async def test_applying_tls_twice_changes_nothing_more_and_without_a_port_nothing_at_all(tmp_path: Path) -> None:
    with_tls, without = make_settings(tmp_path, https_port=8443), make_settings(tmp_path)
    make = partial(caddy.config, admin_socket=tmp_path / "admin")

    once = tls.apply_tls(make(without), with_tls)
    twice = tls.apply_tls(tls.apply_tls(make(without), with_tls), with_tls)

    assert once == twice != make(without)
    assert tls.apply_tls(make(without), without) == make(without)


async def test_a_gateway_without_tls_has_no_certificates_to_get(tmp_path: Path) -> None:
    assert await tls.ensure_certificate(make_settings(tmp_path), "shop.example.com") == "none"


async def test_a_gateway_that_is_down_is_asked_again_later(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, https_port=free_port())

    assert await tls.ensure_certificate(settings, "shop.example.com") == "pending"


def write_certificate(settings: Settings, host: str, names: list[str], *, days_left: int) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=90))
        .not_valid_after(now + datetime.timedelta(days=days_left))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = settings.folder("keys") / "caddy" / "certificates" / "some-authority" / host / f"{host}.crt"
    path.parent.mkdir(parents=True)
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


@pytest.mark.parametrize(
    ("names", "days_left", "expected"),
    [(["shop.example.com"], 30, "issued"), (["shop.example.com"], -1, "none"), (["other.example.com"], 30, "none")],
)
async def test_a_stored_certificate_counts_while_it_is_valid_for_the_name(
    tmp_path: Path, names: list[str], days_left: int, expected: str
) -> None:
    settings = make_settings(tmp_path)
    write_certificate(settings, "shop.example.com", names, days_left=days_left)

    assert tls.certificate_status(settings, "shop.example.com") == expected


async def test_what_is_no_certificate_and_what_is_no_host_do_not_count(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    write_certificate(settings, "shop.example.com", ["shop.example.com"], days_left=30)
    (stored,) = settings.folder("keys").rglob("*.crt")
    stored.write_text("not a certificate")

    seen = [tls.certificate_status(settings, host) for host in ("shop.example.com", "*", "../x", "")]

    assert seen == ["none"] * 4


async def test_a_lock_that_the_gateway_no_longer_touches_is_not_waited_for(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    lock = settings.folder("keys") / "caddy" / "locks" / "issue_cert_shop.example.com.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("{}")

    held = tls.certificate_status(settings, "shop.example.com")
    os.utime(lock, (1, 1))
    left_behind = tls.certificate_status(settings, "shop.example.com")

    assert (held, left_behind) == ("pending", "none")
