"""The engines of this platform. Only this module names a concrete engine; products get the ports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked, harden
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.records import dataclass
from moorage.errors import CannotStart
from moorage.products.cronjobs import building
from moorage.products.cronjobs.launching import LOG_BYTES
from moorage.products.projects.deployments import service as deployments
from moorage.runtime.builds.builder import Builder
from moorage.runtime.builds.collect import APP_CAPS
from moorage.runtime.builds.dockerfiles import building as image_builds
from moorage.runtime.builds.local import LocalBuilds
from moorage.runtime.builds.ports import Builds, Plan
from moorage.runtime.builds.programs import LocalPrograms
from moorage.runtime.engines.local import LocalReplicas
from moorage.runtime.engines.local_commands import LocalCommands
from moorage.runtime.engines.local_metrics import LocalMetrics
from moorage.runtime.engines.local_volumes import LocalVolumes
from moorage.runtime.engines.ports import Engine, Locator, Programs
from moorage.runtime.images.making import make_images
from moorage.runtime.images.sources import Sources
from moorage.runtime.images.store import Images
from moorage.runtime.logs.local import LocalLogs
from moorage.runtime.logs.logfile import LogFile
from moorage.runtime.sandbox.heavy import HeavyWork
from moorage.settings import Engine as EngineName
from moorage.settings import Settings

if TYPE_CHECKING:
    from moorage.runtime.builds.pods.builds import ClusterBuilds
    from moorage.runtime.engines.kubernetes.client import Cluster
    from moorage.runtime.engines.kubernetes.options import Options
    from moorage.runtime.images.pushing.client import PushClient
    from moorage.runtime.images.sign_in import Credentials

PULL_SECRET = "moorage-registry"  # noqa: S105 - name of a Secret


@dataclass(frozen=True)
class Engines:
    """Ports for each product."""

    apps: Engine
    databases: Engine
    local_databases: Engine  # of this machine, also where databases are pods
    cronjobs: Engine
    app_programs: Programs
    cronjob_programs: Programs
    builds: Builds
    cronjob_builds: Builds
    images: Images  # unpacked images of this machine


def make_engines(
    db: Database, artifacts: ArtifactStore, sites: Unpacked, sources: Sources, *, is_sandboxed: bool
) -> Engines:
    """Make the engines of this machine; `sites` are the folders of published sites."""
    settings = db.env.settings
    is_cluster = settings.engine is EngineName.KUBERNETES
    engine = partial(make_engine, settings, is_sandboxed=is_sandboxed)
    app_releases = _releases(settings, "app-releases", deployments.is_published)
    cronjob_releases = _releases(settings, "cronjob-releases", building.is_used)
    images = make_images(db, artifacts, sources)
    programs = partial(LocalPrograms, db, artifacts, is_sandboxed=is_sandboxed)
    # Not `partial`: its module, a large one, is executed on first use.
    image_builder = cache(lambda: image_builds.make_builder(settings, db, artifacts, sources))
    builder = Builder(settings, is_sandboxed=is_sandboxed, images=image_builder)
    builds = LocalBuilds(settings, builder, artifacts, lambda plan: app_releases if plan.kind == "container" else sites)
    databases = engine("databases", volumes_in="databases")
    engines = Engines(
        apps=engine("shims"),
        databases=databases,
        local_databases=databases,
        cronjobs=engine("cronjobs"),
        app_programs=programs(app_releases, make_images(db, artifacts)),
        cronjob_programs=programs(cronjob_releases, images),
        builds=builds,
        cronjob_builds=builds.with_releases(cronjob_releases),
        images=images,
    )
    if not is_cluster:
        return engines
    engines = _on_cluster(engines, db, artifacts, sources, app_releases, cronjob_releases)
    if not settings.kubernetes_build_image:
        return engines
    pods = _cluster_builds(db, artifacts, sources, lambda plan: app_releases if plan.kind == "container" else sites)
    return replace(engines, builds=pods, cronjob_builds=pods.with_releases(cronjob_releases))


def _on_cluster(
    engines: Engines,
    db: Database,
    artifacts: ArtifactStore,
    sources: Sources,
    app_releases: Unpacked,
    cronjob_releases: Unpacked,
) -> Engines:
    """Return the engines with apps, databases and runs as pods."""
    # Only this setting needs these modules and their libraries.
    from moorage.runtime.builds.cluster_programs import ClusterPrograms
    from moorage.runtime.builds.release_images import ReleaseImages

    settings = db.env.settings
    client = _push_client(settings)
    images = ReleaseImages(settings.kubernetes_app_image, sources, client, settings.folder("pushes"))
    programs = partial(ClusterPrograms, db, artifacts, sources=sources, client=client, images=images)
    return replace(
        engines,
        apps=_cluster_engine(settings, client, "app"),
        databases=_cluster_engine(settings, client, "server") if settings.database_image else engines.databases,
        cronjobs=_cluster_engine(settings, client, "run", kept_bytes=LOG_BYTES),
        app_programs=programs(app_releases),
        cronjob_programs=programs(cronjob_releases),
    )


def _push_client(settings: Settings) -> PushClient:
    from moorage.runtime.images.pushing.client import PushClient

    password = settings.registry_password.get_secret_value()
    return PushClient(settings.registry_url, settings.registry_username, password, ca=settings.extra_ca)


def _cluster_builds(
    db: Database, artifacts: ArtifactStore, sources: Sources, releases_of: Callable[[Plan], Unpacked]
) -> ClusterBuilds:
    """Return builds as Jobs. Dockerfiles have namespaces of their own, because their pods are privileged."""
    from moorage.runtime.builds.pods.builds import ClusterBuilds
    from moorage.runtime.builds.pods.results import Results

    settings = db.env.settings
    options = _cluster_options(settings, _push_client(settings).credentials, "build")
    return ClusterBuilds(
        settings,
        partial(_connect, settings),
        options,
        replace(options, prefix=f"{options.prefix}-build", pod_security="privileged"),
        sources,
        Results(db, artifacts, releases_of),
        HeavyWork(has_credits=False),
    )


def _cluster_options(settings: Settings, account: Credentials | None, kind: str) -> Options:
    from moorage.runtime.engines.kubernetes import options
    from moorage.runtime.engines.kubernetes.tenancy import NetworkRules
    from moorage.runtime.images import machine

    return options.Options(
        kind=kind,
        agent_image=settings.database_image if kind == "server" else "",
        agent_architecture=machine.architecture(),
        fill_image=settings.kubernetes_build_image or settings.database_image if kind == "app" else "",
        prefix=settings.kubernetes_prefix,
        namespace=settings.kubernetes_namespace,
        storage_class=settings.kubernetes_storage_class,
        pull_secret=PULL_SECRET if account else "",
        registry_config=options.registry_config(account.registry, account.username, account.secret) if account else "",
        patience_s=options.SERVER_PATIENCE_S if kind == "server" else options.PATIENCE_S,
        rules=NetworkRules(settings.sandbox_allow, settings.sandbox_block),
    )


def _connect(settings: Settings) -> Cluster:
    """Return a client of the cluster; raises CannotStart."""
    try:
        from moorage.runtime.engines.kubernetes.client import Cluster, ClusterError
    except ImportError as error:
        if not (error.name or "").startswith("lightkube"):
            raise
        raise CannotStart("MOORAGE_ENGINE: kubernetes needs its client: pip install 'moorage[kubernetes]'") from None
    try:
        return Cluster.connect(settings.kubeconfig or None)
    except ClusterError as error:
        raise CannotStart(f"MOORAGE_KUBECONFIG: {error}") from None


def make_locator(settings: Settings) -> Locator | None:
    """Return the addresses of pods, for a gateway beside no control process; None where no engine moves replicas."""
    if settings.engine is not EngineName.KUBERNETES:
        return None
    cluster = _connect(settings)
    from moorage.runtime.engines.kubernetes.pods.locating import PodLocator

    return PodLocator(cluster)


def _cluster_engine(settings: Settings, client: PushClient, kind: str, *, kept_bytes: int = 0) -> Engine:
    """Return the engine of one kind of workload, which checks the registry and the cluster at the start."""
    cluster = _connect(settings)
    from moorage.runtime.engines.kubernetes import checking
    from moorage.runtime.engines.kubernetes.client import ClusterError
    from moorage.runtime.engines.kubernetes.engine import MachineFolders
    from moorage.runtime.engines.kubernetes.engine import make_engine as make_cluster_engine
    from moorage.runtime.images.pushing.client import PushFailed

    chosen = _cluster_options(settings, client.credentials, kind)
    logs = settings.folder("logs")

    def open_log(log: str, key: str, hidden: list[str], now: Callable[[], float]) -> LogFile:
        return LogFile(logs / log, key, hidden, now, kept_bytes=kept_bytes)

    async def check() -> None:
        try:
            await client.check()
            await checking.check(cluster, chosen, settings.kubernetes_app_image if settings.is_production else "")
        except PushFailed as error:
            raise CannotStart(f"MOORAGE_REGISTRY_URL: {error}") from None
        except ClusterError as error:
            raise CannotStart(f"cannot use the Kubernetes cluster: {error}") from None

    folders = settings.folder("volumes")
    machine = MachineFolders(LocalVolumes(folders, settings.folder("trash")), folders) if kind == "app" else None
    engine = make_cluster_engine(cluster, chosen, LocalLogs(logs), open_log, machine)
    return replace(engine, check=check, is_exclusive=True)


def make_engine(settings: Settings, name: str, *, is_sandboxed: bool, volumes_in: str = "volumes") -> Engine:
    """Return the engine of this machine; `name` is the folder of its running workloads."""
    run, logs, volumes_root = settings.folder("run"), settings.folder("logs"), settings.folder(volumes_in)
    replicas = LocalReplicas(run, name, logs=logs, volumes=volumes_root)
    volumes = LocalVolumes(volumes_root, settings.folder("trash"))
    return Engine(
        workloads=replicas,
        logs=LocalLogs(logs),
        metrics=LocalMetrics(replicas.states, volumes_root, is_sandboxed=is_sandboxed),
        volumes=volumes,
        commands=LocalCommands(volumes, volumes_root),
    )


def _releases(settings: Settings, folder: str, is_used: Callable[[Tx, str], bool]) -> Unpacked:
    """Return read-only folders that are readable by all: each workload runs as its own user."""
    return Unpacked(settings.folder(folder), APP_CAPS, is_used=is_used, finish=partial(harden, is_layered=True))
