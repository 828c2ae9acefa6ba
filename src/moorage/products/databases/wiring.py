"""Wiring of managed databases."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from moorage.accounts.identity.organizations.service import OrganizationDeleted
from moorage.accounts.plans import service as plans
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx
from moorage.core.http.route import Router
from moorage.core.jobs import Lane, timetable
from moorage.core.kit.records import dataclass
from moorage.core.machines import placement
from moorage.core.machines import service as machines
from moorage.core.product import Duties, Loop, Product
from moorage.core.telemetry import Telemetry
from moorage.core.worker.run import Handlers, Run
from moorage.products.apps import launching
from moorage.products.apps.linked import creating
from moorage.products.apps.linked import databases as app_databases
from moorage.products.databases import lifecycle, linking, ownership, routes, service
from moorage.products.databases.automatic import service as automatic
from moorage.products.databases.backups import jobs as backup_jobs
from moorage.products.databases.backups import restoring
from moorage.products.databases.backups import routes as backup_routes
from moorage.products.databases.backups import service as backups
from moorage.products.databases.backups.archiving import Archiver
from moorage.products.databases.backups.jobs import BackupMaker
from moorage.products.databases.backups.restore_tests import RestoreTester
from moorage.products.databases.backups.restoring import Rebuilder, Restorer
from moorage.products.databases.lifecycle import Lifecycle
from moorage.products.databases.metrics import retention
from moorage.products.databases.metrics import routes as metric_routes
from moorage.products.databases.metrics import service as metrics
from moorage.products.databases.metrics.sampling import Sampler
from moorage.products.databases.moving import jobs as moving_jobs
from moorage.products.databases.queries import routes as query_routes
from moorage.products.databases.queries.service import Queries
from moorage.products.databases.reconciler import DatabaseReconciler
from moorage.products.databases.replication.watcher import Replicator
from moorage.products.databases.servers import Servers
from moorage.products.databases.tables import Database
from moorage.products.databases.trash import Trash
from moorage.products.projects import pushed
from moorage.products.projects import service as projects
from moorage.runtime.database_servers.software.catalog import SoftwareCatalog, shared_folder
from moorage.runtime.engines.ports import Engine
from moorage.runtime.machines.links import Links
from moorage.runtime.machines.wiring import SAME_PORTS
from moorage.settings import Engine as EngineName
from moorage.settings import Settings

TRASH = "database.trash"
TRASH_CRON = "37 * * * *"


class EmptyTrash(msgspec.Struct, frozen=True, tag="databases.empty_trash"):
    """Delete databases after the retention of the trash."""


def make_catalog(settings: Settings, *, is_sandboxed: bool) -> SoftwareCatalog:
    if settings.engine is EngineName.KUBERNETES:  # Pods have the software of the image, which this process runs in too.
        folder = shared_folder()
        return SoftwareCatalog([folder], folder, extra_ca=settings.extra_ca, has_boxed_tools=is_sandboxed)
    return make_local_catalog(settings, is_sandboxed=is_sandboxed)


def make_local_catalog(settings: Settings, *, is_sandboxed: bool) -> SoftwareCatalog:
    own = settings.folder("engines")
    search = [own, shared_folder()]
    return SoftwareCatalog(search, own, extra_ca=settings.extra_ca, has_boxed_tools=is_sandboxed)


@dataclass(frozen=True)
class Databases(Product):
    paths = ("/v1/databases",)

    db: Store
    servers: Servers
    reconciler: DatabaseReconciler
    replicator: Replicator
    lifecycle: Lifecycle
    trash: Trash
    sampler: Sampler
    archiver: Archiver
    mover: moving_jobs.Mover | None
    backups: backup_jobs.BackupJobs

    @classmethod
    def make(
        cls,
        db: Store,
        telemetry: Telemetry,
        artifacts: ArtifactStore,
        engine: Engine,
        local_engine: Engine,
        links: Links,
        is_sandboxed: bool,
    ) -> Databases:
        links.is_own_port.append(lambda port: any(state.port == port for state in engine.workloads.states().values()))
        catalog = make_catalog(db.env.settings, is_sandboxed=is_sandboxed)
        servers = Servers(db, engine, catalog, is_sandboxed=is_sandboxed)
        reconciler = DatabaseReconciler(db, servers, telemetry)
        replicator = Replicator(db, servers, telemetry)
        archiver = Archiver(db, servers, artifacts, telemetry)
        maker = BackupMaker(servers, artifacts)
        rebuilder = Rebuilder(servers, artifacts, archiver)
        restorer = Restorer(servers, maker, rebuilder, archiver)
        mover = None
        if engine.agents is not None:
            local_catalog = make_local_catalog(db.env.settings, is_sandboxed=is_sandboxed)
            local = Servers(db, local_engine, local_catalog, is_sandboxed=is_sandboxed)
            mover = moving_jobs.Mover(servers, local, artifacts, rebuilder, restorer)

        async def remove_replica(database: Database) -> None:
            if database.is_replicated:
                await replicator.dismiss(database)

        async def rebuild_replica(database: Database) -> None:
            if database.is_replicated:
                await replicator.seed(database)

        restorer.before_switch.append(remove_replica)
        restorer.after_switch.append(rebuild_replica)
        restorer.exclusive = archiver.exclusive = replicator.exclusive
        replicator.on_promoted.append(_back_up_again)
        return cls(
            db=db,
            servers=servers,
            reconciler=reconciler,
            replicator=replicator,
            lifecycle=Lifecycle(servers, replicator, reconciler.wake),
            trash=Trash(servers, reconciler.wake),
            sampler=Sampler(db, servers, telemetry),
            archiver=archiver,
            mover=mover,
            backups=backup_jobs.BackupJobs(
                servers, maker, archiver, restorer.handle, restoring.give_up, RestoreTester(servers, rebuilder).handle
            ),
        )

    def routers(self) -> Sequence[Router]:
        return [
            routes.make_router(self.db, self.servers),
            backup_routes.make_router(),
            metric_routes.make_router(),
            query_routes.make_router(Queries(self.db, self.servers)),
        ]

    def register(self, handlers: Handlers) -> None:
        async def empty_trash(run: Run, _: EmptyTrash) -> None:
            await self.trash.empty(run)

        self.lifecycle.on_running.append(backups.plan)
        self.lifecycle.on_deleted.append(_unplan)
        self.trash.on_return.append(backups.plan)
        self.trash.on_purge += [backups.remove_all, metrics.remove_of_database]
        lifecycle.register(handlers, self.lifecycle)
        self.trash.register(handlers)
        handlers.maintain(TRASH, TRASH_CRON, EmptyTrash(), empty_trash, lane=Lane.BACKUPS, on_each_machine=True)
        backup_jobs.register(handlers, self.backups)
        retention.register(handlers, self.servers.logs)
        if self.mover is not None:
            moving_jobs.register(handlers, self.mover)
        handlers.listen(OrganizationDeleted, _delete_databases)
        hooks = self.db.env.hooks
        hooks.add(plans.COUNT, "databases", service.count)
        hooks.add(launching.EGRESS, "databases", linking.egress_rules)
        hooks.add(app_databases.LINKED, "databases", automatic.linked)
        hooks.add(creating.CREATE, "databases", partial(automatic.create, catalog=self.servers.catalog))
        hooks.add(creating.IS_READY, "databases", automatic.is_ready)
        hooks.add(pushed.USES_PROJECT, "databases", automatic.has_chosen)
        hooks.add(pushed.GIVES_WAY, "databases", automatic.give_way)
        hooks.add(projects.REMOVE, "databases", linking.leave_project)
        hooks.add(placement.COMMITTED, "databases", ownership.committed_memory)
        hooks.add(machines.COUNT, "databases", ownership.count_by_machine)
        hooks.add(machines.STATEFUL, "databases", ownership.describe_held)
        hooks.add(machines.LOST, "databases", ownership.give_up)
        hooks.add(SAME_PORTS, "databases", ownership.forwarded_ports)

    async def adopt(self, duties: Duties) -> None:
        # Before any job: a job must not start a second process of a server that runs already.
        if duties.runs_apps:
            if self.mover is not None:
                await self.mover.adopt()
            await self.reconciler.adopt()

    def loops(self, duties: Duties) -> Sequence[Loop]:
        if not duties.runs_apps:
            return []
        return [self.reconciler.run(), self.replicator.run(), self.sampler.run(), self.archiver.run()]

    async def close(self) -> None:
        await self.servers.engine.close()


@across_organizations("the event names the organization")
def _delete_databases(tx: Tx, event: OrganizationDeleted) -> None:
    service.delete_all(tx, event.org_id)


def _back_up_again(tx: Tx, org_id: int, database: Database) -> None:
    """Request a base backup of the new folder, which old WAL cannot restore."""
    if backups.is_archiving(database):
        backups.request(tx, org_id, database, backups.BY_SCHEDULE)


def _unplan(tx: Tx, org_id: int, database: Database) -> None:
    timetable.remove(tx, org_id, backups.KIND, str(database.id))
