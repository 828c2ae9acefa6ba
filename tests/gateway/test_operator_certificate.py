"""The operator's own certificate: a real Caddy shows it for every name below it, and asks for no other."""

from __future__ import annotations

import datetime
import os
import ssl
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.gateway.support import make_settings
from tests.ports import free_port
from tests.products.domains.gateway_support import running_gateway, serving_ask, visit

from moorage.core.telemetry import Telemetry
from moorage.gateway import caddy, operator_certificate, sites
from moorage.gateway.config import tls
from moorage.gateway.routes import Routes
from moorage.gateway.wanted import Wanted
from moorage.platform.doctor import certificate as doctor_certificate
from moorage.platform.doctor.findings import State
from moorage.settings import BadSettings, Settings

pytestmark = [pytest.mark.anyio, pytest.mark.group("operator-certificate")]
HOST = "shop.apps.example.net"


def make_certificate(folder: Path, *names: str, days: int = 30, stem: str = "own") -> tuple[Path, Path]:
    """Write a certificate that vouches for itself, and its key; return their paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=60))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(each) for each in names]), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(exist_ok=True)
    cert_file, key_file = folder / f"{stem}.crt", folder / f"{stem}.key"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key_file.write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
    return cert_file, key_file


def settings_with(data: Path, files: tuple[Path, Path], **fields: Any) -> Settings:
    cert, key = map(str, files)
    given = {"apps_domain": "apps.example.net", "https_port": free_port(), **fields}
    return make_settings(data, tls_cert=cert, tls_key=key, **given)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return make_certificate(tmp_path / "own", "*.apps.example.net", "apps.example.net")


@pytest.fixture
def settings(tmp_path: Path, files: tuple[Path, Path]) -> Iterator[Settings]:
    made = settings_with(tmp_path / "data", files)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("moored")
    sites.publish(made, HOST, tmp_path / "site")
    with running_gateway(made):
        yield made


@pytest.fixture
async def asked(settings: Settings) -> AsyncIterator[list[str]]:
    async def refuse(_: str) -> bool:
        return False

    async with serving_ask(settings.api_port, refuse) as names:
        yield names


@pytest.mark.boundary(
    "tenant-to-tenant", "With a wildcard certificate no name of a project causes another to be issued."
)
async def test_names_below_the_wildcard_are_served_under_it_and_no_certificate_is_asked_for(
    settings: Settings, files: tuple[Path, Path], asked: list[str]
) -> None:
    page = await visit(settings.https_port, HOST, root=files[0].read_text())
    absent = await visit(settings.https_port, "absent.apps.example.net", root=files[0].read_text())
    with pytest.raises(ssl.SSLError):
        await visit(settings.https_port, "a.shop.apps.example.net", root=files[0].read_text())

    assert (page.status, page.body, absent.status) == (200, "moored", 404)
    assert asked == ["a.shop.apps.example.net"]
    assert tls.certificate_status(settings, HOST) == "issued"
    assert await tls.ensure_certificate(settings, HOST) == "issued"


async def test_a_certificate_that_was_replaced_is_loaded_without_a_restart_and_a_broken_one_is_not(
    settings: Settings, files: tuple[Path, Path], asked: list[str], tmp_path: Path
) -> None:
    routes = Routes(settings, Telemetry(quiet=True))
    wanted = Wanted(sites={HOST: tmp_path / "site"})
    old_root = files[0].read_text()
    await routes.apply(wanted)

    files[1].write_text("half of a key")
    await routes.apply(wanted)
    with_broken_key = await visit(settings.https_port, HOST, root=old_root)
    make_certificate(files[0].parent, "*.apps.example.net")
    await routes.apply(wanted)
    renewed = await visit(settings.https_port, HOST, root=files[0].read_text())

    assert (with_broken_key.status, renewed.status) == (200, 200)
    assert files[0].read_text() != old_root


def test_copies_are_readable_by_their_owner_alone_and_few(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    for _ in range(4):
        settings = settings_with(tmp_path / "data", make_certificate(folder, "*.apps.example.net"))
        fingerprint = operator_certificate.ensure_copy(settings)
        assert operator_certificate.ensure_copy(settings) == fingerprint

    copies = sorted((tmp_path / "data" / "keys" / "tls").iterdir())
    assert len(copies) == 4
    assert {stat.S_IMODE(os.stat(path).st_mode) for path in copies} == {0o600}
    assert any(path.stem == fingerprint for path in copies)


@pytest.mark.parametrize(
    ("names", "host", "expected"),
    [
        (("*.a.test",), "x.a.test", True),
        (("*.A.test",), "x.a.test", True),
        (("*.a.test",), "a.test", False),
        (("*.a.test",), "x.y.a.test", False),
        (("a.test",), "a.test", True),
        (("b.test", "a.test"), "a.test", True),
        (("a.test",), "xa.test", False),
    ],
)
def test_a_wildcard_stands_for_one_label(tmp_path: Path, names: tuple[str, ...], host: str, expected: bool) -> None:
    settings = settings_with(tmp_path / "data", make_certificate(tmp_path, *names))

    assert operator_certificate.is_covered(settings, host) is expected


def test_an_expired_certificate_covers_nothing(tmp_path: Path) -> None:
    settings = settings_with(tmp_path / "data", make_certificate(tmp_path, "*.a.test", days=-1))

    assert not operator_certificate.is_covered(settings, "x.a.test")


@pytest.mark.parametrize(
    ("names", "days", "state"),
    [
        (("*.apps.example.net", "*.fn.example.net"), 30, State.OK),
        (("*.apps.example.net",), 30, State.WARN),
        (("*.apps.example.net", "*.fn.example.net"), 3, State.WARN),
    ],
)
def test_the_doctor_says_what_a_certificate_is_for(
    tmp_path: Path, names: tuple[str, ...], days: int, state: State
) -> None:
    files = make_certificate(tmp_path, *names, days=days)

    found = doctor_certificate.check(settings_with(tmp_path / "data", files, functions_domain="fn.example.net"))

    assert found.state is state
    assert "*.apps.example.net" in found.found


def test_a_certificate_that_cannot_be_used_stops_the_start_and_is_named(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path, "*.a.test")
    _, other_key = make_certificate(tmp_path, "*.a.test", stem="other")
    empty = tmp_path / "empty"
    empty.touch()

    said = []
    for files in ((cert, other_key), (empty, key), (cert, empty), (tmp_path / "absent", key)):
        with pytest.raises(BadSettings) as refused:
            caddy.command(settings_with(tmp_path / "data", files))
        said.append(str(refused.value))
    with pytest.raises(BadSettings, match="one is needed with the other"):
        caddy.command(make_settings(tmp_path / "data", tls_cert=str(cert)))

    assert "is not the key of the certificate" in said[0]
    assert "MOORAGE_TLS_CERT" in said[1]
    assert "MOORAGE_TLS_KEY" in said[2]
    assert "absent" in said[3]
