"""Runs of cronjobs that name an image: real pulls from a registry on this machine, real processes."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest
from tests.products.cronjobs.run_support import Machine, has_status, run
from tests.products.cronjobs.support import IMAGE, Team, until
from tests.runtime.images.registry_support import RegistryServer, running_registry
from tests.runtime.shim.image_support import make_root

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("db", ["sqlite"], indirect=True)]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    folder = tmp_path_factory.mktemp("registry")
    with running_registry(folder) as server:
        root = make_root(folder / "root")
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            archive.add(root, arcname=".")
        machine = {"aarch64": "arm64", "x86_64": "amd64"}[os.uname().machine]
        told: dict[str, Any] = {
            "Entrypoint": ["sh", "-c"], "Cmd": ["echo of the image; cat data; exit 3"], "WorkingDir": "/app",
            "Env": ["PATH=/usr/bin", "COLOR=blue"], "User": "root",
        }  # fmt: skip
        server.push("acme/job", packed.getvalue(), architecture=machine, **told)
        server.push("acme/bare", packed.getvalue(), architecture=machine)
        yield server


async def make_image_job(team: Team, registry: RegistryServer, name: str = "job", **given: Any) -> None:
    body = {**IMAGE, "publicImage": f"127.0.0.1:{registry.port}/acme/{name}", **given}
    assert (await team.create(**body)).data["status"] == "running"


async def test_an_image_is_pulled_and_run_with_its_own_command(
    team: Team, machine: Machine, registry: RegistryServer
) -> None:
    await make_image_job(team, registry, startCmd="echo of startCmd", language="python", autoDeploy=True)

    done = await run(team)

    lines = await team.lines(done["executionUuid"])
    assert (done["status"], done["exitCode"]) == ("failed", 3)
    assert {"o of the image", "o inside"} <= set(lines)
    assert any("Pulled" in line for line in lines)


@pytest.mark.deep
async def test_a_command_takes_the_place_of_the_images_own(
    team: Team, machine: Machine, registry: RegistryServer
) -> None:
    await make_image_job(team, registry, env=[{"name": "PLACE", "value": "here"}])

    done = await run(team, "'echo $COLOR $PLACE; id -u; echo > /x && echo > /tmp/x && echo wrote'")

    lines = await team.lines(done["executionUuid"])
    assert done["exitCode"] == 0, lines
    assert [line for line in lines if line.startswith("o ")] == ["o blue here", "o 0", "o wrote"]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("name", "command", "why"),
    [
        ("nothing", "", "cannot pull 127.0.0.1:{port}/acme/nothing:latest: the registry says: "),
        ("bare", "", "the image names no program to run: set `command`"),
        ("bare", "missing --all", "it cannot be started: there is no program 'missing' in the image"),
        ("bare", "sh 'open", "its command cannot be read: no closing quotation"),
    ],
)
async def test_an_image_that_cannot_be_run_says_why(
    team: Team, machine: Machine, registry: RegistryServer, name: str, command: str, why: str
) -> None:
    await make_image_job(team, registry, name, command=command)

    done = await run(team)

    assert (done["status"], done["exitCode"]) == ("failed", None)
    assert done["errorMessage"].startswith(why.format(port=registry.port))


async def test_a_run_that_is_only_being_prepared_is_taken_back_when_its_cronjob_goes(
    team: Team, machine: Machine
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    asked = asyncio.Event()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await team.create(**{**IMAGE, "publicImage": f"127.0.0.1:{port}/acme/slow"})
    await team.trigger()
    await asyncio.wait_for(asked.wait(), 30)

    await team.delete()

    await until(has_status(team, 404))
    server.close()
