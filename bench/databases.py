"""Databases: time to create one, cost of the sandbox for clients, memory of fifty idle ones.

Creation is compared with initialising a data folder, throughput with the same program, files and settings outside of a
sandbox, in alternating rounds; the platform's metrics are compared with the counts of pgbench.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pymysql

from bench import apps_platform, machine
from bench.apps_platform import Port
from bench.figures import Figure, at_most, median, percentile, ratio_at_least, ratio_at_most
from bench.function_platform import wait_until
from bench.processes import free_ports
from moorage.runtime.database_servers.ports import CONF, DATA, RUN, Software
from moorage.runtime.database_servers.software.catalog import SoftwareCatalog, shared_folder

POSTGRESQL_BAR, MARIADB_BAR = ratio_at_most(0.45), at_most(0.4)
P95_BARS = {"postgresql": ratio_at_most(2), "mysql": at_most(1)}  # against the median, and in seconds
THROUGHPUT_BAR = ratio_at_least(0.95)
MEMORY_BAR = at_most(40)
COUNT_BAR = at_most(2)
VERSIONS = {"postgresql": "16.4.0", "mysql": "8.4.2"}
SHOWN = {"postgresql": "PostgreSQL", "mysql": "MariaDB"}
ROOMY = "medium"  # a tier that this machine's processors do not exceed
STATEMENTS = 7  # in each transaction of pgbench
SAMPLED_S = 40.0  # By then the platform has looked at least twice.
NOBODY = 65534


@dataclass(frozen=True)
class Sizes:
    creates: int  # of each kind
    rounds: int  # of each side
    round_s: int
    scale: int
    idle: int
    settle_s: float


FULL = Sizes(creates=15, rounds=6, round_s=8, scale=10, idle=50, settle_s=30)
TINY = Sizes(creates=1, rounds=1, round_s=1, scale=1, idle=2, settle_s=1)


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    with apps_platform.running(folder) as port:
        return [
            *_creation(port, sizes),
            *_throughput(port, sizes),
            *_idle(port, sizes),
        ]


def software() -> Software:
    """Return the PostgreSQL that the platform runs."""
    found = SoftwareCatalog([shared_folder()], shared_folder()).find("postgresql-16.14")
    assert found is not None, "make setup fetches it"
    return found


@dataclass(frozen=True)
class Made:
    name: str
    port: int
    username: str
    password: str
    database: str
    seconds: float  # from the request to the first answer of the server


def _make(port: Port, name: str, kind: str, tier: str) -> Made:
    asked = {"name": name, "type": kind, "version": VERSIONS[kind], "instanceType": tier}
    begun = time.perf_counter()
    port.call("POST", "/v1/databases", asked)
    wait_until(lambda: bool(_read(port, name)["status"] == "running"), f"{name} runs", every_s=0.005)
    told, found = port.call("GET", f"/v1/databases/{name}/password"), _read(port, name)["connectionDetails"]
    made = Made(name, found["port"], found["username"], told["password"], found["database"], 0.0)
    _ask_once(made, kind)
    return Made(name, made.port, made.username, made.password, made.database, time.perf_counter() - begun)


def create(port: Port, name: str) -> None:
    """Make a small PostgreSQL database, and return when it runs."""
    asked = {"name": name, "type": "postgresql", "version": VERSIONS["postgresql"], "instanceType": "micro"}
    port.call("POST", "/v1/databases", asked)
    wait_until(lambda: bool(_read(port, name)["status"] == "running"), f"{name} runs", timeout_s=300)


def _read(port: Port, name: str) -> Any:
    return port.call("GET", f"/v1/databases/{name}")


def _ask_once(made: Made, kind: str) -> None:
    given: dict[str, Any] = {"host": "127.0.0.1", "port": made.port, "user": made.username, "password": made.password}
    if kind == "postgresql":
        with psycopg.connect(**given, dbname=made.database, sslmode="disable") as connection:
            connection.execute("SELECT 1")
    else:
        with pymysql.connect(**given, database=made.database, ssl_disabled=True) as other:
            other.cursor().execute("SELECT 1")


def _delete(port: Port, name: str) -> None:
    port.call("DELETE", f"/v1/databases/{name}")


# From the request to the first answer.


def _creation(port: Port, sizes: Sizes) -> Iterator[Figure]:
    _delete(port, _make(port, "first", "postgresql", "micro").name)  # The first brings the supervisor's code to memory.
    for kind, bar in (("postgresql", POSTGRESQL_BAR), ("mysql", MARIADB_BAR)):
        taken: list[float] = []
        initialised: list[float] = []
        for number in range(sizes.creates):
            made = _make(port, f"{kind}-{number}", kind, "micro")
            taken.append(made.seconds)
            _delete(port, made.name)
            if kind == "postgresql":
                initialised.append(_initialise(port.folder / "initialised"))
        base, against = (median(initialised), "initdb") if initialised else (None, "")
        name = f"databases: create {SHOWN[kind]}, first answer"
        yield Figure(f"{name}, median", median(taken), "s", base=base, base_name=against, bar=bar)
        yield Figure(f"{name}, p95", percentile(taken, 0.95), "s", median(taken), "median", P95_BARS[kind])


def _initialise(folder: Path) -> float:
    """Return how long the usual way takes, which the platform goes once for all databases."""
    found = software()
    folder.mkdir()
    _give(folder)
    begun = time.perf_counter()
    argv = [
        f"{found.home}/bin/initdb",
        "-D",
        str(folder / "data"),
        "-U",
        "bench",
        "-k",
        "-E",
        "UTF8",
        "--locale=C.UTF-8",
    ]
    subprocess.run(argv, check=True, capture_output=True, user=NOBODY, group=NOBODY, extra_groups=[], env=_env(found))
    taken = time.perf_counter() - begun
    shutil.rmtree(folder)
    return taken


def _env(found: Software) -> dict[str, str]:
    return {name: value.replace("{home}", found.home) for name, value in found.env.items()}


# Cost of the sandbox, and accuracy of the metrics.


def _throughput(port: Port, sizes: Sizes) -> Iterator[Figure]:
    made = _make(port, "busy", "postgresql", ROOMY)
    _pgbench(made, "--initialize", "--quiet", f"--scale={sizes.scale}")
    ours: list[float] = []
    theirs: list[float] = []
    with _bare(port, made) as bare:
        for number in range(sizes.rounds):
            turns = [(made, ours), (bare, theirs)]
            for each, results in turns if number % 2 else reversed(turns):
                results.append(_rate(each, sizes.round_s))
    yield Figure(
        "databases: pgbench, transactions a second, median",
        median(ours),
        "tps",
        base=median(theirs),
        base_name="bare",
        bar=THROUGHPUT_BAR,
    )
    yield _counted(port, made, sizes)
    _delete(port, made.name)


def _rate(made: Made, seconds: int) -> float:
    said = _pgbench(made, "--client=4", "--jobs=2", "--no-vacuum", f"--time={seconds}")
    found = re.search(r"tps = ([0-9.]+) \(without initial", said)
    assert found, said
    return float(found[1])


def _pgbench(made: Made, *words: str) -> str:
    found = software()
    argv = [
        f"{found.tools}/pgbench",
        "-h",
        "127.0.0.1",
        "-p",
        str(made.port),
        "-U",
        made.username,
        *words,
        made.database,
    ]
    env = {**found.tools_env, "PGPASSWORD": made.password}
    return subprocess.run(argv, check=True, capture_output=True, text=True, env=env).stdout


@contextmanager
def _bare(port: Port, made: Made) -> Iterator[Made]:
    """Run the same program on a copy of the same files with the same settings, outside of any sandbox."""
    number = _read(port, made.name)["id"]
    live, copy = port.data / "databases" / str(number) / "s1", port.folder / "bare"
    found = software()
    listens_at = free_ports(1)[0]
    port.call("POST", f"/v1/databases/{made.name}/backups")  # A checkpoint: less is left to recover.
    shutil.copytree(live, copy, ignore=shutil.ignore_patterns(RUN, "postmaster.pid"), symlinks=True)
    (copy / RUN).mkdir(mode=0o700)
    for file in (copy / CONF).iterdir():
        text = file.read_text().replace("'/data/", f"'{copy}/").replace(f"port = {made.port}", f"port = {listens_at}")
        file.write_text(text.replace(f"'{made.port}'", f"'{listens_at}'").replace("0.0.0.0", "127.0.0.1"))
    _give(copy)
    (copy / DATA).chmod(0o700)
    argv = [
        f"{found.home}/{found.program}",
        "-c",
        f"config_file={copy / CONF}/postgresql.conf",
        "-c",
        f"port={listens_at}",
    ]
    log = (port.folder / "bare.log").open("wb")
    server = subprocess.Popen(
        argv, env=_env(found), user=NOBODY, group=NOBODY, extra_groups=[], stdout=log, stderr=log, cwd="/"
    )
    bare = Made("bare", listens_at, made.username, made.password, made.database, 0.0)
    try:
        wait_until(lambda: _answers(bare), "the bare server answers")
        yield bare
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()
        log.close()


def _give(folder: Path) -> None:
    """Give a folder to an unprivileged user, and let that user reach it."""
    os.chown(folder, NOBODY, NOBODY)
    for path in folder.rglob("*"):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    for parent in folder.parents:
        if not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)


def _answers(made: Made) -> bool:
    try:
        _ask_once(made, "postgresql")
    except psycopg.OperationalError:
        return False
    return True


def _counted(port: Port, made: Made, sizes: Sizes) -> Figure:
    """Compare the platform's counters with the requests of pgbench."""
    seconds = max(sizes.round_s * 4, 1)
    _wait_for_look(port, made)
    before = _queries(port, made)
    said = _pgbench(made, "--client=4", "--jobs=2", "--no-vacuum", f"--time={seconds}")
    found = re.search(r"number of transactions actually processed: (\d+)", said)
    assert found, said
    sent = int(found[1]) * STATEMENTS
    _wait_for_look(port, made)
    shown = _queries(port, made) - before
    return Figure("databases: statements counted, off by", abs(shown - sent) / sent * 100, "%", bar=COUNT_BAR)


