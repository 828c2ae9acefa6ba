"""Apps and cronjobs from Dockerfiles on a whole platform: built, run, redeployed under load, and attacked."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest
from tests.e2e.apps_support import Apps, started_apps
from tests.e2e.functions_support import wait_until
from tests.e2e.images_support import serving_python
from tests.products.repositories.support import Checkout
from tests.runtime.engines.engine_support import LAB

pytestmark = [pytest.mark.group("images-live"), pytest.mark.deep]

BUILT_S = 240.0

# The app ignores PORT and listens on the port that its image exposes.
APP = LAB.replace('int(os.environ["PORT"])', "8123").replace(
    'f"hello from {os.getpid()}"', '[open("release.txt").read(), os.environ["GREETING"], os.getuid()]'
)
DOCKERFILE = """
FROM {base}
WORKDIR /srv
RUN (echo; echo 'sailor:x:1000:1001::/srv:/bin/sh') >> /etc/passwd && mkdir kept && chown 1000:1001 kept
ENV GREETING=ahoy
COPY main.py release.txt ./
EXPOSE 8123
USER sailor
STOPSIGNAL SIGINT
HEALTHCHECK --interval=1s --timeout=20s CMD test -f /srv/release.txt
CMD ["python3", "main.py"]
"""
REACH = """
import os
def can(path):
    try:
        os.listdir(path) if os.path.isdir(path) else open(path, 'rb').read(1)
    except OSError:
        return False
    return True
paths = [DATA, '/home', '/proc/1/environ', '/proc/1/root/srv', '/proc/kcore', '/sys/kernel']
answer = [path for path in paths if can(path)]
"""
CRONJOB = """
FROM {base}
RUN echo built > /made
ENTRYPOINT ["/bin/sh", "-c"]
CMD ["cat /made; id -u; echo changed > /made; cat /made"]
"""


@dataclass
class Visitors:
    """Threads that request a page all the time, on new and on kept connections."""

    apps: Apps
    name: str
    answered: int = 0
    failed: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def visiting(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._visit, args=(is_kept,)) for is_kept in (True, False)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            for thread in threads:
                thread.join()

    def _visit(self, is_kept: bool) -> None:
        port, connection = self.apps.running.ports["gateway"], None
        while not self.stopping.wait(0.02):
            connection = connection or HTTPConnection("127.0.0.1", port, timeout=30)
            try:
                connection.request("GET", "/", headers={"Host": f"{self.name}.localhost:{port}"})
                answer = connection.getresponse()
                body = answer.read()
                if answer.status != 200:
                    self.failed.append(f"{answer.status} {body[:100]!r}")
                self.answered += 1
            except (OSError, HTTPException) as error:
                self.failed.append(repr(error))
                is_kept_now = False
            else:
                is_kept_now = is_kept
            if not is_kept_now:
                connection.close()
                connection = None


@dataclass
class Fleet:
    apps: Apps
    work: Checkout
    base: str
    name: str = "ship"

    def push(self, release: str) -> list[str]:
        self.work.commit(release, release_txt=release)
        return self.apps.push(self.work, f"acme/{self.name}")

    def serves(self, release: str) -> bool:
        return bool(self.apps.ask(self.name, "GET", "/").json[0].strip() == release)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("images")
    with serving_python() as registry, started_apps(folder / "data") as apps:
        base = f"127.0.0.1:{registry.port}/python"
        work = Checkout.init(folder / "ship")
        (work.folder / "Dockerfile").write_text(DOCKERFILE.format(base=base))
        work.commit("a ship", main_py=APP, release_txt="one")
        uuid = apps.launch("ship", work, language="docker", disk=1, autoDeploy=True)
        apps.live(uuid)
        yield Fleet(apps, work, base)


def test_an_image_runs_as_its_dockerfile_says(fleet: Fleet) -> None:
    answer = fleet.apps.ask("ship", "GET", "/")
    release, greeting, uid = answer.json

    assert (release.strip(), greeting) == ("one", "ahoy")
    assert uid == 1000
    assert fleet.apps.ask("ship", "POST", "/", "answer = 6 * 7").json == 42


def test_its_volume_lasts_and_its_root_does_not(fleet: Fleet) -> None:
    code = "import os; open('/data/kept', 'a').write('x'); open('/srv/kept/here', 'a').write('x'); answer = 1"
    assert fleet.apps.ask("ship", "POST", "/", code).json == 1

    fleet.push("two")
    wait_until(lambda: fleet.serves("two"), BUILT_S)

    seen = "import os; answer = [os.path.exists('/data/kept'), os.path.exists('/srv/kept/here')]"
    assert fleet.apps.ask("ship", "POST", "/", seen).json == [True, False]


def test_a_command_runs_in_the_image(fleet: Fleet) -> None:
    done = fleet.apps.execute("ship", "id -u; pwd; echo $GREETING; cat /data/kept; ls /work 2>/dev/null || echo none")

    assert done["exitCode"] == 0, done
    assert done["stdout"].split() == ["1000", "/srv", "ahoy", "xnone"]


@pytest.mark.boundary("code-to-host", "An app of an image reads and changes nothing of the platform or the machine.")
def test_nothing_of_the_platform_is_in_reach(fleet: Fleet) -> None:
    code = REACH.replace("DATA", repr(str(fleet.apps.running.data)))

    assert fleet.apps.ask("ship", "POST", "/", code).json == []


def test_a_cronjob_is_built_from_its_dockerfile(fleet: Fleet, tmp_path: Path) -> None:
    apps, work = fleet.apps, Checkout.init(tmp_path / "job")
    (work.folder / "Dockerfile").write_text(CRONJOB.format(base=fleet.base))
    work.commit("a job", read_me="x")
    apps.push(work, "acme/job")
    fields = {"name": "job", "repositoryName": "acme/job", "cronSchedule": "0 0 1 1 *", "language": "docker"}
    apps.call("POST", "/v1/cronjobs", fields)
    wait_until(lambda: apps.call("GET", "/v1/cronjobs/job")["status"] == "running", BUILT_S)

    uuid = str(apps.call("POST", "/v1/cronjobs/job/trigger")["executionUuid"])

    def log() -> str:
        return str(apps.call("GET", f"/v1/cronjobs/executions/{uuid}/logs")["logs"])

    wait_until(lambda: "ended: " in log(), BUILT_S)
    printed = log()
    assert "built" in printed
    assert "changed" in printed
    assert "exit code 0" in printed


def test_redeploys_under_load_fail_no_request(fleet: Fleet) -> None:
    visitors = Visitors(fleet.apps, "ship")

    with visitors.visiting():
        for number in range(int(os.environ.get("IMAGE_REDEPLOYS", "20"))):
            fleet.push(f"load-{number}")
            wait_until(partial(fleet.serves, f"load-{number}"), BUILT_S)

    assert visitors.failed == []
    assert visitors.answered > 100
