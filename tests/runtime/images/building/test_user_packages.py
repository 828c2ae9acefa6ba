"""Package managers of Debian in RUN, as root and as an ordinary user with a single id."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.debian_images import serving_debian
from tests.runtime.images.building.test_users import UserBuilds
from tests.runtime.images.registry_support import RegistryServer
from tests.runtime.workers.invoker_support import MODES, give

pytestmark = [pytest.mark.deep, pytest.mark.group("dockerfiles-real")]

DOCKERFILE = """
FROM DEBIAN
RUN apt-get update && apt-get install -y --no-install-recommends tini && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home app && install -d -o app -g app /srv/app && id app > /srv/id
USER app
RUN tini --version > /srv/app/version && touch /home/app/made
"""


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with serving_debian() as running:
        yield running


@pytest.mark.parametrize("mode", MODES)
def test_apt_and_useradd_run(registry: RegistryServer, mode: str) -> None:
    with tempfile.TemporaryDirectory(prefix="image-builds-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        give(Path(folder), mode)
        builds = UserBuilds(mode, Path(folder), registry)

        run = builds.build(DOCKERFILE.replace("DEBIAN", f"127.0.0.1:{registry.port}/debian"))

        assert run.of("failed") == []
        assert "Can not write log" not in run.log
        files = run.files()
        assert files["srv/app/version"][1].startswith(b"tini version")
        assert files["srv/id"][1].startswith(b"uid=1000(app)")
        assert files["home/app/made"][0].uid == (1000 if mode == "root" else 0)
