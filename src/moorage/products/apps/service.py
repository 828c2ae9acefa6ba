"""Desired replicas of live apps and of apps that are about to go live.

Rows are the desired state; the reconciler starts and stops processes to match. Only `level` adds and drains rows: it is
safe to repeat, so code that changes an app only has to wake the reconciler.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from dataclasses import field, replace

import msgspec

from moorage.accounts.plans import tiers
from moorage.accounts.plans.tiers import Tier
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, move
from moorage.core.gateways import service as gateways
from moorage.core.kit.decoding import decode
from moorage.core.kit.records import dataclass
from moorage.core.machines import service as machines
from moorage.core.machines.placement import Placement
from moorage.products.apps import tables
from moorage.products.apps.machines import placing
from moorage.products.apps.machines.placing import Fleet
from moorage.products.apps.states import REPLICA, ReplicaStatus
from moorage.products.apps.tables import Candidate, LiveApp, Replica
from moorage.products.projects import service
from moorage.products.projects import tables as project_tables
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments.tables import Deployment
from moorage.products.projects.tables import Project
from moorage.runtime.engines.ports import THIS_MACHINE, Address, HostOf

DRAIN_MS = 30_000
# A program may end after its first answer, for example when its connection to a server fails.
FIRST_STEADY_S, STEADY_S = 2.0, 1.0  # before the first release of a project is live, and before a later one is
PROVEN_KINDS = ("rollback", "restart")  # of deployments whose release was live before
RUNNING = (ReplicaStatus.STARTING, ReplicaStatus.READY)


class Bounds(msgspec.Struct, frozen=True, rename="camel"):
    """Limits of autoscaling."""

    enabled: bool = False
    min_replicas: int = 1
    max_replicas: int = 1
    target_cpu_percent: int = 80


def bounds_of(auto_scaling: str | None) -> Bounds:
    return decode(auto_scaling, Bounds) if auto_scaling else Bounds()


def wanted_replicas(replicas: int, auto_scaling: str | None) -> int:
    bounds = bounds_of(auto_scaling)
    return min(max(replicas, bounds.min_replicas), bounds.max_replicas) if bounds.enabled else 1


def tier_of(key: str | None) -> Tier:
    tier = tiers.find_tier(key or tiers.DEFAULT_OF_APPS)
    assert tier is not None  # Stored keys were validated.
    return tier


def begin(tx: Tx, org_id: int, deployment: Deployment) -> None:
    """Add the replicas of a deployment that is about to go live. Safe to repeat."""
    project = service.get_by_id(tx, org_id, deployment.project_id)
    count = 1 if deployment.preview_id is not None else wanted_replicas(project.replicas, project.auto_scaling)
    rows = of_deployment(tx, org_id, deployment.id)
    for row in rows:
        if row.status == ReplicaStatus.FAILED:  # in an earlier attempt
            move(tx, REPLICA, row, to=ReplicaStatus.DRAINING, drain_until=tx.now)
    fleet, placement = placing.read_fleet(tx), Placement(tx)
    for _ in range(count - len([row for row in rows if row.status in RUNNING and fleet.is_usable(row)])):
        machine_id = placing.choose(tx, org_id, placement, project.id, project.tier, has_volume=bool(project.disk))
        _add(tx, org_id, deployment.project_id, deployment.preview_id, deployment.id, machine_id)


def of_deployment(tx: Tx, org_id: int, deployment_id: int) -> list[Replica]:
    return tx.all(tables.OF_DEPLOYMENT, org_id=org_id, deployment_id=deployment_id)


def of_project(tx: Tx, org_id: int, project_id: int) -> list[Replica]:
    return tx.all(tables.OF_PROJECT, org_id=org_id, project_id=project_id)


@dataclass
class View:
    """Replicas, live apps and candidates, read in one transaction."""

    rows: list[Replica]
    live: list[LiveApp]
    candidates: list[Candidate]
    fleet: Fleet
    of_deployment: dict[int, list[Replica]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        grouped = defaultdict(list)
        for row in self.rows:
            grouped[row.deployment_id].append(row)
        self.of_deployment = dict(grouped)

    def running(self, deployment_id: int) -> list[Replica]:
        return [row for row in self.of_deployment.get(deployment_id, ()) if row.status in RUNNING]

    def staying(self, app: LiveApp) -> list[Replica]:
        """Return the running replicas that need no replacement on another machine."""
        rows = self.running(app.deployment_id)
        if app.has_volume:
            return rows
        return [row for row in rows if self.fleet.is_usable(row) and not self.fleet.is_leaving(row)]

    @property
    def own(self) -> list[Replica]:
        """Return the replicas that this machine runs."""
        return [row for row in self.rows if row.machine_id == self.fleet.mine]


def addresses(seen: View, deployment_id: int) -> tuple[str, ...]:
    """Return the `address:port` of each ready replica of a deployment, `machine-<id>:port` on another machine."""
    rows = seen.of_deployment.get(deployment_id, ())
    ready = [row for row in rows if row.status == ReplicaStatus.READY and row.port]
    return tuple(seen.fleet.address_of(row) for row in ready if seen.fleet.is_usable(row))


def relocated(seen: View, host_of: HostOf) -> View:
    """Return the view with the present addresses of replicas, and without those that have none."""
    rows = [replace(row, host=host_of(row.key, row.host)) if row.host else row for row in seen.rows]
    return replace(seen, rows=[row for row in rows if row.host != ""])


@across_organizations("a machine runs apps of all organizations")
def view(tx: Tx) -> View:
    live = [*tx.all(tables.LIVE_PROJECTS), *tx.all(tables.LIVE_PREVIEWS)]
    return View(tx.all(tables.EVERY), live, tx.all(tables.CANDIDATES), placing.read_fleet(tx))


@dataclass(frozen=True)
class Difference:
    missing: list[tuple[LiveApp, int]]  # an app, and the number of replicas to add
    surplus: list[tuple[Replica, int]]  # a replica, and the ms that its open requests have to finish


def difference(seen: View) -> Difference:
    """Compare the desired number of replicas with the rows."""
    wanted = {app.deployment_id: _desired_count(app) for app in seen.live}
    candidates = {candidate.deployment_id for candidate in seen.candidates}
    missing, surplus = [], []
    for app in seen.live:
        lacking = wanted[app.deployment_id] - len(seen.staying(app))
        if lacking > 0:
            missing.append((app, lacking))
        surplus += _surplus_of(seen, app, wanted[app.deployment_id])
    for deployment_id, rows in seen.of_deployment.items():
        open_rows = [row for row in rows if row.status != ReplicaStatus.DRAINING]
        if deployment_id in candidates and deployment_id not in wanted:
            surplus += [(row, 0) for row in open_rows if not seen.fleet.is_usable(row)]
        elif deployment_id not in wanted:
            surplus += [(row, DRAIN_MS if row.status == ReplicaStatus.READY else 0) for row in open_rows]
    return Difference(missing, surplus)


def _surplus_of(seen: View, app: LiveApp, wanted: int) -> list[tuple[Replica, int]]:
    """Return the replicas of a live app to drain, each with the ms that its open requests have to finish."""
    # Ready replicas are kept before starting ones, and older ones before newer ones.
    staying = sorted(seen.staying(app), key=lambda row: (row.status != ReplicaStatus.READY, row.id))
    surplus = [(row, DRAIN_MS) for row in staying[wanted:]]
    kept = {row.id for row in staying}
    ready = [row for row in staying if row.status == ReplicaStatus.READY]
    for row in seen.of_deployment.get(app.deployment_id, ()):
        if row.status == ReplicaStatus.FAILED:
            surplus.append((row, 0))
        elif row.status in RUNNING and row.id not in kept:
            # A replica on a drained machine stays until its replacements get the requests.
            if not seen.fleet.is_usable(row):
                surplus.append((row, 0))
            elif len(ready) >= wanted:
                surplus.append((row, DRAIN_MS))
    return surplus


def _desired_count(app: LiveApp) -> int:
    if app.preview_id is not None:
        return 1
    return 0 if app.asleep else wanted_replicas(app.replicas, app.auto_scaling)


@across_organizations("a machine runs apps of all organizations")
def level(tx: Tx) -> bool:
    """Add missing replicas and drain surplus ones; return whether any row changed."""
    machines.lock_placement(tx)
    machines.hold(tx)
    changes = difference(view(tx))
    placement = Placement(tx) if changes.missing else None
    for app, lacking in changes.missing:
        for _ in range(lacking):
            assert placement is not None
            machine_id = placing.choose(tx, app.org_id, placement, app.project_id, app.tier, has_volume=app.has_volume)
            _add(tx, app.org_id, app.project_id, app.preview_id, app.deployment_id, machine_id)
    for row, within_ms in changes.surplus:
        move(tx, REPLICA, row, to=ReplicaStatus.DRAINING, drain_until=tx.now + within_ms)
    if changes.surplus:
        gateways.advance(tx)
    return bool(changes.missing or changes.surplus)


def set_ready(tx: Tx, org_id: int, row: Replica, address: Address) -> None:
    host = None if address.host == THIS_MACHINE else address.host
    move(tx, REPLICA, row, to=ReplicaStatus.READY, port=address.port, host=host, reason=None)


def set_failed(tx: Tx, org_id: int, row: Replica, reason: str) -> None:
    move(tx, REPLICA, row, to=ReplicaStatus.FAILED, reason=reason)


def start_over(tx: Tx, org_id: int, row: Replica, reason: str) -> None:
    """Move a ready replica back to `starting` after its process ended."""
    move(tx, REPLICA, row, to=ReplicaStatus.STARTING, port=None, host=None, reason=reason)


def steady_s(tx: Tx, org_id: int, row: Replica) -> float:
    """Return for how many seconds a healthy replica of a new release is watched before it counts as ready."""
    deployment = deployments.find(tx, org_id, row.deployment_id)
    if deployment is None or deployment.kind in PROVEN_KINDS:
        return 0.0
    project = service.find_by_id(tx, org_id, row.project_id)
    return STEADY_S if project is not None and project.current_deployment_id else FIRST_STEADY_S


def note_reason(tx: Tx, org_id: int, row: Replica, reason: str) -> None:
    tx.run(tables.SET_REASON, org_id=org_id, id=row.id, reason=reason, now=tx.now)


def forget(tx: Tx, org_id: int, row: Replica) -> None:
    tx.run(tables.DELETE, org_id=org_id, id=row.id)


def find(tx: Tx, org_id: int, replica_id: int) -> Replica | None:
    return tx.find(tables.FIND, org_id=org_id, id=replica_id)


def wake(tx: Tx, org_id: int, project_id: int) -> bool:
    """Mark a sleeping app as awake; return whether it was asleep."""
    project = service.find_by_id(tx, org_id, project_id)
    if project is None or not project.asleep:
        return False
    service.set_columns(tx, org_id, project, {"asleep": False})
    return True


def put_to_sleep(tx: Tx, org_id: int, project_id: int) -> None:
    project = service.find_by_id(tx, org_id, project_id)
    if project is not None and not project.asleep:
        service.set_columns(tx, org_id, project, {"asleep": True})


def scale(tx: Tx, org_id: int, project_id: int, replicas: int) -> None:
    project = tx.find(project_tables.LOCK_BY_ID, org_id=org_id, id=project_id)
    if project is not None:
        service.set_columns(tx, org_id, project, {"replicas": replicas})


def live_deployment(tx: Tx, org_id: int, project: Project) -> Deployment | None:
    """Return the live deployment of an app; None for sites and without one."""
    deployment = deployments.find(tx, org_id, project.current_deployment_id or 0)
    return deployment if deployment is not None and deployment.is_app else None


def _add(tx: Tx, org_id: int, project_id: int, preview_id: int | None, deployment_id: int, machine_id: int) -> None:
    tx.one(
        tables.ADD,
        org_id=org_id,
        project_id=project_id,
        preview_id=preview_id,
        deployment_id=deployment_id,
        token=secrets.token_hex(24),
        status=ReplicaStatus.STARTING,
        port=None,
        reason=None,
        drain_until=None,
        created_at=tx.now,
        updated_at=tx.now,
        machine_id=machine_id,
        host=None,
    )
