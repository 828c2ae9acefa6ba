"""`moorage up`: starts everything, keeps it running, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.platform.running import Running, clean_environment, command, free_ports, running

from moorage.platform.terminal import USUAL_METRICS_PORT

# A start costs more than most of the tests, so those that need the same one share it, in one process.
pytestmark = pytest.mark.group("up")


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A running platform, whose port for metrics nobody chose."""
    ports = free_ports()
    del ports["metrics"]
    with running(tmp_path_factory.mktemp("up") / "data", ports=ports) as started:
        started.ports["metrics"] = watched(started)
        yield started


def watched(platform: Running) -> int:
    """Return the port of a platform's metrics: it says which, unless it is the usual one."""
    said = [line for line in platform.said if line.startswith("watch:")]
    return int(said[0].rpartition(":")[2].partition("/")[0]) if said else USUAL_METRICS_PORT


@dataclass(frozen=True)
class Crashed:
    """A platform whose supervisor was killed, and the id of an organization that had just been made."""

    platform: Running
    pids: list[int]
    org_id: int


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Crashed:
    data = tmp_path_factory.mktemp("crashed") / "data"
    with running(data) as platform:
        pids = list(platform.children().values())
        headers = {"Authorization": f"Bearer {platform.token()}"}
        made = platform.call("POST", "/v1/orgs", headers=headers, json_body={"name": "Harbor"})[1]["data"]
        os.kill(platform.process.pid, signal.SIGKILL)
        platform.process.wait()
    return Crashed(platform, pids, made["organizationId"])


@dataclass(frozen=True)
class Stopped:
    """A platform that was started after a crash, and told to stop while a request was on its way."""

    data: Path
    org_ids: set[int]
    pids: list[int]
    code: int
    took_s: float
    answer: bytes
    alive: list[int]


@pytest.fixture(scope="module")
def stopped(crashed: Crashed) -> Stopped:
    data = crashed.platform.data
    with running(data) as platform:
        session = platform.call("POST", "/v1/auth/demo")[1]["data"]["token"]
        listed = platform.get("/v1/orgs", token=session)[1]["data"]
        pids = [platform.process.pid, *platform.children().values()]
        with socket.create_connection(("127.0.0.1", platform.ports["api"])) as sock:
            sock.sendall(b"POST /v1/auth/demo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n")
            time.sleep(0.2)
            started = time.monotonic()
            platform.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            sock.sendall(b"{}")
            answer = sock.recv(65536)
        code = platform.process.wait(15)
        took_s = time.monotonic() - started
        alive = [pid for pid in pids if is_alive(pid)]
    return Stopped(data, {org["organizationId"] for org in listed}, pids, code, took_s, answer, alive)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_it_prints_where_to_look_a_curl_that_works_and_ready(platform: Running) -> None:
    status, answer = platform.get("/v1/me", token=platform.token())

    port = platform.ports["api"]
    assert platform.said[0] == f"open:  http://localhost:{port}/"
    assert platform.said[1] == f"docs:  http://localhost:{port}/docs"
    assert platform.said[-1] == f"ready: http://localhost:{port}"
    assert status == 200
    assert answer["data"]["organizations"][0]["role"] == "owner"


def test_the_printed_token_is_kept_in_a_private_file_and_names_the_organization(platform: Running) -> None:
    file = platform.data / "demo-token"
    headers = {"Authorization": f"Bearer {platform.token()}"}
    platform.call("POST", "/v1/orgs", headers=headers, json_body={"name": "Second"})

    status, _ = platform.get("/v1/projects", token=platform.token())

    assert status == 200
    assert (file.read_text().strip(), file.stat().st_mode & 0o777) == (platform.token(), 0o600)


def test_every_port_answers(platform: Running) -> None:
    assert platform.get("/health")[1]["status"] == "ok"
    assert platform.get("/docs")[0] == 200
    assert platform.get("/", port="gateway")[0] == 404
    assert platform.get("/api/v1/web/org_1/default/hello", port="edge")[1]["error"]["code"] == "not_found"
    assert platform.get("/api/v1/web/org_1/default/hello", port="gateway")[1]["error"]["code"] == "not_found"
    assert platform.get("/ready", port="metrics") == (200, "ready\n")
    assert "moorage_http_request_seconds" in platform.get("/metrics", port="metrics")[1]


