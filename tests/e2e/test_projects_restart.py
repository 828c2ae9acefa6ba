"""What a platform serves is back the moment it says that it is ready: started again, or restored from a backup."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.command import moorage
from tests.e2e.projects_support import Sites, page, started_sites
from tests.repositories.support import Checkout

pytest_plugins = ["tests.e2e.projects_fixtures"]
pytestmark = pytest.mark.xdist_group("projects")

HEADERS = {"headers": [{"source": "/*", "name": "X-Harbor", "value": "ruled"}]}
REDIRECTS = {"redirects": [{"source": "/old/:page", "destination": "/:page", "status": 301}]}


def fill(sites: Sites, work: Checkout) -> None:
    """Let a platform have something of everything that its gateway tells apart."""
    sites.push(work, "acme/pushed")
    sites.ended(sites.create_project("pushed", "acme/pushed"))
    for name in ("ruled", "off", "before"):
        sites.publish(name, {"index.html": page(name), "page.html": page("page")})
    sites.call("PUT", "/v1/projects/ruled/headers", HEADERS)
    sites.call("PUT", "/v1/projects/ruled/redirects", REDIRECTS)
    sites.call("POST", "/v1/projects/off/toggle", {"enable": False})
    sites.call("PATCH", "/v1/projects/before/name", {"name": "after"})


def check_served(sites: Sites) -> None:
    """Ask for everything once: the first answer counts."""
    ruled, redirected, moved = sites.visit("ruled"), sites.visit("ruled", "/old/page"), sites.visit("before", "/page")
    assert (sites.text("pushed"), sites.text("after")) == (page("one"), page("before"))
    assert (ruled.status, ruled.header("x-harbor")) == (200, "ruled")
    assert (redirected.status, redirected.header("location")) == (301, "/page")
    assert sites.visit("off").status == 503
    assert (moved.status, moved.header("location")) == (308, f"http://after.localhost:{gateway_of(sites)}/page")
    assert sites.visit("never-made").status == 404


def gateway_of(sites: Sites) -> int:
    return sites.running.ports["gateway"]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a platform that has run, with a backup beside it that was made while it did."""
    folder = tmp_path_factory.mktemp("restart")
    work = Checkout.init(folder / "work")
    work.commit("the first", index_html=page("one"))
    with started_sites(folder / "data") as sites:
        fill(sites, work)
        check_served(sites)
        made = moorage("backup", folder / "backup.tar.gz", "--data", folder / "data")
    assert made.returncode == 0, made.stderr
    return folder


def test_every_route_is_back_when_a_platform_that_was_started_again_is_ready(filled: Path) -> None:
    with started_sites(filled / "data") as sites:
        check_served(sites)


def test_a_backup_brings_sites_rules_and_repositories_back(filled: Path, tmp_path: Path) -> None:
    restored = moorage("restore", filled / "backup.tar.gz", "--data", tmp_path / "data")
    assert restored.returncode == 0, restored.stderr

    with started_sites(tmp_path / "data") as sites:
        check_served(sites)
        clone = Checkout(filled / "work").clone(sites.git_url("acme/pushed"), tmp_path / "clone")
        clone.commit("after the restore", index_html=page("restored"))
        sites.push(clone, "acme/pushed")
        again = sites.ended(sites.deploy("pushed"))

        assert again["status"] == "succeeded", again["reason"]
        assert sites.text("pushed") == page("restored")
