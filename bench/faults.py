"""kill -9 in a loop under load: each acknowledged write exists once, and its job ran once.

Clients create organizations, some under an idempotency key and some without. The control process is killed at random
moments and started again. Afterwards the store itself is asked, by reading its file.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from bench import load, processes, stores
from bench.evidence import Evidence, examine, unfinished_jobs
from bench.figures import Figure, at_most

BAR = at_most(0)
ANSWER_S = 10.0
RETRY_S = 0.05
SETTLE_S = 60.0  # until every job has run, once the killing stopped


@dataclass(frozen=True)
class Sizes:
    seconds: float
    clients: int
    least_life_s: float  # of a control process, once it serves
    most_life_s: float
    pause_s: float  # of a client between creates: enough load to be in the middle of something at any moment


FULL = Sizes(seconds=60, clients=8, least_life_s=0.2, most_life_s=2.5, pause_s=0.01)
TINY = Sizes(seconds=2, clients=2, least_life_s=0.3, most_life_s=0.6, pause_s=0.01)
DIES_YOUNG = 0.2  # share of the processes that are killed while they start


@dataclass
class Record:
    """Responses that the clients received."""

    acknowledged: dict[str, str] = field(default_factory=dict)  # name of the organization: its id
    unanswered: set[str] = field(default_factory=set)  # sent without a key, and no answer came
    refused: list[str] = field(default_factory=list)  # answers that nothing here should get
    repeats: int = 0  # requests sent again under their key
    kills: int = 0


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    record, store = uvloop.run(_story(folder, sizes))
    found = examine(store, record.acknowledged, record.unanswered)
    violations = [*found.violations, *(f"a client was refused: {each}" for each in record.refused)]
    for violation in violations:
        print(f"faults: VIOLATED: {violation}", file=sys.stderr)
    return [
        Figure("faults: promises broken", len(violations), "", bar=BAR),
        *(Figure(f"faults: {name}", count, "") for name, count in _counts(record, found)),
    ]


def _counts(record: Record, found: Evidence) -> list[tuple[str, int]]:
    return [
        ("kill -9", record.kills),
        ("creates acknowledged", len(record.acknowledged)),
        ("creates repeated under their key", record.repeats),
        ("creates unacknowledged", len(record.unanswered)),
        ("creates unacknowledged but present", found.present_unacknowledged),
        ("jobs that ran", found.jobs),
        ("most attempts of a job", found.most_attempts),
    ]


async def _story(folder: Path, sizes: Sizes) -> tuple[Record, Path]:
    db, seats = await stores.open_seated(folder / "data", sizes.clients)
    db.close()
    record, control = Record(), Control(folder, processes.free_ports(1)[0])
    stopping = asyncio.Event()
    control.start()
    try:
        clients = [
            asyncio.create_task(_client(number, seat.token, control.port, record, stopping, sizes.pause_s))
            for number, seat in enumerate(seats)
        ]
        await _kill_again_and_again(control, record, sizes)
        stopping.set()
        await asyncio.gather(*clients)
        await _until_idle(control, db.path)
    finally:
        control.stop()
    return record, db.path


class Control:
    """The control process, as the supervisor starts it, but started again at once however often it dies."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port = port
        self._log = folder / "control.log"
        self._env = processes.environment(
            data=folder / "data", api_port=port, metrics_port=0, rate_limit=stores.UNLIMITED, log_level="warning"
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = processes.start([sys.executable, "-m", "moorage.platform.control"], self._log, self._env)

    def check(self) -> None:
        """Raise if the process exited without a kill of this benchmark."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise processes.NotReady(f"control ended by itself: {self._log.read_text(errors='replace')[-2000:]}")

    def kill(self) -> None:
        self.check()
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        processes.stop(self._process)

    def stop(self) -> None:
        assert self._process is not None
        processes.stop(self._process)


async def _kill_again_and_again(control: Control, record: Record, sizes: Sizes) -> None:
    ends_at = time.monotonic() + sizes.seconds
    while time.monotonic() < ends_at:
        if not record.kills or random.random() > DIES_YOUNG:
            await _until_serving(control)
        await asyncio.sleep(random.uniform(sizes.least_life_s, sizes.most_life_s))
        control.kill()
        control.start()
        record.kills += 1


async def _until_serving(control: Control) -> None:
    request = load.get("/health", "none")
    async with asyncio.timeout(processes.READY_S):
        while True:
            control.check()
            try:
                await load.ask(control.port, request, timeout_s=ANSWER_S)
                return
            except OSError:
                await asyncio.sleep(RETRY_S)


async def _client(number: int, token: str, port: int, record: Record, stopping: asyncio.Event, pause_s: float) -> None:
    """Create organizations until told to stop, every other one under a key."""
    count = 0
    while not stopping.is_set():
        name = f"Harbor {number}-{count}"
        key = f"key-{number}-{count}" if count % 2 else None
        await _create(name, key, token, port, record)
        count += 1
        await asyncio.sleep(pause_s)


async def _create(name: str, key: str | None, token: str, port: int, record: Record) -> None:
    """Create one. Under a key it is sent until an answer comes; without one it is sent once and then is unknown."""
    request = load.post("/v1/orgs", token, {"name": name}, key=key)
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        try:
            reply = await load.ask(port, request, timeout_s=ANSWER_S)
        except ConnectionRefusedError:
            # Nothing listens, so nothing was sent: even a create without a key may safely be tried again.
            await asyncio.sleep(RETRY_S)
            continue
        except (OSError, TimeoutError):
            if key is None:
                record.unanswered.add(name)
                return
            record.repeats += 1
            await asyncio.sleep(RETRY_S)
            continue
        if reply.status == 200:
            record.acknowledged[name] = reply.data()["organizationId"]
        else:
            record.refused.append(f"{name}: {reply.status} {reply.body[:200]!r}")
        return
    record.refused.append(f"{name}: no answer in {SETTLE_S:.0f} s")


async def _until_idle(control: Control, store: Path) -> None:
    """Wait until no job is left. One that never ends is not waited for: the store will show it."""
    deadline = time.monotonic() + SETTLE_S
    while unfinished_jobs(store) and time.monotonic() < deadline:
        control.check()
        await asyncio.sleep(0.1)
