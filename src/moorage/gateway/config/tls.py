"""TLS of the gateway: certificates on demand for hosts that the platform serves.

Hosts are not configured, so there is no list to get certificates for: the first TLS handshake for a host gets one,
after the API confirmed that the platform serves that host. Without this check, foreign DNS names that point here would
use up the rate limit of the certificate authority.
"""

from __future__ import annotations

import asyncio
import copy
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from cryptography import x509

from moorage.core.kit.clock import Clock, SystemClock
from moorage.core.kit.records import dataclass
from moorage.gateway import operator_certificate
from moorage.gateway.operator_certificate import is_match
from moorage.gateway.sites import HOST_PATTERN, is_host
from moorage.settings import Settings

CertificateStatus = Literal["none", "pending", "issued", "failed"]

ASK_PATH = "/.well-known/moorage/tls-ask"
HTTPS = 443
SECURE = "secure"  # name of the server with TLS
# The client waits while Caddy gets the certificate, and an authority that validates from several networks takes
# seconds. After a failure Caddy retries for minutes, and the client keeps waiting.
ISSUE_TIMEOUT_S = 45.0
LOCK_KEPT_S = 30.0

_LISTENING = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - these are looked up, not bound
_LOOPBACK = ["127.0.0.0/8", "::1/128"]
_CHALLENGES = "/.well-known/acme-challenge/*"


def apply_tls(config: dict[str, Any], settings: Settings, certificate: str = "") -> dict[str, Any]:
    """Add TLS to Caddy's configuration in place and return it; safe to repeat.

    Without an https port, a proxy in front terminates TLS and nothing changes. `certificate` is the fingerprint of the
    operator's certificate, if any: hosts that it covers get no other. The server with TLS is a copy of the plain
    server; the plain one redirects to it.
    """
    servers = config["apps"]["http"]["servers"]
    if not settings.https_port or SECURE in servers:
        return config
    plain = servers["public"]
    servers[SECURE] = _secure(plain, settings)
    plain["routes"] = [_redirect(settings), *plain["routes"]]
    config["apps"]["tls"] = {
        "automation": {
            "policies": [{"on_demand": True, "issuers": [_issuer(settings)]}],
            "on_demand": {"permission": {"module": "http", "endpoint": _ask_url(settings)}},
        }
    }
    if certificate:
        config["apps"]["tls"]["certificates"] = {"load_files": operator_certificate.load_files(settings, certificate)}
    return config


def _secure(plain: dict[str, Any], settings: Settings) -> dict[str, Any]:
    return {
        **copy.deepcopy(plain),
        "listen": [address(settings.host, settings.https_port)],
        "protocols": ["h1", "h2"],
        "tls_connection_policies": [{}],
    }


def _redirect(settings: Settings) -> dict[str, Any]:
    """Redirect to https, except requests from this machine to its own names."""
    port = "" if settings.https_port == HTTPS else f":{settings.https_port}"
    own_names = sorted({"localhost", "127.0.0.1", "ready.invalid"})
    return {
        "match": [
            {
                "vars_regexp": {"{http.request.host}": {"pattern": HOST_PATTERN}},
                "not": [{"remote_ip": {"ranges": _LOOPBACK}, "host": own_names}, {"path": [_CHALLENGES]}],
            }
        ],
        "handle": [
            {"handler": "headers", "response": {"delete": ["Server"]}},
            {
                "handler": "static_response",
                "status_code": 308,
                "headers": {"Location": [f"https://{{http.request.host}}{port}{{http.request.uri}}"]},
            },
        ],
        "terminal": True,
    }


def _issuer(settings: Settings) -> dict[str, Any]:
    issuer: dict[str, Any] = {
        "module": "acme",
        "ca": settings.acme_directory,
        # The authority asks on ports 80 and 443; these are where those requests arrive on this machine.
        "challenges": {
            "bind_host": settings.host,
            "http": {"alternate_port": settings.gateway_port},
            "tls-alpn": {"alternate_port": settings.https_port},
        },
    }
    if settings.acme_email:
        issuer["email"] = settings.acme_email
    if settings.acme_ca:
        issuer["trusted_roots_pem_files"] = [str(Path(settings.acme_ca).absolute())]
    return issuer


def _ask_url(settings: Settings) -> str:
    return f"http://{address(reachable(settings.host), settings.api_port)}{ASK_PATH}"


@dataclass(frozen=True)
class GatewayCertificates:
    """Certificates of this machine's gateway, for the products that own hosts."""

    settings: Settings
    timeout_s: float = ISSUE_TIMEOUT_S

    def status(self, host: str) -> CertificateStatus:
        return certificate_status(self.settings, host)

    def is_covered(self, host: str) -> bool:
        return bool(self.settings.https_port) and operator_certificate.is_covered(self.settings, host)

    async def ensure(self, host: str) -> CertificateStatus:
        return await ensure_certificate(self.settings, host, timeout_s=self.timeout_s)


def certificate_status(settings: Settings, host: str, clock: Clock | None = None) -> CertificateStatus:
    """Return `issued` for a valid stored certificate, `pending` while Caddy gets one."""
    if not is_host(host):
        return "none"
    if settings.https_port and operator_certificate.is_covered(settings, host):
        return "issued"
    now = datetime.fromtimestamp((clock or SystemClock()).now() / 1000, UTC)
    storage = settings.folder("keys") / "caddy"
    for path in storage.glob(f"certificates/*/{host}/{host}.crt"):
        if _is_valid(path, host, now):
            return "issued"
    return "pending" if _is_held(storage / "locks" / f"issue_cert_{host}.lock", now) else "none"


async def ensure_certificate(settings: Settings, host: str, *, timeout_s: float = ISSUE_TIMEOUT_S) -> CertificateStatus:
    """Make Caddy get a certificate with a TLS handshake for the host; safe to repeat.

    Return `issued` if the handshake shows a valid certificate, `failed` if Caddy refused or got none in time, `pending`
    if Caddy cannot be reached, and `none` without TLS.
    """
    if not settings.https_port or not is_host(host):
        return "none"
    try:
        async with asyncio.timeout(timeout_s):
            certificate = await _served_certificate(settings, host, timeout_s)
    except (ssl.SSLError, TimeoutError):
        return "failed"
    except OSError:
        return "pending"
    return "issued" if _matches(certificate, host, datetime.now(UTC)) else "failed"


async def _served_certificate(settings: Settings, host: str, timeout_s: float) -> x509.Certificate:
    # The signature is not checked: this process need not trust the operator's private authority.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection(
        reachable(settings.host),
        settings.https_port,
        ssl=context,
        server_hostname=host,
        ssl_handshake_timeout=timeout_s,
    )
    try:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.transport.abort()
    return x509.load_der_x509_certificate(shown)


def _is_held(lock: Path, now: datetime) -> bool:
    """Return whether Caddy holds a lock, which it touches every few seconds."""
    try:
        touched = lock.stat().st_mtime
    except OSError:
        return False
    return abs(now.timestamp() - touched) < LOCK_KEPT_S


def _is_valid(path: Path, host: str, now: datetime) -> bool:
    try:
        return _matches(x509.load_pem_x509_certificate(path.read_bytes()), host, now)
    except (OSError, ValueError):
        return False


def _matches(certificate: x509.Certificate, host: str, now: datetime) -> bool:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    is_current = certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc
    return is_current and any(is_match(name, host) for name in names.get_values_for_type(x509.DNSName))


def address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reachable(host: str) -> str:
    """Return the address to connect to for a server that listens on `host`."""
    return _LISTENING.get(host, host)
