"""An app and a site that the tests of resources share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.live import Shell
from tests.e2e.projects_support import Sites, page
from tests.products.repositories.support import Checkout
from tests.shared import SharedServers

APP = """
import http.server, os

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print("visited", self.path, flush=True)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ.get("GREETING", "hello").encode())

    def log_message(self, *arguments):
        pass

print("listening", flush=True)
http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Handler).serve_forever()
"""


@contextlib.contextmanager
def _published_app(sites: Sites, folder: Path) -> Iterator[str]:
    work = Checkout.init(folder / "cli-app")
    work.commit("the first", **{"app.py": APP})
    sites.call("PATCH", f"/v1/orgs/{sites.org}", {"createOnPush": False})
    sites.push(work, "acme/cli-app")
    uuid = sites.create_project("cli-app", "acme/cli-app", "container", language="python", startCmd="python app.py")
    assert sites.ended(uuid)["status"] == "succeeded", sites.log(uuid)
    yield "cli-app"


@contextlib.contextmanager
def _published_site(sites: Sites) -> Iterator[str]:
    sites.publish("cli-site", {"index.html": page("first")})
    sites.publish("cli-site", {"index.html": page("second")})
    yield "cli-site"


@pytest.fixture(scope="module")
def app(sites: Sites, shared: SharedServers, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Name of a live container app."""
    return shared.get("cli-app", lambda: _published_app(sites, tmp_path_factory.mktemp("app")))


@pytest.fixture(scope="module")
def site(sites: Sites, shared: SharedServers) -> str:
    """Name of a live static site with two deployments."""
    return shared.get("cli-site", lambda: _published_site(sites))


@pytest.fixture
def viewer(shell: Shell) -> str:
    """A token whose role is too low for any change."""
    return shell.client.identity.create_token(name="viewer", role="viewer").token
