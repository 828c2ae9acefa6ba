"""The states of a custom domain, and of its certificate."""

from __future__ import annotations

from enum import StrEnum

from moorage.core.kit.machine import Machine


class DomainStatus(StrEnum):
    PENDING = "pending"  # added; no DNS record proves its owner yet
    VERIFIED = "verified"  # a DNS record proves its owner; the domain is served
    FAILED = "failed"  # its records are gone, or another organization verified it


class CertificateStatus(StrEnum):
    NONE = "none"  # not requested: the domain is not served, or the gateway speaks no TLS
    PENDING = "pending"  # requested
    ISSUED = "issued"  # the gateway serves it
    FAILED = "failed"  # the latest attempt failed; it is retried


S = DomainStatus
CUSTOM_DOMAIN = Machine(
    "custom_domain",
    {
        S.PENDING: {S.VERIFIED, S.FAILED},
        S.VERIFIED: {S.FAILED},
        S.FAILED: {S.VERIFIED},
    },
)
