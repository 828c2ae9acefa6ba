"""What the end-to-end tests of the life of apps share: a small app, and a platform that runs it and is looked into."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

from bench.machine import tree_of
from tests.e2e.functions_support import wait_until
from tests.e2e.projects_support import NOBODY, Sites, is_alive
from tests.platform.running import running
from tests.products.repositories.support import Checkout

GONE_S = 40.0  # An app may have 10 s to end, and looks are seconds apart.

# It says who it is, and does what its path asks for. `mode.txt` says what is wrong with it.
SERVER = """
const http = require('http'), fs = require('fs'), crypto = require('crypto');
const read = (name) => (fs.existsSync(name) ? fs.readFileSync(name, 'utf8').trim() : '');
const release = read('release.txt'), mode = read('mode.txt'), boot = crypto.randomUUID();
const { PORT, HOST } = process.env;
const who = JSON.stringify({ release, boot });

console.log(`release ${release} comes up with ${process.env.API_KEY}`);
if (mode === 'crashes') { console.error('the mast is missing'); process.exit(3); }

function count() {
  const next = Number(read('/data/count')) + 1;
  fs.writeFileSync('/data/count', String(next));
  return next;
}

const does = {
  '/': (ask, answer) => answer.end(release),
  '/health': (ask, answer) => {
    answer.statusCode = mode === 'unwell' ? 500 : 200;
    answer.end('well');
    if (mode === 'fleeting') setTimeout(() => process.exit(4), 100);
  },
  '/who': (ask, answer) => answer.end(who),
  '/env': (ask, answer) => answer.end(JSON.stringify(process.env)),
  '/slow': (ask, answer) => setTimeout(() => answer.end(who), 3000),
  '/say': (ask, answer, query) => { console.log(query.get('text')); answer.end('said'); },
  '/count': (ask, answer) => answer.end(String(count())),
  '/exit': () => process.exit(3),
  '/events': (ask, answer) => {
    answer.setHeader('Content-Type', 'text/event-stream');
    const timer = setInterval(() => answer.write(`data: ${who}\\n\\n`), 50);
    ask.on('close', () => clearInterval(timer));
  },
};
const server = http.createServer((ask, answer) => {
  const { pathname, searchParams } = new URL(ask.url, 'http://app');
  if (does[pathname]) does[pathname](ask, answer, searchParams);
  else { answer.statusCode = 404; answer.end(); }
});
const start = () => server.listen(Number(PORT), HOST, () => console.log(`release ${release} listens`));
if (mode === 'silent') setInterval(() => {}, 1000);
else setTimeout(start, mode === 'late' ? 400 : 0);
"""


@dataclass(frozen=True)
class Shim:
    """A process that keeps a replica."""

    pid: int
    key: str

    @property
    def is_alive(self) -> bool:
        return is_alive(self.pid)


class Apps(Sites):
    """A started platform, as those who have apps on it see it; and the processes of those apps."""

    def who(self, name: str) -> dict[str, str]:
        """Return the release that answers, and what only this one process says."""
        found: dict[str, str] = json.loads(self.text(name, "/who"))
        return found

    def boot(self, name: str) -> str:
        return self.who(name)["boot"]

    def env(self, name: str) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.text(name, "/env"))
        return found

    def create_app(self, name: str, repository: str, **fields: Any) -> str:
        """Make a container project, and return the uuid of its first deployment."""
        return self.create_project(name, repository, "container", language="nodejs", **fields)

    def rollback(self, name: str, uuid: str) -> str:
        asked = {"deploymentUuid": uuid}
        return str(self.call("POST", f"/v1/projects/{name}/rollback", asked)["deploymentUuid"])

    def go_live(self, uuid: str) -> dict[str, Any]:
        """Return a deployment that has to succeed, with all that is known of it."""
        ended = self.ended(uuid)
        assert ended["status"] == "succeeded", ended["reason"]
        (found,) = [each for each in self.deployments(ended["projectName"]) if each["deploymentUuid"] == uuid]
        return found

    def printed_by(self, name: str, **query: str) -> list[dict[str, Any]]:
        """Return what an app has printed."""
        words = "&".join(f"{key}={value}" for key, value in query.items())
        items: list[dict[str, Any]] = self.call("GET", f"/v1/projects/{name}/logs?{words}")["items"]
        return items

    def messages(self, name: str, **query: str) -> list[str]:
        return [line["message"] for line in self.printed_by(name, **query)]

    @contextlib.contextmanager
    def opened(self, name: str, path: str, method: str = "GET") -> Iterator[HTTPResponse]:
        """Ask an app for something as a visitor; what is read of it is up to the test."""
        port = self.running.ports["gateway"]
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        with contextlib.closing(connection):
            connection.request(method, path, headers={"Host": f"{name}.localhost:{port}"})
            with connection.getresponse() as response:
                yield response

    def crash(self, name: str) -> int:
        """Have an app end itself, and return the status that its visitor gets. A GET would be sent twice."""
        with self.opened(name, "/exit", "POST") as response:
            return response.status

    def serving(self, name: str) -> Shim:
        """Return the shim of the process that answers for an app: of each there is a card that says its port."""
        port = int(self.env(name)["PORT"])
        cards = (self.running.data / "run" / "shims").glob("*/shim.json")
        (found,) = [card for card in map(json.loads, map(Path.read_bytes, cards)) if card["port"] == port]
        return Shim(found["pid"], found["key"])

    def shims(self, name: str | None = None) -> list[Shim]:
        """Return the shims that run for this platform, or for one of its projects: those whose lines are in its log."""
        found = shims_of(self.running.data)
        if name is None:
            return found
        folder = self.running.data / "logs" / "apps" / str(self.call("GET", f"/v1/projects/{name}")["id"])
        keys = {path.stem.partition("-")[2] for path in folder.glob("*.log")}
        return [shim for shim in found if shim.key in keys]


def shims_of(data: Path) -> list[Shim]:
    """Return the shims whose folder is in a data folder. What they start first looks like them, and is none."""
    named: dict[int, str] = {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError, ValueError, IndexError):
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            folder = Path(argv[argv.index("moorage.runtime.shim") + 1])
            if folder.parent == data / "run" / "shims" and is_alive(pid):
                named[pid] = folder.name
    parents = {pid: _parent_of(pid) for pid in named}
    return sorted(
        (Shim(pid, key) for pid, key in named.items() if parents[pid] not in named), key=lambda shim: shim.pid
    )


def _parent_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def processes_of(shims: list[Shim]) -> list[int]:
    """Return the processes of shims: their own, and those of their apps."""
    return [pid for shim in shims for pid in tree_of(shim.pid)]


def end_shims(data: Path) -> None:
    """End the apps that a platform left running, and see that nothing of them is left."""
    left = shims_of(data)
    processes = processes_of(left)
    for shim in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(shim.pid, signal.SIGTERM)
    wait_until(lambda: not shims_of(data) and not any(map(is_alive, processes)), GONE_S)


@contextlib.contextmanager
def started_apps(data: Path, ports: dict[str, int] | None = None, **settings: str) -> Iterator[Apps]:
    """Start a platform for apps, and end it whatever happens. The apps run on."""
    given = {"rate_limit": "1000000", "codehost_url": NOBODY, "function_pool": "0", **settings}
    env = {f"MOORAGE_{name.upper()}": value for name, value in given.items()}
    with running(data, ports=ports, env=env) as platform:
        yield Apps(platform, platform.session())


def checkout(folder: Path, release: str, **files: str) -> Checkout:
    """Make a repository with the app in it."""
    work = Checkout.init(folder)
    work.commit(release, server_js=SERVER, release_txt=release, **files)
    return work
