"""One platform for all end-to-end tests of functions: starting it costs more than most of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.functions_support import ECHO, LANGUAGES, Platform, started


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A running platform; tests share it and use names of their own."""
    with started(tmp_path_factory.mktemp("functions") / "data") as platform:
        yield platform


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    """Each language that functions are written in."""
    return str(request.param)


@pytest.fixture(scope="session")
def echoes(platform: Platform) -> dict[str, str]:
    """The name of a function of each language that answers with its params."""
    env = '[{"name": "OWN", "value": "from env"}]'
    return {each: platform.create(f"echo-{each}", each, ECHO[each], env=env) for each in LANGUAGES}


@pytest.fixture
def echo(language: str, echoes: dict[str, str]) -> str:
    return echoes[language]
