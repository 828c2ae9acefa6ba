"""Resource limits of an app, and its view of the machine."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path

import pytest
from tests.runtime.engines.engine_support import Engine, Replica, groups_of, lives
from tests.runtime.workers.invoker_support import until

QUOTAS = ("cpu.cfs_quota_us", "cpu.max")
FLOOD = """
import os
while True:
    os.write(1, b"a line of no use to anybody\\n" * 2000)
"""


def lose(app: Replica, code: str) -> None:
    """Run code that ends the app."""
    with pytest.raises((ConnectionError, OSError, ValueError)):
        app.run(code)


def test_an_app_that_takes_too_much_memory_is_ended_and_told_so(engine: Engine) -> None:
    app = engine.lab(memory_mb=96)

    lose(app, "hold = []\nwhile True:\n    hold.append(b'x' * (1 << 20))\n    time.sleep(0.002)")

    state = app.until(restarts=1, is_listening=True)
    assert state["reason"] == "it ran out of memory (96 MB)"
    assert "s ended: it ran out of memory (96 MB); starting again" in app.log()
    app.stop()


@pytest.mark.boundary("tenant-to-tenant", "An app cannot hold memory that no process of it has mapped.")
def test_an_app_cannot_hold_memory_in_a_file_that_is_not_mapped(engine: Engine) -> None:
    app = engine.lab(memory_mb=96)

    hold = """
        file = os.memfd_create("x")
        while os.fstat(file).st_size < 512 << 20:
            os.write(file, bytes(1 << 20))
        """
    try:
        answer = app.run(f"def hold():{textwrap.indent(textwrap.dedent(hold), '    ')}\nanswer = attempt(hold)")
    except (ConnectionError, OSError, ValueError):
        answer = app.until(restarts=1, is_listening=True)["reason"]

    assert answer in ("ENOSYS", "it ran out of memory (96 MB)")
    app.stop()


@pytest.mark.boundary("tenant-to-tenant", "Shared memory of an app counts although it is not in the page tables.")
def test_shared_memory_that_is_not_in_the_page_tables_counts(engine: Engine) -> None:
    app = engine.lab(memory_mb=96)

    lose(app, """
        import mmap
        held = []
        while True:
            held.append(mmap.mmap(-1, 16 << 20))
            held[-1].write(bytes(16 << 20))
            held[-1].madvise(mmap.MADV_DONTNEED)
            time.sleep(0.3)
        """)  # fmt: skip

    assert app.until(restarts=1, is_listening=True)["reason"] == "it ran out of memory (96 MB)"
    app.stop()


def test_a_fork_bomb_is_bounded_and_is_gone_with_its_app(engine: Engine) -> None:
    app = engine.lab(pids=24)

    made = app.run(
        """
        made = []
        while len(made) < 500:
            try:
                pid = os.fork()
            except OSError:
                break
            if pid == 0:
                time.sleep(600)
                os._exit(0)
            made.append(pid)
        answer = len(made)
        """
    )
    app.stop(grace_s=0.0)

    assert 1 <= made <= 24
    assert not lives(app.shim)


def test_an_app_sees_no_more_of_the_machine_than_it_needs(engine: Engine) -> None:
    app = engine.lab(base="site")

    answer = app.run(
        """
        answer = {
            "cwd": os.getcwd(),
            "host": socket.gethostname(),
            "root": sorted(os.listdir("/")),
            "writes": [attempt(write, path) for path in ("/work/site/x", "/x", "/etc/x", "/tmp/x", "/dev/shm/y")],
            "first": os.getppid(),
            "signals": [attempt(os.kill, 1, number) for number in (0, 9)],
            "memory": attempt(open, "/proc/1/mem"),
            "environ": attempt(open, "/proc/1/environ"),
            "rights": [line.split()[1] for line in open("/proc/self/status") if line[:7] in ("CapEff:", "NoNewPr")],
            "groups": [line.split(":", 2)[2].strip() for who in (1, "self") for line in open(f"/proc/{who}/cgroup")],
        }
        """
    )

    assert (answer["cwd"], answer["host"], answer["first"]) == ("/work/site", "app", 1)
    assert not {"data", "home", "sys", "var", "opt"} & set(answer["root"])
    assert answer["writes"] == ["done"] * 5
    assert answer["signals"] == [
        "done",
        "done",
    ]  # The kernel protects process 1 of a PID namespace from signals of its own processes.
    assert (answer["memory"], answer["environ"]) == ("EACCES", "EACCES")
    assert answer["rights"] == ["0000000000000000", "1"]
    assert set(answer["groups"]) == {"/"}  # The path of its cgroup on the host is hidden.
    assert "hello" in app.get()
    app.stop()


def test_temporary_files_have_room_of_their_own_and_end_with_the_app(engine: Engine) -> None:
    app = engine.lab(memory_mb=512)

    code = app.run("answer = [attempt(write, '/tmp/small', 8 << 20), attempt(write, '/tmp/large', 300 << 20)]")
    lose(app, "os._exit(1)")
    app.until(restarts=1, is_listening=True)

    assert code[0] == "done"
    assert code[1] in ("ENOSPC", "EFBIG")
    assert app.run("answer = os.listdir('/tmp')") == []
    app.stop()


def test_an_app_that_prints_without_end_is_still_answered_for(engine: Engine) -> None:
    app = engine.start({"main.py": FLOOD}, [engine.python, "main.py"], listens=False)

    until(lambda: any(Path(app.spec["log"]).glob(f"*-{app.key}.log")))
    states = [app.look()["phase"] for _ in range(5)]
    app.stop(grace_s=0.0)

    assert states == ["running"] * 5
    assert sum(path.stat().st_size for path in Path(app.spec["log"]).glob("*.log")) < 110 * 10**6


def test_secrets_are_not_written_to_the_log(engine: Engine) -> None:
    app = engine.lab(env={"PATH": "/usr/bin", "KEY": "hush-hush"}, hidden=["hush-hush"])

    app.run(
        "print('the key is', os.environ['KEY'], flush=True); sys.stderr.write('no end of line'); sys.stderr.flush()"
    )

    until(lambda: "e no end of line" in app.log())
    assert "o the key is ****" in app.log()
    app.stop()


def test_the_processor_is_limited_until_the_limit_is_lifted(engine: Engine) -> None:
    app = engine.lab()

    engine.ask("limit", key=app.key, cpu=0.1)
    limited = _burn(app)
    engine.ask("limit", key=app.key, cpu=None)
    free = _burn(app)

    has_limits = any("/cpu" in folder or "cpu" in _controllers(folder) for folder in groups_of([app.shim]))
    assert free > 0
    assert limited < 350_000 or not has_limits  # Of about a second; an unprivileged user rarely has cgroups.
    app.stop()


def test_a_limit_of_the_processor_holds_again_when_an_app_that_crashed_listens(engine: Engine) -> None:
    app = engine.lab()
    engine.ask("limit", key=app.key, cpu=0.5)

    lose(app, "os._exit(1)")
    app.until(restarts=1, is_listening=True)

    quotas = [path for folder in groups_of([app.shim]) for path in Path(folder).glob("cpu.*") if path.name in QUOTAS]
    assert all(path.read_text().startswith("50000") for path in quotas)
    app.stop()


def _burn(app: Replica) -> int:
    """Keep a CPU busy for a second; return the CPU time used, in microseconds."""
    before = app.look()["cpu_us"]
    app.run("until = time.monotonic() + 1.0\nwhile time.monotonic() < until: pass\nanswer = 1")
    return int(app.look()["cpu_us"] - before)


def _controllers(folder: str) -> str:
    path = Path(folder, "cgroup.controllers")
    return path.read_text() if path.exists() else ""


def test_a_shim_is_small_and_does_nothing_while_its_app_is_idle(engine: Engine) -> None:
    app = engine.lab()
    app.get()

    kilobytes = _pss(app.shim)
    before, since = _ticks(app.shim), time.monotonic()
    time.sleep(1.0)
    used = (_ticks(app.shim) - before) / 100 / (time.monotonic() - since)

    assert kilobytes < 15_000
    assert used < 0.05
    app.stop()


def _pss(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
