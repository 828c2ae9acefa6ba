"""An upgrade from the version before machines and images: apps, databases and cronjob runs go on through it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import memory
from tests.e2e.databases_support import POSTGRESQL, Databases, wait_until
from tests.platform.running import Running, free_ports, running
from tests.products.repositories.support import Checkout

pytestmark = [pytest.mark.deep, pytest.mark.xdist_group("upgrade")]

ROOT = Path(__file__).parents[2]
# The last version without owners of replicas. It runs with the libraries of this version.
BEFORE = "e604350ed012deed404043cb8bd6b346f8c55506"
ENV = {"MOORAGE_RATE_LIMIT": "1000000", "MOORAGE_CODEHOST_URL": "http://127.0.0.1:9", "MOORAGE_FUNCTION_POOL": "0"}
# Answers with a value that each start makes anew, so that a restart shows.
APP = """
import http.server, os, uuid

STARTED = str(uuid.uuid4())

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(STARTED.encode())

http.server.ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Handler).serve_forever()
"""
JOB = "import sys, time\nprint('begins', flush=True)\ntime.sleep(float(sys.argv[1]))\nprint('ends', flush=True)\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory.folder("moorage-upgrade-") as made:
        yield made
        for pid in shims(made / "data").values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in shims(made / "data").values()), 60)


@pytest.fixture
def old_source(folder: Path) -> Path:
    packed = subprocess.run(["git", "archive", BEFORE, "src"], cwd=ROOT, capture_output=True, check=False)
    assert packed.returncode == 0, f"needs the history of the repository (git fetch --unshallow): {packed.stderr!r}"
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder / "old")
    return folder / "old" / "src"


def shims(data: Path) -> dict[str, int]:
    """Return the process ids of all shims, by their folder."""
    return {
        str(path.parent.relative_to(data)): int(json.loads(path.read_text())["pid"])
        for path in data.glob("run/*/*/shim.json")
    }


def set_up(platform: Running, folder: Path) -> Databases:
    """Create an app, a database with a row, and a cronjob with a run that goes on."""
    owner = Databases(platform, platform.session())
    app = Checkout.init(folder / "app")
    app.commit("first", main_py=APP, requirements_txt="")
    owner.live(owner.launch("ferry", app, startCmd="python main.py"))
    owner.make("ledger", POSTGRESQL)
    owner.fill("ledger")
    job = Checkout.init(folder / "job")
    job.commit("first", run_py=JOB)
    owner.push(job, "acme/nightly")
    given = {"cronSchedule": "0 0 1 1 *", "repositoryName": "acme/nightly", "language": "python"}
    owner.call("POST", "/v1/cronjobs", {"name": "nightly", "command": "python run.py 45", **given})
    wait_until(lambda: owner.call("GET", "/v1/cronjobs/nightly")["status"] == "running", 60)
    return owner


def logs(owner: Databases, uuid: str) -> str:
    return str(owner.call("GET", f"/v1/cronjobs/executions/{uuid}/logs")["logs"])


def statuses(owner: Databases) -> list[str]:
    return [each["status"] for each in owner.call("GET", "/v1/cronjobs/nightly/executions")["items"]]


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
