"""`MOORAGE_ENGINE=kubernetes`: what is wrong with the settings is a sentence at the start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ports import free_port
from tests.runtime.engines.kubernetes.api_server import LabCluster
from tests.runtime.images.registry_support import RegistryServer, running_registry

from moorage import engines
from moorage.errors import CannotStart
from moorage.runtime.engines.ports import Engine
from moorage.runtime.images.pushing.client import PushClient
from moorage.settings import Settings

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    with running_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def cluster() -> Iterator[LabCluster]:
    made = LabCluster()
    yield made
    made.close()


def engine(folder: Path, kubeconfig: Path, port: int) -> Engine:
    url = f"http://127.0.0.1:{port}"
    settings = Settings(data=folder, engine="kubernetes", kubeconfig=str(kubeconfig), registry_url=url)
    return engines._cluster_engine(settings, PushClient(url, wait_s=0.001), "app")


async def test_a_registry_and_a_cluster_that_answer_are_accepted(
    tmp_path: Path, cluster: LabCluster, registry: RegistryServer
) -> None:
    made = engine(tmp_path, cluster.kubeconfig, registry.port)

    await made.check()
    await made.workloads.close()

    assert made.is_exclusive
    assert cluster.writes == 0


async def test_a_registry_that_is_away_names_its_setting(tmp_path: Path, cluster: LabCluster) -> None:
    made = engine(tmp_path, cluster.kubeconfig, free_port())

    with pytest.raises(CannotStart, match=r"^MOORAGE_REGISTRY_URL: the registry 127\.0\.0\.1:\d+ does not answer"):
        await made.check()
    await made.workloads.close()


async def test_a_permission_that_is_missing_is_a_sentence(
    tmp_path: Path, cluster: LabCluster, registry: RegistryServer
) -> None:
    cluster.denied.add(("list", "secrets"))
    made = engine(tmp_path, cluster.kubeconfig, registry.port)

    with pytest.raises(CannotStart, match="cannot use the Kubernetes cluster: the cluster does not permit it"):
        await made.check()
    await made.workloads.close()


def test_a_kubeconfig_that_cannot_be_read_names_its_setting(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="MOORAGE_KUBECONFIG: cannot read the kubeconfig"):
        engine(tmp_path, tmp_path / "missing", 5000)
