"""Options of Dockerfile builds, of `moorage projects` and `moorage cronjobs`, against a running platform."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.live import Shell
from tests.e2e.projects_support import new_name
from tests.products.repositories.support import Checkout

pytestmark = pytest.mark.group("cli-live")

OPTIONS = (
    "--dockerfile", "deploy/Dockerfile", "--docker-context", "app", "--docker-target", "web",
    "--build-arg", "MODE=fast", "--build-arg", "EMPTY=",
)  # fmt: skip
FIELDS = ("language", "dockerBuildContextDir", "dockerBuildTarget", "dockerBuildArgs")


@pytest.fixture
def repository(shell: Shell, tmp_path: Path) -> str:
    name = f"acme/{new_name('docker-code')}"
    work = Checkout.init(tmp_path / "work")
    for path, text in {"deploy/Dockerfile": "FROM scratch AS web\nCOPY . /\n", "app/a": "a"}.items():
        (work.folder / path).parent.mkdir(exist_ok=True)
        (work.folder / path).write_text(text)
    work.commit()
    shell.sites.push(work, name)
    return name


def test_a_project_has_the_settings_of_its_dockerfile(shell: Shell, repository: str) -> None:
    name = new_name("docker")

    shell.ok("projects", "create", name, repository, *OPTIONS, "--no-wait")
    created = shell.json("projects", "show", name)
    shell.ok("projects", "update", name, "--build-arg", "MODE=slow", "--docker-target", "other", "--no-wait")
    changed = shell.json("projects", "show", name)
    wrong = shell("projects", "update", name, "--build-arg", "MODE")
    shell.ok("projects", "delete", name, "--yes")

    assert [created[field] for field in FIELDS] == ["docker", "app", "web", {"MODE": "fast", "EMPTY": ""}]
    assert (created["slug"], created["dockerFilePath"]) == ("container", "deploy/Dockerfile")
    assert [changed[field] for field in FIELDS] == ["docker", "app", "other", {"MODE": "slow", "EMPTY": ""}]
    assert "--build-arg MODE should be NAME=value" in wrong.stderr


def test_a_cronjob_has_the_settings_of_its_dockerfile(shell: Shell, repository: str) -> None:
    name = new_name("docker")

    shell.ok("cronjobs", "create", name, "--cron", "0 0 1 1 *", "--repository", repository, *OPTIONS, "--no-wait")
    created = shell.json("cronjobs", "show", name)
    shell.ok("cronjobs", "update", name, "--build-arg", "MODE=slow")
    changed = shell.json("cronjobs", "show", name)

    assert [created[field] for field in FIELDS] == ["docker", "app", "web", {"MODE": "fast", "EMPTY": ""}]
    assert created["dockerfilePath"] == "deploy/Dockerfile"
    assert changed["dockerBuildArgs"] == {"MODE": "slow", "EMPTY": ""}
