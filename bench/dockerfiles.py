"""Builds of Dockerfiles, here and by Docker on the same machine: without a cache, and with nothing changed."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import create_engine
from tests.runtime.images.building.corpus import CORPUS, Case
from tests.runtime.images.building.docker_daemon import Docker, running_docker
from tests.runtime.images.building.image_builds import Builds, named, serving_base, write
from tests.runtime.images.registry_support import RegistryServer

from bench.figures import Figure, ratio_at_most
from moorage.core.audit import service as audit
from moorage.core.db.schema import metadata
from moorage.core.db.sqlite import SqliteDatabase
from moorage.core.db.store import Database
from moorage.core.env import Env
from moorage.core.kit.clock import SystemClock
from moorage.core.kit.crypto import KeyRing
from moorage.settings import Settings

COLD_BAR = ratio_at_most(2)
WARM_BAR = ratio_at_most(1)
SOURCES = 2_000  # files of the large context


@dataclass(frozen=True)
class Sizes:
    names: tuple[str, ...]
    repeats: int
    files: int


FULL = Sizes(names=tuple(CORPUS), repeats=3, files=SOURCES)
TINY = Sizes(names=("smallest", "node in one stage"), repeats=1, files=20)


@dataclass
class Times:
    cold_s: float = 0.0
    warm_s: float = 0.0


def run(folder: Path, sizes: Sizes = FULL) -> list[Figure]:
    cases = {name: CORPUS[name] for name in sizes.names}
    cases["a context of many files"] = Case(
        "FROM BASE\nWORKDIR /app\nCOPY . .\nRUN cp -r src built && find built -type f | wc -l > count",
        {f"src/d{number % 50}/f{number}.js": f"export const n = {number};\n" * 20 for number in range(sizes.files)},
    )
    with serving_base() as registry, tempfile.TemporaryDirectory(prefix="d-", ignore_cleanup_errors=True) as own:
        with running_docker(Path(own)) as docker, _database(folder) as db:
            theirs = _docker_times(docker, registry, cases, folder, sizes.repeats)
            ours = asyncio.run(_our_times(db, registry, cases, folder, sizes.repeats))
    count = len(cases)
    return [
        Figure(f"dockerfiles: {count} builds without a cache", ours.cold_s, "s", theirs.cold_s, "docker", COLD_BAR),
        Figure(
            f"dockerfiles: {count} builds with nothing changed", ours.warm_s, "s", theirs.warm_s, "docker", WARM_BAR
        ),
    ]


@contextmanager
def _database(folder: Path) -> Iterator[Database]:
    path = folder / "store.db"
    engine = create_engine(f"sqlite:///{path}")
    metadata.create_all(engine)
    engine.dispose()
    settings = Settings(_env_file=None, data=folder / "data")
    db = SqliteDatabase(path, Env.make(settings, SystemClock(), KeyRing((b"k" * 32,)), b"s" * 32))
    try:
        yield db
    finally:
        db.close()


def _docker_times(
    docker: Docker, registry: RegistryServer, cases: dict[str, Case], folder: Path, repeats: int
) -> Times:
    times = Times()
    for image in ("BASE", "PYTHON"):
        docker.run("pull", "-q", named(f"FROM {image}", registry).removeprefix("FROM "))
    for number, case in enumerate(cases.values()):
        context = folder / f"docker-{number}"
        context.mkdir(parents=True)
        for name, content in case.files.items():
            write(context / name, content)
        dockerfile = folder / f"docker-{number}.file"
        dockerfile.write_text(named(case.docker or case.dockerfile, registry))

        def build(*more: str) -> None:
            docker.build(context, dockerfile, case.args, case.target, *more)  # noqa: B023 - called in this turn

        times.cold_s += _least(lambda: build("--no-cache"), repeats)
        times.warm_s += _least(build, repeats)
    return times


def _least(work: Callable[[], None], repeats: int) -> float:
    """Return the shortest of several times: the machine has other work."""
    found = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return min(found)


async def _our_times(
    db: Database, registry: RegistryServer, cases: dict[str, Case], folder: Path, repeats: int
) -> Times:
    times = Times()
    await db.write(audit.ensure_key)
    builds = Builds(db, registry, folder / "ours")
    builds.home.mkdir()
    for image in ("BASE", "PYTHON"):
        await builds.build(f"FROM {image}\nRUN true")
    for number, case in enumerate(cases.values()):
        cold, warm = [], []
        for repeat in range(repeats):
            builds.cache = f"project-{number}-{repeat}"
            cold.append(await _seconds(builds, case))
            warm.append(await _seconds(builds, case))
        times.cold_s += min(cold)
        times.warm_s += min(warm)
    return times


async def _seconds(builds: Builds, case: Case) -> float:
    prepared = builds.prepare(case.dockerfile, case.files, target=case.target, args=case.args)
    started = time.perf_counter()
    await builds.execute(prepared)
    return time.perf_counter() - started
