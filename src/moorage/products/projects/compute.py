"""Plan limits on the compute (tier, disk, replicas) of projects."""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.accounts.plans import service as plans
from moorage.accounts.plans import tiers
from moorage.accounts.plans.service import Standing
from moorage.core.db.tx import Tx
from moorage.core.kit.decoding import decode
from moorage.errors import QuotaExceeded
from moorage.products.projects.tables import Project

COLUMNS = ("tier", "disk", "auto_scaling")
FREE_TIER = "free"
FREE_DISK_GB = 1  # the disk of the free tier
FREE_REPLICAS = 1


class Replicas(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of `autoScaling` that a plan limits."""

    enabled: bool = False
    max_replicas: int = 1


def check(tx: Tx, org_id: int, standing: Standing, columns: dict[str, Any]) -> None:
    """Raise QuotaExceeded if a paid plan is needed."""
    key, disk, auto_scaling = (columns.get(name) for name in COLUMNS)
    tier = tiers.find_tier(key) if key is not None else None
    if plans.counts_as_paid(tx.env.settings, standing):
        return
    if tier is not None and tier.paid:
        raise QuotaExceeded(f"The tier {tier.key} needs a paid plan")
    if (disk or 0) > FREE_DISK_GB:
        raise QuotaExceeded(f"A disk of {disk} GB needs a paid plan; without one an app has at most {FREE_DISK_GB} GB")
    if _replicas(auto_scaling) > FREE_REPLICAS:
        raise QuotaExceeded(f"More than {FREE_REPLICAS} replica of an app needs a paid plan; lower maxReplicas")


def within_plan(tx: Tx, org_id: int, standing: Standing, slug: str | None, columns: dict[str, Any]) -> dict[str, Any]:
    """Return a new project's compute columns; unpaid plans default to tier `free`."""
    check(tx, org_id, standing, columns)
    if slug == "static" or plans.counts_as_paid(tx.env.settings, standing) or columns["tier"] is not None:
        return columns | {"paid_compute": None}
    return columns | {"tier": FREE_TIER, "paid_compute": to_text(columns)}


def of(project: Project) -> dict[str, Any]:
    return {name: getattr(project, name) for name in COLUMNS}


def run_with(project: Project) -> dict[str, Any]:
    """Return the values whose change restarts a container app. Without a tier it runs with the default one."""
    return of(project) | {"tier": project.tier or tiers.DEFAULT_OF_APPS, "env": project.env}


def lowered(project: Project) -> dict[str, Any]:
    """Return a project's compute columns, lowered to the limits of an unpaid plan."""
    if project.slug == "static":
        return of(project)
    return {
        "tier": FREE_TIER,
        "disk": min(project.disk, FREE_DISK_GB) if project.disk is not None else None,
        "auto_scaling": project.auto_scaling if _replicas(project.auto_scaling) <= FREE_REPLICAS else None,
    }


def _replicas(auto_scaling: str | None) -> int:
    scaling = decode(auto_scaling, Replicas) if auto_scaling else Replicas()
    return scaling.max_replicas if scaling.enabled else 1


def to_text(compute: dict[str, Any]) -> str:
    return msgspec.json.encode(compute).decode()
