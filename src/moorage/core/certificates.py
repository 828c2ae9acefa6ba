"""Settings of the gateway's certificates, and of the DNS updates that prove the platform's own domains."""

from __future__ import annotations

import base64
import binascii
from enum import StrEnum
from typing import Self

from moorage.core.cluster import ClusterSettings
from moorage.core.validated import Field, SecretStr, field_validator, model_validator

_SERVER = "MOORAGE_DNS_UPDATE_SERVER"
_NAME = r"^([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?)?$"


class DnsAlgorithm(StrEnum):
    SHA256 = "hmac-sha256"  # the default of most DNS servers
    SHA512 = "hmac-sha512"  # for servers that require the longer hash


class CertificateSettings(ClusterSettings):
    """Part of the settings."""

    # Certificates of the gateway.
    acme_directory: str = Field(
        "https://acme-v02.api.letsencrypt.org/directory", description="ACME directory that issues certificates."
    )
    acme_email: str = Field("", description="Contact mail address for the certificate authority.")
    acme_ca: str = Field("", description="File with the CA certificate of a private ACME server.")
    certificates_per_week: int = Field(
        20, ge=1, description="New host names per organization and week that get a certificate."
    )
    tls_cert: str = Field(
        "", description="PEM file with a certificate for the gateway and its chain, such as a wildcard."
    )
    tls_key: str = Field("", description="PEM file with the private key of that certificate.")
    dns_update_server: str = Field(
        "",
        description="`host:port` of a DNS server that accepts dynamic updates (RFC 2136) signed with TSIG. With it, "
        "the platform orders a wildcard certificate for its own domains.",
    )
    dns_update_zone: str = Field(
        "", pattern=_NAME, description="Zone of these updates. Default: found by the SOA record."
    )
    dns_update_key_name: str = Field("", pattern=_NAME, description="Name of the TSIG key.")
    dns_update_key: SecretStr = Field(SecretStr(""), description="TSIG key in base64, as in the DNS server's key file.")
    dns_update_algorithm: DnsAlgorithm = Field(
        DnsAlgorithm.SHA256, description="Algorithm of the TSIG key: `hmac-sha256` or `hmac-sha512`."
    )

    dns_update_wait_s: int = Field(
        30,
        ge=0,
        le=3600,
        description="Seconds between an update and the check by the certificate authority, for secondary DNS servers.",
    )

    @property
    def orders_certificate(self) -> bool:
        """Whether the platform orders a wildcard certificate for its own domains."""
        return bool(self.dns_update_server)

    @field_validator("dns_update_server")
    @classmethod
    def _update_server_has_a_port(cls, server: str) -> str:
        host, _, port = server.rpartition(":")
        if server and not (host and port.isascii() and port.isdecimal() and 0 < int(port) < 2**16):
            raise ValueError(f"should be the host:port of a DNS server, such as ns1.example.com:53, not {server}")
        return server

    @field_validator("dns_update_key")
    @classmethod
    def _update_key_is_base64(cls, key: SecretStr) -> SecretStr:
        try:
            base64.b64decode(key.get_secret_value(), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("should be base64, as in the DNS server's key file") from None
        return key

    @model_validator(mode="after")
    def _updates_are_complete(self) -> Self:
        fields = ("dns_update_key_name", "dns_update_key", "dns_update_zone")
        given = {f"MOORAGE_{name.upper()}": str(getattr(self, name)) for name in fields}
        if not self.dns_update_server:
            if variable := next((name for name, value in given.items() if value), ""):
                raise ValueError(f"{_SERVER}: is needed with {variable}")
            return self
        for variable in list(given)[:2]:
            if not given[variable]:
                raise ValueError(f"{variable}: is needed with {_SERVER}, which accepts signed updates only")
        if self.tls_cert or self.tls_key:
            raise ValueError(
                f"{_SERVER}: the certificate in MOORAGE_TLS_CERT would take the place of an ordered one; set only one"
            )
        return self
