"""Several machines on one PostgreSQL: each runs what it owns, and nothing of the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.apps_life_support import checkout
from tests.e2e.functions_support import wait_until
from tests.e2e.machines.fleet import Fleet, make_cronjob, runs, started_fleet
from tests.products.repositories.support import Checkout

pytestmark = [pytest.mark.deep, pytest.mark.xdist_group("machines")]

MOVED_S = 60.0


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with started_fleet(tmp_path_factory.mktemp("fleet")) as started:
        yield started


def test_a_second_machine_leaves_apps_and_runs_of_the_first_alone(fleet: Fleet) -> None:
    with fleet.machine("one") as one:
        one.push(checkout(fleet.folder / "work", "first"), "acme/shop")
        one.go_live(one.create_app("shop", "acme/shop"))
        nightly = Checkout.init(fleet.folder / "nightly")
        nightly.commit("first", run_py="")
        one.push(nightly, "acme/nightly")
        make_cronjob(one, "nightly", "acme/nightly", 20)
        one.call("POST", "/v1/cronjobs/nightly/trigger")
        wait_until(lambda: runs(one, "nightly")[0]["status"] == "running", MOVED_S)
        boot, (shim,) = one.boot("shop"), one.shims()

        with fleet.machine("two") as two:
            wait_until(lambda: two.boot("shop") == boot, MOVED_S)
            wait_until(lambda: runs(two, "nightly")[0]["status"] != "running", MOVED_S)

            assert fleet.shims("two") == []
            assert one.shims() == [shim]
            assert one.boot("shop") == boot
            assert [run["status"] for run in runs(two, "nightly")] == ["succeeded"]
