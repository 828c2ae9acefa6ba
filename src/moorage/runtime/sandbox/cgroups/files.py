"""The kernel's control groups as files: where this process stands in each hierarchy, and small reads and writes.

Paths are texts and files are opened, used and closed at once: there are a thousand cells and more, and each of these
calls stands between a request and its answer.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

MB = 1024 * 1024
NORMAL_WEIGHT = 100
PLATFORM_WEIGHT = 10 * NORMAL_WEIGHT
LARGEST = 64 * 1024  # No file that is read here comes near it: `memory.stat` has about 2 KB.
FIRST_PAUSE_S, PAUSES = 0.0005, 10  # Doubled each time: half a second in all until a dying process counts as stuck.
PERIOD_US = 100_000  # the kernel's own, in which a quota of processor time is counted
TRIAL_BYTES = 64 * MB
PLATFORM = re.compile(r"moorage-.+-platform")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A mounted tree of groups and our place in it."""

    mount: str
    folder: str
    controllers: frozenset[str]  # version 1: what it is mounted with; version 2: what our group may hand on
    is_v2: bool


def hierarchies(mountinfo: str, own: str) -> list[Hierarchy]:
    """Read /proc/self/mountinfo and /proc/self/cgroup: where this process stands in each hierarchy."""
    paths = {names: path for _, names, path in (line.split(":", 2) for line in own.splitlines())}
    found = []
    for line in mountinfo.splitlines():
        fields, _, kind = line.partition(" - ")
        if not kind.startswith(("cgroup ", "cgroup2 ")):
            continue
        root, mount = fields.split()[3:5]
        if kind.startswith("cgroup2 "):
            folder = _own_folder(mount, root, paths.get("", "/"))
            found.append(Hierarchy(mount, folder, frozenset(words(f"{folder}/cgroup.controllers")), True))
            continue
        options = set(kind.split()[-1].split(","))
        names = next((names for names in paths if names and set(names.split(",")) <= options), "")
        folder = _own_folder(mount, root, paths.get(names, "/"))
        found.append(Hierarchy(mount, folder, frozenset(names.split(",")), False))
    return found


def own_hierarchies() -> list[Hierarchy]:
    try:
        return hierarchies(read("/proc/self/mountinfo", 1024 * 1024), read("/proc/self/cgroup"))
    except OSError:
        return []


def prefix_of(token: str) -> str:
    return f"moorage-{token}-"


def platform_name(token: str) -> str:
    return f"moorage-{token}-platform"


def level(folder: str) -> str:
    """Return the folder that cells and the platform share.

    The kernel weighs groups against those beside them only. A process that was started by one in a platform's group
    stands in that group as well, so the level is the one above it.
    """
    return os.path.dirname(folder) if PLATFORM.fullmatch(os.path.basename(folder)) else folder


def leave_platform() -> None:
    """Leave a platform's group of version 1, which a process inherits from the one that started it.

    With version 2, processes cannot be in the group above.
    """
    for tree in own_hierarchies():
        if not tree.is_v2 and level(tree.folder) != tree.folder:
            can_write(f"{level(tree.folder)}/cgroup.procs", str(os.getpid()))


def write(path: str, value: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, value.encode())
    finally:
        os.close(file)


def read(path: str, largest: int = LARGEST) -> str:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # The kernel hands over what it has in pieces of a page: one read may not be all.
        pieces = []
        while piece := os.read(file, largest):
            pieces.append(piece)
        return b"".join(pieces).decode()
    finally:
        os.close(file)


def words(path: str) -> list[str]:
    try:
        return read(path).split()
    except OSError:
        return []


def numbers(path: str) -> dict[str, int]:
    """Read a file of lines such as `usage_usec 1200`."""
    return {name: int(value) for name, value in (line.split() for line in read(path).splitlines())}


def processes(folder: str) -> list[int]:
    """Return who is in a group; a group that is gone has nobody in it. 0 stands for one we cannot see: left out."""
    return [pid for pid in map(int, words(f"{folder}/cgroup.procs")) if pid]


def can_write(path: str, *values: str) -> bool:
    """Try it: file modes do not tell what a read-only mount, an older kernel or a missing right forbids."""
    try:
        for value in values:
            write(path, value)
    except OSError:
        return False
    return True


def make(folders: Sequence[str]) -> None:
    """Make all of these, or none."""
    for number, folder in enumerate(folders):
        try:
            os.mkdir(folder, 0o755)
        except OSError:
            for made in folders[:number]:
                os.rmdir(made)
            raise