def test_the_data_folder_is_closed_to_others(platform: Running) -> None:
    modes = {path.name: path.stat().st_mode & 0o777 for path in platform.data.iterdir() if path.is_dir()}

    assert platform.data.stat().st_mode & 0o777 == 0o700
    routing_table = {"sites", "disabled", "building", "unpublished", "releases", "apps"}  # The gateway reads it.
    assert {name for name, mode in modes.items() if mode & 0o077} <= routing_table
    assert (platform.data / "run" / "admin.sock").stat().st_mode & 0o777 == 0o600
    assert {path.stat().st_mode & 0o777 for path in (platform.data / "keys").iterdir() if path.is_file()} == {0o600}


@pytest.mark.parametrize("kind", ["control", "invoker", "edge", "gateway"])
def test_a_child_that_is_killed_is_started_again(platform: Running, kind: str) -> None:
    before = platform.children()[kind]

    os.kill(before, signal.SIGKILL)
    platform.wait_until(lambda: platform.children().get(kind, before) != before)

    places = {"control": ("api", "/health"), "gateway": ("gateway", "/")}
    port, path = places.get(kind, ("edge", "/x"))
    platform.wait_until(lambda: platform.get(path, port=port)[0] in (200, 404))
    platform.wait_until(lambda: platform.get("/health")[0] == 200)
    session = platform.call("POST", "/v1/auth/demo")[1]["data"]["token"]
    _, listed = platform.get("/v1/operator/processes", token=session)
    processes = {each["name"]: each for each in listed["data"]}
    assert (processes[kind]["pid"], processes[kind]["running"]) == (platform.children()[kind], True)
    assert processes[kind]["restarts"] >= 1
    assert processes["supervisor"]["pid"] == platform.process.pid


def test_the_processes_of_the_platform_share_its_control_group(platform: Running) -> None:
    def groups() -> list[str]:
        return [Path(f"/proc/{pid}/cgroup").read_text() for pid in platform.children().values()]

    platform.wait_until(lambda: len(groups()) == 4 and len(set(groups())) == 1)


def test_when_the_supervisor_is_killed_its_children_go_with_it(crashed: Crashed) -> None:
    crashed.platform.wait_until(lambda: not any(is_alive(pid) for pid in crashed.pids))

    assert len(crashed.pids) == 4


def test_a_restart_keeps_what_was_there_and_is_not_confused_by_a_crash(crashed: Crashed, stopped: Stopped) -> None:
    assert crashed.org_id in stopped.org_ids


def test_it_stops_on_a_signal_with_everything_it_started(stopped: Stopped) -> None:
    assert len(stopped.pids) == 5
    assert stopped.code == 0
    assert stopped.took_s < 10
    assert stopped.alive == []


def test_a_request_in_flight_finishes_when_the_platform_stops(stopped: Stopped) -> None:
    assert stopped.answer.startswith(b"HTTP/1.1 200")
    assert stopped.code == 0


