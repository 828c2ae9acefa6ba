"""What a build is given, what its log shows of it, and following that log while it is written."""

from __future__ import annotations

import base64
import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.projects_support import Event, Sites, new_name
from tests.products.repositories.support import Checkout

pytest_plugins = ["tests.e2e.projects_fixtures"]
pytestmark = pytest.mark.group("projects")

SECRET = "hunter2-of-the-harbor"
# A build as careless as they come: it prints what it was given, also where nobody would look for it.
TALKS = """
echo "key: $API_KEY"
echo "key: $API_KEY" >&2
echo "https://x:$API_KEY@example.com/"
printf %s "$API_KEY" | base64
env | sort
mkdir dist
echo "<h1>$GREETING ${#API_KEY}</h1>" > dist/index.html
"""
PUBLISHES = "mkdir dist && echo published > dist/index.html\n"
# A build that is under way long enough to be followed.
COUNTS = """
for number in 1 2 3 4 5 6 7 8; do echo "line $number"; sleep 0.1; done
mkdir dist
echo counted > dist/index.html
"""


def built(sites: Sites, folder: Path, script: str, **fields: Any) -> tuple[str, str]:
    """Push a repository with a build script and make a project of it; return its name and its first deployment."""
    name = new_name("logs")
    work = Checkout.init(folder / name)
    work.commit("a script", build_sh=script)
    sites.push(work, f"acme/{name}")
    return name, sites.create_project(name, f"acme/{name}", buildCmd="sh build.sh", **fields)


def lines(events: list[Event]) -> list[str]:
    return [event.data["message"] for event in events if event.name == "log"]


def test_a_build_gets_variables_and_secrets_and_its_log_shows_no_secret(sites: Sites, tmp_path: Path) -> None:
    name, uuid = built(
        sites,
        tmp_path,
        TALKS,
        env=[{"name": "GREETING", "value": "ahoy"}],
        secrets=[{"name": "API_KEY", "value": SECRET}],
    )

    events = list(sites.follow(uuid))

    said = lines(events)
    assert sites.text(name) == f"<h1>ahoy {len(SECRET)}</h1>\n"
    assert said.count("key: ****") == 2
    assert {event.data["stream"] for event in events if event.name == "log"} == {"system", "stdout", "stderr"}
    assert {"GREETING=ahoy", "API_KEY=****", "https://x:****@example.com/"} <= set(said)
    everything = "\n".join((*said, sites.printed()))
    assert SECRET not in everything
    assert base64.b64encode(SECRET.encode()).decode().rstrip("=") not in everything


def test_what_a_push_shows_has_no_secret_in_it(sites: Sites, tmp_path: Path) -> None:
    name = new_name("quiet")
    work = Checkout.init(tmp_path / name)
    work.commit("a script", build_sh=TALKS)
    secrets = [{"name": "API_KEY", "value": SECRET}]
    sites.ended(sites.create_project(name, f"acme/{name}", buildCmd="sh build.sh", autoDeploy=True, secrets=secrets))

    said = sites.push(work, f"acme/{name}")

    assert "API_KEY=****" in said
    assert SECRET not in "\n".join(said)


def test_a_build_sees_nothing_of_the_platform(sites: Sites, tmp_path: Path) -> None:
    script = f"env | grep MOORAGE_ || echo none of it\nls {sites.running.data} || echo no such folder\n{PUBLISHES}"

    _, uuid = built(sites, tmp_path, script)
    said = sites.log(uuid)

    assert {"none of it", "no such folder"} <= set(said)


def test_a_follower_that_was_cut_off_goes_on_where_it_was(sites: Sites, tmp_path: Path) -> None:
    name, uuid = built(sites, tmp_path, COUNTS)
    stream = sites.follow(uuid)
    first = list(itertools.takewhile(lambda event: event.data.get("message") != "line 3", stream))
    stream.close()  # type: ignore[attr-defined]  # It is a generator, and closing it cuts the connection.
    seen = [event for event in first if event.name == "log"]

    rest = list(sites.follow(uuid, seen[-1].id))

    whole = [event for event in sites.follow(uuid) if event.name == "log"]
    assert [event.id for event in whole] == [str(number + 1) for number in range(len(whole))]
    assert seen + [event for event in rest if event.name == "log"] == whole
    assert [line for line in lines(rest) if line.startswith("line")] == [f"line {number}" for number in range(3, 9)]
    assert [event.data["status"] for event in rest if event.name == "status"] == ["running", "succeeded"]
    assert (rest[-1].name, rest[-1].data) == ("done", {"status": "succeeded"})
    assert sites.text(name) == "counted\n"


def test_lines_arrive_while_the_build_runs_with_the_time_at_which_they_were_printed(
    sites: Sites, tmp_path: Path
) -> None:
    _, uuid = built(sites, tmp_path, COUNTS)
    stream = sites.follow(uuid)

    seen = next(event for event in stream if event.data.get("message") == "line 2")
    status = sites.status(uuid)["status"]
    printed = [event.data["timestamp"] for event in stream if event.data.get("message", "").startswith("line")]

    assert status == "running"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", seen.data["timestamp"])
    assert sorted(set(printed)) == printed


def test_a_token_in_an_address_is_in_no_file_and_in_nothing_that_is_printed(sites: Sites) -> None:
    name = new_name("traced")
    uuid = sites.publish(name, {"index.html": "traced"})
    sites.call("PATCH", f"/v1/projects/{name}", {"enableAnalytics": True})
    token = sites.call("POST", "/v1/api-tokens", {"name": "for a browser"})["token"]

    follower = Sites(sites.running, token)
    events = list(follower.follow(uuid))
    sites.visit(name, f"/?access_token={token}")

    files = [path for path in sites.running.data.rglob("*") if path.is_file()]
    assert events[-1].name == "done"
    assert sites.running.data / "store" / "moorage.db" in files
    assert [str(path) for path in files if token.encode() in path.read_bytes()] == []
    assert token not in sites.printed()
