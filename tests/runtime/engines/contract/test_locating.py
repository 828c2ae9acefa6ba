"""Contract of the addresses that a gateway reads from a cluster: the same on each cluster."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.runtime.engines.contract.conftest import KubernetesSite, Lab, RealClusterSite

from moorage.runtime.engines.kubernetes.client import Cluster
from moorage.runtime.engines.kubernetes.pods.locating import PodLocator

pytestmark = pytest.mark.anyio

OTHER_SITES = ("memory", "local")
SOON_S = 5.0
STORED = "192.0.2.7"  # address of no pod


def site_of(lab: Lab) -> KubernetesSite | RealClusterSite:
    assert isinstance(lab.site, KubernetesSite | RealClusterSite)
    return lab.site


@asynccontextmanager
async def located(lab: Lab) -> AsyncIterator[PodLocator]:
    """Watch the pods of a cluster as a gateway does."""
    locator = PodLocator(Cluster.connect(str(site_of(lab).cluster.kubeconfig), patience_s=1.0))
    await locator.load(SOON_S)
    watching = asyncio.create_task(locator.run())
    try:
        yield locator
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        await locator.close()


def delete_pod(lab: Lab, key: str = "r1") -> None:
    (pod,) = site_of(lab).cluster.objects("Pod", f"moorage.dev/key={key}")
    meta = pod["metadata"]
    site_of(lab).cluster.delete("Pod", meta["namespace"], meta["name"], gracePeriodSeconds=1)


async def test_a_moved_pod_is_found_while_no_engine_runs(lab: Lab) -> None:
    state = await lab.start(lab.app())
    await lab.engine.workloads.close()
    async with located(lab) as locator:
        await lab.wait_for(lambda: locator.host_of("r1", STORED) == state.host)
        delete_pod(lab)
        await lab.wait_for(lambda: locator.host_of("r1", STORED) not in (state.host, STORED, ""))
        found = locator.host_of("r1", STORED)
    await lab.restart()

    assert (await lab.until("r1", lambda now: now.is_listening)).host == found
    assert await lab.get("r1", "hello") == "hello"


async def test_the_last_addresses_stay_while_the_api_is_away(lab: Lab) -> None:
    state = await lab.start(lab.app())
    async with located(lab) as locator:
        await lab.wait_for(lambda: locator.host_of("r1", STORED) == state.host)
        site_of(lab).cluster.pause(is_paused=True)
        try:
            await asyncio.sleep(2.0)
            kept = locator.host_of("r1", STORED)
            reason = await locator.load(SOON_S)
        finally:
            site_of(lab).cluster.pause(is_paused=False)
        delete_pod(lab)
        await lab.wait_for(lambda: locator.host_of("r1", STORED) not in (state.host, STORED, ""))

    assert kept == state.host
    assert reason is not None


async def test_a_pod_is_used_once_it_listens(lab: Lab) -> None:
    await lab.start(lab.app("r1", "sleep"))
    async with located(lab) as locator:
        await asyncio.sleep(1.0)
        found = locator.host_of("r1", STORED)

    assert found == STORED


async def test_a_program_that_is_restarted_keeps_its_address(lab: Lab) -> None:
    state = await lab.start(lab.app())
    hosts = set()
    async with located(lab) as locator:
        await lab.wait_for(lambda: locator.host_of("r1", STORED) == state.host)
        with contextlib.suppress(OSError):
            await lab.get("r1", "exit", "7")
        while not ((now := lab.find("r1")) and now.restarts and now.is_listening):
            hosts.add(locator.host_of("r1", STORED))
            await asyncio.sleep(0.02)

    assert hosts == {state.host}


async def test_a_stored_address_that_another_app_has_is_not_used(lab: Lab) -> None:
    state = await lab.start(lab.app())
    async with located(lab) as locator:
        await lab.wait_for(lambda: locator.host_of("r1", STORED) == state.host)

        assert locator.host_of("r2", state.host) == ""
        assert locator.host_of("r2", STORED) == STORED

        await lab.engine.workloads.stop("r1", 0.0)
        await lab.wait_for(lambda: locator.host_of("r2", state.host) == state.host)
