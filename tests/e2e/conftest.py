"""One platform for all end-to-end tests of functions: starting it costs more than most of them."""

from __future__ import annotations

import contextlib

import pytest
from tests.e2e.functions_support import ECHO, LANGUAGES, Platform, started
from tests.shared import SharedServers


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, shared: SharedServers) -> Platform:
    """A running platform; the tests of a group share it and use names of their own."""
    return shared.get("platform", lambda: started(tmp_path_factory.mktemp("functions") / "data"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, shared: SharedServers) -> Platform:
    """A platform with one instance for each function, two waiting calls and little room for logs and records."""
    limits = {"queue": "2", "instances": "1", "pool": "1", "log_mb": "16", "spool_mb": "64"}
    settings = {f"function_{name}": value for name, value in limits.items()}
    return shared.get("small", lambda: started(tmp_path_factory.mktemp("small") / "data", **settings))


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    """Each language that functions are written in."""
    return str(request.param)


@pytest.fixture(scope="module")
def echoes(platform: Platform, shared: SharedServers) -> dict[str, str]:
    """The name of a function of each language that answers with its params."""
    env = '[{"name": "OWN", "value": "from env"}]'

    def create() -> contextlib.nullcontext[dict[str, str]]:
        names = {each: platform.create(f"echo-{each}", each, ECHO[each], env=env) for each in LANGUAGES}
        return contextlib.nullcontext(names)

    return shared.get("echoes", create)


@pytest.fixture
def echo(language: str, echoes: dict[str, str]) -> str:
    return echoes[language]
