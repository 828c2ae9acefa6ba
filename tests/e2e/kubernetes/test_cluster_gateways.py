"""Gateways on their own: they route to pods, follow releases without a failed request, and wake apps."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from typing import LiteralString

import psycopg
import pytest
from tests.e2e.apps_support import Apps
from tests.e2e.functions_support import Answer, Platform, read_answer, wait_until
from tests.e2e.kubernetes.cluster_support import Harbor, settings_of, started_harbor
from tests.e2e.machines.fleet import Fleet, Visitor, started_fleet
from tests.platform.running import Running, running

SOON_S = 90.0
REDEPLOYMENTS = int(os.environ.get("REDEPLOYMENTS", "4"))
pytestmark = [pytest.mark.deep, pytest.mark.group("cluster-gateways")]


@dataclass
class Port:
    """A platform on a cluster, and gateways beside it."""

    harbor: Harbor
    fleet: Fleet
    gateways: list[Apps]

    @property
    def apps(self) -> Apps:
        return self.harbor.apps

    def rows(self) -> dict[str, int]:
        """Return the generation that each gateway serves."""
        with psycopg.connect(self.fleet.url) as connection:
            return dict(connection.execute("SELECT key, generation FROM gateway").fetchall())

    def execute(self, statement: LiteralString) -> None:
        with psycopg.connect(self.fleet.url) as connection:
            connection.execute(statement)

    @contextmanager
    def gateway(self, name: str) -> Iterator[Apps]:
        with self.started("gateway", name, edge_address=f"127.0.0.1:{self.apps.running.ports['edge']}") as process:
            yield Apps(process, self.apps.token)

    def started(self, part: str, name: str, **settings: str) -> AbstractContextManager[Running]:
        """Start a part of the platform as a process of its own."""
        given = {**self.fleet.settings, "machine_name": name, **settings}
        env = {f"MOORAGE_{key.upper()}": value for key, value in given.items()}
        env |= settings_of(self.harbor.cluster, self.harbor.registry)
        return running(self.fleet.folder / name, env=env, part=part)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port]:
    folder = tmp_path_factory.mktemp("port")
    with ExitStack() as stack:
        fleet = stack.enter_context(started_fleet(folder / "fleet"))
        harbor = stack.enter_context(started_harbor(folder, **fleet.settings))
        started = Port(harbor, fleet, [])
        harbor.apps.live(harbor.apps.launch("ship", harbor.dockerized("ship", "release 0"), language="docker"))
        started.gateways += [stack.enter_context(started.gateway(name)) for name in ("north", "south")]
        yield started


def test_a_gateway_serves_apps_sites_and_functions_from_the_store(port: Port) -> None:
    apps = port.apps
    apps.publish("page", {"index.html": "a page"})
    for gateway in port.gateways:
        wait_until(partial(has_page, gateway), SOON_S)
        assert gateway.text("ship") == apps.text("ship")
        assert gateway.visit("nowhere").status == 404
        assert gateway.visit("edge", "/api/v1/web/none/default/none").status == 404
    assert {"gateway:north", "gateway:south"} < set(port.rows())


def test_redeployments_under_load_fail_no_request_at_any_gateway(port: Port) -> None:
    apps = port.apps
    with ExitStack() as stack:
        visitors = [stack.enter_context(visited(gateway)) for gateway in [apps, *port.gateways]]
        for _ in range(REDEPLOYMENTS):
            before = apps.text("ship")
            apps.live(redeploy(apps))
            for gateway in port.gateways:
                wait_until(partial(has_changed, gateway, before), SOON_S)
    assert [visitor.failures for visitor in visitors] == [[], [], []]
    assert min(visitor.count for visitor in visitors) > REDEPLOYMENTS


def test_a_sleeping_app_is_woken_through_a_gateway(port: Port) -> None:
    port.execute("UPDATE project SET asleep = true WHERE name = 'ship'")
    wait_until(lambda: not port.harbor.pods("ship"), SOON_S)
    assert port.gateways[0].text("ship").startswith("release 0")


def test_gateways_route_on_while_the_control_process_is_away(port: Port) -> None:
    control = port.apps.running.children()["control"]
    os.kill(control, signal.SIGSTOP)
    try:
        texts = {gateway.text("ship") for gateway in port.gateways for _ in range(3)}
    finally:
        os.kill(control, signal.SIGCONT)
    assert len(texts) == 1


def test_a_deployment_does_not_wait_for_a_gateway_that_was_killed(port: Port) -> None:
    with port.gateway("west") as west:
        wait_until(lambda: "gateway:west" in port.rows(), SOON_S)
        for pid in [west.running.process.pid, *west.running.children().values()]:
            os.kill(pid, signal.SIGKILL)
        west.running.process.wait()
    port.apps.live(redeploy(port.apps))
    assert "gateway:west" in port.rows()


def test_a_gateway_that_stops_deletes_its_row(port: Port) -> None:
    with port.gateway("east") as east:
        wait_until(lambda: "gateway:east" in port.rows(), SOON_S)
        assert east.running.stop() == 0
    assert "gateway:east" not in port.rows()


def test_an_edge_on_its_own_serves_functions_while_the_platform_is_away(port: Port) -> None:
    code = "def main(args):\n    return {'statusCode': 200, 'body': 'from ' + args.get('name', 'nobody')}\n"
    Platform.create(port.apps, "signal", "python", code)
    with port.started("edge", "harbor-functions-0") as edge:
        wait_until(lambda: called(port, edge).status == 200, SOON_S)
        children = port.apps.running.children().values()
        for pid in children:
            os.kill(pid, signal.SIGSTOP)
        try:
            answer = called(port, edge)
        finally:
            for pid in children:
                os.kill(pid, signal.SIGCONT)
        recorded = (edge.data / "spool").is_dir()
        wait_until(lambda: len(Platform.invocations(port.apps, "signal")) >= 2, SOON_S)

    assert answer.body == b"from a ship"
    assert recorded


def test_a_pod_that_moves_after_the_platform_was_killed_is_served(port: Port) -> None:
    app = f"moorage.dev/name=app-{port.apps.call('GET', '/v1/projects/ship')['id']}"
    before = port.gateways[0].text("ship")
    for pid in [port.apps.running.process.pid, *port.apps.running.children().values()]:
        os.kill(pid, signal.SIGKILL)
    port.apps.running.process.wait()
    for pod in port.harbor.cluster.objects("Pod", app):
        meta = pod["metadata"]
        port.harbor.cluster.delete("Pod", meta["namespace"], meta["name"], gracePeriodSeconds=1)

    for gateway in port.gateways:
        wait_until(partial(is_served_elsewhere, gateway, before), SOON_S)
    port.harbor.cluster.pause(is_paused=True)
    try:
        assert all(is_served_elsewhere(gateway, before) for gateway in port.gateways)
    finally:
        port.harbor.cluster.pause(is_paused=False)


def called(port: Port, edge: Running) -> Answer:
    with closing(HTTPConnection("127.0.0.1", edge.ports["edge"], timeout=60)) as connection:
        connection.request("GET", port.apps.path("signal", "?name=a%20ship"))
        return read_answer(connection.getresponse())


def has_page(gateway: Apps) -> bool:
    return gateway.visit("page").body == b"a page"


def is_served_elsewhere(gateway: Apps, before: str) -> bool:
    """Whether an app is served from another pod: it answers with its own address."""
    answer = gateway.visit("ship")
    return answer.status == 200 and answer.body.decode() != before


def has_changed(gateway: Apps, before: str) -> bool:
    return gateway.text("ship") != before


def redeploy(apps: Apps) -> str:
    return str(apps.call("POST", "/v1/projects/ship/redeploy", status=202)["deploymentUuid"])


@contextmanager
def visited(apps: Apps) -> Iterator[Visitor]:
    """Request the app again and again, beside a client that keeps its connection.

    Without kept connections, Caddy loads a configuration that speeds up routing, and closes a connection that arrives
    at that moment.
    """
    with closing(HTTPConnection("127.0.0.1", apps.running.ports["gateway"])) as kept:
        kept.request("GET", "/", headers={"Host": f"ship.localhost:{kept.port}"})
        kept.getresponse().read()
        with Visitor(apps, "ship") as visitor:
            yield visitor
