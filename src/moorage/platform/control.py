"""The control process: API, workers, scheduler, reconcilers, operator's socket.

`moorage up` starts one with all parts; `moorage serve`, `moorage work` and `moorage gateway` start one with some.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any

from moorage import app as application
from moorage import settings as settings_module
from moorage.accounts.identity import logins
from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.http.server import Server, listen, make_server, tune_garbage_collector
from moorage.core.jobs import Lane
from moorage.core.kit.processes.process import raise_open_files_limit
from moorage.core.product import Duties, Reconciled
from moorage.core.reconciler.rounds import Rounds
from moorage.core.telemetry import Telemetry, logs, metrics
from moorage.core.worker.pool import Worker
from moorage.core.worker.scheduler import Scheduler
from moorage.errors import CannotStart
from moorage.platform import admin, demo_token, leftovers, opening, store_checks
from moorage.platform.clock.watch import ClockWatch
from moorage.platform.folders import demo_token_path
from moorage.platform.listener import listen_for_jobs
from moorage.products.functions.dependencies import cache as install_cache
from moorage.products.functions.dependencies.installer import SandboxInstaller
from moorage.products.repositories.github import bindings
from moorage.settings import Sandbox, Settings

STOP_S = 8.0
SWITCH_S = 0.00005  # A computing thread yields the GIL to the event loop after this time; Python's default is 5 ms.
NO_SANDBOX = "off: this function runs with the rights of the platform itself; only code you trust should"
LANES_OF_RUNNERS = frozenset((Lane.APPS, Lane.SERVERS, Lane.BACKUPS))
RESTARTED = "MOORAGE_RESTARTED"  # set by the supervisor for a restarted child


class Control:
    def __init__(
        self, settings: Settings, *, serves: bool = True, works: bool = True, is_gateway: bool = False
    ) -> None:
        self.settings = settings
        self.serves = serves
        self.works = works
        self.is_gateway = is_gateway  # It serves the API to its own Caddy, and as the probe of its readiness.
        self.telemetry = Telemetry.of(settings)
        self.opened = opening.open_store(settings)
        self.db: Database = self.opened.db
        is_sandboxed = settings.sandbox is Sandbox.AUTO
        self.app: App = application.build(
            self.db,
            self.telemetry,
            installer=SandboxInstaller(settings) if is_sandboxed else None,
            sandbox_state=lambda: "on" if is_sandboxed else NO_SANDBOX,
            has_gateway=self.duties.has_gateway,
            runs_apps=self.duties.runs_apps,
        )
        owns = not settings.uses_postgres
        # The process that reconciles apps and database servers starts them.
        lanes = tuple(lane for lane in Lane if lane not in LANES_OF_RUNNERS or self.duties.runs_apps)
        self.worker = Worker(
            self.db, self.app.handlers, self.telemetry, slots=settings.workers, owns_store=owns, lanes=lanes
        )
        self.scheduler = Scheduler(self.db, self.telemetry, self.app.handlers.ticks, skip=self._left_ticks())
        self.clock_watch = ClockWatch(self.db, self.telemetry)
        self.clock_watch.on_step += [
            self.scheduler.correct_soon,
            self.worker.clock_was_set,
            self.app.products.apps.autoscaler.clock_was_set,
        ]
        self._servers: list[Server] = []
        self._serving: list[asyncio.Task[Any]] = []
        self._parts: list[asyncio.Task[Any]] = []

    @property
    def has_edge(self) -> bool:
        """Whether an edge was started along with this process.

        `edge_socket` names one that runs by itself, and `edge_hosts` those of other machines.
        """
        return self.is_supervised and not self.is_gateway and not self.settings.edge_hosts

    @property
    def is_supervised(self) -> bool:
        """Whether `moorage up`, `moorage edge` or `moorage gateway` started this process."""
        return "MOORAGE_READY_FD" in os.environ

    @property
    def duties(self) -> Duties:
        """Return the work of this process. An agent that runs functions alone has no public gateway."""
        is_platform = self.is_supervised and self.serves and not self.is_gateway
        return Duties(
            works=self.works,
            has_gateway=is_platform or self.is_gateway,
            has_edge=self.has_edge,
            runs_apps=is_platform and self.works,  # beside the gateway that routes to them
        )

    def _left_ticks(self) -> tuple[str, str]:
        """Return the kinds of schedules whose ticks this process leaves to others; "" for one that it fires."""
        settings = self.settings
        calls_edges = self.has_edge or settings.edge_socket or settings.edge_hosts
        # A scheduled function needs an edge. A cronjob skips a tick while its last run goes on, and the end of a run is
        # known only once the process that runs apps has adopted it.
        return "" if calls_edges else "schedule", "" if self.duties.runs_apps else "cronjob"

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then stop in order: requests, jobs, store."""
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        with store_checks.explained(self.settings):
            await self.db.write(opening.prepare)
            if self.settings.is_production:
                await demo_token.remove(self.db)
            await self._warn_of_claims()
            await self.clock_watch.start()
            await self._start()
        tune_garbage_collector()
        await self._announce()
        await self._wait(stopping)
        await self._stop()

    async def _start(self) -> None:
        self._part(self.clock_watch.run())
        await self.app.products.machines.join(self.duties)
        await asyncio.to_thread(install_cache.remove_former, self.settings)
        # Before the API serves: all temporary files belong to an earlier process then.
        await asyncio.to_thread(leftovers.clear, self.db.env, is_owner_starting=not self.settings.uses_postgres)
        self._part(leftovers.run(self.db.env, self.telemetry))
        products, duties = self.app.products, self.duties
        if self.serves and not self.is_gateway:
            # Requests read and write rows; jobs and reconcilers, which need the adopted processes, start after them.
            products.gateway.hold_routes()
            self._serve(self.app.asgi, self.settings.host, self.settings.api_port)
        if duties.runs_apps:
            await products.apps.check()
        await asyncio.gather(*(product.adopt(duties) for product in products))
        if self.works:
            self._part(self.worker.run())
            self._part(self.scheduler.run())
            self._reconcile(Reconciled("maintenance", self.app.handlers.ensure_maintenance, every_s=60))
            for reconciled in (each for product in products for each in product.reconciled()):
                self._reconcile(reconciled)
            if self.settings.uses_postgres:
                self._part(listen_for_jobs(self.settings.database_url.get_secret_value(), self.worker.wake))
        for product in products:
            await product.start(duties)
            for loop in product.loops(duties):
                self._part(loop)
        self._part(admin.AdminServer(self.db, self.app.products.identity.sessions).run())
        if self.settings.metrics_port:
            self._serve_metrics(metrics.application(self.telemetry.metrics, self.ready))
        for product in products:
            await product.ready(duties)
        if self.is_gateway:
            # Last: a probe of this port finds a gateway that has its routes.
            self._serve(self.app.asgi, self.settings.host, self.settings.api_port)
        while not all(server.started for server in self._servers):  # noqa: ASYNC110 - uvicorn offers no event
            await asyncio.sleep(0.005)

    def _reconcile(self, part: Reconciled) -> None:
        rounds = Rounds(self.telemetry, f"reconcile {part.name}", part.every_s, self.db.commits)
        self._part(rounds.run(lambda: part.ensure(self.db, self.db.env.clock.now())))

    async def _warn_of_claims(self) -> None:
        """Log GitHub installations that were claimed without proof: they give no access."""
        claims = await self.db.read(bindings.list_claims)
        if claims:
            self.telemetry.log.warning(
                "GitHub installations were claimed without proof and give no access; see: moorage admin github-claims",
                accounts=[claim["account"] for claim in claims],
            )

    def _serve_metrics(self, asgi: Any) -> None:
        try:
            self._serve(asgi, "127.0.0.1", self.settings.metrics_port)
        except CannotStart:
            if "metrics_port" in self.settings.model_fields_set:
                raise
            self._serve(asgi, "127.0.0.1", 0)

    def _serve(self, asgi: Any, host: str, port: int) -> None:
        try:
            sock = listen(host, port)
        except OSError as error:
            raise CannotStart(f"cannot listen on {host}:{port}: {error.strerror}; choose another port") from error
        server = make_server(asgi, unread_s=self.settings.body_timeout_s)
        self._servers.append(server)
        self._serving.append(asyncio.create_task(server.serve(sockets=[sock])))

    def _part(self, work: Coroutine[Any, Any, Any]) -> None:
        self._parts.append(asyncio.create_task(work))

    async def _announce(self) -> None:
        """Report ready to the supervisor, with a demo token or the one-time owner link."""
        lines = await self._offer_login() if self.serves and not self.is_gateway else []
        if fd := os.environ.get("MOORAGE_READY_FD"):
            with os.fdopen(int(fd), "w") as ready:
                ready.write("\n".join([*lines, "ready"]) + "\n")
        elif lines and self.settings.is_production:
            print(f"owner: {self.settings.api_url}/setup#{lines[0].removeprefix('setup ')}", flush=True)

    async def _offer_login(self) -> list[str]:
        if not self.settings.is_production:
            await demo_token.ensure(self.db)
            return [f"token_file {demo_token_path(self.settings)}"]
        # A new link replaces the previous one, so only a start that can show it creates one.
        setup = await self.db.write(logins.offer_setup) if RESTARTED not in os.environ else None
        return [f"setup {setup}"] if setup else []

    async def _wait(self, stopping: asyncio.Event) -> None:
        """Return when the process should stop, or when a part of the process ended."""
        stop_requested = asyncio.create_task(stopping.wait())
        done, _ = await asyncio.wait(
            {stop_requested, *self._serving, *self._parts}, return_when=asyncio.FIRST_COMPLETED
        )
        if stop_requested not in done:
            ended = next(iter(done))
            self.telemetry.crashed(None, ended.exception() or RuntimeError("a part ended by itself"), where="control")
            await self._stop()
            sys.exit(1)

    async def _stop(self) -> None:
        for server in self._servers:
            server.should_exit = True
        self.app.asgi.stop_waiting()
        await self.worker.stop(grace_s=STOP_S / 2)
        for product in self.app.products:
            await product.stop()
        for part in self._parts:
            part.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await asyncio.gather(*self._serving, *self._parts, return_exceptions=True)
        await self.app.close()
        self.opened.close()

    async def ready(self) -> str | None:
        """Return why this process cannot work, or None."""
        try:
            async with asyncio.timeout(2):
                await self.db.read(lambda tx: tx.now)
        except Exception as error:  # noqa: BLE001 - any error of the store is the answer
            return f"the store does not answer: {error}"
        if self.works and not self.worker.is_alive():
            return "the job worker made no progress lately"
        if self.works and not self.scheduler.is_alive():
            return "the scheduler made no progress lately"
        if self.works and not self.app.products.monitors.prober.is_alive():
            return "the prober of monitors made no progress lately"
        return None


def run(settings: Settings, *, serves: bool = True, works: bool = True, is_gateway: bool = False) -> None:
    import uvloop

    raise_open_files_limit()
    sys.setswitchinterval(SWITCH_S)
    logs.configure(
        settings.log_format,
        settings.log_level,
        process="control",
        folder=settings.folder("logs") if settings.folder("logs").is_dir() else None,
        shows_requests=settings.log_requests,
    )
    try:
        uvloop.run(_main(settings, serves=serves, works=works, is_gateway=is_gateway))
    except KeyboardInterrupt:
        return


async def _main(settings: Settings, *, serves: bool, works: bool, is_gateway: bool) -> None:
    await Control(settings, serves=serves, works=works, is_gateway=is_gateway).run()


def main() -> None:
    """Run the control process of `moorage up`, or the agent of `moorage edge` or `moorage gateway`."""
    is_edge, is_gateway = "agent" in sys.argv[1:], "gateway" in sys.argv[1:]
    try:
        run(
            settings_module.load(),
            serves=not is_edge,
            works=not (is_edge or is_gateway),
            is_gateway=is_gateway,
        )
    except (CannotStart, OSError) as error:
        print(f"moorage: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
