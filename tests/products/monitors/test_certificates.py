"""Parsing of server certificates, including malformed ones."""

from __future__ import annotations

import datetime
import hashlib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from moorage.products.monitors.probing import certificates

UNTIL = datetime.datetime(2030, 3, 1, 12, tzinfo=datetime.UTC)
UNTIL_MS = 1_898_596_800_000
DAY_MS = 86_400_000
KEY = ec.generate_private_key(ec.SECP256R1())


def name(**parts: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(getattr(NameOID, oid), value) for oid, value in parts.items()])


def make(
    subject: x509.Name, issuer: x509.Name, names: list[x509.GeneralName] | None = None, *, broken_names: bool = False
) -> bytes:
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(KEY.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(UNTIL - datetime.timedelta(days=90))
        .not_valid_after(UNTIL)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if broken_names:
        odd = x509.UnrecognizedExtension(x509.SubjectAlternativeName.oid, b"\x30\x05\x99\xff\xff")
        builder = builder.add_extension(odd, critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


AUTHORITY = name(ORGANIZATION_NAME="Harbor Trust", COMMON_NAME="H3")


def test_a_certificate_is_read_with_its_names_its_end_and_its_fingerprint() -> None:
    der = make(name(COMMON_NAME="shop.test"), AUTHORITY, [x509.DNSName("www.shop.test")])

    found = certificates.read(der)

    assert (found.subject, found.issuer, found.valid_to) == ("shop.test", "Harbor Trust", UNTIL_MS)
    assert found.fingerprint == hashlib.sha256(der).hexdigest()


@pytest.mark.parametrize(
    ("subject", "names", "expected"),
    [
        (name(), [x509.DNSName("a.test"), x509.DNSName("b.test")], "a.test"),
        (name(), [x509.RFC822Name("a@b.test"), x509.DNSName("b.test")], "b.test"),
        (name(ORGANIZATION_NAME="Shop", COUNTRY_NAME="DE"), None, "C=DE,O=Shop"),
        (name(COMMON_NAME="a\nb\x00c"), None, "abc"),
        (name(), None, ""),
    ],
)
def test_a_subject_without_a_common_name_is_named_by_what_there_is(
    subject: x509.Name, names: list[x509.GeneralName] | None, expected: str
) -> None:
    assert certificates.read(make(subject, AUTHORITY, names)).subject == expected


@pytest.mark.parametrize(
    ("issuer", "expected"), [(name(COMMON_NAME="H3"), "H3"), (name(COUNTRY_NAME="DE"), "C=DE"), (name(), "")]
)
def test_an_issuer_without_an_organization_is_named_by_what_there_is(issuer: x509.Name, expected: str) -> None:
    assert certificates.read(make(name(COMMON_NAME="shop.test"), issuer)).issuer == expected


def test_alternative_names_that_cannot_be_read_are_none() -> None:
    assert certificates.read(make(name(), AUTHORITY, broken_names=True)).subject == ""


def test_what_a_certificate_is_read_as_is_kept_for_the_next_check() -> None:
    der = make(name(COMMON_NAME="shop.test"), AUTHORITY)

    assert certificates.read(der) is certificates.read(bytes(bytearray(der)))


@given(st.binary(max_size=200))
def test_what_is_no_certificate_is_a_value_error(noise: bytes) -> None:
    with pytest.raises(ValueError):
        certificates.read(noise)


@pytest.mark.parametrize(
    ("before_ms", "days"), [(0, 0), (DAY_MS, 1), (DAY_MS - 1, 0), (21 * DAY_MS + 5, 21), (-1, -1), (-DAY_MS - 1, -2)]
)
def test_days_left_are_whole_ones_and_negative_afterwards(before_ms: int, days: int) -> None:
    assert certificates.days_left(UNTIL_MS, UNTIL_MS - before_ms) == days
