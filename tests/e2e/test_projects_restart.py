"""What a platform serves is back the moment it says that it is ready: restored from a backup, or started again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.command import moorage
from tests.e2e.projects_support import Sites, page, started_sites
from tests.products.repositories.support import Checkout

pytest_plugins = ["tests.e2e.projects_fixtures"]
pytestmark = pytest.mark.group("projects")

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
def restored(sites: Sites, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder that a backup of a running platform was restored into."""
    folder = tmp_path_factory.mktemp("restored")
    work = Checkout.init(folder / "work")
    work.commit("the first", index_html=page("one"))
    fill(sites, work)
    check_served(sites)
    made = moorage("backup", folder / "backup.tar.gz", "--data", sites.running.data)
    unpacked = moorage("restore", folder / "backup.tar.gz", "--data", folder / "data")
    assert (made.returncode, unpacked.returncode) == (0, 0), made.stderr + unpacked.stderr
    return folder / "data"


@pytest.mark.deep
def test_a_backup_brings_sites_rules_and_repositories_back(restored: Path, tmp_path: Path) -> None:
    with started_sites(restored) as sites:
        check_served(sites)
        clone = Checkout(restored.parent / "work").clone(sites.git_url("acme/pushed"), tmp_path / "clone")
        clone.commit("after the restore", again_html=page("again"))
        sites.push(clone, "acme/pushed")
        ended = sites.ended(sites.deploy("pushed"))
        served = sites.text("pushed", "/again")

    assert (ended["status"], ended["reason"]) == ("succeeded", None)
    assert served == page("again")


@pytest.mark.deep
def test_every_route_is_back_when_a_platform_that_was_started_again_is_ready(restored: Path) -> None:
    with started_sites(restored) as sites:
        check_served(sites)
