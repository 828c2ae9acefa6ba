"""Pushes and pulls with the real clients docker, podman, skopeo and buildah."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from tests.products.images.image_pushes import Harbor, run_client, write_layout
from tests.runtime.images.building.docker_daemon import running_docker
from tests.runtime.images.registry_support import LOOPBACK, QUICK

from moorage.core.kit.clock import SystemClock
from moorage.runtime.images.references import PullFailed, Reference
from moorage.runtime.images.sign_in import Credentials
from moorage.runtime.images.sources import Sources
from moorage.runtime.images.store import Images

pytestmark = pytest.mark.anyio

PLAIN = "--tls-verify=false"


def blobs_of(layout: Path) -> list[str]:
    return sorted(path.name for path in (layout / "blobs" / "sha256").iterdir())


def test_skopeo_logs_in_pushes_and_pulls_the_same_image(harbor: Harbor, tmp_path: Path) -> None:
    layout, target = write_layout(tmp_path / "image"), f"docker://{harbor.host}/{harbor.slug}/by-skopeo:v1"
    config = tmp_path / "auth.json"

    logged_in = run_client(
        "skopeo", "login", PLAIN, "--authfile", config, "-u", "ada", "-p", harbor.token, harbor.host, home=tmp_path
    )
    pushed = run_client(
        "skopeo", "copy", "--authfile", config, "--dest-tls-verify=false", f"oci:{layout}:latest", target, home=tmp_path
    )
    pulled = run_client(
        "skopeo", "copy", "--authfile", config, "--src-tls-verify=false", target, f"oci:{tmp_path / 'back'}:latest",
        home=tmp_path,
    )  # fmt: skip
    shown = run_client("skopeo", "list-tags", "--authfile", config, PLAIN, target.removesuffix(":v1"), home=tmp_path)

    assert logged_in.returncode == 0, logged_in.stderr
    assert pushed.returncode == 0, pushed.stderr
    assert pulled.returncode == 0, pulled.stderr
    assert json.loads(shown.stdout)["Tags"] == ["v1"]
    assert blobs_of(tmp_path / "back") == blobs_of(layout)
    project = harbor.project("by-skopeo")
    assert project is not None
    assert (project.slug, project.source, project.total_deployments) == ("container", "image", 1)
    assert harbor.uploads == []


def test_a_second_push_of_skopeo_uploads_no_layer(harbor: Harbor, tmp_path: Path) -> None:
    layout = write_layout(tmp_path / "image", b"another")

    def push(name: str) -> str:
        target = f"docker://{harbor.host}/{harbor.slug}/{name}"
        done = run_client(
            "skopeo", "--debug", "copy", "--dest-tls-verify=false", "--dest-creds", f"ada:{harbor.token}",
            f"oci:{layout}:latest", target, home=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    first = push("twice:v1")
    again = push("twice:v2")

    assert "/twice/blobs/uploads/" in first
    assert "/twice/blobs/uploads/" not in again
    assert harbor.deployment_count("twice") == 2


def test_a_wrong_password_is_refused(harbor: Harbor, tmp_path: Path) -> None:
    done = run_client("skopeo", "login", PLAIN, "-u", "ada", "-p", "psk_test_wrong", harbor.host, home=tmp_path)

    assert done.returncode != 0
    assert "invalid username/password" in done.stderr


def test_buildah_builds_and_pushes(harbor: Harbor, tmp_path: Path) -> None:
    storage = ["--storage-driver", "vfs", "--root", str(tmp_path / "root"), "--runroot", str(tmp_path / "run")]
    program = tmp_path / "hello.txt"
    program.write_text("hello")

    container = run_client("buildah", *storage, "from", "scratch", home=tmp_path)
    assert container.returncode == 0, container.stderr
    name = container.stdout.strip()
    for step in (["copy", name, str(program), "/hello.txt"], ["config", "--cmd", "/hello.txt", name]):
        done = run_client("buildah", *storage, *step, home=tmp_path)
        assert done.returncode == 0, done.stderr
    done = run_client("buildah", *storage, "commit", name, "hello:latest", home=tmp_path)
    assert done.returncode == 0, done.stderr
    pushed = run_client(
        "buildah", *storage, "push", "--tls-verify=false", "--creds", f"ada:{harbor.token}", "hello:latest",
        f"docker://{harbor.host}/{harbor.slug}/by-buildah:latest", home=tmp_path,
    )  # fmt: skip

    assert pushed.returncode == 0, pushed.stderr
    assert harbor.deployment_count("by-buildah") == 1


@pytest.mark.deep
def test_podman_logs_in_pushes_and_pulls_the_same_image(harbor: Harbor) -> None:
    target = f"{harbor.host}/{harbor.slug}/by-podman:v1"

    with tempfile.TemporaryDirectory(prefix="podman-") as folder:  # podman refuses long paths
        home = Path(folder)
        storage = ["--storage-driver", "vfs", "--root", str(home / "root"), "--runroot", str(home / "run")]
        layout = write_layout(home / "image", b"podman")

        def podman(*argv: str) -> str:
            done = run_client("podman", *storage, *argv, home=home)
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

        podman("login", PLAIN, "-u", "ada", "-p", harbor.token, harbor.host)
        image = podman("pull", f"oci:{layout}:latest")
        podman("push", PLAIN, image, target)
        podman("rmi", "--force", image)
        pulled = podman("pull", PLAIN, target)

    assert pulled == image
    assert harbor.deployment_count("by-podman") == 1


@pytest.mark.deep
@pytest.mark.group("docker")
def test_docker_logs_in_pushes_and_pulls_the_same_image(harbor: Harbor, tmp_path: Path) -> None:
    target = f"{harbor.host}/{harbor.slug}/by-docker"
    (tmp_path / "Dockerfile").write_text('FROM scratch\nCOPY hello.txt /\nCMD ["/hello.txt"]\n')
    (tmp_path / "hello.txt").write_text("hello")

    with tempfile.TemporaryDirectory(prefix="docker-", ignore_cleanup_errors=True) as folder:
        with running_docker(Path(folder)) as docker:
            docker.run("login", harbor.host, "--username", "ada", "--password-stdin", input_=harbor.token.encode())
            image = docker.build(tmp_path, tmp_path / "Dockerfile", {}, "", "-t", f"{target}:v1")
            docker.run("push", f"{target}:v1")
            docker.run("tag", f"{target}:v1", f"{target}:v2")
            docker.run("push", f"{target}:v2")
            docker.run("rmi", f"{target}:v1", f"{target}:v2")
            docker.run("pull", f"{target}:v2")
            pulled = docker.run("images", "--no-trunc", "-q", f"{target}:v2").decode().strip()

    assert pulled == image
    assert harbor.deployment_count("by-docker") == 2
    assert harbor.uploads == []


async def test_the_platform_pulls_from_itself_like_from_any_registry(harbor: Harbor, tmp_path: Path) -> None:
    digest = harbor.push("itself", "v1", b"pulled back")

    async def find(org_id: int, registry: str) -> Credentials | None:
        return Credentials(registry, "token", harbor.token) if org_id == 1 else None

    sources = Sources(LOOPBACK, QUICK, find)
    images = Images(tmp_path / "images", LOOPBACK, SystemClock(), sources=sources)
    reference = Reference(harbor.host, f"{harbor.slug}/itself", "v1", None)

    image = await images.pull(reference, lambda line: None, 1)

    assert image.digest == digest
    assert (image.root / "bin" / "hello").read_bytes() == b"pulled back"
    with pytest.raises(PullFailed, match="a private image needs credentials"):
        await images.pull(reference, lambda line: None, 2)
