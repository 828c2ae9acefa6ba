"""The engines of this platform. Only this module names a concrete engine; products get the ports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked, harden
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.products.cronjobs import building
from moorage.products.projects.deployments import service as deployments
from moorage.runtime.builds.builder import Builder
from moorage.runtime.builds.collect import APP_CAPS
from moorage.runtime.builds.dockerfiles import building as image_builds
from moorage.runtime.builds.local import LocalBuilds
from moorage.runtime.builds.ports import Builds
from moorage.runtime.builds.programs import LocalPrograms
from moorage.runtime.engines.local import LocalReplicas
from moorage.runtime.engines.local_commands import LocalCommands
from moorage.runtime.engines.local_metrics import LocalMetrics
from moorage.runtime.engines.local_volumes import LocalVolumes
from moorage.runtime.engines.ports import Engine, Programs
from moorage.runtime.images.building import executor
from moorage.runtime.images.building.files import layer_folders
from moorage.runtime.images.making import make_images
from moorage.runtime.images.sources import Sources
from moorage.runtime.images.store import Images
from moorage.runtime.logs.local import LocalLogs
from moorage.settings import Settings


@dataclass(frozen=True)
class Engines:
    """Ports for each product."""

    apps: Engine
    databases: Engine
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
    engine = partial(make_engine, settings, is_sandboxed=is_sandboxed)
    app_releases = _releases(settings, "app-releases", deployments.is_published)
    cronjob_releases = _releases(settings, "cronjob-releases", building.is_used)
    images = make_images(db, artifacts, sources)
    programs = partial(LocalPrograms, db, artifacts, is_sandboxed=is_sandboxed)
    image_builder = cache(partial(_image_builder, db, artifacts, sources))
    builder = Builder(settings, is_sandboxed=is_sandboxed, images=image_builder)
    builds = LocalBuilds(settings, builder, artifacts, lambda plan: app_releases if plan.kind == "container" else sites)
    return Engines(
        apps=engine("shims"),
        databases=engine("databases", volumes_in="databases"),
        cronjobs=engine("cronjobs"),
        app_programs=programs(app_releases, make_images(db, artifacts)),
        cronjob_programs=programs(cronjob_releases, images),
        builds=builds,
        cronjob_builds=builds.with_releases(cronjob_releases),
        images=images,
    )


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


def _image_builder(db: Database, artifacts: ArtifactStore, sources: Sources) -> executor.ImageBuilder:
    """Make the builder of Dockerfiles, at the first build of one."""
    settings = db.env.settings
    return executor.ImageBuilder(
        db,
        artifacts,
        make_images(db, artifacts, sources),
        sources,
        image_builds.limits_of(settings),
        layer_folders.LayerFolders(settings.folder("image-layers")),
    )
