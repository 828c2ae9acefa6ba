"""Sources from git are scanned before the build, and a site again before publication."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import RunJobs
from tests.products.projects.support import Team, push
from tests.products.repositories.support import Checkout
from tests.runtime.scan.samples import EICAR, elf

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("db", ["sqlite"], indirect=True),
    pytest.mark.settings(disk_reserve_mb=0),
    pytest.mark.boundary(
        "stranger-to-platform", "What comes by git is scanned, and a finding keeps the old release live."
    ),
]


@pytest.fixture
def work(tmp_path: Path) -> Checkout:
    made = Checkout.init(tmp_path / "work")
    made.commit("the first", index_html="<h1>one</h1>")
    return made


async def deploy(team: Team, run_jobs: RunJobs) -> tuple[str, str]:
    """Deploy the newest commit; return how it ended, and its log."""
    uuid = (await team.api.post("/v1/projects/site/deploy")).data["deploymentUuid"]
    await run_jobs()
    return (await team.status(uuid))["status"], "\n".join(await team.log(uuid))


@pytest.mark.parametrize(
    ("file", "content", "rule"),
    [("notes_txt", EICAR, "malware-eicar"), ("setup_bin", elf(), "executable-elf")],
    ids=["malware", "a program in a site"],
)
async def test_a_finding_fails_the_deployment_and_the_old_release_stays_live(
    team: Team, work: Checkout, run_jobs: RunJobs, file: str, content: bytes, rule: str
) -> None:
    await push(team, work)
    await team.create()
    await run_jobs()
    live = (await team.hosts()).sites
    work.commit("a change", **{file: content})
    await push(team, work)

    status, log = await deploy(team, run_jobs)

    assert status == "failed", log
    assert file.replace("_", ".") in log
    assert rule in log
    assert live
    assert (await team.hosts()).sites == live


async def test_a_harmless_change_is_deployed(team: Team, work: Checkout, run_jobs: RunJobs) -> None:
    await push(team, work)
    await team.create()
    await run_jobs()
    work.commit("a change", index_html="<h1>two</h1>")
    await push(team, work)

    status, log = await deploy(team, run_jobs)

    assert status == "succeeded", log
