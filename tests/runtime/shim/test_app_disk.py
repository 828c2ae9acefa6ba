"""The volume of an app: it outlives the app, and has a size limit."""

from __future__ import annotations

from pathlib import Path

from tests.runtime.engines.engine_support import Engine
from tests.runtime.workers.invoker_support import until

FULL = "s its disk is full (8 MB): /data is read-only now"


def test_a_volume_is_kept_when_the_app_is_started_anew(engine: Engine) -> None:
    volume = engine.volume()
    first = engine.lab(volume=volume, disk_mb=64)
    first.run("write('/data/kept')")
    first.stop()

    second = engine.lab(volume=volume, disk_mb=64)

    assert second.run("answer = os.listdir('/data')") == ["kept"]
    until(lambda: second.look()["disk_bytes"] > 0)
    second.stop()


def test_a_full_disk_is_read_only_until_there_is_room_again(engine: Engine) -> None:
    volume = engine.volume()
    app = engine.lab(volume=volume, disk_mb=8)

    app.run("write('/data/a', 6 << 20); write('/data/b', 6 << 20)")
    until(lambda: FULL in app.log())
    refused = app.run("answer = attempt(write, '/data/c')")
    Path(volume, "a").unlink()
    until(lambda: "s /data is writable again" in app.log())

    assert refused == "EROFS"
    assert app.run("answer = attempt(write, '/data/c')") == "done"
    assert app.look()["restarts"] == 0
    app.stop()


def test_an_app_that_keeps_a_file_open_on_a_full_disk_is_started_again_without_the_right_to_write(
    engine: Engine,
) -> None:
    app = engine.lab(volume=engine.volume(), disk_mb=8)

    app.run("write('/data/a', 7 << 20); kept = open('/data/b', 'wb'); kept.write(b'x' * (4 << 20)); kept.flush(); "
            "__builtins__['kept'] = kept")  # fmt: skip
    state = app.until(restarts=1, is_listening=True)

    assert state["reason"] == "its disk is full (8 MB)"
    assert app.run("answer = attempt(write, '/data/c')") == "EROFS"
    app.stop()


def test_no_file_is_larger_than_the_disk(engine: Engine) -> None:
    app = engine.lab(volume=engine.volume(), disk_mb=300)

    answer = app.run("file = open('/data/a', 'wb'); answer = attempt(file.truncate, 301 << 20)")

    assert answer == "EFBIG"
    app.stop()
