"""The table of detectors and the starters agree: a row recognises each starter, and nearly each row has one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.starters.everything import STARTERS
from tests.e2e.starters.shapes import Starter
from tests.runtime.builds.build_support import make_request, write_files

from moorage.runtime.builds.detection import detect
from moorage.runtime.builds.detection.table import ROWS

# Rows that are tested by their files alone, and why no starter of them was seen live.
NOT_DEPLOYED: dict[str, str] = {
    "Dockerfile": "its base image comes from a registry of the tests: tests/e2e/test_dockerfiles_live.py deploys it",
    "KeystoneJS": "Prisma downloads its engines from a host that the machine of the tests does not reach",
    "Polymer": "its packages take minutes to install, and no starter of it was seen live yet",
    "Sanity Studio": "its packages take minutes to install, and no starter of it was seen live yet",
    "Strapi": "its starter was built in ten minutes, and not yet seen live with a Node.js that runs its better-sqlite3",
}
# A plan for Go needs its toolchain on this machine.
DETECTED = [starter for starter in STARTERS if starter.row not in ("Go", "Go file")]
LOCK_FILES = {"package-lock.json": "{}", "Pipfile.lock": "{}"}


@pytest.mark.parametrize("starter", DETECTED, ids=lambda starter: starter.name)
def test_a_starter_is_recognised_by_its_row(tmp_path: Path, starter: Starter) -> None:
    locks = {starter.lock: LOCK_FILES.get(starter.lock, "")} if starter.lock else {}
    source = write_files(tmp_path / "source", {**starter.text, **locks})
    request = make_request(source, wanted="auto", base_dir=starter.settings.get("baseDir", "./"))

    decision = detect.decide(request, detect.open_base(request))

    assert decision.match is not None
    assert (decision.match.row.name, decision.plan.kind) == (starter.row, starter.kind)


def test_each_row_that_builds_something_has_a_starter() -> None:
    names = {row.name for row in ROWS if not row.refusal}
    deployed = {starter.row for starter in STARTERS}

    assert names - deployed == NOT_DEPLOYED.keys()
    assert deployed <= names


def test_no_starter_needs_a_setting_but_the_folder_of_a_workspace() -> None:
    assert {name for starter in STARTERS for name in starter.settings} == {"baseDir"}
    assert len({starter.name for starter in STARTERS}) == len(STARTERS) >= 60
