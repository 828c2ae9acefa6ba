"""One organization floods calls, logs, uploads, pushes and streams at once; the p99 of other organizations is measured.

The platform has all cores and its default rate limit. The others make requests at a fixed pace, one after another, on
kept connections: a function call, a read of the API and a page of a site. Probes with and without the flood alternate;
one without it begins when the work that the flood has queued is done. A round is one of each. The host of a virtual
machine may take its CPUs away for milliseconds, which is all that a p99 then shows: such rounds are repeated.

Clients on other machines would take no CPU time from the platform. So the measuring client has a realtime priority, and
the clients of the flood are in an idle-class cgroup: they get only the CPU time that the platform leaves. SCHED_IDLE
alone is not enough: with autogroup scheduling it counts only within a session, which itself has the normal weight. The
cgroup is one of the platform's idle groups, because a second idle entity beside theirs would make others wait. Without
cgroups, the clients have a session with the lowest weight.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import function_platform, machine, processes
from bench.figures import Figure, at_most, percentile, ratio_at_most
from bench.flood_clients import Orders
from bench.function_platform import HELLO, Platform, archive, multipart, wait_until
from moorage.runtime.sandbox.cgroups import files
from moorage.runtime.sandbox.cgroups.v1 import open_v1
from moorage.runtime.sandbox.runs import cgroups as run_cgroups

BAR = ratio_at_most(2)
VICTIMS = 6  # organizations; each has a rate limit of its own
FLOODER = VICTIMS  # the seat after them
KINDS = ("calls", "API reads", "pages")
TOKENS = 8  # of the flooder: each has a rate limit of its own
NOBODY = 65534
PACE_S = 0.02
SETTLE_S = 3.0
REST_S = 60.0  # the longest wait until the work that a flood left behind is done
IDLE_SHARE = 0.9
MAX_STOLEN = 0.005  # of the CPU time of a probe; a round with more is repeated
MAX_REPEATS = 2  # for each round; after that, the rounds with the least stolen CPU time are taken
BURN = "def main(params):\n    sum(i * i for i in range(200_000))\n    return {'statusCode': 200, 'body': 'x'}\n"
TALK = "def main(params):\n    print('x' * 1_000_000)\n    return {'statusCode': 200, 'body': 'x'}\n"


@dataclass(frozen=True)
class Sizes:
    rounds: int
    seconds: float
    callers: int
    printers: int
    uploaders: int
    pushers: int
    streams: int
    upload_bytes: int


FULL = Sizes(5, 8, callers=64, printers=16, uploaders=4, pushers=4, streams=50, upload_bytes=2 * 2**20)
TINY = Sizes(1, 0.5, callers=2, printers=1, uploaders=1, pushers=1, streams=1, upload_bytes=1000)


@dataclass
class Probe:
    """Requests of the other organizations."""

    durations_ms: dict[str, list[float]]  # by kind
    failed: int = 0
    stolen: float = 0.0  # share of the CPU time that the host took


@dataclass(frozen=True)
class Round:
    quiet: Probe
    flooded: Probe

    @property
    def stolen(self) -> float:
        return max(self.quiet.stolen, self.flooded.stolen)


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    figures = _measure(folder / "own", "flood", sizes)
    program = Path(sys.executable).resolve()
    if os.geteuid() == 0 and all(each.stat().st_mode & 1 for each in (*Path(__file__).parents, *program.parents)):
        # Other users may enter all these folders.
        figures += _measure(folder / "nobody", "flood, platform of an ordinary user", sizes, NOBODY)
    return figures


def _measure(folder: Path, name: str, sizes: Sizes, user: int | None = None) -> list[Figure]:
    seats = VICTIMS + 1
    with function_platform.running(folder, seats=seats, pinned=False, rate_limit=300, user=user) as platform:
        orders = _prepare(platform, folder, sizes)
        failed = _probe(platform, 1.0).failed  # The first requests open connections and load code.
        rounds: list[Round] = []
        for _ in range(sizes.rounds * (1 + MAX_REPEATS)):
            _wait_until_idle()
            quiet = _probe(platform, sizes.seconds)
            with _flood(platform, orders, folder):
                rounds.append(Round(quiet, _probe(platform, sizes.seconds)))
            if sum(each.stolen <= MAX_STOLEN for each in rounds) == sizes.rounds:
                break
    failed += sum(each.quiet.failed + each.flooded.failed for each in rounds)
    rounds = sorted(rounds, key=lambda each: each.stolen)[: sizes.rounds]
    return [
        *(_figure(name, kind, rounds) for kind in KINDS),
        Figure(f"{name}: failed requests of other organizations", failed, "", bar=at_most(0)),
        Figure(f"{name}: CPU time stolen by the host, worst round", rounds[-1].stolen * 100, "%"),
    ]


def _figure(name: str, kind: str, rounds: list[Round]) -> Figure:
    flooded = percentile([ms for each in rounds for ms in each.flooded.durations_ms[kind]], 0.99)
    quiet = percentile([ms for each in rounds for ms in each.quiet.durations_ms[kind]], 0.99)
    return Figure(f"{name}: {kind} of other organizations, p99", flooded, "ms", quiet, "without the flood", BAR)


def _prepare(platform: Platform, folder: Path, sizes: Sizes) -> Orders:
    for seat in range(VICTIMS):
        platform.create(f"calm-{seat}", "python", HELLO["python"], seat=seat)
        _upload_site(platform, f"calm-site-{seat}", seat)
        platform.wait_until_served(platform.path(f"calm-{seat}", seat))
        wait_until(lambda: _page(platform, f"calm-site-{seat}") == 200, "a site answers")  # noqa: B023 - called at once
    platform.create("burn", "python", BURN, seat=FLOODER)
    platform.create("talk", "python", TALK, seat=FLOODER)
    made = [platform.call("POST", "/v1/api-tokens", {"name": f"t{n}"}, FLOODER)["token"] for n in range(TOKENS)]
    return Orders(
        api_port=platform.api_port,
        edge_port=platform.edge_port,
        tokens=made,
        burn=platform.path("burn", FLOODER),
        talk=platform.path("talk", FLOODER),
        talker="talk",
        folder=str(folder / "clients"),
        callers=sizes.callers,
        printers=sizes.printers,
        uploaders=sizes.uploaders,
        pushers=sizes.pushers,
        streams=sizes.streams,
        upload_bytes=sizes.upload_bytes,
    )


def _wait_until_idle() -> None:
    """Wait until the machine is idle, as the builds and deletions that a flood has queued go on after it."""
    end = time.monotonic() + REST_S
    while time.monotonic() < end:
        before = machine.idle_seconds()
        time.sleep(1)
        if (machine.idle_seconds() - before) / (os.cpu_count() or 1) > IDLE_SHARE:
            return


def _upload_site(platform: Platform, name: str, seat: int) -> None:
    body = multipart({"name": name}, archive("index.html", f"<h1>{name}</h1>"))
    body = body.replace(b'name="code"', b'name="staticFiles"', 1)
    headers = {
        "Authorization": f"Bearer {platform.seats[seat].token}",
        "Content-Type": "multipart/form-data; boundary=the-bench-boundary",
    }
    with closing(http.client.HTTPConnection("127.0.0.1", platform.api_port, timeout=60)) as connection:
        connection.request("POST", "/v1/projects/static-upload", body, headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise function_platform.Refused(f"upload of {name}: {answer.status} {answer.read()[:300]!r}")


def _page(platform: Platform, name: str) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", platform.gateway_port, timeout=10)) as connection:
        connection.request("GET", "/", headers={"Host": f"{name}.localhost"})
        return connection.getresponse().status


@contextmanager
def _first_in_line() -> Iterator[None]:
    """Let this process run as soon as it can: the clients of the others have machines of their own, too."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, *before)


