"""Wiring of functions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from moorage.accounts.plans import service as plans
from moorage.core import maintenance
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.store import Database
from moorage.core.http.route import Router
from moorage.core.kit.processes.wakeups import WakeupReceiver
from moorage.core.kit.records import dataclass
from moorage.core.product import Duties, Loop, Product
from moorage.core.telemetry import Telemetry
from moorage.core.worker.run import Handlers
from moorage.products.functions import code, jobs, routes, service
from moorage.products.functions.edge_client import EdgeClient
from moorage.products.functions.logs.hidden_values import HiddenValues
from moorage.products.functions.logs.log_files import FunctionLogs
from moorage.products.functions.packages import Installer, Packages
from moorage.products.functions.publisher import Publisher
from moorage.products.functions.records import metrics, retention
from moorage.products.functions.records import routes as record_routes
from moorage.products.functions.records.recorder import Recorder
from moorage.products.functions.records.storing import OnScheduled
from moorage.products.functions.remote import client as remote_client
from moorage.products.functions.remote import listener as remote_listener
from moorage.runtime.edge.spool import STARTED
from moorage.runtime.sandbox.heavy import HeavyWork

FIRST_PUBLISH_S = 10.0


@dataclass(frozen=True)
class Functions(Product):
    paths = ("/v1/functions",)

    db: Database
    edge: EdgeClient
    publisher: Publisher
    recorder: Recorder
    packages: Packages
    edge_events: WakeupReceiver
    listener: remote_listener.EdgeListener | None
    sandbox_state: Callable[[], str]

    @classmethod
    def make(
        cls,
        db: Database,
        telemetry: Telemetry,
        artifacts: ArtifactStore,
        installer: Installer | None,
        sandbox_state: Callable[[], str],
        on_scheduled: OnScheduled,
        heavy: HeavyWork | None = None,
    ) -> Functions:
        """Make the wiring; `on_scheduled` receives the records of scheduled runs."""
        settings = db.env.settings
        remote = remote_client.RemoteEdge(settings.edge_hosts, db.env.ring) if settings.edge_hosts else None
        edge = remote or EdgeClient(settings.edge_control_socket)
        hidden = HiddenValues()
        logs = FunctionLogs.of(settings)
        recorder = Recorder(db, telemetry, settings.folder("spool"), logs, on_scheduled=on_scheduled, hidden=hidden)
        publisher = Publisher(db, settings, edge, artifacts, telemetry, hidden)
        if remote is not None:
            recorder.elsewhere, publisher.elsewhere = remote.catch_up, remote.publish

        def on_edge_event(message: bytes) -> None:
            recorder.wake()
            if message == STARTED:
                publisher.wake()

        listener = None
        if settings.edge_link_port:
            listener = remote_listener.EdgeListener(
                db.env.ring, settings.edge_control_socket, recorder.catch_up_here, publisher.publish, logs
            )
        return cls(
            db=db,
            edge=edge,
            publisher=publisher,
            recorder=recorder,
            edge_events=WakeupReceiver(settings.folder("run") / "edge-events.sock", on_edge_event),
            packages=Packages(db, artifacts, installer, heavy),
            listener=listener,
            sandbox_state=sandbox_state,
        )

    def routers(self) -> Sequence[Router]:
        services = routes.FunctionServices(self.db, self.packages, self.publisher, self.edge, self.sandbox_state)
        return [routes.make_router(services), record_routes.make_router(self.db, self.recorder)]

    def register(self, handlers: Handlers) -> None:
        jobs.register(handlers, self.publisher, self.recorder.logs)
        retention.register(handlers)
        hooks = self.db.env.hooks
        hooks.add(plans.COUNT, "functions", service.count)
        hooks.add(plans.METER, "invocations", lambda tx, org_id: metrics.usage_of_month(tx, org_id)[0])
        hooks.add(plans.METER, "gbSeconds", lambda tx, org_id: metrics.usage_of_month(tx, org_id)[1])
        hooks.add(maintenance.COLLECT, "functions", lambda db: code.collect(db, db.env.settings))

    async def adopt(self, duties: Duties) -> None:
        self.edge.is_expected = duties.has_edge

    async def start(self, duties: Duties) -> None:
        settings = self.db.env.settings
        if duties.has_edge:
            self.edge_events.open()
            if self.listener is not None:
                await self.listener.open(settings.host, settings.edge_link_port)
        elif settings.edge_hosts and isinstance(self.edge, remote_client.RemoteEdge):
            self.recorder.logs.elsewhere = partial(_read_log, self.edge, asyncio.get_running_loop())
            if duties.runs_apps:
                # An edge that ran here before may have left records.
                await self.recorder.catch_up_here()

    def loops(self, duties: Duties) -> Sequence[Loop]:
        return [self.publisher.run(), self.recorder.run()] if duties.has_edge else []

    async def ready(self, duties: Duties) -> None:
        if duties.has_edge:
            await self.publisher.ready(FIRST_PUBLISH_S)

    async def close(self) -> None:
        self.edge_events.close()
        if self.listener is not None:
            await self.listener.close()
        await self.edge.close()
        self.recorder.close()


def _read_log(
    edge: remote_client.RemoteEdge, loop: asyncio.AbstractEventLoop, org_id: int, function_id: int, reference: str
) -> bytes | None:
    """Read log text of another machine from a thread."""
    return asyncio.run_coroutine_threadsafe(edge.read_log(org_id, function_id, reference), loop).result()
