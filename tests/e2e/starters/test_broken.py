"""Repositories that cannot run: each deployment ends in one sentence that names the file and the fix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.apps_support import Apps, started_apps
from tests.e2e.functions_support import wait_until
from tests.e2e.starters.broken import BROKEN
from tests.e2e.starters.repositories import written
from tests.e2e.starters.shapes import Broken

pytestmark = [pytest.mark.deep, pytest.mark.group("broken")]

FAILED_S = 300.0
LONGEST = 600  # characters of a sentence that still fits on a screen


@dataclass
class Harbor:
    """The platform that all broken repositories are pushed to."""

    apps: Apps
    folder: Path


@pytest.fixture(scope="module")
def harbor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harbor]:
    folder = tmp_path_factory.mktemp("broken")
    with started_apps(folder / "data", builds="2", build_memory_mb="512") as apps:
        yield Harbor(apps, folder)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_a_broken_repository_ends_in_one_sentence_that_names_the_file_and_the_fix(
    harbor: Harbor, broken: Broken
) -> None:
    apps, work = harbor.apps, written(broken.text, harbor.folder / broken.name)
    work.commit()
    apps.push(work, f"acme/{broken.name}")

    uuid = apps.create_project(broken.name, f"acme/{broken.name}", **{"slug": "auto", **broken.settings})
    wait_until(lambda: apps.status(uuid)["terminal"], FAILED_S)

    ended, lines = apps.status(uuid), apps.log(uuid)
    reason = ended["reason"]
    assert ended["status"] == "failed", lines
    assert [part for part in broken.says if part not in reason] == [], "\n".join(lines)
    assert (lines[-1], len(reason) < LONGEST, "\n" in reason) == (reason, True, False)
