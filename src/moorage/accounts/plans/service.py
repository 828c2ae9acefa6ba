"""Plans: the allowances of organizations.

Without billing every organization counts as verified and paid, and has no limits.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook
from moorage.errors import QuotaExceeded
from moorage.settings import Billing, Settings


class Plan(StrEnum):
    FREE = "free"  # for evaluation: no cronjobs, backups, restores or engine metrics
    PRO = "pro"  # all features


class Standing(NamedTuple):
    """Plan and card status of an organization."""

    plan: str
    card_verified: bool


# Maximum number of each resource; a missing name is unlimited.
ALLOWANCES: dict[Plan, dict[str, int]] = {
    Plan.FREE: {"projects": 3, "functions": 10, "databases": 1, "cronjobs": 0, "monitors": 10, "members": 3},
    Plan.PRO: {"projects": 100, "functions": 500, "databases": 50, "cronjobs": 100, "monitors": 500, "members": 100},
}

# Counts a resource of an organization. The name of the function is the name of its allowance.
COUNT: Hook[[Tx, int], int] = Hook("plan.count")
# Measures the usage of an organization in this calendar month, for resources without an allowance.
METER: Hook[[Tx, int], float] = Hook("plan.meter")


def counts_as_verified(settings: Settings, standing: Standing) -> bool:
    return settings.billing is Billing.NONE or standing.card_verified


def counts_as_paid(settings: Settings, standing: Standing) -> bool:
    return settings.billing is Billing.NONE or standing.plan != Plan.FREE


def allowance(settings: Settings, standing: Standing, name: str) -> int | None:
    """Return the maximum number of a resource; None is unlimited."""
    if settings.billing is Billing.NONE:
        return None
    return ALLOWANCES[Plan(standing.plan)].get(name)


def check_room(tx: Tx, org_id: int, standing: Standing, name: str) -> None:
    """Raise QuotaExceeded if one more of a resource exceeds the plan's allowance."""
    most = allowance(tx.env.settings, standing, name)
    if most is not None and tx.env.hooks.of(COUNT)[name](tx, org_id) >= most:
        raise QuotaExceeded(f"Your plan allows {most} {name}; upgrade the plan or remove one")
