"""The certificate for all names that it covers: the operator's own, or a wildcard that the platform ordered.

Caddy rejects a whole configuration for one unreadable file, and reads files only at a load. So this module checks the
operator's files and copies them; Caddy loads the copies, and gets a new configuration when the files change.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from moorage.core.kit.records import dataclass
from moorage.settings import BadSettings, Settings

KEPT_COPIES = 2  # A configuration on disk may still name the copy before the newest.


@dataclass(frozen=True)
class OperatorCertificate:
    fingerprint: str  # of certificate and key
    names: tuple[str, ...]
    not_after: datetime
    chain: bytes
    key: bytes

    def covers(self, host: str) -> bool:
        return any(is_match(name, host) for name in self.names)


def is_match(name: str, host: str) -> bool:
    """Return whether a certificate's name covers a host; a wildcard is one label."""
    if name.startswith("*."):
        return host.partition(".")[2] == name[2:].lower() and not host.startswith(".")
    return name.lower() == host


def find(settings: Settings) -> OperatorCertificate | None:
    """Return the operator's or the ordered certificate, if there is one; raises BadSettings."""
    if settings.orders_certificate:
        return _find_ordered(ordered_file(settings))
    if not settings.tls_cert and not settings.tls_key:
        return None
    if not settings.tls_cert or not settings.tls_key:
        raise BadSettings("MOORAGE_TLS_CERT and MOORAGE_TLS_KEY: one is needed with the other")
    paths = Path(settings.tls_cert), Path(settings.tls_key)
    try:
        return _read_if_changed(*paths)
    except OSError as error:
        raise BadSettings(f"MOORAGE_TLS_CERT and MOORAGE_TLS_KEY: {error.filename}: {error.strerror}") from None


def ordered_file(settings: Settings) -> Path:
    """Return the file with the key and the chain of the ordered certificate; see `gateway.wildcard`."""
    return settings.folder("keys") / "acme" / "wildcard.pem"


def _find_ordered(path: Path) -> OperatorCertificate | None:
    """Return the ordered certificate. A damaged file is no reason to stop: it is written again from the store."""
    try:
        return _read_if_changed(path, path)
    except (BadSettings, OSError):
        return None


def _read_if_changed(cert: Path, key: Path) -> OperatorCertificate:
    stamps = ((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in map(os.stat, (cert, key)))
    return _read(cert, key, *stamps)


@lru_cache(maxsize=4)
def _read(cert: Path, key: Path, *_stamps: tuple[int, ...]) -> OperatorCertificate:
    chain, private = cert.read_bytes(), key.read_bytes()
    try:
        first = x509.load_pem_x509_certificates(chain)[0]
        names = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        raise BadSettings(f"MOORAGE_TLS_CERT: {cert} is not a PEM certificate with host names") from None
    try:
        loaded = serialization.load_pem_private_key(private, password=None)
    except (ValueError, TypeError):
        raise BadSettings(f"MOORAGE_TLS_KEY: {key} is not a PEM private key without a password") from None
    if loaded.public_key() != first.public_key():
        raise BadSettings(f"MOORAGE_TLS_KEY: {key} is not the key of the certificate in {cert}")
    fingerprint = hashlib.sha256(chain + private).hexdigest()[:32]
    hosts = tuple(names.get_values_for_type(x509.DNSName))
    return OperatorCertificate(fingerprint, hosts, first.not_valid_after_utc, chain, private)


def ensure_copy(settings: Settings) -> str:
    """Copy the certificate for Caddy; return its fingerprint, empty without one.

    Safe to repeat. Raises BadSettings.
    """
    certificate = find(settings)
    if certificate is None:
        return ""
    cert, key = _copies(settings, certificate.fingerprint)
    if not cert.exists() or not key.exists():
        write_private(key, certificate.key)
        write_private(cert, certificate.chain)
        _prune(cert.parent)
    return certificate.fingerprint


def load_files(settings: Settings, fingerprint: str) -> list[dict[str, Any]]:
    """Return Caddy's `load_files` entry for the copies with that fingerprint."""
    cert, key = _copies(settings, fingerprint)
    return [{"certificate": str(cert), "key": str(key), "tags": ["operator"]}]


def is_covered(settings: Settings, host: str) -> bool:
    """Return whether Caddy serves the operator's or the ordered certificate, unexpired, for a host."""
    try:
        certificate = find(settings)
    except BadSettings:
        return False
    return certificate is not None and certificate.not_after > datetime.now(UTC) and certificate.covers(host)


def _copies(settings: Settings, fingerprint: str) -> tuple[Path, Path]:
    folder = settings.folder("keys") / "tls"
    return folder / f"{fingerprint}.crt", folder / f"{fingerprint}.key"


def write_private(path: Path, data: bytes) -> None:
    """Replace a file, in one step, by one that only its owner can read."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{secrets.token_hex(8)}")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    fresh.replace(path)


def _prune(folder: Path) -> None:
    newest_first = sorted(folder.glob("*.crt"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for old in newest_first[KEPT_COPIES:]:
        old.unlink()
        old.with_suffix(".key").unlink(missing_ok=True)
