"""Copies the output of pods into the log files of the platform, masked, by following the API."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from datetime import UTC, datetime
from typing import Literal, Protocol

from moorage.core.kit.records import dataclass
from moorage.runtime.engines.kubernetes import names, observing
from moorage.runtime.engines.kubernetes.client import Cluster, ClusterError, backoff_s
from moorage.runtime.engines.kubernetes.manifests import Manifest
from moorage.runtime.engines.ports import LogLine, Logs

ENDED = "ended: it ended with exit code"
RECONNECT_S = 0.2  # before the log of a container that still runs is opened again


class OutputLog(Protocol):
    """Log of one workload that masks its secrets, and never raises on disk errors."""

    def write(self, stream: Literal["stdout", "system"], data: bytes) -> None: ...

    def close(self) -> None: ...


Clock = Callable[[], float]
OpenLog = Callable[[str, str, list[str], Clock], OutputLog]  # log, key, values to mask, time of the lines


@dataclass(eq=False)
class _Followed:
    """One pod whose log is copied."""

    pod: Manifest
    hidden: list[str]
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    is_gone: bool = False
    is_complete: bool = False
    is_end_written: bool = False  # by an earlier process, for the run of this pod
    task: asyncio.Task[None] | None = None


@dataclass
class LogPosition:
    """Last line that was written: its time, and the number of lines of that millisecond."""

    at_ms: int = 0
    count: int = 0
    skipped: int = 0  # lines of that millisecond that a reconnection returned again

    def is_new(self, at_ms: int) -> bool:
        """Whether a line was not written before; counts it if so."""
        if at_ms < self.at_ms:
            return False
        if at_ms > self.at_ms:
            self.at_ms, self.count, self.skipped = at_ms, 1, 1
            return True
        if self.skipped < self.count:
            self.skipped += 1
            return False
        self.count += 1
        self.skipped += 1
        return True

    def reconnect(self) -> None:
        """Expect the lines of the last millisecond again."""
        self.skipped = 0

    def since(self) -> str | None:
        if not self.at_ms:
            return None
        whole, part = divmod(self.at_ms, 1000)
        return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{part:03d}Z"


class LogFollower:
    """Follows the logs of pods. Kubernetes has one stream for both outputs, which is written as stdout."""

    def __init__(
        self, cluster: Cluster, logs: Logs, open_log: OpenLog, on_complete: Callable[[Manifest], None]
    ) -> None:
        self._cluster = cluster
        self._logs = logs
        self._open_log = open_log
        self._on_complete = on_complete
        self._followed: dict[str, _Followed] = {}  # by uid of the pod

    def follow(self, pod: Manifest, hidden: Iterable[str]) -> None:
        """Copy the log of a pod from where the last copy ended. Call it for each change of the pod."""
        uid = pod["metadata"]["uid"]
        followed = self._followed.get(uid)
        if followed is None:
            followed = self._followed[uid] = _Followed(pod, list(hidden))
            followed.task = asyncio.create_task(self._copy(followed))
        followed.pod = pod
        followed.changed.set()

    def gone(self, pod: Manifest) -> None:
        """End the copy of a deleted pod once its log ends."""
        if (followed := self._followed.get(pod["metadata"]["uid"])) is not None:
            followed.is_gone = True
            followed.changed.set()

    def is_complete(self, pod: Manifest) -> bool:
        """Whether the whole log of an ended pod is written."""
        followed = self._followed.get(pod["metadata"]["uid"])
        return followed is not None and followed.is_complete

    async def finish(self, pod: Manifest, timeout_s: float) -> None:
        """Wait until the log of a deleted pod is written, and forget it."""
        followed = self._followed.pop(pod["metadata"]["uid"], None)
        if followed is None or followed.task is None:
            return
        followed.is_gone = True
        followed.changed.set()
        await asyncio.wait([followed.task], timeout=timeout_s)
        followed.task.cancel()

    async def close(self) -> None:
        tasks = [each.task for each in self._followed.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._followed.clear()

    async def _copy(self, followed: _Followed) -> None:
        meta = followed.pod["metadata"]
        log, key = meta["annotations"][names.LOG], meta["labels"][names.KEY]
        lines = await self._logs.read(log, since=observing.to_ms(meta["creationTimestamp"]), limit=1000)
        lines = [line for line in lines if line.replica == key]
        position = _last_position(lines)
        followed.is_end_written = any(line.stream == "system" and line.message.startswith(ENDED) for line in lines)
        file = self._open_log(log, key, followed.hidden, lambda: position.at_ms / 1000 or time.time())
        try:
            await self._copy_instances(followed, file, position)
        finally:
            file.close()
            followed.is_complete = True
        self._on_complete(followed.pod)

    async def _copy_instances(self, followed: _Followed, file: OutputLog, position: LogPosition) -> None:
        """Copy the output of one process of the container after another."""
        copied, failures = -1, 0
        while True:
            status = observing.container_of(followed.pod)
            has_started = {"running", "terminated"} & status.get("state", {}).keys() or status.get("lastState")
            instance = int(status.get("restartCount", 0))
            if not has_started or instance <= copied:
                if followed.is_gone or observing.has_ended(followed.pod):
                    return
                followed.changed.clear()
                await followed.changed.wait()
                continue
            try:
                await self._copy_stream(followed.pod, file, position)
                failures = 0
            except ClusterError as error:
                if error.code == 404 or followed.is_gone:
                    return
                failures += 1
                await asyncio.sleep(backoff_s(failures))
                continue
            status = observing.container_of(followed.pod)
            if followed.is_gone or "running" not in status.get("state", {}) or status.get("restartCount") != instance:
                copied = instance
                _write_end(followed, file)
            else:
                # The stream ends a moment before the status changes; logs that are rotated end it too.
                with contextlib.suppress(TimeoutError):
                    followed.changed.clear()
                    await asyncio.wait_for(followed.changed.wait(), RECONNECT_S)

    async def _copy_stream(self, pod: Manifest, file: OutputLog, position: LogPosition) -> None:
        meta = pod["metadata"]
        position.reconnect()
        rest = b""
        async with self._cluster.log(meta["namespace"], meta["name"], position.since()) as chunks:
            async for chunk in chunks:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    _write(line, file, position)
        if rest:
            _write(rest, file, position)


def _last_position(lines: Sequence[LogLine]) -> LogPosition:
    times = [line.at for line in lines if line.stream != "system"]
    return LogPosition(times[-1], times.count(times[-1])) if times else LogPosition()


def _write_end(followed: _Followed, file: OutputLog) -> None:
    code = observing.ended_of(followed.pod).get("exitCode")
    is_run = followed.pod["metadata"]["labels"].get(names.KIND) == "run"
    if is_run and followed.is_end_written:  # A run ends once; an app is restarted in its pod, and may end again.
        return
    if code or (is_run and code == 0):
        file.write("system", f"{ENDED} {code}".encode())


def _write(line: bytes, file: OutputLog, position: LogPosition) -> None:
    stamp, _, text = line.partition(b" ")
    try:
        at_ms = observing.to_ms(stamp.decode())
    except ValueError:
        return
    if position.is_new(at_ms):
        file.write("stdout", text + b"\n")
