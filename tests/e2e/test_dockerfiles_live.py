"""Repositories with a Dockerfile: pushed with git, built without Docker, and used through the public gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.apps_support import LIVE_S, Apps, pairs, started_apps
from tests.e2e.functions_support import wait_until
from tests.e2e.projects_support import GITHUB_SECRET, Codehost, running_codehost
from tests.products.repositories.support import Checkout
from tests.runtime.images.building.image_builds import named, serving_base
from tests.runtime.images.registry_support import RegistryServer

pytestmark = [pytest.mark.deep, pytest.mark.group("dockerfiles-live")]

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
def codehost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Codehost]:
    with running_codehost(tmp_path_factory.mktemp("codehost")) as running:
        yield running


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory, codehost: Codehost) -> Iterator[Apps]:
    data = tmp_path_factory.mktemp("platform") / "data"
    with started_apps(data, codehost_url=codehost.url, github_webhook_secret=GITHUB_SECRET) as started:
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


def pull(action: str, sha: str, head: str, number: int) -> dict[str, Any]:
    change = {"number": number, "title": "A change", "head": {"sha": sha, "ref": "change", "repo": {"full_name": head}}}
    return {
        "action": action,
        "pull_request": change,
        "repository": {"full_name": "octo/dock", "id": 1, "private": False},
    }


def test_previews_are_built_from_the_dockerfile_and_those_of_forks_without_secrets(
    apps: Apps, codehost: Codehost, registry: RegistryServer
) -> None:
    asks = "RUN --mount=type=secret,id=TOKEN test -e /run/secrets/TOKEN && echo secret >> /srv/built.txt; true"
    dockerfile = named(DOCKERFILE, registry).replace("USER app", asks)
    files = {"Dockerfile": dockerfile, "server_py": SERVER, "deps_txt": "1", "words_txt": "main"}
    works = {name: codehost.repository(name, **files) for name in ("octo/dock", "stranger/dock")}
    fields: dict[str, Any] = {
        "slug": "container",
        "language": "docker",
        "prPreview": True,
        "secrets": pairs({"TOKEN": TOKEN}),
    }
    apps.live(apps.create_project("dock", "octo/dock", **fields))
    answers = {}

    for number, (head, work) in enumerate(works.items(), 7):
        work.git("checkout", "--quiet", "-b", "change")
        sha = work.commit("proposed", words_txt=f"of {head}")
        codehost.receive(work, head, "change")
        apps.deliver("pull_request", pull("opened", sha, head, number), f"dock-{number}")
        if head == "stranger/dock":
            wait_until(lambda: "waiting" in str(apps.call("GET", "/v1/projects/dock/previews")), LIVE_S)
            apps.call("POST", f"/v1/projects/dock/previews/{number}/approve")
        preview = f"dock-pr-{number}"
        wait_until(lambda preview=preview: "of " in apps.text(preview), LIVE_S)  # type: ignore[misc]
        answers[head] = apps.text(preview)

    assert answers == {
        "octo/dock": "hello of octo/dock \nsecret\nproduction 0 False",
        "stranger/dock": "hello of stranger/dock \nproduction 0 False",
    }
    assert apps.text("dock").startswith("hello main")
