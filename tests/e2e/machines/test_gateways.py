"""Redeployments with the gateways of two machines under load: each switches before the old release is stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest
from tests.e2e.apps_life_support import Apps, checkout
from tests.e2e.functions_support import wait_until
from tests.e2e.machines.fleet import Fleet, Visitor, run_command, started_fleet
from tests.products.repositories.support import Checkout

pytestmark = [pytest.mark.deep, pytest.mark.group("machines")]

REDEPLOYMENTS = int(os.environ.get("REDEPLOYMENTS", "4"))
SWITCHED_S = 120.0
PAUSE_S = 13.0  # longer than gateways need to switch, and shorter than the lease of a gateway


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with started_fleet(tmp_path_factory.mktemp("gateways")) as started:
        yield started


@pytest.fixture(scope="module")
def work(fleet: Fleet) -> Checkout:
    return checkout(fleet.folder / "work", "first")


@contextlib.contextmanager
def visited(*machines: Apps) -> Iterator[list[Visitor]]:
    """Request the app through the gateway of each machine.

    Each gateway also has a client that keeps its connection. Without any, Caddy loads a configuration that speeds up
    routing, and closes a connection that arrives at that moment.
    """
    visitors = [Visitor(apps, "shop") for apps in machines]
    with contextlib.ExitStack() as stack:
        for apps in machines:
            kept = stack.enter_context(contextlib.closing(HTTPConnection("127.0.0.1", apps.running.ports["gateway"])))
            kept.request("GET", "/who", headers={"Host": f"shop.localhost:{kept.port}"})
            kept.getresponse().read()
        for visitor in visitors:
            stack.enter_context(visitor)
        yield visitors


def statuses(fleet: Fleet) -> list[str]:
    return [str(status) for (status,) in fleet.rows("SELECT status FROM replica ORDER BY id")]


def lagging(fleet: Fleet) -> list[str]:
    query = "SELECT key FROM gateway WHERE generation < (SELECT value FROM route_generation)"
    return [str(key) for (key,) in fleet.rows(query)]


def begin_redeployment(apps: Apps, work: Checkout, release: str) -> None:
    count = len(apps.deployments("shop"))
    work.commit(release, release_txt=release)
    apps.push(work, "acme/shop")
    wait_until(lambda: len(apps.deployments("shop")) > count, SWITCHED_S)


def finish_redeployment(fleet: Fleet, apps: Apps) -> None:
    """Wait until the new release is live and the old one is stopped."""
    apps.go_live(apps.deployments("shop")[0]["deploymentUuid"])
    wait_until(lambda: statuses(fleet) == ["ready"], SWITCHED_S)


def test_redeployments_under_load_fail_no_request_of_either_gateway(fleet: Fleet, work: Checkout) -> None:
    with fleet.machine("one") as one, fleet.machine("two") as two:
        one.push(work, "acme/shop")
        one.go_live(one.create_app("shop", "acme/shop", autoDeploy=True))
        wait_until(lambda: one.boot("shop") == two.boot("shop"), SWITCHED_S)

        with visited(one, two) as visitors:
            for number in range(REDEPLOYMENTS):
                begin_redeployment(one, work, f"release {number}")
                finish_redeployment(fleet, one)

        assert [visitor.failures for visitor in visitors] == [[], []]
        assert all(visitor.count > 20 for visitor in visitors)
        assert one.who("shop") == two.who("shop")
        assert len(fleet.rows("SELECT 1 FROM gateway")) == 2


def test_a_gateway_that_switches_late_keeps_the_old_release_running(fleet: Fleet) -> None:
    with fleet.machine("one") as one, fleet.machine("two") as two:
        wait_until(lambda: one.boot("shop") == two.boot("shop"), SWITCHED_S)
        run_command("machines", "drain", "two", "--data", str(two.running.data))  # Its gateway serves as before.
        wait_until(lambda: statuses(fleet) == ["ready"] and len(fleet.shims("one")) == 1, SWITCHED_S)
        (old,) = fleet.shims("one")
        boot, control = one.boot("shop"), two.children()["control"]

        with visited(one, two) as visitors:
            os.kill(control, signal.SIGSTOP)  # Links and gateway of this machine wait, and its lease is valid.
            stopped_at = time.monotonic()
            # A rollback builds nothing, so that it goes live long before the lease ends.
            one.rollback("shop", one.deployments("shop")[1]["deploymentUuid"])
            wait_until(lambda: "draining" in statuses(fleet), SWITCHED_S)
            time.sleep(max(0.0, stopped_at + PAUSE_S - time.monotonic()))
            was_running, was_lagging = old.is_alive, lagging(fleet)
            os.kill(control, signal.SIGCONT)
            finish_redeployment(fleet, one)

        assert was_running
        assert len(was_lagging) == 1
        assert not old.is_alive
        assert [visitor.failures for visitor in visitors] == [[], []]
        assert one.boot("shop") == two.boot("shop") != boot
