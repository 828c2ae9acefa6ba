"""The envelope of every answer."""

from __future__ import annotations

import re
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.builders import make_org, make_token, make_user
from tests.client import Client, Reply
from tests.core.http.lab import lab, one_store

import moorage
from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.answer import STATUS
from moorage.core.http.models import Output
from moorage.core.http.route import Router, Scope, Uuid
from moorage.core.kit.clock import ManualClock
from moorage.core.net import error_pages
from moorage.errors import Conflict

pytestmark = pytest.mark.anyio

PRODUCTION = {
    "mode": "production",
    "master_key": bytes(range(32)).hex(),
    "session_secret": bytes(range(32, 64)).hex(),
}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")


class Ship(Output, frozen=True):
    name: str
    cargo_tons: float | None


def small_routes() -> Router:
    router = Router("Lab")

    @router.get("/ship")
    def read_ship(tx: Tx) -> Ship:
        return Ship("Ada", None)

    @router.post("/ship/launch", status=202)
    def launch(tx: Tx) -> Ship:
        return Ship("Ada", 1.5)

    @router.post("/ship/sail", status=202)
    async def sail() -> Ship:
        return Ship("Ada", 1.5)

    @router.delete("/ship")
    def sink(tx: Tx) -> None:
        return None

    @router.get("/ship/crash")
    def crash(tx: Tx) -> Ship:
        raise RuntimeError("the password is hunter2")

    @router.post("/ship/crash")
    async def crash_later() -> Ship:
        raise RuntimeError("the password is hunter2")

    @router.get("/ships/{ship_id}")
    def read_by_id(tx: Tx, ship_id: int) -> Ship:
        return Ship(str(ship_id), None)

    @router.get("/voyages/{voyage}")
    def read_by_uuid(tx: Tx, voyage: Uuid) -> Ship:
        return Ship(voyage, None)

    @router.get("/ports/{name}")
    def read_by_name(tx: Tx, name: str) -> Ship:
        return Ship(name, None)

    @router.get("/storm")
    def refuse(tx: Tx) -> Ship:
        raise Conflict("There is a storm")

    return router


@pytest.fixture
def ships(db: Database) -> Client:
    return lab(db, small_routes())


def check_failure(reply: Reply, code: str) -> None:
    """A failure has exactly this form, with its trace id in body and header."""
    assert reply.status == STATUS[code]
    assert reply.headers["content-type"] == "application/json"
    assert set(reply.json) == {"success", "error"}
    assert reply.json["success"] is False
    assert set(reply.error) - {"fields"} == {"code", "message", "traceId"}
    assert reply.error["code"] == code
    assert reply.error["message"]
    assert reply.error["traceId"] == reply.headers["x-request-id"]


async def test_a_success_is_its_data_in_the_envelope(ships: Client) -> None:
    reply = await ships.get("/v1/ship")

    assert reply.status == 200
    assert reply.body == b'{"success":true,"data":{"name":"Ada","cargoTons":null}}'
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["content-length"] == str(len(reply.body))


@pytest.mark.parametrize("path", ["/v1/ship/launch", "/v1/ship/sail"])
async def test_work_that_goes_on_is_202_in_the_same_envelope(ships: Client, path: str) -> None:
    reply = await ships.post(path)

    assert reply.status == 202
    assert reply.json == {"success": True, "data": {"name": "Ada", "cargoTons": 1.5}}


async def test_a_write_without_a_result_has_no_data_at_all(ships: Client) -> None:
    reply = await ships.delete("/v1/ship")

    assert (reply.status, reply.body) == (200, b'{"success":true}')


async def test_a_failure_has_a_code_a_message_and_a_trace_id(ships: Client) -> None:
    reply = await ships.get("/v1/storm")

    check_failure(reply, "conflict")
    assert reply.error["message"] == "There is a storm"


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/ship/crash"), ("POST", "/v1/ship/crash")])
async def test_a_crash_is_a_500_that_tells_nothing_and_is_logged_under_its_trace_id(
    ships: Client, method: str, path: str
) -> None:
    with capture_logs() as logged:
        reply = await ships.request(method, path)

    check_failure(reply, "internal")
    assert b"hunter2" not in reply.body
    assert b"Traceback" not in reply.body
    assert b"RuntimeError" not in reply.body
    crashes = [line for line in logged if line.get("exc_info") is not None]
    assert [line["trace"] for line in crashes] == [reply.headers["x-request-id"]]


@one_store
@pytest.mark.parametrize("given", ["a", "build-7.retry:2_x", "0" * 64])
async def test_a_safe_request_id_is_kept(ships: Client, given: str) -> None:
    reply = await ships.get("/v1/storm", headers={"X-Request-Id": given})

    assert reply.headers["x-request-id"] == given
    assert reply.error["traceId"] == given


@one_store
@pytest.mark.parametrize("given", ["", "0" * 65, "a b", 'a"b', "a\tb", "a\r\nSet-Cookie: x=1", "ü", "a;b", "{}", "a/b"])
async def test_any_other_request_id_is_replaced(ships: Client, given: str) -> None:
    reply = await ships.get("/v1/storm", headers={"X-Request-Id": given})

    assert re.fullmatch("[0-9a-f]{32}", reply.headers["x-request-id"])
    assert reply.error["traceId"] == reply.headers["x-request-id"]


@one_store
async def test_two_requests_never_share_an_id(ships: Client) -> None:
    ids = {(await ships.get("/v1/ship")).headers["x-request-id"] for _ in range(50)}

    assert len(ids) == 50


