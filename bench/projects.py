"""Projects: from a push, an archive or a rollback to the page that a visitor gets; from a line to its reader."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import os
import random
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from bench import processes, stores
from bench.figures import Figure, at_most, percentile
from bench.function_platform import BOUNDARY, Refused, in_parallel, multipart, wait_until

PUSH_BAR = at_most(2)
UPLOAD_BAR = at_most(2)
ROLLBACK_BAR = at_most(100)
LINE_BAR = at_most(150)
CHANGE_BAR = at_most(300)
CALL_S = 60.0
LOOK_S = 0.002  # between two requests for a page: more would distort the measurement
PROJECTS_A_SEAT = 90  # A plan has room for a hundred.
NOBODY = "http://127.0.0.1:9"  # No code host is asked.
WORDS = ("harbor", "light", "tide", "mooring", "anchor", "sail", "keel", "rope", "deck", "crew", "chart", "compass")
_BOUNDARY = "the-bench-boundary"


@dataclass(frozen=True)
class Sizes:
    pushes: int
    push_files: int
    uploads: int
    upload_files: int
    rollbacks: int
    lines: int  # that a build prints
    projects: int  # that there are while the last figures are measured
    changes: int


FULL = Sizes(pushes=7, push_files=50, uploads=7, upload_files=1000, rollbacks=60, lines=300, projects=1000, changes=100)
TINY = Sizes(pushes=1, push_files=5, uploads=1, upload_files=20, rollbacks=2, lines=5, projects=4, changes=2)


@dataclass(frozen=True)
class Harbor:
    """A running platform, and the tokens of the organizations on it."""

    api_port: int
    gateway_port: int
    tokens: list[str]
    folder: Path

    def call(self, method: str, path: str, body: Any = None, seat: int = 0) -> Any:
        """Call the API with JSON and return the answer's data; raises Refused."""
        raw = json.dumps(body).encode() if body is not None else None
        return self._ask(method, path, raw, "application/json", seat)

    def upload(self, name: str, archive: bytes, seat: int = 0) -> Any:
        body = _multipart(name, archive)
        return self._ask("POST", "/v1/projects/static-upload", body, f"multipart/form-data; boundary={_BOUNDARY}", seat)

    def upload_function(self, fields: dict[str, object], code: bytes, seat: int = 0) -> Any:
        body = multipart(fields, code)
        return self._ask("POST", "/v1/functions", body, f"multipart/form-data; boundary={BOUNDARY}", seat)

    def roll_back(self, name: str, uuid: str, seat: int = 0) -> str:
        path = f"/v1/projects/{name}/rollback"
        return str(self.call("POST", path, {"deploymentUuid": uuid}, seat)["deploymentUuid"])

    def wait_until_ended(self, uuid: str, seat: int = 0) -> str:
        """Return how a deployment ended."""
        path = f"/v1/deployments/{uuid}/status"
        wait_until(lambda: bool(self.call("GET", path, seat=seat)["terminal"]), f"{uuid} ends")
        return str(self.call("GET", path, seat=seat)["status"])

    def _ask(self, method: str, path: str, body: bytes | None, kind: str, seat: int) -> Any:
        headers = {"Authorization": f"Bearer {self.tokens[seat]}", "Content-Type": kind}
        with closing(http.client.HTTPConnection("127.0.0.1", self.api_port, timeout=CALL_S)) as connection:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            said = answer.read()
        if answer.status not in (200, 202):
            raise Refused(f"{method} {path}: {answer.status} {said[:500]!r}")
        return json.loads(said)["data"]


