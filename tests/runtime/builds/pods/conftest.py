"""Builds in the cluster of the tests: real agents in processes of their own."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.rendering import permissions
from tests.e2e.images_support import serving_python
from tests.runtime.builds.build_support import Log, make_request, write_files
from tests.runtime.engines.kubernetes import real_cluster
from tests.runtime.engines.kubernetes.api_server import LabCluster
from tests.runtime.engines.kubernetes.containers import PLATFORM
from tests.runtime.engines.kubernetes.platform_image import push_platform
from tests.runtime.engines.kubernetes.real_cluster import RealCluster
from tests.runtime.images.registry_support import LOOPBACK

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.db.store import Database
from moorage.runtime.builds.collect import APP_CAPS
from moorage.runtime.builds.pods.builds import ClusterBuilds
from moorage.runtime.builds.pods.results import Results
from moorage.runtime.builds.ports import CHOSEN_BY_ENGINE, BuildDatabases, ImageSettings, Plan, StoredBuild
from moorage.runtime.engines.kubernetes.client import Cluster
from moorage.runtime.engines.kubernetes.options import Options
from moorage.runtime.images.sources import Sources
from moorage.runtime.sandbox.heavy import HeavyWork

IMAGE = "registry.example/platform:1"
ORG = 7
WAIT_S = 60.0
# Tests that change parts of the cluster of the tests which a real one does not show.
OF_LAB = {
    "test_cancelling_a_build_deletes_its_job_and_ends_its_programs",
    "test_the_start_of_a_process_deletes_the_jobs_of_its_predecessor_only",
    "test_an_image_that_cannot_be_pulled_is_named",
    "test_a_repository_that_cannot_be_built_starts_no_pod",
    "test_a_dockerfile_is_built_in_a_namespace_of_its_own",
}


@dataclass
class Repository:
    """Source of a build."""

    folder: Path
    refusal: Exception | None = None
    checked: list[str] = field(default_factory=list)  # files of the result

    async def fetch(self, target: Path) -> None:
        shutil.copytree(self.folder, target, dirs_exist_ok=True, symlinks=True)

    async def check(self, plan: Plan, folder: Path) -> None:
        self.checked = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        if self.refusal is not None:
            raise self.refusal

    async def databases(self, plan: Plan) -> BuildDatabases:
        return BuildDatabases()


@dataclass
class Yard:
    """The builds of a platform, and the cluster in which they run."""

    cluster: LabCluster | RealCluster
    builds: ClusterBuilds
    releases: Unpacked
    folder: Path
    log: Log = field(default_factory=Log)

    def repository(self, files: dict[str, Any]) -> Repository:
        return Repository(write_files(self.folder / "repository", files))

    async def build(self, repository: Repository, **changed: Any) -> StoredBuild:
        image = ImageSettings(org_id=ORG, owner="deployment:17")
        request = make_request(CHOSEN_BY_ENGINE, **{"image": image, **changed})
        return await self.builds.build(request, repository, self.log)

    @property
    def lab(self) -> LabCluster:
        assert isinstance(self.cluster, LabCluster)
        return self.cluster

    def jobs(self) -> list[dict[str, Any]]:
        return self.cluster.objects("Job", "moorage.dev/kind=build")

    def pods(self) -> list[dict[str, Any]]:
        return self.cluster.objects("Pod", "moorage.dev/kind=build")

    async def until(self, is_so: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
        async with asyncio.timeout(timeout_s):
            while not is_so():
                await asyncio.sleep(0.02)

    def leftovers(self) -> list[str]:
        """Return the objects of builds that are still there."""
        selector = "moorage.dev/kind=build"
        kinds = ("Job", "Pod", "Secret")
        return [item["metadata"]["name"] for kind in kinds for item in self.cluster.objects(kind, selector)]


@pytest.fixture(scope="module")
def permitted() -> set[tuple[str, str]]:
    return permissions()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests with the fixture `yard` in the cluster of the tests, and with KUBECONFIG_TEST in a real one too."""
    if "yard" in metafunc.fixturenames:
        is_of_lab = metafunc.function.__name__ in OF_LAB or not real_cluster.is_given()
        metafunc.parametrize("site", ["lab"] if is_of_lab else ["lab", "real"], indirect=True)


@dataclass
class Site:
    """A cluster that has the image of the platform."""

    cluster: LabCluster | RealCluster
    image: str
    prefix: str
    patience_s: float


@pytest.fixture
def site(request: pytest.FixtureRequest, permitted: set[tuple[str, str]]) -> Iterator[Site]:
    if request.param == "real":
        cluster, image = real_site()
        yield Site(cluster, image, real_cluster.fresh_prefix(), 30.0)
        cluster.clear()
        return
    lab = LabCluster()
    lab.kubelet.images[IMAGE] = PLATFORM
    lab.allowed = permitted
    lab.set_room(has_room=True)
    try:
        yield Site(lab, IMAGE, "moorage", 1.0)
    finally:
        lab.close()


@functools.cache
def real_site() -> tuple[RealCluster, str]:
    """Return the real cluster of all tests of this process, and the image of the platform in a registry."""
    parts = contextlib.ExitStack()
    atexit.register(parts.close)
    registry = parts.enter_context(serving_python())
    image = push_platform(registry)
    cluster = RealCluster()
    parts.callback(cluster.close)
    return cluster, image


@pytest.fixture
def yard(db: Database, tmp_path: Path, site: Site) -> Yard:
    settings = db.env.settings.model_copy(
        update={"data": tmp_path / "data", "kubernetes_build_image": site.image, "disk_reserve_mb": 0}
    )
    releases = Unpacked(tmp_path / "releases", APP_CAPS, is_used=lambda tx, digest: True)
    options = Options(kind="build", prefix=site.prefix, patience_s=site.patience_s)

    def connect() -> Cluster:
        return Cluster.connect(str(site.cluster.kubeconfig), patience_s=10.0)

    of_dockerfiles = replace(options, prefix=f"{site.prefix}-build", pod_security="privileged")
    results = Results(db, ArtifactStore(db), lambda _: releases)
    builds = ClusterBuilds(settings, connect, options, of_dockerfiles, Sources(LOOPBACK), results, HeavyWork())
    return Yard(site.cluster, builds, releases, tmp_path)
