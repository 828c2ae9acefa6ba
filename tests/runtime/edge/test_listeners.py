"""The edge's listeners: malformed requests are refused, scheduled calls run once."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any

import pytest
from tests.runtime.workers.invoker_support import LAB, MODES, Host, lab_on, running, until

from moorage.runtime.edge import spool

pytestmark = pytest.mark.group("edge-doors")

ECHO = "def main(args):\n    return {'statusCode': 200, 'body': args}\n"


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with running(MODES[0]) as running_host:
        yield running_host


@pytest.fixture(scope="module")
def echo(host: Host) -> int:
    return host.put(ECHO)


def invoke(host: Host, **changed: Any) -> tuple[int, Any]:
    answer = host.door("POST", "/invoke", {"activation": os.urandom(16).hex(), **changed})
    return answer.status, answer.json


def public(host: Host, method: str, target: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
    client = HTTPConnection("127.0.0.1", host.port, timeout=60)
    client.request(method, target, body, headers)
    answer = client.getresponse()
    text = answer.read()
    client.close()
    return answer.status, json.loads(text) if text else None


def raw(host: Host, body: bytes) -> int:
    client = host.connection()
    client.request("POST", "/invoke", body)
    status = client.getresponse().status
    client.close()
    return status


# The platform's socket.


def test_the_door_is_open_to_the_platform_s_own_user_only(host: Host) -> None:
    mode = (host.data / "run" / "edge.sock").stat().st_mode

    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_health_counts_routes_instances_and_calls(host: Host, echo: int) -> None:
    before = host.health()

    host.result(echo)

    health = host.health()
    assert health["calls"] == before["calls"] + 1
    assert health["routes"] >= 1
    assert health["instances"] >= 1
    assert (health["inFlight"], health["sandbox"]) == (0, True)
    assert health["started"] == before["started"]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"a": 1}, {"a": 1, "__ow_method": "post"}),
        ({}, {"__ow_method": "post"}),
        ([1, 2], {"__ow_body": [1, 2], "__ow_method": "post"}),
        ("text", {"__ow_body": "text", "__ow_method": "post"}),
        (None, {"__ow_body": None, "__ow_method": "post"}),
        (False, {"__ow_body": False, "__ow_method": "post"}),
        ({"__ow_method": "forged"}, {"__ow_method": "post"}),
    ],
)
def test_params_of_any_kind_reach_the_function(host: Host, echo: int, params: Any, expected: Any) -> None:
    status, told = invoke(host, function=echo, params=params)

    body = {name: value for name, value in told["result"]["body"].items() if not name.startswith("__OW_")}
    assert (status, told["status"], body) == (200, "success", expected)


@pytest.mark.parametrize(
    "changed",
    [
        {"activation": "short"},
        {"activation": "x" * 33},
        {"activation": "é" * 16},
        {"activation": " " * 32},
        {"door": "web"},
        {"door": ""},
        {"function": "1"},
        {"function": None},
        {"schedule": "1"},
    ],
)
def test_a_malformed_call_is_refused(host: Host, echo: int, changed: dict[str, Any]) -> None:
    status, told = invoke(host, **{"function": echo, **changed})

    assert status == 400
    assert told["error"]["code"] == "bad_request"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"\xff", b'{"function": 1}', b'{"params": ' + b"[" * 200_000]
)
def test_a_body_that_is_no_call_is_refused(host: Host, body: bytes) -> None:
    assert raw(host, body) == 400


def test_params_nested_too_deep_are_refused_and_not_a_failure_of_ours(host: Host, echo: int) -> None:
    deep = b'{"function": %d, "activation": "%b", "params": %b}'

    status = raw(host, deep % (echo, b"a" * 32, b"[" * 100_000 + b"]" * 100_000))

    assert status == 400


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("PUT", "/routes", {}),
        ("PUT", "/routes", {"routes": {}}),
        ("PUT", "/routes", {"routes": [{"id": 1}]}),
        ("PATCH", "/routes", {"set": [{"id": "x"}]}),
        ("PATCH", "/routes", {"drop": ["x"]}),
        ("PATCH", "/routes", []),
    ],
)
def test_malformed_routes_are_refused_and_change_nothing(
    host: Host, echo: int, method: str, target: str, body: Any
) -> None:
    answer = host.door(method, target, body)

    assert answer.status == 400
    assert host.result(echo)["statusCode"] == 200


@pytest.mark.parametrize(("method", "target"), [("GET", "/"), ("DELETE", "/routes"), ("POST", "/invoke/x")])
def test_what_is_not_there_is_not_found(host: Host, method: str, target: str) -> None:
    assert host.door(method, target).status == 404


def test_an_unknown_function_is_not_found(host: Host) -> None:
    status, told = invoke(host, function=10**9)

    assert (status, told["error"]["code"]) == (404, "not_found")


def test_a_scheduled_call_that_comes_again_is_a_conflict_and_runs_once(host: Host) -> None:
    lab = lab_on(host)
    asked = {"function": lab.number, "activation": os.urandom(16).hex(), "door": "schedule", "schedule": 5}

    answers = [host.door("POST", "/invoke", {**asked, "params": lab.params("answer = 1")}) for _ in range(3)]

    assert [answer.status for answer in answers] == [200, 409, 409]
    records = [record for record in host.records() if record.activation == asked["activation"]]
    assert [record.kind for record in records] == [spool.START, spool.END]
    assert {(record.door, record.schedule_id) for record in records} == {(spool.SCHEDULE, 5)}


def test_a_scheduled_call_that_comes_again_while_the_first_runs_is_a_conflict(host: Host) -> None:
    lab = lab_on(host)
    asked = {"function": lab.number, "activation": os.urandom(16).hex(), "door": "schedule", "schedule": 5}
    body = {**asked, "params": lab.params("time.sleep(0.5); answer = 1")}

    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(host.door, "POST", "/invoke", body)
        until(lambda: host.health()["inFlight"] == 1, "the first call")
        again = host.door("POST", "/invoke", body)

    assert (first.result().status, again.status) == (200, 409)


def test_a_call_of_the_api_may_repeat_its_activation(host: Host, echo: int) -> None:
    activation = os.urandom(16).hex()

    statuses = [invoke(host, function=echo, activation=activation)[0] for _ in range(2)]

    assert statuses == [200, 200]


def test_routes_are_in_force_when_the_answer_comes(host: Host) -> None:
    number = host.put("def main(args): return 1")

    for version in range(2, 12):
        host.deploy(number, f"def main(args): return {version}", version=version)
        told = host.call(number)

        assert (told["result"], told["version"]) == (version, version)
    host.drop(number)
    assert invoke(host, function=number)[0] == 404


def test_replacing_all_routes_drops_the_others() -> None:
    with running(MODES[0]) as host:
        kept, gone = host.put(LAB), host.put(LAB)
        route = json.loads(json.dumps(host.routes[kept]))

        assert host.door("PUT", "/routes", {"routes": [route]}).status == 200

        assert invoke(host, function=kept, params={"code": ""})[0] == 200
        assert invoke(host, function=gone)[0] == 404
        assert host.health()["routes"] == 1


# The public listener.


def test_a_public_call_reaches_the_function(host: Host, echo: int) -> None:
    status, body = public(
        host, "POST", f"/api/v1/web/org_1/default/f-{echo}/x?q=1", b'{"a": 2}', **{"Content-Type": "application/json"}
    )

    assert status == 200
    assert (body["q"], body["a"], body["__ow_path"], body["__ow_method"]) == ("1", 2, "/x", "post")


def test_the_platform_s_own_door_cannot_be_reached_from_outside(host: Host, echo: int) -> None:
    answers = [
        public(host, "GET", "/health"),
        public(host, "PUT", "/routes", b'{"routes": []}'),
        public(host, "POST", "/invoke", json.dumps({"function": echo, "activation": "a" * 32}).encode()),
    ]

    assert [status for status, _ in answers] == [404] * 3
    assert host.result(echo)["statusCode"] == 200


def test_another_organization_s_address_is_not_found(host: Host, echo: int) -> None:
    status, body = public(host, "GET", f"/api/v1/web/org_2/default/f-{echo}")

    assert (status, body["error"]["code"]) == (404, "not_found")


def test_a_body_that_is_not_the_json_it_says_is_refused_before_the_function(host: Host, echo: int) -> None:
    calls = host.health()["calls"]

    status, body = public(
        host, "POST", f"/api/v1/web/org_1/default/f-{echo}", b"{no", **{"Content-Type": "application/json"}
    )

    assert (status, body["error"]["code"]) == (400, "bad_request")
    assert host.health()["calls"] == calls


def test_a_failing_function_is_a_bad_gateway_that_names_its_activation(host: Host) -> None:
    number = host.put("def main(args): raise ValueError('no')")

    status, body = host.web(number)

    error = json.loads(body)["error"]
    assert status == 502
    assert error["message"] == "ValueError: no"
    assert [record.error for record in host.records() if record.function_id == number] == ["ValueError: no"]


@pytest.mark.parametrize("is_own", [False, True])
def test_preflights_are_answered_by_the_edge_unless_the_function_wants_them(host: Host, is_own: bool) -> None:
    number = host.put("def main(args): return {'statusCode': 418}", own_options=is_own)

    status, _ = public(host, "OPTIONS", f"/api/v1/web/org_1/default/f-{number}")

    assert status == (418 if is_own else 200)
