"""Monitors: cost of a check, punctuality of thousands, and alerts across a crash.

The whole platform runs, each monitor has an alert, and the cost of a check is the CPU time of the control process, less
its CPU time without monitors: probing, evaluating and storing together.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bench import apps_platform, machine, processes
from bench.apps_platform import Port
from bench.figures import Figure, at_most, percentile
from bench.function_platform import in_parallel, wait_until

HTTP_BAR = at_most(1)
HTTPS_BAR = at_most(3)
LAG_BAR = at_most(1)
MEMORY_BAR = at_most(250)
NONE = at_most(0)
INTERVAL_S = 30
PER_SEAT = 400  # A plan has room for five hundred.
MB = 2**20


@dataclass(frozen=True)
class Sizes:
    monitors: int
    secure: int
    idle_s: float
    settle_s: float  # the first checks run at once and are not measured
    steady_s: int  # a multiple of the interval
    secure_s: int
    crash_monitors: int
    alerts: int


FULL = Sizes(2000, 1000, 20, 40, 180, 60, 1000, 50)
TINY = Sizes(4, 3, 1, 1, 30, 30, 6, 2)


@dataclass(frozen=True)
class World:
    """Addresses of the targets and receivers, and the received messages."""

    http: int
    https: int
    smtp: int
    folder: Path

    def arrived(self) -> list[dict[str, Any]]:
        file = self.folder / "arrived.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    with world(folder / "world") as around:
        steady = [*_plain(folder / "plain", sizes, around), *_secure(folder / "secure", sizes, around)]
        return [*steady, *_crash(folder / "crash", sizes, around)]


@contextmanager
def world(folder: Path) -> Iterator[World]:
    folder.mkdir(parents=True)
    _make_certificate(folder)
    argv = [sys.executable, "-m", "bench.monitor_world", str(folder)]
    with processes.running(argv, folder / "log", dict(os.environ)) as process:
        assert process.stdout is not None
        line = processes.wait_for_line(process.stdout.fileno(), "ready: ", folder / "log")
        http, https, smtp = json.loads(line.removeprefix("ready: "))
        yield World(http, https, smtp, folder)


def _make_certificate(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, *private))


@contextmanager
def platform(folder: Path, around: World, monitors: int) -> Iterator[Port]:
    """Run a platform that trusts the targets' certificate and writes to the mail server."""
    variables = {"SSL_CERT_FILE": str(around.folder / "certificate.pem")}
    before = {name: os.environ.get(name) for name in variables}
    os.environ |= variables
    try:
        seats = -(-monitors // PER_SEAT)
        with apps_platform.running(folder, seats=seats, smtp_url=f"smtp://127.0.0.1:{around.smtp}") as port:
            yield port
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _plain(folder: Path, sizes: Sizes, around: World) -> list[Figure]:
    with platform(folder, around, sizes.monitors) as port:
        idle = _cpu_share(port, sizes.idle_s)
        _make(port, sizes.monitors, f"http://localhost:{around.http}/")
        steady = _watch(port, sizes.monitors, sizes.settle_s, sizes.steady_s, idle)
        memory = _peak_mb(port.control())
    name = f"monitors: {sizes.monitors} at {INTERVAL_S} s for {sizes.steady_s} s"
    return [
        Figure("monitors: CPU per HTTP check", steady.cpu_ms, "ms", bar=HTTP_BAR),
        Figure(f"{name}: missed", steady.missed, "checks", bar=NONE),
        Figure(f"{name}: late, p99", percentile(steady.lags, 0.99), "s", bar=LAG_BAR),
        Figure(f"{name}: memory of the control process, peak", memory, "MB", bar=MEMORY_BAR),
    ]


def _secure(folder: Path, sizes: Sizes, around: World) -> list[Figure]:
    with platform(folder, around, sizes.secure) as port:
        idle = _cpu_share(port, sizes.idle_s)
        _make(port, sizes.secure, f"https://localhost:{around.https}/")
        steady = _watch(port, sizes.secure, sizes.settle_s, sizes.secure_s, idle)
    name = f"monitors: {sizes.secure} over HTTPS for {sizes.secure_s} s"
    return [
        Figure("monitors: CPU per HTTPS check", steady.cpu_ms, "ms", bar=HTTPS_BAR),
        Figure(f"{name}: missed", steady.missed, "checks", bar=NONE),
    ]


@dataclass(frozen=True)
class Steady:
    cpu_ms: float
    missed: int
    lags: list[float]


def _watch(port: Port, monitors: int, settle_s: float, seconds: int, idle: float) -> Steady:
    time.sleep(settle_s)
    pid, begun, cpu = port.control(), time.time(), machine.cpu_seconds(port.control())
    time.sleep(seconds)
    used = machine.cpu_seconds(pid) - cpu - idle * (time.time() - begun)
    time.sleep(3)  # The last results are stored.
    # A span that is a multiple of the interval holds the same number of slots of each monitor.
    start = int(begun * 1000)
    query = "SELECT slot, at, status FROM heartbeat WHERE slot >= ? AND slot < ?"
    rows = _rows(port, query, start, start + seconds * 1000)
    wrong = [row for row in rows if row[2] != "UP"]
    if wrong:
        raise AssertionError(f"{len(wrong)} checks failed, such as {wrong[0]}")
    missed = monitors * (seconds // INTERVAL_S) - len(rows)
    return Steady(used * 1000 / max(len(rows), 1), missed, [(row[1] - row[0]) / 1000 for row in rows])


def _crash(folder: Path, sizes: Sizes, around: World) -> list[Figure]:
    """End the control process twice: while alerts are about to fire, and while the first of them are being told."""
    already = len(around.arrived())
    with platform(folder, around, sizes.crash_monitors) as port:
        broken = f"http://localhost:{around.http}/broken"
        _make(port, sizes.crash_monitors - sizes.alerts, f"http://localhost:{around.http}/", alerts=False)
        _make(port, sizes.alerts, broken, hook=f"http://localhost:{around.http}/hook")
        pending = "SELECT count(*) FROM alert WHERE pending_since IS NOT NULL"
        wait_until(lambda: _rows(port, pending)[0][0] == sizes.alerts, "all alerts are pending", timeout_s=60)
        restarted = _kill(port)
        late = _all_checked(port, sizes.crash_monitors, restarted)
        wait_until(lambda: len(around.arrived()) > already, "the first alert is told", timeout_s=180, every_s=0.005)
        _kill(port)
        wait_until(lambda: _rows(port, _UNTOLD)[0][0] == 0 and _fired(port) == sizes.alerts, "all is told", 240, 0.5)
        time.sleep(5)
        told = around.arrived()[already:]
    name = f"monitors: kill -9 with {sizes.crash_monitors} monitors and {sizes.alerts} alerts pending"
    once = Counter((each["channel"], each["key"]) for each in told)
    wrong = sum(abs(sizes.alerts - sum(channel == each for channel, _ in once)) for each in ("webhook", "email"))
    return [
        Figure(f"{name}: until the last was checked again", late, "s", bar=at_most(INTERVAL_S)),
        Figure(f"{name}: lost or told under two ids", wrong, "notices", bar=NONE),
        Figure(f"{name}: told again under the same id", len(told) - len(once), "notices"),
    ]


_UNTOLD = "SELECT count(*) FROM alert_notice WHERE status = 'pending'"


def _fired(port: Port) -> int:
    return int(_rows(port, "SELECT count(*) FROM alert_incident")[0][0])


def _kill(port: Port) -> float:
    """Kill the control process, and return when another is there."""
    pid = port.control()
    os.kill(pid, signal.SIGKILL)

    def is_another() -> bool:
        with contextlib.suppress(processes.NotReady, OSError):
            return port.control() != pid and port.call("GET", "/v1/monitors") is not None
        return False

    wait_until(is_another, "the platform is back", timeout_s=60)
    return time.time()


def _all_checked(port: Port, monitors: int, since: float) -> float:
    """Return how long it took from a moment until each monitor was checked after it."""
    query = "SELECT min(at) FROM heartbeat WHERE at >= ? GROUP BY monitor_id"
    start = int(since * 1000)
    wait_until(lambda: len(_rows(port, query, start)) == monitors, "all are checked", timeout_s=120, every_s=0.5)
    last = max(int(row[0]) for row in _rows(port, query, start))
    return (last - start) / 1000


def _make(port: Port, count: int, url: str, *, alerts: bool = True, hook: str | None = None) -> None:
    def make(number: int) -> None:
        seat = number // PER_SEAT % len(port.tokens)
        body = {"name": f"monitor {number}", "url": url, "interval": INTERVAL_S, "retries": 0}
        made = port.call("POST", "/v1/monitors", body, seat=seat)
        if alerts:
            rule: dict[str, Any] = {"metric": "status", "condition": "lt", "threshold": 1, "duration": 1}
            if hook:
                rule |= {"notifications": {"email": True, "slack": False, "webhook": True}, "webhookUrl": hook}
            port.call("POST", f"/v1/monitors/{made['id']}/alerts", rule, seat=seat)

    in_parallel(make, range(count))


def _cpu_share(port: Port, seconds: float) -> float:
    """Return the processor time that the control process uses by itself, for each second."""
    pid = port.control()
    before = machine.cpu_seconds(pid)
    time.sleep(seconds)
    return (machine.cpu_seconds(pid) - before) / seconds


def _peak_mb(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / MB


def _rows(port: Port, query: str, *given: int) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(f"file:{port.data}/store/moorage.db?mode=ro", uri=True)) as store:
        return store.execute(query, given).fetchall()
