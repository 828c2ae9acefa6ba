"""An upgrade from the version before machines and images: apps, databases and cronjob runs go on through it."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.adoption_support import ENV, logs, made_folder, set_up, shims, statuses
from tests.e2e.databases_support import Databases, wait_until
from tests.platform.running import free_ports, running

pytestmark = [pytest.mark.deep, pytest.mark.group("upgrade")]

ROOT = Path(__file__).parents[2]
# The last version without owners of replicas. It runs with the libraries of this version.
BEFORE = "e604350ed012deed404043cb8bd6b346f8c55506"


@pytest.fixture
def folder() -> Iterator[Path]:
    with made_folder("moorage-upgrade-") as made:
        yield made


@pytest.fixture
def old_source(folder: Path) -> Path:
    packed = subprocess.run(["git", "archive", BEFORE, "src"], cwd=ROOT, capture_output=True, check=False)
    assert packed.returncode == 0, f"needs the history of the repository (git fetch --unshallow): {packed.stderr!r}"
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder / "old")
    return folder / "old" / "src"


def test_apps_databases_and_runs_of_the_version_before_go_on(folder: Path, old_source: Path) -> None:
    data, ports = folder / "data", free_ports()
    program = [sys.executable, "-m", "moorage.cli.main"]
    with running(data, ports=ports, program=program, env={**ENV, "PYTHONPATH": str(old_source)}) as old:
        owner = set_up(old, folder)
        run = str(owner.call("POST", "/v1/cronjobs/nightly/trigger")["executionUuid"])
        wait_until(lambda: "begins" in logs(owner, run), 60)
        answer, before = owner.text("ferry"), shims(data)
        environments = [Path(f"/proc/{pid}/environ").read_bytes() for pid in before.values()]

    with running(data, ports=ports, env=ENV) as new:
        owner = Databases(new, new.session())
        after, adopted = shims(data), owner.text("ferry")
        rows = owner.client("ledger").numbers()
        wait_until(lambda: statuses(owner) == ["succeeded"], 90)
        output = logs(owner, run)
        redeployed = owner.live(owner.deploy("ferry"))
        again = owner.text("ferry")

    assert [bytes(old_source) in each for each in environments] == [True] * 3  # It was the old version.
    assert after == before
    assert adopted == answer
    assert rows == [1]
    assert "ends" in output.splitlines()
    assert redeployed["status"] == "succeeded"
    assert again != answer
