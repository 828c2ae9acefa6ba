"""Fixtures: worker languages, and hosts with functions that run code of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.runtime.workers.installer_support import Deployment, Index, deploying, serving_index
from tests.runtime.workers.invoker_support import MODE_PARAMS, MODES, Host, Lab, lab_on, node_lab_on, running
from tests.runtime.workers.worker_driver import LANGUAGES


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=MODE_PARAMS)
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    with running(request.param) as running_host:
        yield running_host


@pytest.fixture(scope="module")
def lab(host: Host) -> Lab:
    return lab_on(host)


@pytest.fixture(scope="module")
def node(host: Host) -> Lab:
    return node_lab_on(host)


@pytest.fixture
def is_healthy(host: Host, lab: Lab) -> Iterator[None]:
    """Checks after each test that both processes run and answer the next call."""
    yield
    assert (host.invoker.poll(), host.edge.poll()) == (None, None)
    assert lab.run("answer = 'fine'") == "fine"


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    with serving_index() as serving:
        yield serving


@pytest.fixture(params=MODE_PARAMS)
def deployment(request: pytest.FixtureRequest, index: Index) -> Iterator[Deployment]:
    """Hosts as root and as an ordinary user."""
    with deploying(request.param, index) as made:
        yield made


@pytest.fixture
def own_deployment(index: Index) -> Iterator[Deployment]:
    """Host of the user that runs the tests, for behaviour that all users share."""
    with deploying(MODES[0], index) as made:
        yield made
