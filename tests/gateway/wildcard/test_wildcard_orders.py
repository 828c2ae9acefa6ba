"""The wildcard certificate that the platform orders by DNS-01, from a real authority and a real DNS server."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from tests.gateway.wildcard.conftest import Platform, restart
from tests.gateway.wildcard.update_server import KEY_NAME, UpdatedZone
from tests.products.domains.gateway_support import serving_ask, visit
from tests.products.domains.pebble_server import Pebble

from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, MINUTE_MS, SECOND_MS
from moorage.core.telemetry import Telemetry
from moorage.core.worker.pool import Worker
from moorage.gateway import operator_certificate
from moorage.gateway.config import tls
from moorage.gateway.wildcard import jobs
from moorage.platform.doctor import certificate as doctor_certificate
from moorage.platform.doctor.findings import State
from moorage.products.domains.issuance import Permission
from moorage.settings import Settings

# One process runs all of them, so that the authority starts once.
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.group("wildcard-certificate"),
    pytest.mark.parametrize("db", ["sqlite"], indirect=True),
]
APPS, FUNCTIONS = "_acme-challenge.apps.example.net", "_acme-challenge.fn.example.net"
NAMES = ["*.apps.example.net", "*.fn.example.net", "apps.example.net", "fn.example.net"]
HOST = "shop.apps.example.net"


def names_of(certificate: x509.Certificate | None) -> list[str]:
    assert certificate is not None
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return sorted(names.get_values_for_type(x509.DNSName))


@pytest.mark.boundary(
    "tenant-to-tenant", "With DNS-01 configured, no name of a project causes another certificate to be issued."
)
async def test_the_platform_orders_a_wildcard_and_its_gateway_requests_no_other(
    platform: Platform, zone: UpdatedZone, authority: Pebble, caddy: Settings
) -> None:
    permission = Permission(platform.db, tls.GatewayCertificates(caddy), Telemetry(quiet=True).log)

    await platform.start()
    await platform.gateway.sync_certificate()
    async with serving_ask(caddy.api_port, permission.ask) as asked:
        pages = [await visit(caddy.https_port, host, root=authority.root()) for host in (HOST, "org-7.fn.example.net")]
        may_have_own = await permission.ask(HOST)

    assert [page.status for page in pages] == [404, 502]  # no such project, and no edge runs in this test
    assert names_of(await platform.certificate()) == NAMES
    assert (asked, may_have_own) == ([], False)
    assert tls.certificate_status(caddy, HOST) == "issued"
    assert (zone.texts(), zone.updated()) == ({}, {APPS, FUNCTIONS})
    assert doctor_certificate.check(caddy).state is State.OK


async def test_a_certificate_is_renewed_when_a_third_of_its_life_is_left_and_replaces_the_former(
    platform: Platform, authority: Pebble, caddy: Settings
) -> None:
    await platform.start()
    await platform.gateway.sync_certificate()
    first = await platform.certificate()
    assert first is not None
    third = (first.not_valid_after_utc - first.not_valid_before_utc) / 3
    renewal_at = int((first.not_valid_after_utc - third).timestamp() * 1000)

    await platform.tick(renewal_at - platform.clock.now() - DAY_MS)
    kept = await platform.certificate()
    await platform.tick(2 * DAY_MS)
    await platform.gateway.sync_certificate()
    renewed = await platform.certificate()

    served = operator_certificate.find(caddy)
    assert kept == first != renewed
    assert renewed is not None
    assert served is not None
    assert served.chain.decode().count(renewed.public_bytes(serialization.Encoding.PEM).decode()) == 1
    assert (await visit(caddy.https_port, HOST, root=authority.root())).status == 404


async def test_the_key_and_the_chain_are_files_that_only_the_platform_reads(
    platform: Platform, settings: Settings
) -> None:
    await platform.start()
    await platform.gateway.sync_certificate()
    operator_certificate.ensure_copy(settings)
    files = [path for path in settings.folder("keys").rglob("*") if path.is_file()]

    assert sorted(path.name for path in files if path.parent.name == "acme") == ["account.key", "wildcard.pem"]
    assert {stat.S_IMODE(os.stat(path).st_mode) for path in files} == {0o600}


async def test_a_damaged_file_is_written_again(platform: Platform, settings: Settings) -> None:
    await platform.start()
    await platform.gateway.sync_certificate()
    operator_certificate.ordered_file(settings).write_text("half of a key")

    damaged = operator_certificate.find(settings)
    await platform.gateway.sync_certificate()

    assert damaged is None
    assert operator_certificate.is_covered(settings, HOST)


async def test_a_cname_delegates_the_record_to_a_zone_that_takes_updates(platform: Platform, zone: UpdatedZone) -> None:
    zone.zones = {"acme.example.org"}
    zone.put(APPS, "CNAME", "hop.example.com.")
    zone.put("hop.example.com", "CNAME", "apps.acme.example.org.")
    zone.put(FUNCTIONS, "CNAME", "fn.acme.example.org.")

    await platform.start()

    assert names_of(await platform.certificate()) == NAMES
    assert zone.updated() == {"apps.acme.example.org", "fn.acme.example.org"}
    assert zone.texts() == {}


async def test_a_wildcard_cname_for_visitors_delegates_no_record(platform: Platform, zone: UpdatedZone) -> None:
    zone.wildcard = ("apps.example.net", "visitors.example.org")

    await platform.start()

    assert names_of(await platform.certificate()) == NAMES
    assert zone.updated() == {APPS, FUNCTIONS}


@pytest.mark.settings(dns_update_zone="apps.example.net", functions_domain="x.apps.example.net")
async def test_a_zone_that_is_configured_is_not_looked_up(platform: Platform, zone: UpdatedZone) -> None:
    zone.zones = {"apps.example.net"}

    await platform.start()

    assert names_of(await platform.certificate()) == ["*.apps.example.net", "*.x.apps.example.net", "apps.example.net"]
    assert [name for name, kind in zone.asked if kind == "SOA"] == []


@pytest.mark.settings(dns_update_algorithm="hmac-sha512")
async def test_a_key_may_have_the_longer_algorithm(platform: Platform, zone: UpdatedZone) -> None:
    zone.algorithm = "hmac-sha512"

    await platform.start()

    assert await platform.certificate() is not None


async def test_a_wrong_key_is_explained_and_tried_again_after_ever_longer_delays(
    platform: Platform, zone: UpdatedZone, settings: Settings
) -> None:
    zone.secret = b"another secret"

    await platform.start()
    await platform.gateway.sync_certificate()
    first = await platform.failures()
    zone.secret = UpdatedZone.secret
    zone.refused = True
    await platform.tick(4 * MINUTE_MS)
    delayed = await platform.failures()
    await platform.tick(1 * MINUTE_MS)
    second = await platform.failures()
    zone.refused = False
    await platform.tick(14 * MINUTE_MS)
    waiting = await platform.certificate()
    shown = doctor_certificate.check(settings)
    await platform.tick(1 * MINUTE_MS)
    await platform.gateway.sync_certificate()

    assert first is not None
    assert first == delayed
    assert f"refuses the signature of the key {KEY_NAME}: is MOORAGE_DNS_UPDATE_KEY the server's?" in first.error
    assert second is not None
    assert (second.count, "REFUSED" in second.error) == (2, True)
    assert second.next_at - first.next_at == jobs.RETRY_S[1] * SECOND_MS
    assert (waiting, shown.state, first.error in shown.found) == (None, State.WARN, True)
    assert (await platform.failures(), names_of(await platform.certificate())) == (None, NAMES)
    assert doctor_certificate.check(settings).state is State.OK


async def test_a_changed_setting_is_tried_at_the_next_start(
    platform: Platform, zone: UpdatedZone, db: Database
) -> None:
    zone.secret = b"another secret"
    await platform.start()

    again = restart(db)
    await again.start()
    same = await again.failures()
    corrected = restart(db, dns_update_key=zone.encoded_secret)
    await corrected.start()

    assert same is not None
    assert same.count == 1
    assert await corrected.certificate() is not None


async def test_an_order_that_ended_with_its_process_delays_the_next_one(
    platform: Platform, zone: UpdatedZone, db: Database
) -> None:
    zone.hidden = True  # The order waits until the record is visible.
    await db.write(jobs.request)
    worker = Worker(db, platform.handlers, Telemetry(quiet=True))
    running = asyncio.create_task(worker.run_due())
    while not zone.updated():
        await asyncio.sleep(0.01)
    await worker.stop(grace_s=0)
    await running

    again = restart(db)
    again.clock.advance(MINUTE_MS)  # The lease of the job expires.
    await again.start()

    failures = await again.failures()
    assert failures is not None
    assert (failures.count, failures.error) == (1, "it has not ended")


async def test_records_are_removed_after_the_authority_refused_them(platform: Platform, zone: UpdatedZone) -> None:
    zone.lagging = {FUNCTIONS}

    await platform.start()

    failures = await platform.failures()
    assert failures is not None
    assert "the certificate authority rejects fn.example.net" in failures.error
    assert (zone.texts(), zone.updated()) == ({}, {APPS, FUNCTIONS})


@pytest.mark.parametrize(
    ("zones", "says"),
    [
        (set[str](), f"has no zone for {APPS}; set MOORAGE_DNS_UPDATE_ZONE"),
        ({"apps.example.net"}, f"has no zone for {FUNCTIONS}; set MOORAGE_DNS_UPDATE_ZONE"),
    ],
)
async def test_a_server_without_the_zone_is_explained_and_keeps_no_record(
    platform: Platform, zone: UpdatedZone, zones: set[str], says: str
) -> None:
    zone.zones = zones

    await platform.start()

    failures = await platform.failures()
    assert failures is not None
    assert says in failures.error
    assert zone.texts() == {}


@pytest.mark.settings(dns_update_key_name="unknown-key")
async def test_an_unknown_key_is_explained(platform: Platform) -> None:
    await platform.start()

    failures = await platform.failures()
    assert failures is not None
    assert "does not know the key unknown-key with hmac-sha256" in failures.error


@pytest.mark.settings(dns_update_zone="example.org")
async def test_a_name_outside_of_the_configured_zone_is_explained(platform: Platform) -> None:
    await platform.start()

    failures = await platform.failures()
    assert failures is not None
    assert f"MOORAGE_DNS_UPDATE_ZONE: {APPS} is not below example.org; delegate it" in failures.error


@pytest.mark.settings(dns_update_server="127.0.0.1:9", acme_directory="https://127.0.0.1:9/directory")
async def test_an_authority_that_is_away_is_named(platform: Platform, tmp_path: Path) -> None:
    await platform.start()

    failures = await platform.failures()
    assert failures is not None
    assert failures.next_at - platform.clock.now() == jobs.RETRY_S[0] * SECOND_MS
    assert "cannot reach the certificate authority at https://127.0.0.1:9/directory: cannot connect" in failures.error


@asynccontextmanager
async def limiting_authority(retry_after_s: int) -> AsyncIterator[str]:
    """Serve the directory of an authority that refuses all accounts for a while; yields its URL."""
    urls: dict[str, str] = {}

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_directory = (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET ")
        body = json.dumps(urls if is_directory else {"detail": "too many new accounts"})
        status = "200 OK" if is_directory else "429 Too Many Requests"
        head = f"HTTP/1.1 {status}\r\nRetry-After: {retry_after_s}\r\nReplay-Nonce: abc\r\nContent-Length: {len(body)}"
        writer.write(f"{head}\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    urls.update(newNonce=f"{base}/nonce", newAccount=f"{base}/account")
    async with server:
        yield f"{base}/directory"


async def test_an_authority_that_limits_requests_is_asked_again_when_it_says(platform: Platform, db: Database) -> None:
    async with limiting_authority(7200) as directory:
        limited = restart(db, acme_directory=directory)
        await limited.start()

    failures = await limited.failures()
    assert failures is not None
    assert "too many new accounts" in failures.error
    assert failures.next_at - limited.clock.now() == 7200 * SECOND_MS


@pytest.mark.settings(dns_update_server="127.0.0.1:9")
async def test_a_dns_server_that_is_away_is_named(platform: Platform) -> None:
    await platform.start()

    failures = await platform.failures()
    assert failures is not None
    assert "cannot reach the DNS server at 127.0.0.1:9" in failures.error


async def test_another_domain_or_another_authority_takes_another_certificate(
    platform: Platform, db: Database, authority: Pebble
) -> None:
    await platform.start()
    first = await platform.certificate()

    moved = restart(db, functions_domain="edge.apps.example.net")
    await moved.start()
    second = await moved.certificate()
    elsewhere = restart(db, acme_directory=authority.directory + "?other")
    await elsewhere.start()

    assert names_of(first) == NAMES
    assert names_of(second) == ["*.apps.example.net", "*.edge.apps.example.net", "apps.example.net"]
    assert await elsewhere.certificate() != second


async def test_a_platform_without_these_settings_has_no_task(platform: Platform, db: Database) -> None:
    without = restart(db, dns_update_server="", dns_update_key="", dns_update_key_name="")

    assert (list(platform.handlers.maintenance), list(without.handlers.maintenance)) == ([jobs.KIND], [])
