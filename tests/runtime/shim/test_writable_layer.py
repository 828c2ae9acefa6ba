"""The application folder is writable, without a change to the release that replicas share."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.engines.engine_support import LAB, Engine, Replica
from tests.runtime.workers.invoker_support import give, until

from moorage.runtime.shim.watch import CHANGES_WARNING

FILES = {"lab.py": LAB, "dist/main.js": "old", "data.txt": "as released"}


def start(engine: Engine, **changed: Any) -> Replica:
    spec = engine.make(FILES, [engine.python, "lab.py"], **changed)
    give(Path(spec["release"]), engine.mode)  # A platform owns the releases that it unpacked.
    return engine.begin(spec)


def test_files_are_added_changed_and_removed_and_the_release_stays_as_it_is(engine: Engine) -> None:
    app = start(engine, base="apps/a:b,c")

    answer = app.run("""
        import shutil
        os.mkdir("instance")
        write("instance/app.db")
        write("data.txt", 3)
        shutil.rmtree("dist")
        os.mkdir("dist")
        write("dist/new.js")
        is_own = os.stat("lab.py").st_uid == os.getuid()
        answer = [sorted(os.listdir(".")), os.listdir("dist"), open("data.txt").read(), is_own]
    """)

    release = Path(app.spec["release"])
    assert answer == [["data.txt", "dist", "instance", "lab.py"], ["new.js"], "xxx", True]
    assert (release / "data.txt").read_text() == "as released"
    assert sorted(path.name for path in release.rglob("*")) == ["data.txt", "dist", "lab.py", "main.js"]
    until(lambda: sum(CHANGES_WARNING in line for line in app.log()) == 1)
    app.stop()


def test_changes_are_gone_with_the_run_and_an_app_without_any_is_not_warned(engine: Engine) -> None:
    app = start(engine)
    app.run("write('left.txt')")
    with contextlib.suppress(OSError):
        app.run("os._exit(2)")
    app.until(restarts=1, is_listening=True)

    assert app.run("answer = os.path.exists('left.txt')") is False
    app.stop()


def test_the_layer_and_tmp_are_bounded_together(engine: Engine) -> None:
    app = start(engine, memory_mb=600)

    answer = app.run("""
        write("/tmp/first", 200 << 20)
        answer = [attempt(write, "second", 100 << 20)]
        os.remove("/tmp/first")
        os.remove("second")
        answer.append(attempt(write, "third", 100 << 20))
    """)

    assert answer == ["ENOSPC", "done"]
    app.stop()


@pytest.mark.boundary(
    "tenant-to-tenant", "The writable layer of an app leads neither to its release nor out of its folder."
)
def test_an_app_cannot_reach_the_release_below_its_layer(engine: Engine) -> None:
    app = start(engine)

    mounts = app.run("answer = open('/proc/self/mountinfo').read()")
    answer = app.run("answer = [os.listdir('/run'), *(attempt(write, f'{place}/x') for place in ('/usr/bin', '/lib'))]")

    assert " /work " in mounts
    assert answer == [[], "EROFS", "EROFS"]
    app.stop()


@pytest.mark.boundary(
    "tenant-to-tenant", "What an app writes to its root folder is bounded, seen by itself alone, and ends with it."
)
def test_an_app_may_create_folders_outside_of_its_own_as_in_a_container(engine: Engine) -> None:
    app, other = start(engine), start(engine)

    answer = app.run("""
        os.makedirs("/etc/todos")
        os.makedirs("/var/lib/harbor")
        write("/etc/todos/todo.db")
        answer = [attempt(write, "/var/lib/harbor/large", 100 << 20), os.stat("/var").st_uid == os.getuid()]
    """)
    seen = other.run("answer = [os.path.exists(path) for path in ('/etc/todos', '/var')]")
    with contextlib.suppress(OSError):
        app.run("os._exit(2)")
    app.until(restarts=1, is_listening=True)

    assert answer == ["ENOSPC", True]
    assert seen == [False, False]
    assert not Path("/etc/todos").exists()
    assert app.run("answer = os.path.exists('/etc/todos')") is False
    app.stop()
    other.stop()


def test_entries_of_the_platform_stay_where_an_app_has_its_own_user(engine: Engine) -> None:
    app = start(engine)

    answer = app.run("""
        paths = ("/etc/passwd", "/etc/resolv.conf", "/bin")
        answer = [attempt(os.rename, path, f"{path}-old") for path in paths]
    """)

    # Without root the platform is the same user, and the app harms itself alone.
    assert answer == (["EPERM"] * 3 if engine.mode == "root" else ["done"] * 3)
    app.stop()
