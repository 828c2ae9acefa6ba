"""Repositories in the shape of public starters: each is live after its first push, with no settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from tests.e2e.apps_support import Apps, started_apps
from tests.e2e.functions_support import wait_until
from tests.e2e.starters.everything import STARTERS
from tests.e2e.starters.repositories import Locks, written
from tests.e2e.starters.shapes import Expected, Starter

pytestmark = pytest.mark.deep

LIVE_S = 1000.0  # longer than the time limit of a build


def in_two_groups() -> list[ParameterSet]:
    """Return the starters as parameters, halves of which may run at the same time, each half on its own platform."""
    groups = [pytest.mark.group(f"starters-{number}") for number in range(2)]
    return [pytest.param(starter, id=starter.name, marks=groups[number % 2]) for number, starter in enumerate(STARTERS)]


@dataclass
class Harbor:
    """The platform that all starters are pushed to."""

    apps: Apps
    locks: Locks
    folder: Path


@pytest.fixture(scope="module")
def harbor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harbor]:
    folder = tmp_path_factory.mktemp("starters")
    with started_apps(folder / "data", builds="2", build_memory_mb="3072") as apps:
        yield Harbor(apps, Locks(folder / "tools"), folder)


@pytest.mark.parametrize("starter", in_two_groups())
def test_a_starter_is_live_at_the_first_push(harbor: Harbor, starter: Starter) -> None:
    apps, work = harbor.apps, written(starter.text, harbor.folder / starter.name)
    if starter.lock:
        harbor.locks.write(starter.lock, work.folder)
    work.commit()
    apps.push(work, f"acme/{starter.name}")

    if starter.settings:
        uuid = apps.create_project(starter.name, f"acme/{starter.name}", "auto", **starter.settings)
    else:  # The push has created the project.
        uuid = str(apps.deployments(starter.name)[0]["deploymentUuid"])
    wait_until(lambda: apps.status(uuid)["terminal"], LIVE_S)
    lines = apps.log(uuid)
    answers = {path: _answer(apps, starter.name, path, expected) for path, expected in starter.visits.items()}

    log = "\n".join(lines)
    assert apps.status(uuid)["status"] == "succeeded", log
    assert answers == dict(starter.visits), log
    assert apps.call("GET", f"/v1/projects/{starter.name}")["slug"] == starter.kind, log
    apps.call("DELETE", f"/v1/projects/{starter.name}")


def _answer(apps: Apps, name: str, path: str, expected: Expected) -> Expected:
    """Return the expectation if the response meets it, else the response; a second request has to meet it too."""
    answers = [apps.visit(name, path) for _ in range(2)]
    for answer in answers:
        body = answer.body.decode(errors="replace")
        if isinstance(expected, int) and answer.status != expected:
            return answer.status
        if isinstance(expected, str) and (answer.status != 200 or expected not in body):
            return f"{answer.status} {body[:500]}"
    return expected
