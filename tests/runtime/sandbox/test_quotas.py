"""Project quotas: enforcement by the kernel, and the result without support."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.mounts import own_mounts

from moorage.runtime.sandbox.usage import quotas

MB = 2**20
ALONE = 200_001  # a user without rights: root may write beyond a quota


@contextlib.contextmanager
def ext4(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Yield a small disk, and whether the kernel enforces project quotas on it. An unprivileged user gets a folder."""
    disk, image = folder / "disk", folder / "image"
    disk.mkdir()
    if os.getuid() != 0:
        yield disk, False
        return
    with image.open("wb") as file:
        file.truncate(64 * MB)
    features = ["-O", "quota,project", "-E", "quotatype=prjquota"]
    subprocess.run(["mkfs.ext4", "-q", *features, str(image)], check=True)
    mount = ["mount", "-o", "loop,prjquota", str(image), str(disk)]
    has_quotas = subprocess.run(mount, check=False, capture_output=True).returncode == 0
    if not has_quotas:  # a kernel without CONFIG_QFMT_V2
        subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(disk)], check=True)
    try:
        yield disk, has_quotas
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def write_deleted(folder: Path, size: int) -> int:
    """Fill a deleted file as an unprivileged user, in another process; return its errno."""
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            os.setresgid(ALONE, ALONE, ALONE)
            os.setresuid(ALONE, ALONE, ALONE)
            file = os.open(folder / "deleted", os.O_RDWR | os.O_CREAT)
            os.unlink(folder / "deleted")
            for _ in range(size // MB):
                os.write(file, b"x" * MB)
        except OSError as error:
            code = error.errno or 255
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.boundary("tenant-to-tenant", "Where the kernel enforces project quotas, it bounds deleted files too.")
def test_a_folder_is_bounded_by_the_kernel_where_it_can_be_and_else_that_is_said(tmp_path: Path) -> None:
    with own_mounts(), ext4(tmp_path) as (disk, has_quotas):
        folder = disk / "volume"
        folder.mkdir()
        (folder / "kept").write_bytes(b"x" * MB)

        is_limited = quotas.limit(folder, 8 * MB)

        assert is_limited == has_quotas
        if has_quotas:
            os.chown(folder, ALONE, ALONE)
            assert write_deleted(folder, 16 * MB) == errno.EDQUOT
            assert MB <= (quotas.find_used_bytes(folder) or 0) < 2 * MB
            assert quotas.limit(folder, 32 * MB)
            assert write_deleted(folder, 16 * MB) == 0
        else:
            assert quotas.find_used_bytes(folder) is None


def test_a_file_system_without_project_quotas_is_told_apart(tmp_path: Path) -> None:
    assert not quotas.is_offered("/proc")
    assert not quotas.limit("/proc/self", MB)
    assert quotas.find_used_bytes("/proc/self") is None


def test_what_the_kernel_is_handed_has_its_sizes() -> None:
    assert (quotas.ATTRIBUTES.size, quotas.QUOTA.size) == (28, 72)
    assert quotas.ATTRIBUTES.size == quotas.SET_ATTRIBUTES >> 16 & 0x3FFF


def test_a_kernel_that_refuses_is_no_error_but_no_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mount options include quotas, but the kernel does not support them."""
    monkeypatch.setattr(quotas, "is_offered", lambda _: True)
    monkeypatch.setattr(quotas, "_find_own_project", lambda *_: quotas.FIRST_PROJECT)

    assert not quotas.limit(tmp_path, MB)
    assert quotas.find_used_bytes(tmp_path) is None