@dataclass
class Visitor:
    """Looks at one project's first page, again and again, on one connection."""

    harbor: Harbor
    name: str
    _connection: http.client.HTTPConnection = field(init=False)

    def __enter__(self) -> Self:
        self._connection = http.client.HTTPConnection("127.0.0.1", self.harbor.gateway_port, timeout=CALL_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def page(self) -> bytes:
        """Return the page, or nothing while there is none."""
        self._connection.request("GET", "/", headers={"Host": f"{self.name}.localhost"})
        answer = self._connection.getresponse()
        body = answer.read()
        return body if answer.status == 200 else b""

    def wait_for(self, text: str) -> float:
        """Return the moment at which the page is this one."""
        give_up_at = time.perf_counter() + CALL_S
        while text.encode() not in self.page():
            if time.perf_counter() > give_up_at:
                raise processes.NotReady(f"{self.name} never showed {text!r}")
            time.sleep(LOOK_S)
        return time.perf_counter()


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    seats = 1 + -(-sizes.projects // PROJECTS_A_SEAT)
    with running_harbor(folder, seats) as harbor:
        return [
            *_pushes(harbor, sizes),
            *_uploads(harbor, sizes),
            *_rollbacks(harbor, sizes),
            *_lines(harbor, sizes),
            *_changes(harbor, sizes),
        ]


@contextmanager
def running_harbor(folder: Path, seats: int) -> Iterator[Harbor]:
    """Run the whole platform as a user would, on all cores."""
    folder.mkdir(parents=True, exist_ok=True)
    db, taken = asyncio.run(stores.open_seated(folder / "data", seats))
    db.close()
    names = ("api_port", "gateway_port", "edge_port", "metrics_port")
    ports = dict(zip(names, processes.free_ports(len(names)), strict=True))
    common = {"rate_limit": stores.UNLIMITED, "log_format": "json", "log_level": "warning", "codehost_url": NOBODY}
    env = processes.environment(data=folder / "data", **common, **ports)
    log = folder / "up.log"
    with processes.running([sys.executable, "-m", "moorage.cli.main", "up"], log, env) as process:
        assert process.stdout is not None
        processes.wait_for_line(process.stdout.fileno(), "ready: ", log)
        tokens = [seat.token for seat in taken]
        yield Harbor(ports["api_port"], ports["gateway_port"], tokens, folder)


def _pushes(harbor: Harbor, sizes: Sizes) -> list[Figure]:
    """Push whole sites to repositories that are not there yet, of projects that wait for them."""
    taken = []
    for number in range(sizes.pushes):
        name = f"pushed-{number}"
        work = _repository(harbor.folder / name, _site(sizes.push_files, name))
        _track(harbor, name)
        with Visitor(harbor, name) as visitor:
            started = time.perf_counter()
            pushing = _push(harbor, work, name)
            taken.append(visitor.wait_for(name) - started)
            _finish(pushing)
    return _spread(f"projects: git push of {sizes.push_files} files to live", taken, "s", PUSH_BAR)


def _push(harbor: Harbor, work: Path, name: str) -> subprocess.Popen[bytes]:
    address = f"http://x:{harbor.tokens[0]}@127.0.0.1:{harbor.api_port}/git/bench/{name}.git"
    words = ["git", "push", "--quiet", address, "main"]
    return subprocess.Popen(words, cwd=work, env=_environment(work), stderr=subprocess.PIPE)


def _finish(pushing: subprocess.Popen[bytes]) -> None:
    _, said = pushing.communicate(timeout=CALL_S)
    if pushing.returncode != 0:
        raise Refused(f"git push: {said.decode(errors='replace')}")


def _track(harbor: Harbor, name: str, **fields: Any) -> str:
    """Create a project before its repository, and return its failed first deployment."""
    asked = {"slug": "static", "name": name, "repositoryName": f"bench/{name}", "autoDeploy": True, **fields}
    uuid = str(harbor.call("POST", "/v1/projects", asked)["deploymentUuid"])
    harbor.wait_until_ended(uuid)
    return uuid


def _uploads(harbor: Harbor, sizes: Sizes) -> list[Figure]:
    taken = []
    for number in range(sizes.uploads):
        name = f"uploaded-{number}"
        archive = _archive(_site(sizes.upload_files, name))
        with Visitor(harbor, name) as visitor:
            started = time.perf_counter()
            harbor.upload(name, archive)
            taken.append(visitor.wait_for(name) - started)
    return _spread(f"projects: ZIP of {sizes.upload_files} files to live", taken, "s", UPLOAD_BAR)


def _rollbacks(harbor: Harbor, sizes: Sizes) -> list[Figure]:
    taken = _switches(harbor, ["rolled"] * sizes.rollbacks, {"rolled": 0})
    return _spread("projects: rollback to seen", [1000 * each for each in taken], "ms", ROLLBACK_BAR)


def _switches(harbor: Harbor, turns: list[str], seats: Mapping[str, int]) -> list[float]:
    """Give each project two releases, then switch between them in turns; return how long each took to be seen."""
    releases = {name: _two_releases(harbor, name, seats[name]) for name in set(turns)}
    live = dict.fromkeys(releases, 1)
    taken = []
    for name in turns:
        live[name] = 1 - live[name]
        with Visitor(harbor, name) as visitor:
            visitor.page()
            started = time.perf_counter()
            # The newest deployment of a release is the one that is kept.
            releases[name][live[name]] = harbor.roll_back(name, releases[name][live[name]], seats[name])
            taken.append(visitor.wait_for(f"release {live[name]}") - started)
    return taken


def _two_releases(harbor: Harbor, name: str, seat: int) -> list[str]:
    found = []
    for number in (0, 1):
        found.append(str(harbor.upload(name, _archive({"index.html": f"release {number}"}), seat)["uploadId"]))
        harbor.wait_until_ended(found[-1], seat)
    return found


def _lines(harbor: Harbor, sizes: Sizes) -> list[Figure]:
    """Follow a build that prints the time, and see how old each line is when it comes."""
    name = "talking"
    prints = f"for i in $(seq {sizes.lines}); do date +at:%s.%N; sleep 0.01; done"
    work = _repository(harbor.folder / name, {"readme.txt": name})
    _finish(_push(harbor, work, name))
    build = f"{prints}; mkdir dist; echo > dist/index.html"
    asked = {"slug": "static", "name": name, "repositoryName": f"bench/{name}", "buildCmd": build}
    uuid = harbor.call("POST", "/v1/projects", asked)["deploymentUuid"]
    late = [1000 * (seen - printed) for seen, printed in _follow(harbor, uuid)]
    if len(late) != sizes.lines:
        raise Refused(f"{sizes.lines} lines were printed and {len(late)} came")
    return _spread("projects: log line printed to seen", late, "ms", LINE_BAR)


def _follow(harbor: Harbor, uuid: str) -> Iterator[tuple[float, float]]:
    """Yield when each line came and when it was printed."""
    with closing(http.client.HTTPConnection("127.0.0.1", harbor.api_port, timeout=CALL_S)) as connection:
        connection.request("GET", f"/v1/deployments/{uuid}/logs/stream?access_token={harbor.tokens[0]}")
        for line in connection.getresponse():
            now = time.time()
            if line.startswith(b"data: ") and (message := json.loads(line[6:]).get("message", "")).startswith("at:"):
                yield now, float(message[3:])


def _changes(harbor: Harbor, sizes: Sizes) -> list[Figure]:
    """Fill the platform with projects, then switch the releases of some of them."""
    seats = {f"many-{number}": 1 + number // PROJECTS_A_SEAT for number in range(sizes.projects)}
    in_parallel(lambda name: harbor.upload(name, _archive({"index.html": name}), seats[name]), list(seats))
    last = list(seats)[-1]
    with Visitor(harbor, last) as visitor:
        visitor.wait_for(last)
    chosen = random.Random(4).choices(list(seats), k=sizes.changes)
    taken = _switches(harbor, chosen, seats)
    title = f"projects: with {sizes.projects} projects, rollback to seen"
    ruled = [1000 * _rule(harbor, name, seats[name], str(number)) for number, name in enumerate(chosen[:20])]
    return [
        *_spread(title, [1000 * each for each in taken], "ms", CHANGE_BAR),
        Figure(f"projects: with {sizes.projects} projects, rules in force, p95", percentile(ruled, 0.95), "ms"),
    ]


def _rule(harbor: Harbor, name: str, seat: int, value: str) -> float:
    """Set a header rule, and return how long that took; it is in force when that is answered."""
    started = time.perf_counter()
    rule = {"source": "/*", "name": "X-Round", "value": value}
    harbor.call("PUT", f"/v1/projects/{name}/headers", {"headers": [rule]}, seat)
    return time.perf_counter() - started


def _spread(title: str, values: list[float], unit: str, bar: Any) -> list[Figure]:
    return [
        Figure(f"{title}, p50", percentile(values, 0.5), unit),
        Figure(f"{title}, p95", percentile(values, 0.95), unit, bar=bar),
    ]


def _site(files: int, title: str) -> dict[str, str]:
    """Return a site of pages and styles, of a few thousand characters each."""
    numbers = random.Random(title)
    made = {"index.html": f"<!doctype html><title>{title}</title>"}
    for number in range(files - 1):
        kind = ("html", "css", "js")[number % 3]
        made[f"part-{number % 20}/file-{number}.{kind}"] = " ".join(numbers.choices(WORDS, k=400))
    return made


def _archive(files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return packed.getvalue()


def _multipart(name: str, archive: bytes) -> bytes:
    field_ = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="name"\r\n\r\n{name}\r\n'
    head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="staticFiles"; filename="site.zip"\r\n'
    kind = "Content-Type: application/zip\r\n\r\n"
    return (field_ + head + kind).encode() + archive + f"\r\n--{_BOUNDARY}--\r\n".encode()


def _repository(folder: Path, files: Mapping[str, str]) -> Path:
    """Make a repository with one commit."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    commands = (["init", "--quiet", "--initial-branch=main"], ["add", "--all"], ["commit", "--quiet", "--message=all"])
    for words in commands:
        subprocess.run(["git", *words], cwd=folder, env=_environment(folder), check=True)
    return folder


def _environment(home: Path) -> dict[str, str]:
    """Environment of git, without the user's configuration."""
    someone = {f"GIT_{role}_{what}": "bench" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    quiet = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
    return {"PATH": os.environ["PATH"], "HOME": str(home.parent), **quiet, **someone}
