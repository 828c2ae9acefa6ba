"""`moorage image push` and `moorage registries` against a running platform."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest
from tests.cli.live import Shell
from tests.products.images.image_pushes import image, parts, write_layout
from tests.runtime.images.registry_support import digest_of

pytestmark = pytest.mark.group("cli-live")


def docker_archive(path: Path, content: bytes) -> Path:
    """Write an image as `docker save` does: plain layers, and manifest.json."""
    config, packed = parts(content)
    files = {
        "config.json": config,
        "layer/layer.tar": gzip.decompress(packed),
        "manifest.json": json.dumps(
            [{"Config": "config.json", "RepoTags": ["x:1"], "Layers": ["layer/layer.tar"]}]
        ).encode(),
    }
    with tarfile.open(path, "w") as archive:
        for name, body in files.items():
            header = tarfile.TarInfo(name)
            header.size = len(body)
            archive.addfile(header, io.BytesIO(body))
    return path


def test_a_layout_folder_is_pushed_and_its_layers_only_once(shell: Shell, tmp_path: Path) -> None:
    folder = write_layout(tmp_path / "layout", b"from a layout")

    first = shell("image", "push", folder, "--project", "cli-layout", "--tag", "v1", "--no-wait")
    again = shell("image", "push", folder, "--project", "cli-layout", "--tag", "v2", "--no-wait")

    digest = digest_of(json.dumps(image(b"from a layout")).encode())
    layer = digest_of(parts(b"from a layout")[1]).removeprefix("sha256:")[:12]
    assert first.returncode == again.returncode == 0, first.stderr + again.stderr
    assert f"pushed cli-layout:v1 ({digest[:19]})" in first.stderr
    assert f"{layer} 0.0 MB" in first.stderr
    assert f"{layer} exists" in again.stderr
    project = shell.client.projects.read("cli-layout")
    assert (project.slug, (project.public_image or "").rpartition("/")[2]) == ("container", "cli-layout:v2")


def test_a_saved_archive_is_pushed_under_the_name_of_its_file(shell: Shell, tmp_path: Path) -> None:
    path = docker_archive(tmp_path / "cli_Saved.tar", b"from an archive")

    done = shell("image", "push", path, "--no-wait", "--json")

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["project"] == "cli-saved"
    assert answer["deploymentUuid"]


def test_an_image_of_the_local_engine_is_exported_by_its_command(shell: Shell, tmp_path: Path) -> None:
    archive = docker_archive(tmp_path / "saved.tar", b"from an engine")
    programs = tmp_path / "bin"
    programs.mkdir()
    docker = programs / "docker"
    docker.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words\ncp {archive} "$3"\n')
    docker.chmod(0o755)

    done = shell("image", "push", "acme/cli-engine:v3", "--no-wait", PATH=f"{programs}:/usr/bin:/bin")

    assert done.returncode == 0, done.stderr
    words = (tmp_path / "words").read_text().split()
    assert (words[0], words[1], words[-2:]) == ("save", "--output", ["--", "acme/cli-engine:v3"])
    assert "pushed cli-engine:v3" in done.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no archive", "cannot be read as an archive"),
        (None, "it is no OCI layout folder"),
    ],
)
def test_what_is_no_image_is_named(shell: Shell, tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "odd"
    path.mkdir() if content is None else path.write_bytes(content)

    done = shell("image", "push", path, "--project", "cli-odd")

    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_image_without_an_engine_is_named(shell: Shell) -> None:
    done = shell("image", "push", "nowhere:v1", PATH="/nonexistent")

    assert done.returncode == 1
    assert "neither docker nor podman is installed here" in done.stderr


def test_a_push_to_a_site_is_refused_with_the_reason(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("<h1>hello</h1>")
    shell.ok("deploy", tmp_path / "site", "--name", "cli-image-site")
    folder = write_layout(tmp_path / "layout")

    done = shell("image", "push", folder, "--project", "cli-image-site")

    assert done.returncode == 1
    assert "is deployed from" in done.stderr


def test_registries_are_added_listed_and_removed(shell: Shell) -> None:
    added = shell("registries", "add", "GHCR.io", "-u", "ada", stdin="sesame-cli\n")
    changed = shell("registries", "add", "ghcr.io", "-u", "grace", "--token-host", "auth.ghcr.io", stdin="sesame-cli-2")
    listed = shell.ok("registries", "list")
    unconfirmed = shell("registries", "remove", "ghcr.io")
    shell.ok("registries", "remove", "ghcr.io", "--yes")

    assert (added.stdout, changed.stdout) == ("added ghcr.io\n", "changed ghcr.io\n")
    assert "ghcr.io\tgrace\tauth.ghcr.io" in listed
    assert "sesame" not in listed
    assert unconfirmed.returncode == 2
    assert "there is no registry ghcr.io" in shell("registries", "remove", "ghcr.io", "--yes").stderr


def test_a_project_is_created_from_an_image_by_its_reference(shell: Shell) -> None:
    done = shell("projects", "create", "cli-ready", "--image", "127.0.0.1:9/acme/app:1", "--no-wait")
    shown = shell.ok("projects", "show", "cli-ready")
    neither = shell("projects", "create", "cli-neither")

    assert done.returncode == 0, done.stderr
    assert "image\t127.0.0.1:9/acme/app:1" in shown
    assert "give either a repository or --image" in neither.stderr
