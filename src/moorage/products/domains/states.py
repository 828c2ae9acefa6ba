"""The states of a custom domain, and of its certificate."""

from __future__ import annotations

from enum import StrEnum

from moorage.core.kit.machine import Machine


class DomainStatus(StrEnum):
    PENDING = "pending"  # added; its DNS records have not proven yet whose it is
    VERIFIED = "verified"  # proven, and served
    FAILED = "failed"  # its records are gone, or another organization proved that it is theirs


class CertificateStatus(StrEnum):
    NONE = "none"  # nobody asked for one: the domain is not served, or the gateway speaks no TLS
    PENDING = "pending"  # asked for
    ISSUED = "issued"  # the gateway shows it
    FAILED = "failed"  # the latest try did not get one; there are further ones


S = DomainStatus
CUSTOM_DOMAIN = Machine(
    "custom_domain",
    {
        S.PENDING: {S.VERIFIED, S.FAILED},
        S.VERIFIED: {S.FAILED},
        S.FAILED: {S.VERIFIED},
    },
)
