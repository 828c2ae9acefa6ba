"""Commands beside an app: each is a process in its own sandbox of this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from moorage.runtime.engines.local_specs import local_files
from moorage.runtime.engines.ports import AppSpec, CommandEnd, OutputStream, Volumes
from moorage.runtime.sandbox.rootfs import spec as rootfs
from moorage.runtime.sandbox.runs import main as sandbox

CPU_WEIGHT = 100  # of a command's cgroup, the same as an app's
FILE_MB = 512
OUTPUT_BYTES = 32 * 2**20
ROOT_MB = 64  # that a command may at least write to the root of an image
FREE_MB = 64  # that a command may add to a volume that is already over its size
SLACK_MB = 1024  # by which a command may exceed the size of a volume, for example to clean it up
VOLUME = "/data"
MB = 2**20


class LocalCommands:
    def __init__(self, volumes: Volumes, root: Path) -> None:
        self._volumes = volumes
        self._root = root

    async def run(
        self, beside: AppSpec, argv: list[str], put: Callable[[OutputStream, bytes], None], *, timeout_s: float
    ) -> CommandEnd:
        limit_mb, volume = 0, ""
        if beside.volume:
            # A command can still clean up a volume that is far over its size.
            used = await self._volumes.used_bytes(beside.volume)
            limit_mb, volume = max(beside.disk_mb + SLACK_MB, used // MB + FREE_MB), str(self._root / beside.volume)
        finished = await sandbox.run(_job(beside, argv, volume, limit_mb, timeout_s), put)
        return CommandEnd(finished.code, finished.why)


def _job(beside: AppSpec, argv: list[str], volume: str, disk_mb: int, timeout_s: float) -> sandbox.Job:
    files = _image_files(beside) if local_files(beside).image else _release_files(beside)
    return sandbox.Job(
        argv=argv,
        **files,
        env=dict(beside.env),
        writable={VOLUME: volume} if volume and beside.is_boxed else {},
        uid=beside.uid,
        weight=CPU_WEIGHT,
        memory_mb=beside.memory_mb,
        pids=beside.pids,
        file_mb=max(beside.disk_mb, FILE_MB),
        disk_mb=disk_mb,
        reserve_mb=beside.reserve_mb,
        timeout_s=timeout_s,
        output_bytes=OUTPUT_BYTES,
        allow=beside.allow,
        block=beside.block,
        doors=[str(each.address) for each in beside.egress],
        is_boxed=beside.is_boxed,
    )


def _release_files(beside: AppSpec) -> dict[str, Any]:
    files = local_files(beside)
    release_path = f"{sandbox.WORK}/{files.base}".rstrip("/")
    return {
        "work": "" if beside.is_boxed else files.release,
        "cwd": f"{files.base}/{files.workdir}".strip("/") if beside.is_boxed else files.workdir,
        "binds": {**files.binds, release_path: files.release} if beside.is_boxed else {},
    }


def _image_files(beside: AppSpec) -> dict[str, Any]:
    files = local_files(beside)
    size_mb = max(beside.memory_mb // 2, ROOT_MB)
    root = rootfs.ImageRoot([files.image], size_mb=size_mb, first_id=files.image_ids, user=files.image_user)
    return {"work": "", "cwd": files.workdir, "binds": dict(files.binds), "root": root}
