"""Apps, databases and runs that go on while their platform is replaced, for tests of upgrades and moves."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from tests import memory
from tests.e2e.databases_support import POSTGRESQL, Databases, wait_until
from tests.platform.running import Running
from tests.products.repositories.support import Checkout

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


@contextlib.contextmanager
def made_folder(prefix: str) -> Iterator[Path]:
    """Provide a folder for a platform in `data`, and stop the apps and databases that it leaves."""
    with memory.folder(prefix) as made:
        yield made
        for pid in shims(made / "data").values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in shims(made / "data").values()), 60)


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