def _probe(platform: Platform, seconds: float) -> Probe:
    """Send one request after another at a fixed pace."""
    probe, number = Probe({kind: [] for kind in KINDS}), 0
    with ExitStack() as stack:
        stack.enter_context(_first_in_line())
        ports = dict(zip(KINDS, (platform.edge_port, platform.api_port, platform.gateway_port), strict=True))
        links = {
            kind: stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)))
            for kind, port in ports.items()
        }
        stolen_before, start = machine.stolen_seconds(), time.perf_counter()
        while (began := time.perf_counter()) < start + seconds:
            seat, kind = number // 3 % VICTIMS, KINDS[number % 3]
            number += 1
            path, headers = {
                "calls": (platform.path(f"calm-{seat}", seat), {}),
                "API reads": ("/v1/whoami", {"Authorization": f"Bearer {platform.seats[seat].token}"}),
                "pages": ("/", {"Host": f"calm-site-{seat}.localhost"}),
            }[kind]
            try:
                links[kind].request("GET", path, headers=headers)
                answer = links[kind].getresponse()
                answer.read()
                probe.failed += answer.status != 200
            except (OSError, http.client.HTTPException):
                links[kind].close()
                probe.failed += 1
            probe.durations_ms[kind].append((time.perf_counter() - began) * 1000)
            time.sleep(max(0.0, began + PACE_S - time.perf_counter()))
        probe.stolen = (machine.stolen_seconds() - stolen_before) / seconds / (os.cpu_count() or 1)
    return probe


@contextmanager
def _flood(platform: Platform, orders: Orders, folder: Path) -> Iterator[None]:
    env = processes.environment()
    clients = subprocess.Popen(
        [sys.executable, "-m", "bench.flood_clients"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(folder / "clients.log").open("ab"),
        env=env,
        start_new_session=True,
        preexec_fn=processes.die_with_parent,
    )
    assert clients.stdin is not None
    token = _token_of(platform)
    cgroups = (token and open_v1(token, files.own_hierarchies())) or run_cgroups.find()
    group = cgroups.create(f"{run_cgroups.name()}-flood")
    try:
        clients.stdin.write(json.dumps(asdict(orders)).encode())
        clients.stdin.close()
        assert clients.stdout is not None
        if clients.stdout.readline() != b"flooding\n":
            raise processes.NotReady("the clients of the flood did not start")
        group.attach(clients.pid)
        group.idle(True)
        time.sleep(SETTLE_S)
        yield
    finally:
        group.idle(False)  # In the idle class, killed processes might not get the CPU time to exit.
        clients.kill()
        clients.wait()
        group.kill()  # the git processes of the clients
        group.remove()
        if token is None:
            with contextlib.suppress(OSError):  # Other runs may have cgroups there.
                cgroups.close()
    time.sleep(SETTLE_S)


def _token_of(platform: Platform) -> str | None:
    """Return the token in the name of the platform's v1 cgroup; None if it has none."""
    for line in Path(f"/proc/{platform.pid}/cgroup").read_text().splitlines():
        match = files.PLATFORM.fullmatch(line.rpartition("/")[2])
        if match and "cpu" in line.split(":")[1].split(","):
            return match[1].removeprefix("moorage-").removesuffix("-")
    return None
