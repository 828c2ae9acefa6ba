"""The document of all routes: valid, whole, and true. Generated requests meet only answers that it tells of."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field
from schemathesis import GenerationMode, checks
from tests.builders import make_member, make_org, make_token, make_user
from tests.client import Client
from tests.functions.edge_stand_in import EdgeStandIn
from tests.functions.support import PYTHON, zip_of
from tests.http.lab import one_store
from tests.http.live_server import Platform, live_platform

from moorage.app import App
from moorage.db.tx import Tx
from moorage.docs.reference import openapi_document
from moorage.http import openapi
from moorage.http.answer import STATUS
from moorage.http.forms import Form
from moorage.http.models import Input, Output, optional
from moorage.http.paging import CursorPage, CursorQuery, Page, PageQuery
from moorage.http.route import MB, Router, Scope, Upload, Uuid
from moorage.kit.spool import SpoolWriter

DOCUMENT = openapi_document()
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
FOUND: list[Any] = list(SCHEMA.get_all_operations())
OPERATIONS = {found.ok().label: found.ok() for found in FOUND}
# A stream does not end by itself; tests/http/test_sse.py follows it.
CALLED = [label for label in OPERATIONS if not label.endswith("/stream")]
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
]
EXAMPLES = 3


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Platform]:
    with live_platform(tmp_path_factory.mktemp("openapi"), sqlite_template) as platform:
        folder, loop = platform.db.env.settings.folder, platform.server.loop
        gateway = EdgeStandIn(folder("run") / "edge.sock", SpoolWriter(folder("spool"), capacity=2**20))
        asyncio.run_coroutine_threadsafe(gateway.start(), loop).result(20)
        yield platform
        asyncio.run_coroutine_threadsafe(platform.app.functions.edge.close(), loop).result(20)
        asyncio.run_coroutine_threadsafe(gateway.stop(), loop).result(20)


async def newcomer(platform: Platform) -> tuple[str, dict[str, int | str]]:
    """Return the token of somebody new, and ids that really name something of theirs.

    Every operation gets its own, because some of them delete the account that calls them.
    """
    db = platform.db
    user = await make_user(db)
    org = await make_org(db, user)
    member = await make_member(db, org)
    token = await make_token(db, user, org.id)
    api = Client(platform.app.asgi, token=token)
    invitation = (await api.post(f"/v1/orgs/{org.id}/invitations", json={"email": f"x{org.id}@example.com"})).data
    listed = (await api.get("/v1/api-tokens")).data
    return token, {
        "org_id": org.id,
        "user_id": member.id,
        "invitation_id": invitation["id"],
        "token_id": listed[0]["id"],
        "notification_id": 1,
        **await asyncio.to_thread(functions_of, platform, token),
    }


def functions_of(platform: Platform, token: str) -> dict[str, int | str]:
    """Make a function and a schedule of it; over the socket, because a client of the gateway belongs to one loop."""
    headers = {"Authorization": f"Bearer {token}"}
    fields, files = {"name": "anchor", "runtime": "python"}, {"code": ("code.zip", zip_of(PYTHON))}
    requests.post(f"{platform.server.url}/v1/functions", data=fields, files=files, headers=headers, timeout=20)
    body = {"name": "yearly", "function": "anchor", "cronSchedule": "0 0 1 1 *"}
    made = requests.post(f"{platform.server.url}/v1/scheduled-functions", json=body, headers=headers, timeout=20)
    return {"name": "anchor", "schedule_id": made.json()["data"]["id"]}


@pytest.mark.xdist_group("openapi")
@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: mode.name.lower())
@pytest.mark.parametrize("label", CALLED)
def test_an_operation_answers_as_the_document_says(platform: Platform, label: str, mode: GenerationMode) -> None:
    token, ids = asyncio.run(newcomer(platform))
    operation = OPERATIONS[label]
    is_empty = mode is GenerationMode.NEGATIVE and not operation.body and not list(operation.iter_parameters())
    statuses: set[int] = set()

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), is_known=st.booleans())
    def call_and_validate(case: Any, is_known: bool) -> None:
        if is_known:
            case.path_parameters = {name: ids.get(name, value) for name, value in (case.path_parameters or {}).items()}
        headers = {"Authorization": f"Bearer {token}"}
        reply = case.call_and_validate(platform.server.url, session=session, headers=headers, checks=CHECKS, timeout=20)
        statuses.add(reply.status_code)

    with requests.Session() as session:
        if not is_empty:
            call_and_validate()

    assert statuses or is_empty
    assert platform.server.crashes == []


class EnvVar(Input):
    name: Annotated[str, Field(min_length=1, max_length=63, pattern="^[A-Z_]+$")]
    value: str


class ShipInput(Input):
    ship_name: Annotated[str, Field(min_length=1, max_length=20)]
    kind: Literal["static", "container"] = "static"
    min_replicas: Annotated[int, Field(ge=1, le=50)] = optional()
    note: str | None = None
    env: list[EnvVar] = optional()


class Ship(Output, frozen=True):
    ship_name: str
    tons: float | None


@pytest.fixture(scope="module")
def drawn() -> dict[str, Any]:
    """The document of routes that show everything a declaration can say."""
    router = Router("Ships")

    @router.get("/ships")
    def list_ships(tx: Tx, query: PageQuery) -> Page[Ship]:
        return Page([], 0)

    @router.get("/ships/log")
    def read_log(tx: Tx, query: CursorQuery) -> CursorPage[Ship]:
        return CursorPage([], None)

    @router.post("/ships", status=202)
    def build(tx: Tx, body: ShipInput) -> Ship:
        """Build a ship.

        It takes a while, and
        the client asks for it again.
        """
        return Ship("", None)

    @router.post("/ships/{name}/upgrade", deprecated=True, body_optional=True)
    def upgrade(tx: Tx, name: str, body: ShipInput) -> None:
        return None

    @router.post("/ships/{voyage}/cargo", upload=Upload(("cargo",), MB, ShipInput))
    async def load(voyage: Uuid, form: Form) -> Ship:
        return Ship("", None)

    @router.delete("/ships/{ship_id}")
    def sink(tx: Tx, ship_id: int) -> None:
        return None

    return openapi.document(router.routes, version="1.2.3", server="http://localhost:1")


def operation_of(document: dict[str, Any], method: str, path: str) -> dict[str, Any]:
    found: dict[str, Any] = document["paths"][path][method]
    return found


def check_valid(document: dict[str, Any]) -> None:
    """Raise where a document is not OpenAPI 3.1, or names something that is not in it."""
    assert document["openapi"] == "3.1.0"
    schemathesis.openapi.from_dict(document).validate()
    for name in re.findall(r"'\$ref': '#/([^']+)'", str(document)):
        place: Any = document
        for part in name.split("/"):
            place = place[part]


def test_the_document_is_openapi_and_every_reference_in_it_leads_somewhere(drawn: dict[str, Any]) -> None:
    check_valid(DOCUMENT)
    check_valid(drawn)


def test_a_document_that_is_wrong_would_be_noticed() -> None:
    wrong = {**DOCUMENT, "paths": {"/v1/me": {"get": {"responses": {"200": {}}}}}}
    dangling = {**DOCUMENT, "components": {}}

    with pytest.raises(Exception, match="description"):
        check_valid(wrong)
    with pytest.raises(KeyError):
        check_valid(dangling)


@one_store
@pytest.mark.anyio
async def test_every_route_is_in_the_document_and_nothing_else(app: App) -> None:
    routes = {(route.method.lower(), route.path) for route in app.routes}
    told = {(method, path) for path, item in app.document["paths"].items() for method in item}

    names = [operation["operationId"] for item in app.document["paths"].values() for operation in item.values()]
    assert told == routes
    assert len(set(names)) == len(names)


@one_store
@pytest.mark.anyio
async def test_the_document_is_served_to_anybody_as_it_is(app: App, api: Client) -> None:
    reply = await api.get("/v1/openapi.json")

    assert reply.status == 200
    assert reply.json == app.document
    assert reply.headers["content-type"] == "application/json"


@one_store
@pytest.mark.anyio
async def test_every_route_tells_who_may_call_it(app: App) -> None:
    for route in app.routes:
        operation = operation_of(app.document, route.method.lower(), route.path)
        assert operation["security"] == ([] if route.scope is Scope.PUBLIC else [{"bearer": []}])
        assert operation.get("x-scope") == (None if route.scope is Scope.PUBLIC else route.scope)
        assert operation["summary"]


def test_a_guarded_route_tells_of_every_failure_and_its_headers(drawn: dict[str, Any]) -> None:
    responses = operation_of(drawn, "get", "/v1/ships")["responses"]

    assert set(responses) == {"200", *(str(status) for status in STATUS.values())}
    limited = drawn["components"]["responses"]["429"]
    assert set(limited["headers"]) == {
        "X-Request-Id",
        "RateLimit-Limit",
        "RateLimit-Remaining",
        "RateLimit-Reset",
        "Retry-After",
    }


def test_a_receiver_tells_of_its_bare_refusals() -> None:
    responses = operation_of(DOCUMENT, "post", "/webhook")["responses"]

    assert responses["401"] == {"$ref": "#/components/responses/Refused"}
    assert set(responses) == {"200", "400", "401", "500"}


def test_pages_and_cursors_show_their_bounds(drawn: dict[str, Any]) -> None:
    page = {each["name"]: each["schema"] for each in operation_of(drawn, "get", "/v1/ships")["parameters"]}
    log = {each["name"]: each["schema"] for each in operation_of(drawn, "get", "/v1/ships/log")["parameters"]}

    assert (page["pageSize"]["minimum"], page["pageSize"]["maximum"], page["pageSize"]["default"]) == (1, 100, 20)
    assert page["page"]["minimum"] == 1
    assert log["cursor"]["type"] == "string"
    assert log["limit"]["maximum"] == 100


def test_a_body_shows_its_fields_by_their_names_on_the_wire(drawn: dict[str, Any]) -> None:
    schema = drawn["components"]["schemas"]["ShipInput"]

    assert schema["required"] == ["shipName"]
    assert schema["properties"]["kind"]["enum"] == ["static", "container"]
    assert schema["properties"]["minReplicas"] == {"type": "integer", "minimum": 1, "maximum": 50}
    assert schema["properties"]["env"]["items"] == {"$ref": "#/components/schemas/EnvVar"}
    assert {"type": "null"} in schema["properties"]["note"]["anyOf"]


def test_what_a_declaration_says_stands_in_the_document(drawn: dict[str, Any]) -> None:
    build = operation_of(drawn, "post", "/v1/ships")
    upgrade = operation_of(drawn, "post", "/v1/ships/{name}/upgrade")
    load = operation_of(drawn, "post", "/v1/ships/{voyage}/cargo")
    sink = operation_of(drawn, "delete", "/v1/ships/{ship_id}")

    assert (build["summary"], build["description"]) == (
        "Build a ship",
        "It takes a while, and the client asks for it again.",
    )
    assert "202" in build["responses"]
    assert "200" not in build["responses"]
    assert build["requestBody"]["required"] is True
    assert upgrade["deprecated"] is True
    assert upgrade["requestBody"]["required"] is False
    assert set(load["requestBody"]["content"]) == {"multipart/form-data"}
    assert load["parameters"][0]["schema"]["format"] == "uuid"
    assert sink["parameters"][0]["schema"]["type"] == "integer"
    assert "data" not in sink["responses"]["200"]["content"]["application/json"]["schema"]["properties"]
    assert "Idempotency-Key" in [each["name"] for each in sink["parameters"]]
