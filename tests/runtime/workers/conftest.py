"""Each language of a worker, and a host with functions that run what a test sends them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.runtime.workers.installer_support import Deployment, Index, deploying, serving_index
from tests.runtime.workers.invoker_support import MODES, Host, Lab, lab_on, node_lab_on, running
from tests.runtime.workers.worker_driver import LANGUAGES


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=MODES)
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
    """Whatever a test does, both processes live on and the next call is answered."""
    yield
    assert (host.invoker.poll(), host.edge.poll()) == (None, None)
    assert lab.run("answer = 'fine'") == "fine"


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    with serving_index() as serving:
        yield serving


@pytest.fixture(params=MODES)
def deployment(request: pytest.FixtureRequest, index: Index) -> Iterator[Deployment]:
    """As root and as an ordinary user."""
    with deploying(request.param, index) as made:
        yield made


@pytest.fixture
def own_deployment(index: Index) -> Iterator[Deployment]:
    """As the user who runs the tests: for what is the same for all."""
    with deploying(MODES[0], index) as made:
        yield made
