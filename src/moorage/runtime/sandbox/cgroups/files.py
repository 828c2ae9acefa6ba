"""Access to the cgroup file system.

Paths are strings, and no file stays open: there may be a thousand function sandboxes and more, and these calls are part
of the latency of a request.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import time
from collections.abc import Iterable, Iterator, Sequence

from moorage.core.kit.records import dataclass

MB = 1024 * 1024
NORMAL_WEIGHT = 100
PLATFORM_WEIGHT = 10 * NORMAL_WEIGHT
READ_BYTES = 64 * 1024  # more than any file read here has: `memory.stat` has about 2 KB
FIRST_PAUSE_S, PAUSES = 0.0005, 10  # Doubled each time: after half a second, a killed process counts as stuck.
PERIOD_US = 100_000  # the kernel's default period of CPU quotas
TRIAL_BYTES = 64 * MB
PLATFORM = re.compile(r"(moorage-.+-)platform")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A mounted cgroup hierarchy and the cgroup of this process in it."""

    mount: str
    folder: str
    controllers: frozenset[str]  # v1: those of the mount; v2: those that the cgroup can delegate to its children
    is_v2: bool


def hierarchies(mountinfo: str, own: str) -> list[Hierarchy]:
    """Parse mountinfo and cgroup of /proc/self into this process's hierarchies."""
    paths = {names: path for _, names, path in (line.split(":", 2) for line in own.splitlines())}
    trees = []
    for line in mountinfo.splitlines():
        fields, _, kind = line.partition(" - ")
        if not kind.startswith(("cgroup ", "cgroup2 ")):
            continue
        root, mount = fields.split()[3:5]
        if kind.startswith("cgroup2 "):
            folder = _own_folder(mount, root, paths.get("", "/"))
            trees.append(Hierarchy(mount, folder, frozenset(words(f"{folder}/cgroup.controllers")), True))
            continue
        options = set(kind.split()[-1].split(","))
        names = next((names for names in paths if names and set(names.split(",")) <= options), "")
        folder = _own_folder(mount, root, paths.get(names, "/"))
        trees.append(Hierarchy(mount, folder, frozenset(names.split(",")), False))
    return trees


def own_hierarchies() -> list[Hierarchy]:
    try:
        return hierarchies(read("/proc/self/mountinfo", 1024 * 1024), read("/proc/self/cgroup"))
    except OSError:
        return []


def prefix_of(token: str) -> str:
    return f"moorage-{token}-"


def platform_name(token: str) -> str:
    return f"moorage-{token}-platform"


def parent_of_platform(folder: str) -> str:
    """Return the parent of a platform cgroup, and any other cgroup itself.

    Workloads have their cgroups in it, because the kernel compares weights only between siblings. Processes started by
    the platform inherit its cgroup, so they have to create new cgroups one level above.
    """
    return os.path.dirname(folder) if PLATFORM.fullmatch(os.path.basename(folder)) else folder


def leave_platform() -> None:
    """Leave the platform's v1 cgroup, which is inherited from the parent process.

    In cgroup v2 the parent cgroup cannot contain processes.
    """
    for tree in own_hierarchies():
        parent = parent_of_platform(tree.folder)
        if not tree.is_v2 and parent != tree.folder:
            can_write(f"{parent}/cgroup.procs", str(os.getpid()))


def write(path: str, value: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, value.encode())
    finally:
        os.close(file)


def read(path: str, read_bytes: int = READ_BYTES) -> str:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # The kernel may return only a page at a time, so one read is not enough.
        pieces = []
        while piece := os.read(file, read_bytes):
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
    """Parse a file of lines such as `usage_usec 1200`."""
    return {name: int(value) for name, value in (line.split() for line in read(path).splitlines())}


def processes(folder: str) -> list[int]:
    """Return the PIDs of a cgroup; processes of invisible namespaces (0) are left out."""
    return [pid for pid in map(int, words(f"{folder}/cgroup.procs")) if pid]


def can_write(path: str, *values: str) -> bool:
    """Write values; return whether it worked, which file modes do not show."""
    try:
        for value in values:
            write(path, value)
    except OSError:
        return False
    return True


def make(folders: Sequence[str]) -> None:
    """Create all of these cgroups, or none."""
    for number, folder in enumerate(folders):
        try:
            os.mkdir(folder, 0o755)
        except OSError:
            for created in folders[:number]:
                os.rmdir(created)
            raise


