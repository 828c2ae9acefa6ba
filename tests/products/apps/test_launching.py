"""Variables of an app that the platform chooses: PORT, and the random values that frameworks ask for."""

from __future__ import annotations

import msgspec
import pytest
from tests.products.projects.support import Team, make_team

from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.products.apps.launching import Release, own_port, read_release
from moorage.products.projects import service as projects
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments.service import DeploymentRequest
from moorage.runtime.builds.ports import Plan


@pytest.mark.parametrize(
    ("value", "port"),
    [("3000", 3000), (" 80 ", 80), ("65535", 65535), ("0", 0), ("65536", 0), ("53", 0), ("", 0), ("http", 0), ("³", 0)],
)
def test_only_a_port_that_an_app_can_listen_on_is_honoured(value: str, port: int) -> None:
    assert own_port({"PORT": value}) == port


def test_without_the_variable_the_platform_chooses() -> None:
    assert own_port({}) == 0


async def released(db: Database, team: Team, name: str, **given: tuple[tuple[str, str], ...]) -> Release:
    """Return a release of a project whose framework asks for two random values."""
    plan = Plan("container", "nodejs", start="node .", keys=("APP_KEY", "SALT"), **given)  # type: ignore[arg-type]
    text = msgspec.json.encode(plan).decode()

    def unit(tx: Tx) -> Release:
        project = projects.get(tx, team.org_id, name)
        made = deployments.start(tx, team.org_id, project, DeploymentRequest("rollback", plan=text, is_app=True))
        return read_release(tx, team.org_id, made.id)

    return await db.write(unit)


@pytest.mark.anyio
async def test_random_values_are_hidden_stay_the_same_and_differ_by_project_and_name(app: App, db: Database) -> None:
    team = await make_team(app, db)
    await team.create("app", "container")
    await team.create("other", "container")

    first, again, other = [await released(db, team, name) for name in ("app", "app", "other")]

    values = {*first.env.values(), *other.env.values()}
    assert (again.env, set(first.env)) == (first.env, {"APP_KEY", "SALT"})
    assert (len(values), min(map(len, values)) >= 32) == (4, True)
    assert first.hidden == list(first.env.values())


@pytest.mark.anyio
async def test_a_value_of_the_user_takes_the_place_of_a_random_one(app: App, db: Database) -> None:
    team = await make_team(app, db)
    await team.create("app", "container", env=[{"name": "APP_KEY", "value": "mine"}])

    release = await released(db, team, "app")

    assert release.env["APP_KEY"] == "mine"
    assert "mine" not in release.hidden


@pytest.mark.anyio
async def test_a_value_of_the_user_takes_the_place_of_one_of_the_example(app: App, db: Database) -> None:
    team = await make_team(app, db)
    await team.create("app", "container", env=[{"name": "TIDE", "value": "high"}])

    release = await released(db, team, "app", values=(("TIDE", "low"), ("QUAY", "west")))

    assert (release.env["TIDE"], release.env["QUAY"]) == ("high", "west")
    assert "west" not in release.hidden


@pytest.mark.anyio
async def test_variables_of_its_own_address_have_that_of_the_project_unless_the_user_sets_them(
    app: App, db: Database
) -> None:
    team = await make_team(app, db)
    await team.create("app", "container", env=[{"name": "SITE_URL", "value": "https://harbor.example"}])
    addresses = (("NEXTAUTH_URL", "{url}"), ("SERVER_NAME", "{host}"), ("SITE_URL", "{url}"))

    env = (await released(db, team, "app", own_addresses=addresses)).env

    host = projects.host_of(db.env.settings, "app")
    assert env["NEXTAUTH_URL"] == projects.url_of(db.env.settings, host)
    assert env["SERVER_NAME"] == env["NEXTAUTH_URL"].partition("://")[2]
    assert env["SITE_URL"] == "https://harbor.example"
