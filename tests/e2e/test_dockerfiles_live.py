"""Repositories with a Dockerfile: pushed with git, built without Docker, and used through the public gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.apps_support import LIVE_S, Apps, pairs, started_apps
from tests.e2e.functions_support import wait_until
from tests.products.repositories.support import Checkout
from tests.runtime.images.building.image_builds import named, serving_base
from tests.runtime.images.registry_support import RegistryServer

pytestmark = [pytest.mark.deep, pytest.mark.xdist_group("dockerfiles-live")]

SERVER = """
import os, socket
text = f"{open('/srv/built.txt').read()}{os.environ['MODE']} {os.getuid()} {os.path.exists('/run/secrets')}"
server = socket.create_server(("0.0.0.0", int(os.environ["PORT"])))
while True:
    connection, _ = server.accept()
    connection.recv(4096)
    answer = text.encode()
    head = f"HTTP/1.1 200 OK\\r\\nContent-Length: {len(answer)}\\r\\nConnection: close\\r\\n\\r\\n"
    connection.sendall(head.encode() + answer)
    connection.close()
"""
DOCKERFILE = """
FROM BASE AS build
ARG GREETING=hello
WORKDIR /src
COPY deps.txt .
RUN echo "installed $(cat deps.txt)" > installed.txt
COPY words.txt .
RUN --mount=type=secret,id=TOKEN echo "the token is $(cat /run/secrets/TOKEN)" && \\
    echo "$GREETING $(cat words.txt) " > built.txt
FROM PYTHON
ENV MODE=production
WORKDIR /srv
COPY --from=build /src/built.txt ./
COPY server.py ./
USER app
EXPOSE 8000
CMD ["python3", "-u", "server.py"]
"""
TOKEN = "a-token-of-the-harbor"


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with serving_base() as running:
        yield running


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apps]:
    with started_apps(tmp_path_factory.mktemp("platform") / "data") as started:
        yield started


def repository(registry: RegistryServer, folder: Path, **files: str) -> Checkout:
    work = Checkout.init(folder)
    default = {
        "Dockerfile": named(DOCKERFILE, registry),
        "server.py": SERVER,
        "deps.txt": "1",
        "words.txt": "world",
    }
    for name, text in {**default, **files}.items():
        (work.folder / name).write_text(text)
    work.commit()
    return work


def test_a_dockerfile_is_live_and_a_changed_line_repeats_only_what_depends_on_it(
    apps: Apps, registry: RegistryServer, tmp_path: Path
) -> None:
    work = repository(registry, tmp_path / "harbor")
    uuid = apps.launch(
        "harbor", work, language="docker", secrets=pairs({"TOKEN": TOKEN}), dockerBuildArgs={"GREETING": "ahoy"}
    )
    apps.live(uuid)

    assert apps.ask("harbor", "GET", "/").body.decode() == "ahoy world \nproduction 1000 False"
    log = "\n".join(apps.log(uuid))
    assert "detected: container app, Dockerfile" in log
    assert "RUN echo" in log
    assert TOKEN not in log

    (work.folder / "words.txt").write_text("sea")
    work.commit()
    apps.push(work, "acme/harbor")
    again = apps.call("POST", "/v1/projects/harbor/deploy", {}, status=202)["deploymentUuid"]
    apps.live(again)

    wait_until(lambda: apps.ask("harbor", "GET", "/").body.decode().startswith("ahoy sea"), LIVE_S)
    lines = apps.log(again)
    assert any("deps.txt" in line and "taken from the cache" in line for line in lines)


def test_a_failed_instruction_names_its_line_and_the_live_release_stays(
    apps: Apps, registry: RegistryServer, tmp_path: Path
) -> None:
    work = repository(registry, tmp_path / "quay")
    apps.live(apps.launch("quay", work, language="docker"))

    (work.folder / "Dockerfile").write_text(named("FROM BASE\nRUN echo no; exit 3\n", registry))
    work.commit()
    apps.push(work, "acme/quay")
    uuid = apps.call("POST", "/v1/projects/quay/deploy", {}, status=202)["deploymentUuid"]
    wait_until(lambda: apps.status(uuid)["terminal"], LIVE_S)

    assert apps.status(uuid)["status"] == "failed"
    assert "Dockerfile line 2: RUN echo no; exit 3 failed: exit code 3" in "\n".join(apps.log(uuid))
    assert apps.ask("quay", "GET", "/").status == 200


def test_a_rollback_brings_the_image_of_an_earlier_deployment_back(
    apps: Apps, registry: RegistryServer, tmp_path: Path
) -> None:
    work = repository(registry, tmp_path / "pier")
    first = apps.launch("pier", work, language="docker")
    apps.live(first)
    (work.folder / "words.txt").write_text("second")
    work.commit()
    apps.push(work, "acme/pier")
    apps.live(apps.call("POST", "/v1/projects/pier/deploy", {}, status=202)["deploymentUuid"])
    wait_until(lambda: b"second" in apps.ask("pier", "GET", "/").body, LIVE_S)

    apps.live(apps.call("POST", "/v1/projects/pier/rollback", {"deploymentUuid": first})["deploymentUuid"])

    wait_until(lambda: b"world" in apps.ask("pier", "GET", "/").body, LIVE_S)
