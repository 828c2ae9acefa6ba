"""The same Dockerfiles, built here and by Docker, give the same files, owners, modes and configuration."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runtime.images.building.comparing import config_of, tree_of
from tests.runtime.images.building.corpus import CORPUS, Case
from tests.runtime.images.building.docker_daemon import Docker, running_docker
from tests.runtime.images.building.image_builds import Builds, named, write
from tests.runtime.images.registry_support import RegistryServer

from moorage.core.db.store import Database

pytestmark = [pytest.mark.anyio, pytest.mark.deep, pytest.mark.group("docker")]


@pytest.fixture(scope="module")
def docker() -> Iterator[Docker]:
    with tempfile.TemporaryDirectory(prefix="docker-", ignore_cleanup_errors=True) as folder:
        with running_docker(Path(folder)) as running:
            yield running


def of_docker(docker: Docker, registry: RegistryServer, case: Case, folder: Path) -> str:
    context = folder / "docker-context"
    context.mkdir()
    for name, content in case.files.items():
        write(context / name, content)
    dockerfile = folder / "docker-file"
    dockerfile.write_text(named(case.docker or case.dockerfile, registry))
    return docker.build(context, dockerfile, case.args, case.target)


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_the_corpus_is_built_as_docker_builds_it(
    db: Database, registry: RegistryServer, docker: Docker, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    tmp_path.chmod(0o700)
    assert len(CORPUS) >= 30
    for number, (name, case) in enumerate(CORPUS.items()):
        with subtests.test(name):
            folder = tmp_path / str(number)
            folder.mkdir()
            builds = Builds(db, registry, folder, cache=f"project-{number}")
            image = of_docker(docker, registry, case, folder)
            files = {key: value for key, value in case.files.items() if not (case.docker and key == "app.conf")}

            result = await builds.build(case.dockerfile, files, target=case.target, args=case.args)

            ours = tree_of([await builds.fetch_layer(layer) for layer in result.image.layers])
            theirs = tree_of(docker.layers(image))
            assert {path for path in ours if ours[path] != theirs.get(path)} == set(), _differences(ours, theirs)
            assert {path for path in theirs if path not in ours} == set()
            assert config_of(result.config["config"]) == config_of(docker.config(image))


def _differences(ours: dict[str, tuple[object, ...]], theirs: dict[str, tuple[object, ...]]) -> str:
    out = io.StringIO()
    for path in sorted({*ours, *theirs}):
        if ours.get(path) != theirs.get(path):
            print(f"{path}: ours {ours.get(path)}, docker's {theirs.get(path)}", file=out)
    return out.getvalue()[:4000]