def start(
    data: Path, *extra: str, ports: dict[str, int] | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(data, ports or free_ports(), *extra),
        env={**clean_environment(), **(env or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_taken_port_is_named_with_the_flag_that_moves_it(tmp_path: Path) -> None:
    ports = free_ports()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", ports["edge"]))
        taken.listen()

        ended = start(tmp_path / "data", ports=ports)

    assert ended.returncode == 2
    assert f"{ports['edge']} is in use" in ended.stderr
    assert "--edge-port" in ended.stderr


@pytest.mark.deep
def test_two_platforms_run_side_by_side_although_neither_chose_a_metrics_port(
    platform: Running, tmp_path: Path
) -> None:
    ports = free_ports()
    del ports["metrics"]

    with running(tmp_path / "two", ports=ports) as two:
        healthy = [each.get("/health")[0] for each in (platform, two)]
        two.ports["metrics"] = watched(two)
        ready = [each.get("/ready", port="metrics")[0] for each in (platform, two)]

    assert (healthy, ready) == ([200, 200], [200, 200])
    assert two.ports["metrics"] != platform.ports["metrics"]


def test_a_second_platform_on_the_same_folder_is_refused_and_touches_nothing(platform: Running) -> None:
    before = (platform.data / "run" / "caddy.json").read_bytes()

    ended = start(platform.data)

    assert ended.returncode == 2
    assert "in use by another Moorage" in ended.stderr
    assert (platform.data / "run" / "caddy.json").read_bytes() == before


@pytest.fixture
def data(stopped: Stopped, tmp_path: Path) -> Path:
    """What a platform left behind that had run."""
    shutil.copytree(stopped.data, tmp_path / "data", ignore=shutil.ignore_patterns("*.sock"))
    return tmp_path / "data"


@pytest.mark.deep
def test_a_key_that_does_not_fit_the_store_is_named(data: Path) -> None:
    ended = start(data, env={"MOORAGE_MASTER_KEY": os.urandom(32).hex()})

    assert ended.returncode == 2
    assert "MOORAGE_MASTER_KEY: does not fit this store" in ended.stderr


def test_an_empty_store_where_data_exists_is_refused(data: Path) -> None:
    for path in (data / "store").glob("moorage.db*"):
        path.unlink()

    ended = start(data)

    assert ended.returncode != 0
    assert "its store is missing" in ended.stderr


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({}, "MOORAGE_MASTER_KEY"),
        ({"MOORAGE_MASTER_KEY": "ab" * 32}, "MOORAGE_MASTER_KEY"),
        ({"MOORAGE_MASTER_KEY": os.urandom(32).hex()}, "MOORAGE_SESSION_SECRET"),
        ({"MOORAGE_MASTER_KEY": os.urandom(32).hex(), "MOORAGE_SESSION_SECRET": "short"}, "MOORAGE_SESSION_SECRET"),
    ],
)
def test_production_refuses_to_start_without_strong_keys(tmp_path: Path, env: dict[str, str], named: str) -> None:
    ended = start(tmp_path / "data", env={"MOORAGE_MODE": "production", **env})

    assert ended.returncode == 2
    assert named in ended.stderr
    assert "moorage keys generate" in ended.stderr


@pytest.mark.deep
def test_the_first_start_in_production_prints_a_link_that_makes_one_owner_once(tmp_path: Path) -> None:
    env = {"MOORAGE_MODE": "production"}
    env |= {name: os.urandom(32).hex() for name in ("MOORAGE_MASTER_KEY", "MOORAGE_SESSION_SECRET")}
    with running(tmp_path / "data", env=env) as platform:
        link = next(line for line in platform.said if line.startswith("owner:"))
        before = platform.children()["control"]
        os.kill(before, signal.SIGKILL)  # A restart must not replace the link that was printed.
        platform.wait_until(lambda: platform.children().get("control", before) != before)
        platform.wait_until(lambda: platform.get("/health")[0] == 200)
        token = link.partition("#")[2].split()[0]
        body = {"setup_token": token, "email": "ada@example.com", "name": "Ada Moor"}
        first, answer = platform.call("POST", "/v1/auth/setup", json_body=body)
        again, _ = platform.call("POST", "/v1/auth/setup", json_body=body)
        who = platform.get("/v1/whoami", token=answer["data"]["access_token"])[1]["data"]
        demo, _ = platform.call("POST", "/v1/auth/demo")
        page, _ = platform.get("/setup")

    assert (first, again, demo, page) == (200, 403, 404, 200)
    assert who["role"] == "owner"
    assert not any(line.startswith("try:") for line in platform.said)
    with running(tmp_path / "data", env=env) as second:
        assert not any(line.startswith("owner:") for line in second.said)


def test_a_bad_setting_names_itself(tmp_path: Path) -> None:
    ended = start(tmp_path / "data", env={"MOORAGE_WORKERS": "many"})

    assert ended.returncode == 2
    assert ended.stderr.strip() == "moorage: MOORAGE_WORKERS: should be a whole number"
