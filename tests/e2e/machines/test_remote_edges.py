"""A platform whose functions run in an edge elsewhere: two started platforms' processes, over a real network."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.functions_support import ECHO, Platform, make_platform, new_name, wait_until
from tests.e2e.machines.fleet import Fleet, started_fleet
from tests.e2e.test_schedules_live import CODE, read, run, schedule
from tests.platform.running import Running, free_ports, running
from tests.ports import free_port
from tests.relays import Relay, relaying

pytestmark = [pytest.mark.deep, pytest.mark.group("remote-edges")]

SOON_S = 60.0
GREETING = {"greeting": "ahoy"}
PRINTS = "def main(params):\n    print('given', params['number'])\n    return {'number': params['number']}\n"


@dataclass
class Port:
    """A platform without an edge, and an edge that it reaches through a relay."""

    fleet: Fleet
    platform: Platform
    edge: Running
    relay: Relay

    def kill_edge(self, child: str) -> None:
        """Kill a process of the edge's machine, and wait until another one took its place."""
        pid = self.edge.children()[child]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.edge.children().get(child, pid) != pid, SOON_S)


def variables(settings: dict[str, str]) -> dict[str, str]:
    given = {"rate_limit": "1000000", **settings}
    return {f"MOORAGE_{name.upper()}": value for name, value in given.items()}


@contextmanager
def started_edge(fleet: Fleet, name: str, port: int, **settings: str) -> Iterator[Running]:
    env = variables({**fleet.settings, "machine_name": name, "edge_link_port": str(port), **settings})
    with running(fleet.folder / name, env=env, part="edge") as edge:
        yield edge


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port]:
    with ExitStack() as stack:
        fleet = stack.enter_context(started_fleet(tmp_path_factory.mktemp("port")))
        link = free_port()
        edge = stack.enter_context(started_edge(fleet, "edge", link))
        relay = stack.enter_context(relaying(link))
        hosts, public = f"127.0.0.1:{relay.port}", f"127.0.0.1:{edge.ports['edge']}"
        env = variables({**fleet.settings, "edge_hosts": hosts, "edge_address": public})
        platform = stack.enter_context(running(fleet.folder / "platform", env=env, ports=free_ports()))
        yield Port(fleet, make_platform(platform), edge, relay)


def test_the_platform_starts_no_edge_of_its_own(port: Port) -> None:
    assert set(port.platform.running.children()) == {"control", "gateway"}
    assert set(port.edge.children()) == {"control", "invoker", "edge"}
    assert not (port.platform.running.data / "run" / "edge.sock").exists()


def test_a_call_right_after_a_change_uses_it_and_its_log_is_readable(port: Port) -> None:
    name = port.platform.create(new_name("far"), "python", PRINTS)
    assert port.platform.invoke(name, {"number": 1})["result"] == {"number": 1}
    for number in range(2, 5):
        port.platform.deploy(name, "python", PRINTS.replace("{'number'", f"{{'version': {number}, 'number'"))
        outcome = port.platform.invoke(name, {"number": number})
        assert outcome["result"] == {"version": number, "number": number}

    found = port.platform.invocations(name)
    assert [item["stdout"] for item in found] == [f"given {number}\n" for number in (4, 3, 2, 1)]
    assert sum(port.platform.api("GET", f"/v1/functions/{name}/metrics")["invocations"]) == 4


def test_public_calls_pass_the_gateway_of_the_platform(port: Port) -> None:
    name = port.platform.create(new_name("public"), "python", ECHO["python"])
    host = {"Host": f"edge.localhost:{port.platform.running.ports['gateway']}"}
    answer = port.platform.fetch(name, "?number=7", headers=host, port="gateway")
    assert (answer.status, answer.json["number"]) == (200, "7")


def test_schedules_run_there_and_are_counted_once(port: Port) -> None:
    name = port.platform.create(new_name("scheduled"), "python", CODE["python"])
    made = schedule(port.platform, name, params=GREETING)
    assert run(port.platform, made)["result"] == {"given": "ahoy", "method": "post"}
    make_due(port, made)
    wait_until(lambda: read(port.platform, made)["totalRuns"] == 2, SOON_S)
    assert read(port.platform, made)["lastStatus"] == "success"
    assert len(port.platform.invocations(name)) == 2


@pytest.mark.parametrize("child", ["edge", "control"])
def test_no_record_is_lost_when_a_process_beside_the_edge_is_killed(port: Port, child: str) -> None:
    name = port.platform.create(new_name("killed"), "python", PRINTS)
    answered = under_calls(port, name, lambda: port.kill_edge(child))
    assert len(answered) > 20
    check_records(port, name, answered)


def test_no_record_is_lost_when_the_control_process_is_killed(port: Port) -> None:
    name = port.platform.create(new_name("control"), "python", PRINTS)
    answered = under_calls(port, name, port.platform.crash_control)
    assert len(answered) > 20
    check_records(port, name, answered)


