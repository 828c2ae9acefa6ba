"""Mirrors of registries, which the operator configures.

A mirror is asked before its registry, and anonymously. It may have a private address, unlike registries of users.
"""

from __future__ import annotations

import yarl

from moorage.core.kit.records import dataclass
from moorage.core.net.client import GuardedClient
from moorage.core.net.registry_mirrors import MirrorAddress
from moorage.core.net.targets import TargetPolicy
from moorage.runtime.images.references import Reference

TRUSTED = TargetPolicy(allow_loopback=True, allow_private=True)


@dataclass(frozen=True, slots=True)
class Mirror:
    """A mirror with the client that may reach it."""

    address: MirrorAddress
    client: GuardedClient

    @property
    def base(self) -> yarl.URL:
        return yarl.URL(self.address.base)

    def repository(self, reference: Reference) -> str:
        return f"{self.address.prefix}{reference.repository}"
