"""The catalog of instance tiers of projects, databases and cronjobs."""

from __future__ import annotations

from moorage.core.kit.records import dataclass


@dataclass(frozen=True, slots=True)
class Tier:
    key: str
    name: str
    cpu: float  # vCPU
    memory: float  # GB
    disk: int  # GB
    paid: bool


CATALOG: tuple[Tier, ...] = (
    Tier("free", "Free", 0.25, 0.25, 1, False),
    Tier("micro", "Micro", 0.5, 0.5, 5, True),
    Tier("mini", "Mini", 1, 1, 10, True),
    Tier("small", "Small", 1, 2, 20, True),
    Tier("medium", "Medium", 2, 4, 40, True),
    Tier("large", "Large", 2, 8, 80, True),
    Tier("xlarge", "Extra large", 4, 16, 160, True),
)
DEFAULT_OF_APPS = "mini"  # of apps without a tier; on an unpaid plan they have the tier free
CRONJOB_TIERS = ("micro", "mini", "large", "xlarge")

_BY_KEY = {tier.key: tier for tier in CATALOG}


def find_tier(key: str) -> Tier | None:
    return _BY_KEY.get(key)
