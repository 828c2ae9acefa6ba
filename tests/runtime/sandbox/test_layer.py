"""The layer of an application folder where the kernel has no overlay mounts."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moorage.runtime.sandbox import layer, root


def in_own_mounts(work: Callable[[], Any]) -> Any:
    """Run a function in a child with its own mounts; return its result."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            root.take_own_mounts()
            os.write(theirs, json.dumps(work()).encode())
        except BaseException:  # noqa: BLE001 - the parent shows it
            os.write(theirs, json.dumps(traceback.format_exc()).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        result = json.loads(pipe.read())
    os.waitpid(child, 0)
    return result


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(layer, "_overlay", lambda *_: False)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(layer, "TMP", str(tmp_path / "tmp"))  # /tmp itself has the files of this test
    folder = tmp_path / "release"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "run").write_text("old")
    (folder / "link").symlink_to("bin/run")
    return folder


def test_a_small_folder_is_copied(release: Path) -> None:
    def write() -> Any:
        changes = layer.place(str(release), uid=0, tmp_mb=16)
        (release / "bin" / "run").write_text("new")
        return [changes is not None, (release / "link").read_text(), os.listdir(release.parent / "tmp")]

    assert in_own_mounts(write) == [True, "new", []]
    assert (release / "bin" / "run").read_text() == "old"


@pytest.mark.parametrize(("limit", "value"), [("MAX_COPIED_BYTES", 2), ("MAX_COPIED_FILES", 1)])
def test_a_large_folder_stays_as_it_is(release: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    monkeypatch.setattr(layer, limit, value)

    assert in_own_mounts(lambda: layer.place(str(release), uid=0, tmp_mb=16)) is None


def test_a_copy_that_does_not_fit_is_given_up(release: Path) -> None:
    (release / "large").write_bytes(bytes(3 << 20))

    def place() -> Any:
        changes = layer.place(str(release), uid=0, tmp_mb=1)
        (release.parent / "tmp" / "free").write_bytes(bytes(600_000))
        return changes

    assert in_own_mounts(place) is None
