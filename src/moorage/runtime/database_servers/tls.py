"""TLS certificates of database servers: one CA, and one certificate per server.

Clients verify a server with the CA certificate, which is created once and kept. Server certificates are created before
a start and renewed when needed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from moorage.core.net.certificates import Authority, certificate_pem, key_pem
from moorage.runtime.database_servers import copying
from moorage.runtime.database_servers.ports import TLS

CA, CA_KEY = "database-ca.crt", "database-ca.key"
SERVER, SERVER_KEY, SERVER_CA = "server.crt", "server.key", "ca.crt"
LOCAL_HOSTS = ("127.0.0.1", "localhost")
CA_DAYS = 3650
SERVER_DAYS = 365
RENEW_BEFORE_DAYS = 30  # before expiry
MAX_FILE_BYTES = 256 * 1024  # of a certificate or key in a server's folder


def ensure_ca(keys: Path) -> Path:
    """Return the path of the CA certificate; creates it once, under a lock."""
    keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(keys):
        if not (keys / CA_KEY).exists():
            copying.put(keys, CA_KEY, key_pem(ec.generate_private_key(ec.SECP256R1())), is_kept=True)
        if not (keys / CA).exists():
            name = f"Moorage databases {os.urandom(4).hex()}"
            ca = Authority.make(name, _read_key(keys / CA_KEY), datetime.now(UTC), CA_DAYS)
            copying.put(keys, CA, certificate_pem(ca.certificate), is_kept=True)
    return keys / CA


def read_ca(keys: Path) -> str | None:
    """Return the CA certificate for clients; None until the first server with TLS."""
    try:
        return (keys / CA).read_text()
    except FileNotFoundError:
        return None


def ensure_certificate(keys: Path, folder: Path, hosts: Sequence[str], now_ms: int) -> None:
    """Create or renew the certificate in a server's folder for these hosts.

    All files belong to the folder's owner, and only the owner can read them.
    """
    ca = x509.load_pem_x509_certificate(ensure_ca(keys).read_bytes())
    now, names = datetime.fromtimestamp(now_ms / 1000, UTC), [*dict.fromkeys([*hosts, *LOCAL_HOSTS])]
    copying.ensure_folder(folder, TLS)
    tls_folder = folder / TLS
    if _is_valid(tls_folder, ca, names, now):
        return
    key = ec.generate_private_key(ec.SECP256R1())
    authority, purposes = Authority(_read_key(keys / CA_KEY), ca), [ExtendedKeyUsageOID.SERVER_AUTH]
    certificate = authority.sign(key, names[0], _alternatives(names), purposes, now, SERVER_DAYS)
    # After a crash in between, a key without a certificate is replaced at the next start.
    copying.drop(tls_folder, SERVER)
    copying.put(tls_folder, SERVER_KEY, key_pem(key), is_kept=True)
    copying.put(tls_folder, SERVER_CA, certificate_pem(ca), is_kept=True)
    copying.put(tls_folder, SERVER, certificate_pem(certificate), is_kept=True)


def _is_valid(tls_folder: Path, ca: x509.Certificate, names: list[str], now: datetime) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(copying.read(tls_folder, SERVER, MAX_FILE_BYTES))
        key = serialization.load_pem_private_key(copying.read(tls_folder, SERVER_KEY, MAX_FILE_BYTES), None)
        has_ca = copying.read(tls_folder, SERVER_CA, MAX_FILE_BYTES) == certificate_pem(ca).encode()
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    is_pair = key.public_key() == certificate.public_key()
    renew_at = certificate.not_valid_after_utc - timedelta(days=RENEW_BEFORE_DAYS)
    is_current = certificate.not_valid_before_utc <= now <= renew_at
    return has_ca and is_pair and is_current and list(alternatives) == _alternatives(names)


def _alternatives(names: list[str]) -> list[x509.GeneralName]:
    return [_alternative(name) for name in names]


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
