"""Settings of the gateway's certificates."""

from __future__ import annotations

from moorage.core.cluster import ClusterSettings
from moorage.core.validated import Field


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