def remove(folders: Sequence[str]) -> None:
    """Remove cgroups; wait up to 0.5 s for exiting processes. Safe to repeat."""
    remaining = [folder for folder in folders if not _is_removed(folder)]
    pauses = _pauses()
    while remaining:
        if not next(pauses, False):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), remaining[0])
        remaining = [folder for folder in remaining if not _is_removed(folder)]


def quota_us(cpu: float) -> int:
    """Return the CPU quota per period for a number of cores, at least 1 ms."""
    return max(round(cpu * PERIOD_US), 1000)


def kernel() -> tuple[int, ...]:
    """Return the kernel version, such as (6, 1)."""
    return tuple(int(part) for part in os.uname().release.replace("-", ".").split(".")[:2])


def kill(folder: str, freezer: str | None = None) -> None:
    """Kill the processes of a cgroup until it is empty; thaw it so that they can exit.

    On a very busy machine, some processes may still be exiting when this returns.
    """
    pauses = _pauses()
    while pids := processes(folder):
        send(pids, signal.SIGKILL)
        if freezer is not None:
            write(f"{freezer}/freezer.state", "THAWED")
        if not next(pauses, False):
            return


def move(pids: Iterable[int], folder: str) -> None:
    """Move processes into a cgroup, ignoring those that have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            write(f"{folder}/cgroup.procs", str(pid))


def send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def find_named(mounts: Sequence[str], prefix: str) -> list[str]:
    """Return every cgroup in these hierarchies whose name begins with `prefix`.

    An earlier process may have had another parent cgroup, such as that of another login session.
    """
    walks = (os.walk(mount) for mount in mounts)
    return [f"{folder}/{name}" for walk in walks for folder, names, _ in walk for name in names
            if name.startswith(prefix)]  # fmt: skip


def sweep(mounts: Sequence[str], token: str, live: set[str]) -> int:
    """Kill and remove cgroups of earlier processes with this token; return the number.

    The platform's own cgroup is never killed: other platform processes may outlive this one.
    """
    platform = platform_name(token)
    paths = [path for path in find_named(mounts, prefix_of(token)) if os.path.basename(path) not in live]
    workloads = [path for path in paths if os.path.basename(path) != platform]
    # A process may be in a frozen cgroup of another hierarchy, so thaw all before waiting for any.
    for path in workloads:
        if not can_write(f"{path}/cgroup.kill", "1"):
            send(processes(path), signal.SIGKILL)
        can_write(f"{path}/freezer.state", "THAWED")
    for path in workloads:
        kill(path)
    with contextlib.suppress(OSError):  # The next sweep removes cgroups that remain.
        remove(workloads)
    for path in set(paths) - set(workloads):
        _is_removed_if_empty(path)
    stuck = {os.path.basename(path) for path in workloads if os.path.isdir(path)}
    return len({os.path.basename(path) for path in workloads} - stuck)


class TrialProcess:
    """An idle child process for testing controllers. Removes its cgroups at the end."""

    def __init__(self, token: str) -> None:
        self.name = f"{prefix_of(token)}trial-{os.getpid()}"
        self._folders: list[str] = []

    def __enter__(self) -> TrialProcess:
        lifeline, self._lifeline_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._lifeline_end)
                os.read(lifeline, 1)  # Returns when the parent exits, even if it is killed.
            finally:
                os._exit(0)
        os.close(lifeline)
        return self

    def __exit__(self, *problem: object) -> None:
        os.close(self._lifeline_end)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        remove(self._folders)

    def enter(self, base: str) -> str | None:
        """Move the process into a new cgroup under `base`; return it, None on failure."""
        folder = f"{base}/{self.name}"
        try:
            os.mkdir(folder, 0o755)
            self._folders.append(folder)
            write(f"{folder}/cgroup.procs", str(self.pid))
        except OSError:
            return None
        return folder


def _pauses() -> Iterator[bool]:
    """Sleep before each item, twice as long as before."""
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
    """Return the folder of a cgroup path below a mount.

    In a container the path may be the host's, or may be outside of the mount: then the mount itself is the cgroup.
    """
    above = root.rstrip("/")
    inner = path[len(above) :] if path == above or path.startswith(f"{above}/") else path
    folder = f"{mount}/{inner.strip('/')}".rstrip("/")
    return folder if ".." not in inner.split("/") and os.path.isdir(folder) else mount