@one_store
@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/", "/v1/nothing", "/v1/ship/", "//v1/ship", "/v1//ship", "/V1/ship", "/v1/ship/../ship"]
)
async def test_an_unknown_path_is_404_before_any_credential_is_asked_for(ships: Client, path: str) -> None:
    ships.token = None

    replies = {method: await ships.request(method, path) for method in METHODS}

    assert replies.pop("HEAD").status == 404
    for reply in replies.values():
        check_failure(reply, "not_found")


@one_store
async def test_a_browser_gets_a_page_outside_of_the_api_and_the_envelope_below_it(api: Client) -> None:
    browser = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}

    page = await api.get("/api/nothing/<script>", headers=browser)  # Other addresses are pages of the console.
    below = await api.get("/v1/nothing", headers=browser)
    program = await api.get("/nothing")

    assert (page.status, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert page.headers["content-security-policy"] == error_pages.POLICY
    assert b"<p>There is nothing at this address.</p>" in page.body
    assert b"script" not in page.body
    assert [below.error["code"], program.error["code"]] == ["not_found", "not_found"]


@one_store
async def test_a_method_that_a_path_does_not_have_is_404_before_any_credential(app: App, api: Client) -> None:
    paths = {route.path for route in app.routes if route.hides_names}
    has = {(route.method, route.path) for route in app.routes}

    replies = {
        (method, path): await api.request(method, re.sub("{[^}]*}", "1", path))
        for path in paths
        for method in METHODS
        if (method, path) not in has
    }

    assert {reply.status for reply in replies.values()} == {404}
    for (method, _), reply in replies.items():
        if method != "HEAD":
            check_failure(reply, "not_found")


@one_store
async def test_every_guarded_route_asks_for_a_credential(app: App, api: Client) -> None:
    guarded = [route for route in app.routes if route.scope is not Scope.PUBLIC]

    replies = [await api.request(route.method, re.sub("{[^}]*}", "1", route.path)) for route in guarded]

    for reply in replies:
        check_failure(reply, "unauthorized")


@one_store
@pytest.mark.parametrize(
    "given",
    [
        "0",
        "-1",
        "+1",
        "01",
        "1.0",
        "1e3",
        "0x1",
        "abc",
        " 1",
        "1 ",
        "%31%00",
        "9223372036854775808",
        "9" * 40,
        "١",
        "²",
    ],
)
async def test_an_id_that_cannot_be_one_names_nothing(ships: Client, given: str) -> None:
    check_failure(await ships.get(f"/v1/ships/{given}"), "not_found")


async def test_the_largest_id_is_one(ships: Client) -> None:
    assert (await ships.get("/v1/ships/9223372036854775807")).data["name"] == "9223372036854775807"


@one_store
@pytest.mark.parametrize(
    "given",
    ["x", "1", "6f1f3c1e8c0a4c539a570d5a3a1c2b4d", "g" * 36, "-" * 36],
)
async def test_a_uuid_that_is_none_names_nothing(ships: Client, given: str) -> None:
    check_failure(await ships.get(f"/v1/voyages/{given}"), "not_found")


async def test_a_uuid_is_read_in_either_case(ships: Client) -> None:
    reply = await ships.get("/v1/voyages/6F1F3C1E-8C0A-4C53-9A57-0D5A3A1C2B4D")

    assert reply.data["name"] == "6f1f3c1e-8c0a-4c53-9a57-0d5a3a1c2b4d"


@one_store
@pytest.mark.parametrize("path", ["/v1/ports/a%00b", "/v1/ports/%00", "/v1/ports/", "/v1/ports/a%2Fb", "/%00"])
async def test_a_name_that_cannot_be_stored_names_nothing(ships: Client, path: str) -> None:
    check_failure(await ships.get(path), "not_found")


async def test_times_are_utc_with_milliseconds_and_a_z(api: Client, db: Database, clock: ManualClock) -> None:
    user = await make_user(db)
    org = await make_org(db, user)
    clock.advance(7)

    token = await make_token(db, user, org.id)
    listed = (await api.get("/v1/api-tokens", token=token)).data

    assert [item["createdAt"] for item in listed] == ["2026-01-01T00:00:00.007Z"]


@one_store
async def test_every_answer_keeps_caches_frames_and_sniffers_away(ships: Client) -> None:
    replies = [await ships.get("/v1/ship"), await ships.get("/v1/storm"), await ships.get("/nowhere")]

    for reply in replies:
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["x-frame-options"] == "DENY"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert reply.headers["content-security-policy"].startswith("default-src 'none'")
        assert "strict-transport-security" not in reply.headers
        assert "server" not in reply.headers


@one_store
@pytest.mark.settings(**PRODUCTION)
async def test_in_production_browsers_are_told_to_come_back_by_tls_only(api: Client) -> None:
    reply = await api.get("/v1/me")

    assert "max-age=31536000" in reply.headers["strict-transport-security"]


@one_store
async def test_head_answers_with_the_headers_of_get_and_no_body(api: Client) -> None:
    page, head = await api.get("/docs"), await api.request("HEAD", "/docs")

    assert head.status == 200
    assert head.body == b""
    assert head.headers["content-length"] == page.headers["content-length"] == str(len(page.body))


@one_store
async def test_health_answers_bare_and_without_a_credential(api: Client) -> None:
    reply = await api.get("/health")

    assert (reply.status, reply.json) == (200, {"status": "ok", "version": moorage.__version__})


async def test_health_answers_while_the_store_does_not(api: Client, db: Database) -> None:
    db.close()

    reply = await api.get("/health")

    assert reply.json["status"] == "ok"


@one_store
async def test_what_is_not_http_is_turned_away(app: App) -> None:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app.asgi({"type": "websocket", "path": "/v1/me"}, receive, send)

    assert sent == [{"type": "websocket.close", "code": 1008}]