def remove(folders: Sequence[str]) -> None:
    """Remove groups, waiting a little for processes that are about to end. Safe to repeat."""
    left = [folder for folder in folders if not _is_removed(folder)]
    pauses = _pauses()
    while left:
        if not next(pauses, False):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), left[0])
        left = [folder for folder in left if not _is_removed(folder)]


def quota_us(cpu: float) -> int:
    """Return the processor time in each period that makes so many processors; the kernel takes no less than 1 ms."""
    return max(round(cpu * PERIOD_US), 1000)


def kernel() -> tuple[int, ...]:
    """Return the kernel's version, such as (6, 1)."""
    return tuple(int(part) for part in os.uname().release.replace("-", ".").split(".")[:2])


def kill(folder: str, freezer: str | None = None) -> None:
    """Send SIGKILL to everybody in a group until nobody is left there; the frozen ones die when they are woken.

    On a machine that is very busy some may still be about to end when this returns.
    """
    pauses = _pauses()
    while pids := processes(folder):
        send(pids, signal.SIGKILL)
        if freezer is not None:
            write(f"{freezer}/freezer.state", "THAWED")
        if not next(pauses, False):
            return


def move(pids: Iterable[int], folder: str) -> None:
    """Move processes into a group; those that have ended meanwhile do not matter."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            write(f"{folder}/cgroup.procs", str(pid))


def send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def find_named(mounts: Sequence[str], prefix: str) -> list[str]:
    """Return every group, anywhere in these hierarchies, whose name begins so.

    A run before this one may have stood elsewhere, such as in another login session.
    """
    walks = (os.walk(mount) for mount in mounts)
    return [f"{folder}/{name}" for walk in walks for folder, names, _ in walk for name in names
            if name.startswith(prefix)]  # fmt: skip


def sweep(mounts: Sequence[str], token: str, live: set[str]) -> int:
    """Kill and remove what an earlier run left behind; return how many groups that were.

    The platform's own group is never killed: other processes of the platform may outlive this one.
    """
    kept = platform_name(token)
    found = [path for path in find_named(mounts, prefix_of(token)) if os.path.basename(path) not in live]
    cells = [path for path in found if os.path.basename(path) != kept]
    # A process may be in a frozen group of another hierarchy, so all are woken before anything is waited for.
    for path in cells:
        if not can_write(f"{path}/cgroup.kill", "1"):
            send(processes(path), signal.SIGKILL)
        can_write(f"{path}/freezer.state", "THAWED")
    for path in cells:
        kill(path)
    with contextlib.suppress(OSError):  # Whoever does not end now is swept next time.
        remove(cells)
    for path in set(found) - set(cells):
        _is_removed_if_empty(path)
    stuck = {os.path.basename(path) for path in cells if os.path.isdir(path)}
    return len({os.path.basename(path) for path in cells} - stuck)


class Trial:
    """A process that does nothing, to be put into groups that are tried out. Leaves nothing behind."""

    def __init__(self, token: str) -> None:
        self.name = f"{prefix_of(token)}trial-{os.getpid()}"
        self._made: list[str] = []

    def __enter__(self) -> Trial:
        told, self._tell = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._tell)
                os.read(told, 1)  # Ends when we do, even if we are killed.
            finally:
                os._exit(0)
        os.close(told)
        return self

    def __exit__(self, *problem: object) -> None:
        os.close(self._tell)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        remove(self._made)

    def enter(self, base: str) -> str | None:
        """Make a group under `base` and move the process into it; return the group, or None where that fails."""
        folder = f"{base}/{self.name}"
        try:
            os.mkdir(folder, 0o755)
            self._made.append(folder)
            write(f"{folder}/cgroup.procs", str(self.pid))
        except OSError:
            return None
        return folder


def _pauses() -> Iterator[bool]:
    """Wait a little longer each time it is asked to go on."""
    for number in range(PAUSES):
        time.sleep(FIRST_PAUSE_S * 2**number)
        yield True


def _is_removed(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def _is_removed_if_empty(folder: str) -> bool:
    return not processes(folder) and _is_removed(folder)


def _own_folder(mount: str, root: str, path: str) -> str:
    """Join a mount and our path in its hierarchy.

    In a container the path may be one of the host's, or may lead out of what is mounted here: then the mount is ours.
    """
    above = root.rstrip("/")
    inner = path[len(above) :] if path == above or path.startswith(f"{above}/") else path
    folder = f"{mount}/{inner.strip('/')}".rstrip("/")
    return folder if ".." not in inner.split("/") and os.path.isdir(folder) else mount
