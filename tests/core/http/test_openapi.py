"""The OpenAPI document: valid, complete and linked. tests/openapi calls every operation of it."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, create_model
from tests.client import Client
from tests.core.http.lab import one_store
from tests.e2e.openapi.calls import library

from moorage.app import App
from moorage.core.db.tx import Tx
from moorage.core.http.answer import STATUS
from moorage.core.http.forms import Form
from moorage.core.http.models import Input, Output, optional
from moorage.core.http.openapi import document as openapi
from moorage.core.http.paging import CursorPage, CursorQuery, Page, PageQuery
from moorage.core.http.route import MB, Router, Scope, Upload, Uuid
from moorage.docs.reference import openapi_document

whole_document = functools.cache(openapi_document)  # not made by each process that collects tests


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
    """The document of routes that use every option of a declaration."""
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
    """Raise if a document is not valid OpenAPI 3.1, or contains a dangling reference."""
    assert document["openapi"] == "3.1.0"
    library().openapi.from_dict(document).validate()
    for name in re.findall(r"'\$ref': '#/([^']+)'", str(document)):
        place: Any = document
        for part in name.split("/"):
            place = place[part]


def test_the_document_is_openapi_and_every_reference_in_it_leads_somewhere(drawn: dict[str, Any]) -> None:
    check_valid(whole_document())
    check_valid(drawn)


def test_a_document_that_is_wrong_would_be_noticed() -> None:
    wrong = {**whole_document(), "paths": {"/v1/me": {"get": {"responses": {"200": {}}}}}}
    dangling = {**whole_document(), "components": {}}

    with pytest.raises(Exception, match="description"):
        check_valid(wrong)
    with pytest.raises(KeyError):
        check_valid(dangling)


def links_in(document: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Yield each link with its operation and response."""
    for item in document["paths"].values():
        for operation in item.values():
            for response in operation["responses"].values():
                for link in response.get("links", {}).values():
                    yield operation, response, link


def path_parameters(operation: dict[str, Any]) -> set[str]:
    return {each["name"] for each in operation["parameters"] if each["in"] == "path"}


def pointed_at(document: dict[str, Any], response: dict[str, Any], pointer: str) -> dict[str, Any]:
    """Return the schema at a pointer into an answer; raises KeyError if the field does not exist."""
    schema: dict[str, Any] = response["content"]["application/json"]["schema"]
    for part in pointer.split("/")[1:]:
        schema = schema["items"] if part == "0" else schema["properties"][part]
        while "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def test_an_operation_on_a_resource_is_led_to_by_a_link() -> None:
    targets = {link["operationId"] for _, _, link in links_in(whole_document())}

    operations = [operation for item in whole_document()["paths"].values() for operation in item.values()]
    assert {each["operationId"] for each in operations if path_parameters(each)} == targets


def test_a_link_fills_every_path_parameter_from_a_field_that_the_answer_has() -> None:
    named = {each["operationId"]: each for item in whole_document()["paths"].values() for each in item.values()}

    for operation, response, link in links_in(whole_document()):
        assert set(link["parameters"]) == path_parameters(named[link["operationId"]])
        for expression in link["parameters"].values():
            if expression.startswith("$request.path."):
                assert expression.removeprefix("$request.path.") in path_parameters(operation)
            else:
                assert pointed_at(whole_document(), response, expression.removeprefix("$response.body#"))


def test_a_link_is_made_from_a_collection_and_from_what_a_route_says_that_it_identifies() -> None:
    links = {(operation["operationId"], link["operationId"]): link for operation, _, link in links_in(whole_document())}

    first_member = {"org_id": "$request.path.org_id", "user_id": "$response.body#/data/0/userId"}
    built = {"name": "$response.body#/data/name", "uuid": "$response.body#/data/deploymentUuid"}
    assert links["list_members", "change_member"]["parameters"] == first_member
    assert links["create_cronjob", "read_build_logs"]["parameters"] == built
    assert links["add_domain", "verify_domain"]["parameters"] == {"domain_id": "$response.body#/data/id"}
    assert ("create_cronjob", "read_deployment_status") not in links


def test_two_schemas_with_one_name_are_refused() -> None:
    router = Router("Ships")

    def lower(tx: Tx, body: ShipInput) -> None:
        return None

    def raise_again(tx: Tx, body: ShipInput) -> None:
        return None

    router.post("/ships/lower")(lower)
    raise_again.__annotations__["body"] = create_model("ShipInput", __base__=Input, depth=(int, ...))
    router.post("/ships/raise")(raise_again)

    with pytest.raises(ValueError, match="another schema is named 'ShipInput'"):
        openapi.document(router.routes, version="1.2.3", server="http://localhost:1")


@one_store
@pytest.mark.anyio
async def test_every_route_is_in_the_document_and_nothing_else(app: App) -> None:
    routes = {(route.method.lower(), route.path) for route in app.routes}
    documented = {(method, path) for path, item in app.describe()["paths"].items() for method in item}

    names = [operation["operationId"] for item in app.describe()["paths"].values() for operation in item.values()]
    assert documented == routes
    assert len(set(names)) == len(names)


@one_store
@pytest.mark.anyio
async def test_the_document_is_served_to_anybody_as_it_is(app: App, api: Client) -> None:
    reply = await api.get("/v1/openapi.json")

    assert reply.status == 200
    assert reply.json == app.describe()
    assert reply.headers["content-type"] == "application/json"


@one_store
@pytest.mark.anyio
async def test_every_route_tells_who_may_call_it(app: App) -> None:
    for route in app.routes:
        operation = operation_of(app.describe(), route.method.lower(), route.path)
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
    responses = operation_of(whole_document(), "post", "/webhook")["responses"]

    assert responses["401"] == {"$ref": "#/components/responses/Refused"}
    assert set(responses) == {"200", "400", "401", "429", "500"}


def test_a_receiver_shows_its_body_and_the_headers_of_its_sender() -> None:
    headers = {
        "/webhook": ["Stripe-Signature"],
        "/api/v1/webhook/github-events": ["X-Hub-Signature-256", "X-GitHub-Delivery", "X-GitHub-Event"],
    }
    for path, names in headers.items():
        operation = operation_of(whole_document(), "post", path)

        assert [(each["name"], each["in"], each["required"]) for each in operation["parameters"]] == [
            (name, "header", True) for name in names
        ]
        assert operation["requestBody"] == {
            "required": True,
            "content": {"application/json": {"schema": {"type": "object"}}},
        }


def test_the_file_of_an_upload_is_required() -> None:
    schemas = {
        operation["operationId"]: operation["requestBody"]["content"]["multipart/form-data"]["schema"]["allOf"][1]
        for item in whole_document()["paths"].values()
        for operation in item.values()
        if "multipart/form-data" in operation.get("requestBody", {}).get("content", {})
    }

    assert set(schemas) == {"upload_site", "create_function", "deploy_function"}
    assert schemas["upload_site"]["required"] == ["staticFiles"]
    for name in ("create_function", "deploy_function"):
        assert schemas[name]["anyOf"] == [{"required": ["code"]}, {"required": ["file"]}]


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