def test_a_run_during_which_the_control_process_dies_is_counted_once(port: Port) -> None:
    name = port.platform.create(new_name("orphan"), "python", CODE["python"])
    made = schedule(port.platform, name, params={**GREETING, "sleep": 3})
    make_due(port, made)
    wait_until(lambda: started(port, made) == 1, SOON_S)
    port.platform.crash_control()
    wait_until(lambda: read(port.platform, made)["totalRuns"] == 1, SOON_S)
    assert read(port.platform, made)["lastStatus"] == "success"
    assert len(port.platform.invocations(name)) == 1


def test_a_run_during_which_the_edge_dies_is_counted_once_as_failed(port: Port) -> None:
    name = port.platform.create(new_name("cut"), "python", CODE["python"])
    made = schedule(port.platform, name, params={**GREETING, "sleep": 20})
    make_due(port, made)
    wait_until(lambda: started(port, made) == 1, SOON_S)
    port.kill_edge("edge")
    wait_until(lambda: read(port.platform, made)["totalRuns"] == 1, SOON_S)
    assert read(port.platform, made)["lastStatus"] == "error"


def test_runs_wait_for_a_network_that_is_away(port: Port) -> None:
    name = port.platform.create(new_name("away"), "python", CODE["python"])
    made = schedule(port.platform, name, params=GREETING)
    port.relay.is_open = False
    port.relay.cut()
    try:
        answer = port.platform.send("POST", f"/v1/functions/{name}/invoke", "{}")
        assert answer.status == 500
        assert "was not called" in answer.error["message"]
        make_due(port, made)
        wait_until(lambda: open_runs(port, made) == 1, SOON_S)
    finally:
        port.relay.is_open = True
    wait_until(lambda: read(port.platform, made)["totalRuns"] == 1, SOON_S)
    assert read(port.platform, made)["lastStatus"] == "success"
    assert len(port.platform.invocations(name)) == 1


def test_a_slow_network_only_delays_calls(port: Port) -> None:
    name = port.platform.create(new_name("slow"), "python", PRINTS)
    port.relay.cut()
    port.relay.delay_s = 0.2
    try:
        with ThreadPoolExecutor(4) as threads:
            results = list(threads.map(lambda number: port.platform.invoke(name, {"number": number}), range(12)))
    finally:
        port.relay.delay_s = 0.0
    assert [result["result"] for result in results] == [{"number": number} for number in range(12)]
    check_records(port, name, [result["activationId"] for result in results])


def test_an_edge_with_another_master_key_is_not_called(port: Port, tmp_path: Path) -> None:
    name = port.platform.create(new_name("false"), "python", PRINTS)
    with started_fleet(tmp_path) as other:
        link = free_port()
        with started_edge(other, "false", link, master_key=secrets.token_hex(32)):
            before, port.relay.target = port.relay.target, link
            port.relay.cut()
            try:
                answer = port.platform.send("POST", f"/v1/functions/{name}/invoke", "{}")
            finally:
                port.relay.target = before
    assert answer.status == 500
    assert "was not called" in answer.error["message"]
    wait_until(lambda: port.platform.invoke(name, {"number": 1})["result"] == {"number": 1}, SOON_S)
    assert len(port.platform.invocations(name)) == 1


def under_calls(port: Port, name: str, fault: Callable[[], None]) -> list[str]:
    """Call a function again and again around a fault; return the ids of the calls that were answered."""
    answered: list[str] = []

    def call(number: int) -> None:
        try:
            answer = port.platform.send("POST", f"/v1/functions/{name}/invoke", f'{{"number": {number}}}')
        except OSError:
            return
        if answer.status == 200:
            answered.append(answer.json["data"]["activationId"])

    with ThreadPoolExecutor(2) as threads:
        first = [threads.submit(call, number) for number in range(40)]
        wait_until(lambda: len(answered) > 5, SOON_S)
        fault()
        for future in first:
            future.result()
        wait_until(lambda: port.platform.invoke(name, {"number": -1}), SOON_S)
    for number in range(15):
        call(number)
    return answered


def check_records(port: Port, name: str, answered: list[str]) -> None:
    """Each answered call has exactly one record."""

    def counts() -> Counter[str]:
        return Counter(item["activationId"] for item in port.platform.all_invocations(name))

    wait_until(lambda: set(answered) <= set(counts()), SOON_S)
    assert set(counts().values()) == {1}


def make_due(port: Port, made: dict[str, Any]) -> None:
    """Let the schedule tick in this minute, and then not for a year."""
    now = time.time()
    expression = time.strftime("%M %H %d %m *", time.gmtime(now))
    port.fleet.execute(
        f"UPDATE timetable SET expression = '{expression}', next_run_at = {int(now // 60) * 60_000} "
        f"WHERE kind = 'schedule' AND ref = '{int(made['id'])}'"
    )


def started(port: Port, made: dict[str, Any]) -> int:
    return count_runs(port, made, " AND started_at IS NOT NULL")


def open_runs(port: Port, made: dict[str, Any]) -> int:
    return count_runs(port, made, "")


def count_runs(port: Port, made: dict[str, Any], condition: str) -> int:
    rows = port.fleet.rows(f"SELECT count(*) FROM schedule_run WHERE schedule_id = {int(made['id'])}{condition}")
    return int(rows[0][0])
