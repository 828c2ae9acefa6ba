"""The fork server of shims: it keeps no secrets, does not block, and ends with its engine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import threading
from pathlib import Path

import pytest
from tests.runtime.engines.engine_support import Engine, engine_of, lives
from tests.runtime.workers.invoker_support import until

from moorage.runtime.engines.local import LocalReplicas
from moorage.runtime.engines.local_specs import LocalFiles
from moorage.runtime.engines.ports import AppSpec, CannotStart
from moorage.runtime.sandbox.usage import process_tree

SESSION = 3  # index in /proc/<pid>/stat, counted after the name


def arguments(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0 ").split("\0")


def fork_server_below(pid: int) -> int | None:
    found = [child for child in process_tree.children(pid) if "moorage.runtime.shim" in arguments(child)]
    return found[0] if found and lives(found[0]) else None


def fork_server_of(engine: Engine) -> int:
    assert engine.process is not None
    return fork_server_below(engine.process.pid) or 0


def spec_for(folder: Path, key: str) -> AppSpec:
    app = folder / "app"
    app.mkdir(exist_ok=True)
    folder.chmod(0o755)
    files = LocalFiles(release=str(app))
    env = {"PATH": "/usr/bin:/bin"}
    return AppSpec(key=key, token="token", argv=["sleep", "600"], env=env, files=files, log=str(folder / "logs"))


def test_shims_come_from_one_fork_server_and_lists_of_processes_tell_them_apart(engine: Engine) -> None:
    one = engine.start({}, ["sleep", "600"], listens=False)
    fork_server = fork_server_of(engine)
    other = engine.start({}, ["sleep", "600"], listens=False)

    assert fork_server_of(engine) == fork_server
    assert arguments(fork_server)[1:] == ["-m", "moorage.runtime.shim", str(one.folder.parent)]
    assert [arguments(app.shim)[1:] for app in (one, other)] == [
        ["-m", "moorage.runtime.shim", str(app.folder)] for app in (one, other)
    ]
    one.stop()
    other.stop()


def test_a_shim_stands_for_itself_and_holds_nothing_of_the_fork_server(engine: Engine) -> None:
    app = engine.start({}, ["sleep", "600"], listens=False)

    status = Path(f"/proc/{app.shim}/status").read_text()
    environment = Path(f"/proc/{app.shim}/environ").read_bytes().decode().split("\0")
    stat = process_tree.find_stat(app.shim)

    assert stat is not None
    assert int(stat[SESSION]) == app.shim
    assert "Umask:\t0077" in status
    assert f"PPid:\t{fork_server_of(engine)}\n" not in status
    assert os.readlink(f"/proc/{app.shim}/cwd") == "/"
    assert {line.partition("=")[0] for line in environment} - {"PYTHONPATH", ""} == {"LANG", "PATH"}
    assert [os.readlink(f"/proc/{app.shim}/fd/{number}") for number in (0, 1, 2)] == ["/dev/null"] * 3
    app.stop()


def test_the_fork_server_has_nothing_of_the_platform_and_never_hears_what_shims_are_told(engine: Engine) -> None:
    secret = "k9" + "-canary-of-an-app" * 2
    app = engine.start({}, ["sleep", "600"], listens=False, env={"PATH": "/usr/bin:/bin", "KEY": secret})
    fork_server = fork_server_of(engine)

    assert "SECRET" not in Path(f"/proc/{fork_server}/environ").read_bytes().decode()
    assert sorted(map(int, os.listdir(f"/proc/{fork_server}/fd"))) == [0, 1, 2]
    assert secret.encode() in memory_of(app.shim)
    assert secret.encode() not in memory_of(fork_server)
    app.stop()


def memory_of(pid: int) -> bytes:
    """Return the writable memory of a process."""
    found = []
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for start, end in re.findall(r"^(\w+)-(\w+) rw", Path(f"/proc/{pid}/maps").read_text(), re.MULTILINE):
            with contextlib.suppress(OSError):
                memory.seek(int(start, 16))
                found.append(memory.read(int(end, 16) - int(start, 16)))
    return b"".join(found)


def test_a_fork_server_that_was_killed_is_replaced_and_its_shims_live_on(engine: Engine) -> None:
    before = engine.start({}, ["sleep", "600"], listens=False)
    fork_server = fork_server_of(engine)

    os.kill(fork_server, signal.SIGKILL)
    after = engine.start({}, ["sleep", "600"], listens=False)

    assert fork_server_of(engine) != fork_server
    assert lives(before.shim)
    assert lives(after.shim)
    before.stop()
    after.stop()


def test_a_replica_that_waits_for_a_fork_server_when_it_dies_comes_from_the_next_one(engine: Engine) -> None:
    engine.start({}, ["sleep", "600"], listens=False).stop()
    fork_server = fork_server_of(engine)
    os.kill(fork_server, signal.SIGSTOP)
    killer = threading.Timer(0.3, os.kill, (fork_server, signal.SIGKILL))
    killer.start()

    app = engine.start({}, ["sleep", "600"], listens=False)

    killer.join()
    assert fork_server_of(engine) != fork_server
    assert lives(app.shim)
    app.stop()


def test_the_fork_server_ends_with_a_control_plane_that_is_killed() -> None:
    with engine_of("user") as engine:
        app = engine.start({}, ["sleep", "600"], listens=False)
        fork_server = fork_server_of(engine)

        engine.end(kill=True)

        until(lambda: not lives(fork_server))
        assert lives(app.shim)
        engine.ask("adopt", tokens={app.key: app.spec["token"]})


@pytest.mark.anyio
async def test_many_replicas_can_be_started_at_once(tmp_path: Path) -> None:
    replicas = LocalReplicas(tmp_path / "run")
    keys = [f"r{number}" for number in range(12)]

    states = await asyncio.gather(*(replicas.start(spec_for(tmp_path, key)) for key in keys))

    assert [state.key for state in states] == keys
    assert len({state.pid for state in states}) == len({state.port for state in states}) == len(keys)
    await asyncio.gather(*(replicas.stop(key, 1.0) for key in keys))
    await replicas.close()


@pytest.mark.anyio
async def test_a_fork_server_can_be_made_before_it_is_needed_and_ends_when_the_engine_is_closed(tmp_path: Path) -> None:
    replicas = LocalReplicas(tmp_path / "run")

    await replicas.warm()
    fork_server = until(lambda: fork_server_below(os.getpid()))
    await replicas.close()

    assert fork_server
    assert not lives(fork_server)


@pytest.mark.anyio
async def test_a_fork_server_that_cannot_come_up_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken" / "moorage").mkdir(parents=True)
    (tmp_path / "broken" / "moorage" / "__init__.py").write_text("raise SystemExit('the files are damaged')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"))
    replicas = LocalReplicas(tmp_path / "run")

    with pytest.raises(CannotStart, match="it cannot be started: the files are damaged"):
        await replicas.start(spec_for(tmp_path, "r1"))

    await replicas.close()
