"""Pebble, the ACME test server, with a self-signed server certificate."""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import shutil
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.ports import free_port


@dataclass(frozen=True)
class Pebble:
    port: int
    management_port: int
    ca_file: Path  # issuer of the server's own certificate
    _context: ssl.SSLContext

    @property
    def directory(self) -> str:
        return f"https://127.0.0.1:{self.port}/dir"

    def root(self) -> str:
        """Return the root of the issued certificates; each start creates a new one."""
        return self._get(f"https://127.0.0.1:{self.management_port}/roots/0")

    def is_up(self) -> bool:
        try:
            return "newOrder" in self._get(self.directory)
        except OSError:
            return False

    def _get(self, url: str) -> str:
        with urllib.request.urlopen(url, context=self._context, timeout=5) as answer:
            text: str = answer.read().decode()
            return text


@contextmanager
def running_pebble(
    folder: Path, *, dns: str, http_port: int, tls_port: int, rejected_nonces: int = 0
) -> Iterator[Pebble]:
    """Run the server; it rejects a percentage of valid nonces, as Pebble does to test its clients."""
    binary = shutil.which("pebble")
    assert binary is not None, "the tests of certificates need Debian's package pebble"
    certificate, key = make_own_certificate(folder)
    port, management_port = free_port(), free_port()
    config = {
        "listenAddress": f"127.0.0.1:{port}",
        "managementListenAddress": f"127.0.0.1:{management_port}",
        "certificate": str(certificate),
        "privateKey": str(key),
        "httpPort": http_port,
        "tlsPort": tls_port,
    }
    (folder / "pebble.json").write_text(json.dumps({"pebble": config}))
    # Disables the random delays that Pebble uses to test its clients.
    env = {**os.environ, "PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": str(rejected_nonces)}
    command = [binary, "-config", str(folder / "pebble.json"), "-dnsserver", dns]
    pebble = Pebble(port, management_port, certificate, ssl.create_default_context(cafile=str(certificate)))
    with (folder / "pebble.log").open("wb") as log, subprocess.Popen(command, env=env, stdout=log, stderr=log) as child:
        try:
            while not pebble.is_up():
                assert child.poll() is None, (folder / "pebble.log").read_text()
                time.sleep(0.02)
            yield pebble
        finally:
            child.kill()


def make_own_certificate(folder: Path) -> tuple[Path, Path]:
    """Make a self-signed certificate for loopback."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "pebble")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "own.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "own.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    return folder / "own.crt", folder / "own.key"
