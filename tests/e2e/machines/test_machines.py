"""Several machines on one PostgreSQL: each runs what it owns, and nothing of the others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Awaitable, Iterator
from pathlib import Path

import pytest
from tests.e2e.apps_life_support import Apps, checkout
from tests.e2e.functions_support import wait_until
from tests.e2e.machines.fleet import Fleet, Visitor, kill_machine, make_cronjob, run_command, runs, started_fleet
from tests.ports import free_port
from tests.products.repositories.support import Checkout

from moorage.products.repositories.fetch import Fetched, Sources

pytestmark = [pytest.mark.anyio, pytest.mark.deep, pytest.mark.group("machines")]

MOVED_S = 60.0
ACTIVE = "SELECT 1 FROM machine WHERE address IS NOT NULL AND status = 'active'"
OWNER_OF_REPOSITORY = (
    "SELECT machine.name FROM repository JOIN machine ON machine.id = repository.machine_id "
    "WHERE repository.name = 'shop'"
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with started_fleet(tmp_path_factory.mktemp("fleet")) as started:
        yield started


@pytest.fixture(scope="module")
def works(fleet: Fleet) -> dict[str, Checkout]:
    nightly = Checkout.init(fleet.folder / "nightly")
    nightly.commit("first", run_py="")
    return {"shop": checkout(fleet.folder / "work", "first"), "nightly": nightly}


def replicas(fleet: Fleet, name: str) -> list[tuple[str, str]]:
    """Return machine and status of the replicas of an app."""
    query = (
        "SELECT machine.name, replica.status FROM replica JOIN machine ON machine.id = replica.machine_id "
        f"JOIN project ON project.id = replica.project_id WHERE project.name = '{name}' ORDER BY replica.id"
    )
    return [(str(machine), str(status)) for machine, status in fleet.rows(query)]


def is_open(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), 5):
        return True


def is_answered_by(apps: Apps, name: str, boots: set[str]) -> bool:
    """Return whether a process answers that is none of these."""
    answer = apps.visit(name, "/who")
    return answer.status == 200 and json.loads(answer.body)["boot"] not in boots


def test_a_second_machine_leaves_apps_and_runs_of_the_first_alone(fleet: Fleet, works: dict[str, Checkout]) -> None:
    with fleet.machine("one") as one:
        one.push(works["shop"], "acme/shop")
        one.go_live(one.create_app("shop", "acme/shop", autoDeploy=True))
        one.push(works["nightly"], "acme/nightly")
        make_cronjob(one, "nightly", "acme/nightly", 20)
        one.call("POST", "/v1/cronjobs/nightly/trigger")
        wait_until(lambda: runs(one, "nightly")[0]["status"] == "running", MOVED_S)
        boot, (shim,) = one.boot("shop"), one.shims()

        with fleet.machine("two") as two:
            wait_until(lambda: two.boot("shop") == boot, MOVED_S)
            wait_until(lambda: runs(two, "nightly")[0]["status"] != "running", MOVED_S)

            assert fleet.shims("two") == []
            assert one.shims() == [shim]
            assert one.boot("shop") == boot
            assert [run["status"] for run in runs(two, "nightly")] == ["succeeded"]


def test_apps_of_a_machine_that_is_drained_move_without_a_failed_request(
    fleet: Fleet, works: dict[str, Checkout]
) -> None:
    with fleet.machine("one") as one, fleet.machine("two") as two:
        wait_until(lambda: ("one", "ready") in replicas(fleet, "shop"), MOVED_S)
        boot = one.boot("shop")
        visitors = [Visitor(apps, "shop") for apps in (one, two)]

        with contextlib.ExitStack() as stack:
            for visitor in visitors:
                stack.enter_context(visitor)
            drained = run_command("machines", "drain", "one", "--data", str(two.running.data))

        assert "it runs no stateless apps any more" in drained
        assert replicas(fleet, "shop") == [("two", "ready")]
        assert fleet.shims("one") == []
        assert two.boot("shop") == one.boot("shop") != boot
        assert [visitor.failures for visitor in visitors] == [[], []]
        assert all(visitor.count > 10 for visitor in visitors)
        listed = run_command("machines", "list", "--data", str(one.running.data))
        assert [line.split()[:2] for line in listed.splitlines()] == [["one", "draining"], ["two", "active"]]
        run_command("machines", "drain", "one", "--undo", "--data", str(one.running.data))


async def test_a_worker_fetches_from_the_machine_that_has_the_repository(
    fleet: Fleet, works: dict[str, Checkout], tmp_path: Path
) -> None:
    with fleet.machine("one", machine_address=f"127.0.0.1:{free_port()}"):
        wait_until(lambda: fleet.rows("SELECT 1 FROM machine WHERE name = 'one' AND address IS NOT NULL"), MOVED_S)
        (org_id,) = fleet.rows("SELECT org_id FROM repository WHERE name = 'shop'")[0]
        async with fleet.worker(tmp_path / "worker") as sources:
            lines: list[str] = []
            (tmp_path / "source").mkdir()

            fetched = await sources.fetch(
                org_id, "acme/shop", branch="main", commit=None, target=tmp_path / "source", say=lines.append
            )

    assert fetched.sha == works["shop"].git("rev-parse", "HEAD").strip()
    assert (tmp_path / "source" / "release.txt").read_text().strip() == "first"


async def test_a_worker_waits_for_a_machine_that_returns_at_another_address(
    fleet: Fleet, works: dict[str, Checkout], tmp_path: Path
) -> None:
    lines: list[str] = []
    (org_id,) = fleet.rows("SELECT org_id FROM repository WHERE name = 'shop'")[0]

    def fetch(sources: Sources, name: str) -> Awaitable[Fetched]:
        target = tmp_path / name
        target.mkdir()
        return sources.fetch(org_id, "acme/shop", branch="main", commit=None, target=target, say=lines.append)

    async with fleet.worker(tmp_path / "worker") as sources:
        addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        with fleet.machine("one", machine_address=addresses[0]):
            wait_until(lambda: fleet.rows(f"SELECT 1 FROM machine WHERE address = '{addresses[0]}'"), MOVED_S)
            await fetch(sources, "before")
        waiting = asyncio.ensure_future(fetch(sources, "after"))
        async with asyncio.timeout(MOVED_S):
            while "The machine that has it does not answer; waiting for it" not in lines:
                await asyncio.sleep(0.1)
        with fleet.machine("one", machine_address=addresses[1]):
            fetched = await waiting

    assert fetched.sha == works["shop"].git("rev-parse", "HEAD").strip()


def test_a_push_to_any_machine_arrives_where_the_repository_is(fleet: Fleet, works: dict[str, Checkout]) -> None:
    with fleet.machine("one") as one, fleet.machine("two") as two:
        wait_until(lambda: len(fleet.rows(ACTIVE)) == 2, MOVED_S)
        works["shop"].commit("second", release_txt="second")

        two.push(works["shop"], "acme/shop")

        wait_until(lambda: len(two.deployments("shop")) == 2, MOVED_S)
        two.go_live(two.deployments("shop")[0]["deploymentUuid"])
        wait_until(lambda: two.who("shop")["release"] == one.who("shop")["release"] == "second", MOVED_S)
        assert not list((two.running.data / "git").glob("[0-9]*.git"))
        assert [name for (name,) in fleet.rows(OWNER_OF_REPOSITORY)] == ["one"]
        # The machine that runs the app has its log, and any machine returns it.
        for apps in (one, two):
            wait_until(lambda apps=apps: "release second listens" in apps.messages("shop"), MOVED_S)  # type: ignore[misc]


def test_stateless_apps_of_a_killed_machine_answer_elsewhere(fleet: Fleet) -> None:
    with fleet.machine("one") as one:
        with fleet.machine("two") as two:
            wait_until(lambda: len(fleet.rows(ACTIVE)) == 2, MOVED_S)
            run_command("machines", "drain", "one", "--data", str(one.running.data))
            run_command("machines", "drain", "one", "--undo", "--data", str(one.running.data))
            wait_until(lambda: replicas(fleet, "shop") == [("two", "ready")], MOVED_S)
            boot = two.boot("shop")
            wait_until(lambda: one.boot("shop") == boot, MOVED_S)

            kill_machine(two)

            wait_until(lambda: is_answered_by(one, "shop", {boot}), MOVED_S)
            assert [row for row in replicas(fleet, "shop") if row[1] == "ready"] == [("one", "ready")]
            listed = run_command("machines", "list", "--data", str(one.running.data))
            assert [line.split()[:2] for line in listed.splitlines()] == [["one", "active"], ["two", "gone"]]
        run_command("machines", "remove", "two", "--data", str(one.running.data))

        assert replicas(fleet, "shop") == [("one", "ready")]


def test_a_machine_that_returns_stops_what_others_run_by_now(fleet: Fleet) -> None:
    with fleet.machine("one") as one, fleet.machine("three") as three:
        wait_until(lambda: fleet.rows("SELECT 1 FROM machine WHERE name = 'three' AND address IS NOT NULL"), MOVED_S)
        (shim,) = fleet.shims("one")
        control = one.children()["control"]

        os.kill(control, signal.SIGSTOP)
        wait_until(lambda: ("three", "ready") in replicas(fleet, "shop"), MOVED_S)
        os.kill(control, signal.SIGCONT)

        wait_until(lambda: not shim.is_alive, MOVED_S)
        wait_until(lambda: replicas(fleet, "shop") == [("three", "ready")], MOVED_S)
        assert one.boot("shop") == three.boot("shop")
        wait_until(lambda: len(fleet.rows("SELECT 1 FROM machine WHERE status = 'active'")) == 2, MOVED_S)


def test_a_database_and_an_app_with_a_volume_stay_with_their_machine_and_say_so(
    fleet: Fleet, works: dict[str, Checkout]
) -> None:
    with fleet.machine("one") as one:
        with fleet.machine("three") as three:
            wait_until(lambda: len(fleet.rows(ACTIVE)) == 2, MOVED_S)
            run_command("machines", "drain", "one", "--no-wait", "--data", str(one.running.data))
            one.go_live(one.create_app("store", "acme/shop", tier={"key": "mini"}, disk=1))
            asked = {"name": "orders", "type": "postgresql", "version": "16.4.0", "instanceType": "free"}
            one.call("POST", "/v1/databases", asked)
            wait_until(lambda: one.call("GET", "/v1/databases/orders")["status"] == "running", 120)
            run_command("machines", "drain", "one", "--undo", "--data", str(one.running.data))
            assert replicas(fleet, "store") == [("three", "ready")]
            assert one.text("store", "/count") == "1"
            port = one.call("GET", "/v1/databases/orders")["connectionDetails"]["port"]
            # The database of the other machine is reached at the same port of this one.
            wait_until(lambda: is_open(port), MOVED_S)

            kill_machine(three)

            wait_until(lambda: fleet.rows("SELECT 1 FROM machine WHERE name = 'three' AND status = 'gone'"), MOVED_S)
            database = one.call("GET", "/v1/databases/orders")
            assert database["status"] == "stopped"
            assert "machine three does not answer" in database["statusReason"]
            assert "machine three does not answer" in one.call("GET", "/v1/projects/store")["statusReason"]
            wait_until(lambda: one.visit("store", "/count").status == 503, MOVED_S)
            assert replicas(fleet, "store") == [("three", "ready")]
        with fleet.machine("three"):
            wait_until(lambda: one.text("store", "/count") == "2", MOVED_S)
            wait_until(lambda: one.call("GET", "/v1/databases/orders")["status"] == "running", MOVED_S)
