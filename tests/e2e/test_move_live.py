"""A platform moves from SQLite and a folder to PostgreSQL and S3; sites, functions, apps, databases and runs go on."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.command import moorage
from tests.core.artifacts.s3_server import S3Server, running_s3
from tests.e2e.adoption_support import ENV, logs, made_folder, set_up, shims, statuses
from tests.e2e.databases_support import Databases, wait_until
from tests.e2e.functions_support import make_platform
from tests.platform.running import Running, free_ports, running
from tests.postgres_server import running_postgres

pytestmark = [pytest.mark.deep, pytest.mark.group("upgrade")]

GREET = "def main(params):\n    return {'statusCode': 200, 'body': f\"hello {params.get('name')}\"}\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    with made_folder("moorage-move-") as made:
        yield made


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_postgres() as server:
        yield server.create_database()


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server


def greet(platform: Running) -> str:
    return make_platform(platform).fetch("greet", "?name=ada").body.decode()


def test_everything_answers_after_a_move(folder: Path, url: str, s3: S3Server) -> None:
    data, ports = folder / "data", free_ports()
    bucket = f"s3://moorage/{secrets.token_hex(8)}"
    stores = {
        "DATABASE_URL": url,
        "ARTIFACTS_URL": bucket,
        "ARTIFACTS_ENDPOINT": s3.endpoint,
        "ARTIFACTS_ACCESS_KEY": s3.access_key,
        "ARTIFACTS_SECRET_KEY": s3.secret_key,
    }
    with running(data, ports=ports, env=ENV) as platform:
        owner = set_up(platform, folder)
        owner.publish("harbor", {"index.html": "<h1>moored</h1>"})
        make_platform(platform).create("greet", "python", GREET)
        greeting = greet(platform)
        run = str(owner.call("POST", "/v1/cronjobs/nightly/trigger")["executionUuid"])
        wait_until(lambda: "begins" in logs(owner, run), 60)
        answer, before = owner.text("ferry"), shims(data)

    moved = moorage("move", "--to-postgres", url, "--to-s3", bucket, "--data", data, **stores)
    assert moved.returncode == 0, moved.stderr
    (data / "artifacts").rename(folder / "artifacts")  # From now on they are in the bucket only.

    with running(data, ports=ports, env={**ENV, **{f"MOORAGE_{name}": value for name, value in stores.items()}}) as new:
        owner = Databases(new, new.session())
        after, adopted = shims(data), owner.text("ferry")
        page, greeting_after = owner.text("harbor"), greet(new)
        rows = owner.client("ledger").numbers()
        wait_until(lambda: statuses(owner) == ["succeeded"], 120)
        output = logs(owner, run)
        redeployed = owner.live(owner.deploy("ferry"))
        owner.publish("pier", {"index.html": "new"})
        pier = owner.text("pier")

    assert after == before
    assert adopted == answer
    assert page == "<h1>moored</h1>"
    assert greeting == greeting_after == "hello ada"
    assert rows == [1]
    assert "ends" in output.splitlines()
    assert redeployed["status"] == "succeeded"
    assert pier == "new"
