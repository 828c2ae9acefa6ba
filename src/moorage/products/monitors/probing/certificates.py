"""Parses server certificates for monitors."""

from __future__ import annotations

import hashlib

from cryptography import x509

from moorage.products.monitors.probing.beats import Certificate

_DAY_MS = 86_400_000
_MAX_NAME_CHARS = 255
_MAX_CACHED = 10_000
_CACHE: dict[str, Certificate] = {}  # by fingerprint; evicts the oldest first


def read(der: bytes) -> Certificate:
    """Parse a certificate in DER form; raises ValueError if it is invalid.

    The content is untrusted: names may be missing or very long. Every check of a monitor gets the same certificate, so
    parsed certificates are cached by fingerprint.
    """
    fingerprint = hashlib.sha256(der).hexdigest()
    certificate = _CACHE.get(fingerprint)
    if certificate is None:
        certificate = _parse(der, fingerprint)
        if len(_CACHE) >= _MAX_CACHED:
            del _CACHE[next(iter(_CACHE))]
        _CACHE[fingerprint] = certificate
    return certificate


def _parse(der: bytes, fingerprint: str) -> Certificate:
    try:
        certificate = x509.load_der_x509_certificate(der)
    except x509.InvalidVersion as error:
        raise ValueError("the certificate has an unknown version") from error
    return Certificate(
        subject=_subject(certificate)[:_MAX_NAME_CHARS],
        issuer=_issuer(certificate)[:_MAX_NAME_CHARS],
        valid_to=int(certificate.not_valid_after_utc.timestamp() * 1000),
        fingerprint=fingerprint,
    )


def days_left(valid_to: int, now: int) -> int:
    """Return the whole days until a certificate expires; negative after that."""
    return (valid_to - now) // _DAY_MS


def _subject(certificate: x509.Certificate) -> str:
    return (
        _first(certificate.subject, x509.oid.NameOID.COMMON_NAME)
        or _first_alternative(certificate)
        or _whole(certificate.subject)
    )


def _issuer(certificate: x509.Certificate) -> str:
    organization = _first(certificate.issuer, x509.oid.NameOID.ORGANIZATION_NAME)
    return organization or _first(certificate.issuer, x509.oid.NameOID.COMMON_NAME) or _whole(certificate.issuer)


def _first(name: x509.Name, oid: x509.ObjectIdentifier) -> str:
    return next((_plain(str(each.value)) for each in name.get_attributes_for_oid(oid)), "")


def _whole(name: x509.Name) -> str:
    return _plain(name.rfc4514_string())


def _first_alternative(certificate: x509.Certificate) -> str:
    try:
        names = certificate.extensions.get_extension_for_oid(x509.oid.ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType, ValueError):
        return ""
    if not isinstance(names, x509.SubjectAlternativeName):
        return ""
    return next((_plain(str(each.value)) for each in names if isinstance(each, x509.DNSName | x509.IPAddress)), "")


def _plain(text: str) -> str:
    """Remove control characters and surrogates, which cannot be shown or stored."""
    return "".join(character for character in text if character.isprintable())
