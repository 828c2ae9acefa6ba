"""A platform whose apps are pods of a cluster, with a real registry between both.

The cluster is that of the tests, or with KUBECONFIG_TEST a real one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.deploy.rendering import permissions
from tests.e2e.apps_support import Apps, started_apps
from tests.e2e.images_support import serving_python
from tests.products.repositories.support import Checkout
from tests.runtime.engines.kubernetes import database_pods, real_cluster
from tests.runtime.engines.kubernetes.api_server import LabCluster
from tests.runtime.engines.kubernetes.containers import PLATFORM
from tests.runtime.engines.kubernetes.kubelet import NotYet, Pull
from tests.runtime.engines.kubernetes.real_cluster import RealCluster
from tests.runtime.images.building.image_builds import named
from tests.runtime.images.registry_support import LOOPBACK, RegistryServer

from moorage.core.kit.clock import SystemClock
from moorage.runtime.images import references
from moorage.runtime.images.references import PullFailed
from moorage.runtime.images.store import Images

# It answers with the address at which the request came in: the address of its pod.
SERVER = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print("asked for", self.path, flush=True)
        body = f"TEXT {self.connection.getsockname()[0]}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
print("up with", os.environ.get("GREETING"), flush=True)
http.server.ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Handler).serve_forever()
"""
BUILD_IMAGE = "registry.example/platform:1"  # of the platform itself, which the cluster of the tests has already
DOCKERFILE = 'FROM PYTHON\nWORKDIR /srv\nCOPY server.py ./\nUSER 1001\nEXPOSE 8000\nCMD ["python3", "server.py"]\n'


def pulling(folder: Path) -> Pull:
    """Return a function that pulls as the container runtime of a node does."""
    images = Images(folder, LOOPBACK, SystemClock())

    async def pull(reference: str) -> Path:
        try:
            return (await images.pull(references.parse(reference), lambda _: None)).root
        except PullFailed as error:
            raise NotYet("ErrImagePull", str(error)) from None

    return pull


@dataclass
class Harbor:
    """The platform, its cluster and its registry."""

    apps: Apps
    cluster: LabCluster | RealCluster
    registry: RegistryServer
    folder: Path

    def repository(self, name: str, **files: str) -> Checkout:
        work = Checkout.init(self.folder / name)
        self.write(work, **files)
        return work

    def write(self, work: Checkout, **files: str) -> None:
        for name, text in files.items():
            (work.folder / name.replace("__", ".")).write_text(named(text, self.registry))
        work.commit()

    def dockerized(self, name: str, text: str) -> Checkout:
        return self.repository(name, Dockerfile=DOCKERFILE, server__py=server(text))

    def pods(self, project: str) -> list[dict[str, Any]]:
        """Return the pods of an app."""
        number = self.apps.call("GET", f"/v1/projects/{project}")["id"]
        return self.cluster.objects("Pod", f"moorage.dev/name=app-{number}")


def server(text: str) -> str:
    return SERVER.replace("TEXT", text)


def settings_of(cluster: LabCluster | RealCluster, registry: RegistryServer) -> dict[str, str]:
    return {
        "MOORAGE_ENGINE": "kubernetes",
        "MOORAGE_KUBECONFIG": str(cluster.kubeconfig),
        "MOORAGE_REGISTRY_URL": f"http://127.0.0.1:{registry.port}/pods",
        "MOORAGE_KUBERNETES_APP_IMAGE": f"127.0.0.1:{registry.port}/python",
        "MOORAGE_KUBERNETES_DATABASE_IMAGE": os.environ.get("DATABASE_IMAGE_TEST", database_pods.IMAGE),
    }


def make_cluster(folder: Path) -> LabCluster | RealCluster:
    return RealCluster() if real_cluster.is_given() else make_lab(folder)


def make_lab(folder: Path) -> LabCluster:
    """Return the cluster of the tests, whose pods reach the loopback registry."""
    cluster = LabCluster()
    cluster.kubelet.pull = pulling(folder / "node")
    cluster.kubelet.images[BUILD_IMAGE] = PLATFORM
    cluster.kubelet.machine_images[database_pods.IMAGE] = database_pods.folders_of_the_image()
    cluster.allowed = permissions()
    cluster.set_room(has_room=True)
    return cluster


@contextlib.contextmanager
def started_harbor(
    folder: Path, make: Callable[[Path], LabCluster | RealCluster] | None = None, /, **settings: str
) -> Iterator[Harbor]:
    cluster = (make or make_cluster)(folder)
    try:
        with serving_python() as registry:
            with started_apps(folder / "data", None, settings_of(cluster, registry), **settings) as apps:
                apps.call("PATCH", f"/v1/orgs/{apps.org}", {"createOnPush": False})
                yield Harbor(apps, cluster, registry, folder)
    finally:
        cluster.close()