def _wait_for_look(port: Port, made: Made) -> None:
    """Wait for two readings of the counters: all earlier requests are in them."""
    looks = _looks(port, made)
    wait_until(lambda: _looks(port, made) >= looks + 2, "the platform looks", timeout_s=SAMPLED_S * 2, every_s=0.5)


def _looks(port: Port, made: Made) -> int:
    return int(_sum(port, made, "answers"))


def _queries(port: Port, made: Made) -> int:
    return int(_sum(port, made, "queries"))


def _sum(port: Port, made: Made, column: str) -> float:
    number = _read(port, made.name)["id"]
    with contextlib.closing(sqlite3.connect(f"file:{port.data}/store/moorage.db?mode=ro", uri=True)) as store:
        query = f"SELECT coalesce(sum({column}), 0) FROM database_sample WHERE database_id = ? AND step_s = 3600"
        return float(store.execute(query, (number,)).fetchone()[0])


# Doing nothing.


def _idle(port: Port, sizes: Sizes) -> Iterator[Figure]:
    """Measure the memory of idle databases of each kind, with their shims."""
    for kind, shown in SHOWN.items():
        others = {shim.pid for shim in apps_platform.shims_of(port.data, "databases")}
        for number in range(sizes.idle):
            _make(port, f"idle-{kind}-{number}", kind, "free")
        time.sleep(sizes.settle_s)
        shims = [shim for shim in apps_platform.shims_of(port.data, "databases") if shim.pid not in others]
        weights = [machine.memory_of_tree(shim.pid).pss_mb for shim in shims if shim.is_alive]
        name = f"databases: {sizes.idle} of {shown} idle, memory of each"
        yield Figure(f"{name}, largest", max(weights), "MB PSS", bar=MEMORY_BAR)
        yield Figure(f"{name}, mean", sum(weights) / len(weights), "MB PSS")
