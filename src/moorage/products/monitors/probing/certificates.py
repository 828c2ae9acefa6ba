"""What people want to know of a server's certificate."""

from __future__ import annotations

import hashlib

from cryptography import x509
from cryptography.x509.oid import ExtensionOID, NameOID

from moorage.products.monitors.probing.beats import Certificate

_DAY_MS = 86_400_000
_LONGEST_NAME = 255
_MOST_KNOWN = 10_000
_KNOWN: dict[str, Certificate] = {}  # by fingerprint; the oldest goes first


def read(der: bytes) -> Certificate:
    """Read a certificate in DER form; a ValueError says that it is none.

    The server wrote it, so nothing in it is taken for granted: a name may be missing, or be as long as a book. Every
    check of a monitor brings the same one, so what was read is kept, without the bytes it was read from.
    """
    fingerprint = hashlib.sha256(der).hexdigest()
    known = _KNOWN.get(fingerprint)
    if known is None:
        known = _parse(der, fingerprint)
        if len(_KNOWN) >= _MOST_KNOWN:
            del _KNOWN[next(iter(_KNOWN))]
        _KNOWN[fingerprint] = known
    return known


def _parse(der: bytes, fingerprint: str) -> Certificate:
    try:
        found = x509.load_der_x509_certificate(der)
    except x509.InvalidVersion as error:
        raise ValueError("it is of a version that does not exist") from error
    return Certificate(
        subject=_subject(found)[:_LONGEST_NAME],
        issuer=_issuer(found)[:_LONGEST_NAME],
        valid_to=int(found.not_valid_after_utc.timestamp() * 1000),
        fingerprint=fingerprint,
    )


def days_left(valid_to: int, now: int) -> int:
    """Return how many whole days are left of a certificate; fewer than none once it has expired."""
    return (valid_to - now) // _DAY_MS


def _subject(found: x509.Certificate) -> str:
    return _first(found.subject, NameOID.COMMON_NAME) or _first_alternative(found) or _whole(found.subject)


def _issuer(found: x509.Certificate) -> str:
    organization = _first(found.issuer, NameOID.ORGANIZATION_NAME)
    return organization or _first(found.issuer, NameOID.COMMON_NAME) or _whole(found.issuer)


def _first(name: x509.Name, wanted: x509.ObjectIdentifier) -> str:
    return next((_plain(str(each.value)) for each in name.get_attributes_for_oid(wanted)), "")


def _whole(name: x509.Name) -> str:
    return _plain(name.rfc4514_string())


def _first_alternative(found: x509.Certificate) -> str:
    try:
        names = found.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType, ValueError):
        return ""
    if not isinstance(names, x509.SubjectAlternativeName):
        return ""
    return next((_plain(str(each.value)) for each in names if isinstance(each, x509.DNSName | x509.IPAddress)), "")


def _plain(text: str) -> str:
    """Leave out what cannot be shown or stored: control characters, and halves of characters."""
    return "".join(character for character in text if character.isprintable())
