"""Owners of folders for kernels without id-mapped mounts, while programs of the tenant change the folders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from moorage.runtime.sandbox.rootfs import copies
from moorage.runtime.sandbox.rootfs.spec import FIRST_RANGE

Chown = tuple[str, int, int]


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> list[Chown]:
    """The recorded changes of owners, which only root could make."""
    made: list[Chown] = []

    def chown(name: str, uid: int, gid: int, **_: Any) -> None:
        made.append((os.path.basename(name), uid, gid))

    monkeypatch.setattr(os, "chown", chown)
    return made


def test_all_entries_get_owners_of_the_range(tmp_path: Path, changes: list[Chown]) -> None:
    (tmp_path / "volume" / "inner").mkdir(parents=True)
    (tmp_path / "volume" / "inner" / "file").touch()
    (tmp_path / "volume" / "link").symlink_to("/etc/passwd")
    uid, gid = (copies.image_id(number) for number in (os.getuid(), os.getgid()))

    copies.move_owners(str(tmp_path / "volume"), FIRST_RANGE)

    assert {name for name, *_ in changes} == {"volume", "inner", "file", "link"}
    assert {(new_uid, new_gid) for _, new_uid, new_gid in changes} == {(FIRST_RANGE + uid, FIRST_RANGE + gid)}


@pytest.mark.boundary("code-to-host", "A change of owners stays in the folder of a tenant that swaps it for links.")
def test_a_folder_that_becomes_a_link_is_not_followed(
    tmp_path: Path, changes: list[Chown], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "volume" / "inner").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").touch()
    record = os.chown

    def replace_after(name: str, *args: Any, **options: Any) -> None:
        record(name, *args, **options)
        inner = tmp_path / "volume" / "inner"
        if os.path.basename(name) == "inner" and not inner.is_symlink():
            inner.rmdir()
            inner.symlink_to(tmp_path / "outside")

    monkeypatch.setattr(os, "chown", replace_after)

    copies.move_owners(str(tmp_path / "volume"), FIRST_RANGE)

    assert [name for name, *_ in changes] == ["volume", "inner"]
