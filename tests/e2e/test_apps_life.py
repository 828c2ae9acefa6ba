"""The life of container apps, from the first push to the trash, as their owners and their visitors see it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.e2e.apps_life_support import GONE_S, SERVER, Apps, checkout, end_shims, processes_of, started_apps
from tests.e2e.functions_support import wait_until
from tests.e2e.projects_support import GITHUB_SECRET, Codehost, Event, is_alive, read_events
from tests.products.repositories.support import Checkout

pytest_plugins = ["tests.e2e.projects_fixtures"]
pytestmark = pytest.mark.group("apps-life")

SECRET = "open-sesame-47"
SCALED = {"enabled": True, "minReplicas": 2, "maxReplicas": 3}
BUILDING = ("Fetching", "Checked out", "detected", "collected")


@dataclass(frozen=True)
class Shop:
    """An app that is pushed to, and what there is of it at the begin."""

    apps: Apps
    work: Checkout
    first: str
    name: str = "shop"
    repository: str = "acme/shop"

    def push(self, release: str, mode: str = "well") -> list[str]:
        self.work.commit(release, release_txt=release, mode_txt=mode)
        return self.apps.push(self.work, self.repository)


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory, codehost: Codehost) -> Iterator[Apps]:
    """A running platform; when it ends, so does everything that it ran."""
    data = tmp_path_factory.mktemp("apps-life") / "data"
    try:
        with started_apps(
            data, codehost_url=codehost.url, github_webhook_secret=GITHUB_SECRET, app_start_s="8"
        ) as platform:
            yield platform
    finally:
        end_shims(data)


@pytest.fixture(scope="module", autouse=True)
def failing(apps: Apps, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Future[dict[str, list[str]]]]:
    """What is said of releases that do not become healthy. To find that out takes its time, so others go on with it."""
    work = checkout(tmp_path_factory.mktemp("steady") / "work", "good")

    def push_all() -> dict[str, list[str]]:
        apps.push(work, "acme/steady")
        fields = {"autoDeploy": True, "healthCheckPath": "/health"}
        apps.go_live(apps.create_app("steady", "acme/steady", **fields))
        said = {}
        for mode in ("unwell", "silent", "crashes", "fleeting"):
            work.commit(mode, release_txt=mode, mode_txt=mode)
            said[mode] = apps.push(work, "acme/steady")
        return said

    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(push_all)


@pytest.fixture(scope="module")
def shop(apps: Apps, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    work = checkout(tmp_path_factory.mktemp("shop") / "work", "one")
    apps.push(work, "acme/shop")
    fields: dict[str, Any] = {
        "autoDeploy": True,
        "healthCheckPath": "/health",
        "disk": 1,
        "env": [{"name": "GREETING", "value": "ahoy"}],
        "secrets": [{"name": "API_KEY", "value": SECRET}],
    }
    first = apps.create_app("shop", "acme/shop", **fields)
    apps.go_live(first)
    return Shop(apps, work, first)


@pytest.fixture(scope="module")
def pair(apps: Apps, shop: Shop) -> str:
    """The name of an app that has two replicas."""
    apps.go_live(apps.create_app("pair", shop.repository, autoScaling={**SCALED}))
    return "pair"


def boots(apps: Apps, name: str) -> set[str]:
    """Return the processes that answer for an app."""
    return {apps.boot(name) for _ in range(24)}


def was_built(said: list[str]) -> bool:
    return any(line.startswith(BUILDING) for line in said)


def follow_logs(apps: Apps, name: str, **query: str) -> Iterator[Event]:
    """Yield what an app prints from now on."""
    words = urlencode({"access_token": apps.token, **query})
    connection = HTTPConnection("127.0.0.1", apps.running.ports["api"], timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", f"/v1/projects/{name}/logs/stream?{words}")
        yield from read_events(connection.getresponse())


def test_a_push_says_how_the_app_comes_up_and_ends_with_the_address_at_which_it_is_live(shop: Shop) -> None:
    said = shop.push("two")

    assert "start:    node server.js" in said
    assert "Starting the app, waiting until /health answers" in said
    assert said[-1] == f"http://shop.localhost:{shop.apps.running.ports['gateway']}"
    assert shop.apps.text("shop") == "two"
    newest = shop.apps.deployments("shop")[0]
    assert (newest["status"], newest["enable"], newest["swap"]["failed"]) == ("succeeded", True, 0)
    assert newest["swap"]["requests"] > 0


def test_an_app_gets_variables_secrets_and_where_to_listen_and_its_log_has_no_secret(shop: Shop) -> None:
    env = shop.apps.env("shop")

    assert (env["GREETING"], env["API_KEY"], env["HOST"]) == ("ahoy", SECRET, "0.0.0.0")
    assert int(env["PORT"]) > 1024
    assert "release one comes up with ****" in shop.apps.messages("shop")
    assert not any(SECRET in message for message in shop.apps.messages("shop", limit="1000"))


def test_a_rollback_brings_the_earlier_release_back_without_a_build(shop: Shop) -> None:
    uuid = shop.apps.rollback("shop", shop.first)
    made = shop.apps.go_live(uuid)

    assert shop.apps.text("shop") == "one"
    assert (made["kind"], made["enable"], made["swap"]["failed"]) == ("rollback", True, 0)
    assert made["swap"]["requests"] > 0
    assert not was_built(shop.apps.log(uuid))


def test_a_restart_is_another_process_of_the_same_release_with_the_same_disk(shop: Shop) -> None:
    before, count = shop.apps.who("shop"), int(shop.apps.text("shop", "/count"))

    uuid = shop.apps.deploy("shop", operation="restart")
    shop.apps.go_live(uuid)
    after = shop.apps.who("shop")

    assert (after["release"], after["boot"] != before["boot"]) == (before["release"], True)
    assert int(shop.apps.text("shop", "/count")) == count + 1
    assert not was_built(shop.apps.log(uuid))


def test_new_variables_are_live_after_a_deployment_without_a_build(shop: Shop) -> None:
    changed = {"env": [{"name": "GREETING", "value": "farewell"}]}

    uuid = shop.apps.call("PATCH", "/v1/projects/shop", changed)["triggeredDeploymentUuid"]
    made = shop.apps.go_live(uuid)

    env = shop.apps.env("shop")
    assert (env["GREETING"], env["API_KEY"]) == ("farewell", SECRET)
    assert made["kind"] == "restart"
    assert not was_built(shop.apps.log(uuid))


def test_what_is_under_way_is_finished_by_the_old_process_which_then_goes(shop: Shop) -> None:
    wait_until(lambda: len(shop.apps.shims("shop")) == 1, GONE_S)
    before, old = shop.apps.boot("shop"), shop.apps.serving("shop")

    with shop.apps.opened("shop", "/events") as events, ThreadPoolExecutor(1) as visitor:
        events.readline()
        slow = visitor.submit(shop.apps.text, "shop", "/slow")
        shop.apps.go_live(shop.apps.deploy("shop", operation="restart"))
        after = shop.apps.boot("shop")
        finished = json.loads(slow.result())["boot"]
        events.readline()
        streamed = json.loads(events.readline().removeprefix(b"data: "))["boot"]
        was_there = old.is_alive
    wait_until(lambda: not old.is_alive, GONE_S)

    assert (finished, streamed, was_there) == (before, before, True)
    assert after != before


def test_an_app_that_crashes_is_started_again_and_who_asks_meanwhile_is_answered(shop: Shop) -> None:
    before = shop.apps.boot("shop")

    broken = shop.apps.crash("shop")
    after = shop.apps.boot("shop")

    assert (broken, after != before) == (502, True)
    assert any("ended with exit code 3" in message for message in shop.apps.messages("shop", search="ended"))


def test_what_an_app_prints_can_be_searched_cut_and_limited(shop: Shop) -> None:
    for text in ("first-gull", "second-gull", "third-gull"):
        shop.apps.text("shop", f"/say?text={text}")
        # Lines that the platform reads at once have the same time.
        wait_until(partial(shop.apps.messages, "shop", search=text.upper()))
    lines = shop.apps.printed_by("shop", search="gull")

    assert shop.apps.messages("shop", search="gull", limit="2") == ["second-gull", "third-gull"]
    assert shop.apps.messages("shop", search="gull", since=lines[1]["timestamp"])[-1] == "third-gull"
    assert "third-gull" not in shop.apps.messages("shop", search="gull", until=lines[0]["timestamp"])
    assert shop.apps.messages("shop", since=lines[0]["timestamp"], search="comes") == []
    assert "third-gull" in shop.apps.messages("shop", since="5m")
    assert {line["stream"] for line in shop.apps.printed_by("shop", search="started")} == {"system"}


def test_who_follows_the_log_of_an_app_goes_on_with_its_next_release(shop: Shop) -> None:
    with contextlib.closing(follow_logs(shop.apps, "shop", tail="1")) as events:  # type: ignore[type-var]
        said = (event.data for event in events)
        next(said)
        shop.apps.text("shop", "/say?text=tern")
        before = next(line for line in said if line["message"] == "tern")
        uuid = shop.apps.deploy("shop", operation="restart")
        after = next(line for line in said if line["message"].endswith("listens"))
    shop.apps.go_live(uuid)

    assert before["stream"] == after["stream"] == "stdout"
    assert before["replica"] != after["replica"]


def test_a_command_runs_in_the_live_release_with_its_variables_and_its_disk(shop: Shop) -> None:
    command = {"command": "cat release.txt; echo; echo $GREETING $API_KEY; test -s /data/count; exit 7"}

    result = shop.apps.call("POST", "/v1/projects/shop/exec", command)

    release, *rest = result["stdout"].split("\n")
    assert (release, rest[-2], result["exitCode"]) == (shop.apps.text("shop"), "farewell ****", 7)


def test_a_command_can_be_followed_while_it_runs(shop: Shop) -> None:
    headers = {
        "Authorization": f"Bearer {shop.apps.token}",
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
    }
    connection = HTTPConnection("127.0.0.1", shop.apps.running.ports["api"], timeout=30)
    with contextlib.closing(connection):
        body = json.dumps({"command": "echo begun; read word < /data/fifo; echo $word"})
        shop.apps.call("POST", "/v1/projects/shop/exec", {"command": "rm -f /data/fifo; mkfifo /data/fifo"})
        connection.request("POST", "/v1/projects/shop/exec", body, headers)
        events = read_events(connection.getresponse())
        begun = next(events)
        shop.apps.call("POST", "/v1/projects/shop/exec", {"command": "echo ended > /data/fifo"})
        rest = list(events)

    assert (begun.name, begun.data) == ("output", {"stream": "stdout", "text": "begun\n"})
    assert [event.data.get("text") for event in rest if event.name == "output"] == ["ended\n"]
    assert (rest[-1].name, rest[-1].data) == ("exit", {"exitCode": 0, "reason": None})


def test_replicas_share_the_requests_and_new_bounds_change_how_many_there_are(apps: Apps, pair: str) -> None:
    two = boots(apps, pair)

    changed = {"autoScaling": {**SCALED, "minReplicas": 1}}
    apps.go_live(apps.call("PATCH", f"/v1/projects/{pair}", changed)["triggeredDeploymentUuid"])
    wait_until(lambda: len(apps.shims(pair)) == 1, GONE_S)

    assert len(two) == 2
    assert len(boots(apps, pair)) == 1


def test_a_preview_is_an_app_of_its_own_that_goes_with_its_pull_request(apps: Apps, codehost: Codehost) -> None:
    work = codehost.repository("octo/deck", server_js=SERVER, release_txt="main")
    main = apps.create_app("deck", "octo/deck", prPreview=True)
    work.git("checkout", "--quiet", "-b", "change")
    sha = work.commit("proposed", release_txt="proposed")
    codehost.receive(work, "octo/deck", "change")

    pull = {"number": 7, "title": "A change", "head": {"sha": sha, "ref": "change", "repo": {"full_name": "octo/deck"}}}
    event = {
        "action": "opened",
        "pull_request": pull,
        "repository": {"full_name": "octo/deck", "id": 1, "private": False},
    }
    apps.deliver("pull_request", event, "deck-opened")
    wait_until(lambda: apps.text("deck-pr-7") == "proposed")
    apps.go_live(main)
    both = (apps.boot("deck"), apps.boot("deck-pr-7"))
    there = apps.shims("deck")
    apps.deliver("pull_request", {**event, "action": "closed"}, "deck-closed")
    wait_until(lambda: apps.visit("deck-pr-7").status == 404)
    wait_until(lambda: len(apps.shims("deck")) == 1, GONE_S)

    assert (len(set(both)), len(there)) == (2, 2)
    assert apps.text("deck") == "main"


def test_an_app_that_is_switched_off_uses_nothing_and_comes_back_without_a_deployment(apps: Apps, pair: str) -> None:
    before, count = apps.boot(pair), len(apps.deployments(pair))
    processes = processes_of(apps.shims(pair))

    apps.call("POST", f"/v1/projects/{pair}/toggle", {"enable": False})
    off = apps.visit(pair)
    wait_until(lambda: not any(map(is_alive, processes)), GONE_S)
    apps.call("POST", f"/v1/projects/{pair}/toggle", {"enable": True})
    after = apps.boot(pair)

    assert off.status == 503
    assert (after != before, len(apps.deployments(pair))) == (True, count)


def test_a_renamed_app_runs_on_and_its_old_address_leads_to_the_new_one(apps: Apps, pair: str) -> None:
    before = apps.boot(pair)

    apps.call("PATCH", f"/v1/projects/{pair}/name", {"name": "couple"})
    old, after = apps.visit(pair, "/who?from=old"), apps.boot("couple")
    apps.call("PATCH", "/v1/projects/couple/name", {"name": pair})

    port = apps.running.ports["gateway"]
    assert (old.status, old.header("location")) == (308, f"http://couple.localhost:{port}/who?from=old")
    assert after == before
    assert apps.boot(pair) == before


@pytest.mark.parametrize(
    ("mode", "why", "shown"),
    [
        ("unwell", "GET /health answered 500", "release unwell listens"),
        ("silent", "nothing listens on", "release silent comes up"),
        ("crashes", "it ended with exit code 3", "the mast is missing"),
        ("fleeting", "it answered, and then it ended: it ended with exit code 4", "release fleeting listens"),
    ],
)
def test_a_release_that_does_not_become_healthy_fails_with_what_it_said_and_the_old_one_serves_on(
    apps: Apps, failing: Future[dict[str, list[str]]], mode: str, why: str, shown: str
) -> None:
    said = failing.result()[mode]

    found = next(each for each in apps.deployments("steady") if each["commitSha"] and each["kind"] == "deploy")
    assert said[-1].startswith(f"Deployment failed: The app did not become healthy: {why}")
    assert any(line.startswith(shown) for line in said)
    assert (found["status"], found["enable"]) == ("failed", False)
    assert apps.text("steady") == "good"


def test_what_an_app_was_asked_for_and_what_it_used_is_measured(shop: Shop) -> None:
    def totals() -> tuple[int, bool]:
        found = shop.apps.call("GET", "/v1/projects/shop/metrics")
        return found["totals"]["requests"], any(item["cpuPercent"] is not None for item in found["items"])

    for _ in range(5):
        shop.apps.text("shop")
    wait_until(lambda: totals() >= (5, True))

    items = shop.apps.call("GET", "/v1/projects/shop/metrics")["items"]
    measured = [item for item in items if item["cpuPercent"] is not None]
    assert all(item["replicas"] >= 1 and item["memoryMiB"] > 1 for item in measured)
    assert sum(item["statuses"]["2xx"] for item in items) >= 5
    assert any(item["p95Ms"] is not None for item in items)


def test_a_deleted_app_ends_its_logs_go_and_its_disk_waits_in_the_trash(shop: Shop) -> None:
    apps, data = shop.apps, shop.apps.running.data
    number = str(apps.call("GET", "/v1/projects/shop")["id"])
    processes = processes_of(apps.shims("shop"))

    deleted = apps.call("DELETE", "/v1/projects/shop")
    answer = apps.visit("shop")
    wait_until(lambda: not any(map(is_alive, processes)), GONE_S)
    wait_until(lambda: not (data / "logs" / "apps" / number).exists())

    assert (deleted["async"], answer.status) == (True, 404)
    assert int((data / "trash" / f"volume-{number}" / "count").read_text()) >= 1
    assert not (data / "volumes" / number).exists()
