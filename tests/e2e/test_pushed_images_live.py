"""Images that were built elsewhere, on a whole platform: pushed by a real client, or named by a project."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.apps_support import Apps, started_apps
from tests.e2e.functions_support import wait_until
from tests.e2e.images_support import serving_python
from tests.products.images.image_pushes import run_client
from tests.runtime.images.building.docker_daemon import running_docker
from tests.runtime.images.registry_support import Entry, RegistryServer, descriptor, digest_of, layer

from moorage.runtime.images import machine
from moorage.runtime.images.manifests import OCI_CONFIG, OCI_LAYER, OCI_MANIFEST

pytestmark = [pytest.mark.group("images-live"), pytest.mark.deep]

APP = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = open("/srv/release.txt").read().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Handler).serve_forever()
"""


def _diff_id(packed: bytes) -> str:
    return digest_of(gzip.decompress(packed))


@dataclass
class Yard:
    """A platform, and a registry elsewhere in which images are built."""

    apps: Apps
    registry: RegistryServer
    slug: str
    home: Path

    def build(self, tag: str, text: str) -> str:
        """Make an image on top of Python with an app that answers with a text; return its reference."""
        base = json.loads(self.registry.call("GET", "/v2/python/manifests/latest", Accept=OCI_MANIFEST).read())
        packed = layer(Entry("srv/main.py", APP.encode()), Entry("srv/release.txt", text.encode()))
        config = {
            "os": "linux",
            "architecture": machine.architecture(),
            "config": {"Cmd": ["python3", "/srv/main.py"], "Env": ["PATH=/usr/bin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [self._diff_id(base["layers"][0]["digest"]), _diff_id(packed)]},
        }
        about = json.dumps(config).encode()
        for body in (packed, about):
            self.registry.push_blob("python", body)
        layers = [*base["layers"], descriptor(packed, f"{OCI_LAYER}+gzip")]
        manifest = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": descriptor(about, OCI_CONFIG)}
        self.registry.push_manifest("python", tag, {**manifest, "layers": layers})
        return f"127.0.0.1:{self.registry.port}/python:{tag}"

    def _diff_id(self, digest: str) -> str:
        return _diff_id(self.registry.call("GET", f"/v2/python/blobs/{digest}").read())

    @property
    def host(self) -> str:
        return self.apps.running.url.removeprefix("http://")

    def push(self, reference: str, name: str) -> None:
        """Copy an image to the platform with a real client."""
        done = run_client(
            "skopeo", "copy", "--src-tls-verify=false", "--dest-tls-verify=false", "--dest-creds",
            f"token:{self.apps.token}", f"docker://{reference}", f"docker://{self.host}/{self.slug}/{name}",
            home=self.home,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def latest(self, project: str) -> dict[str, Any]:
        return self.apps.deployments(project)[0]


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    folder = tmp_path_factory.mktemp("pushed")
    with serving_python() as registry, started_apps(folder / "data") as apps:
        [organization] = apps.call("GET", "/v1/orgs")
        yield Yard(apps, registry, organization["slug"], folder)


def test_a_push_of_skopeo_is_live_and_the_next_one_replaces_it(yard: Yard) -> None:
    yard.push(yard.build("one", "first"), "tug:v1")
    yard.apps.live(yard.latest("tug")["deploymentUuid"])
    first = yard.apps.text("tug")

    yard.push(yard.build("two", "second"), "tug:v2")
    yard.apps.live(yard.latest("tug")["deploymentUuid"])
    second = yard.apps.text("tug")
    yard.apps.live(yard.apps.call("POST", "/v1/projects/tug/redeploy", status=202)["deploymentUuid"])

    assert (first, second, yard.apps.text("tug")) == ("first", "second", "second")
    assert len(yard.apps.deployments("tug")) == 3


def test_an_image_that_docker_builds_and_pushes_is_live(yard: Yard) -> None:
    base, target = yard.build("docker", "unused"), f"{yard.host}/{yard.slug}/dinghy:v1"
    context = yard.home / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(f"FROM {base}\nCOPY release.txt /srv/\n")
    (context / "release.txt").write_text("from docker")

    with tempfile.TemporaryDirectory(prefix="docker-", ignore_cleanup_errors=True) as folder:
        with running_docker(Path(folder)) as docker:
            docker.run("login", yard.host, "-u", "token", "--password-stdin", input_=yard.apps.token.encode())
            docker.build(context, context / "Dockerfile", {}, "", "-t", target)
            docker.run("push", target)
    yard.apps.live(yard.latest("dinghy")["deploymentUuid"])

    assert yard.apps.text("dinghy") == "from docker"


def test_a_release_of_an_image_is_rolled_back_to(yard: Yard) -> None:
    yard.push(yard.build("old", "old"), "barge:v1")
    old = yard.latest("barge")["deploymentUuid"]
    yard.apps.live(old)
    yard.push(yard.build("new", "new"), "barge:v2")
    yard.apps.live(yard.latest("barge")["deploymentUuid"])

    back = yard.apps.call("POST", "/v1/projects/barge/rollback", {"deploymentUuid": old})
    yard.apps.live(back["deploymentUuid"])

    assert yard.apps.text("barge") == "old"


def test_a_ready_image_is_deployed_and_each_deployment_resolves_its_tag(yard: Yard) -> None:
    reference = yard.build("ready", "as named")
    body = {"slug": "container", "name": "ferry", "publicImage": reference}
    made = yard.apps.call("POST", "/v1/projects", body)
    yard.apps.live(made["deploymentUuid"])
    first = yard.apps.text("ferry")
    yard.build("ready", "moved")

    yard.apps.live(yard.apps.call("POST", "/v1/projects/ferry/redeploy", status=202)["deploymentUuid"])
    wait_until(lambda: yard.apps.text("ferry") == "moved", 30)

    assert first == "as named"
