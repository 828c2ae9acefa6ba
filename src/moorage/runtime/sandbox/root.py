"""Root file system of a sandbox: a tmpfs with read-only bind mounts of the host.

Function sandboxes start from a copy of one tree, mounted once in the invoker's mount namespace.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from moorage.runtime.sandbox import syscalls as sys_

# Paths that programs need to run. On a usual system they contain no secrets; they are mounted read-only.
SYSTEM = (
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/bin",
    "/usr/share/zoneinfo",
    "/usr/share/ca-certificates",
    "/usr/share/locale/C.UTF-8",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/mime.types",
)
LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
DEVICES = ("null", "zero", "full", "random", "urandom")
SIZE_MB = 4  # of the tmpfs
USER_ID = 1000  # of a function, in its own /etc/passwd

READ_ONLY = sys_.MOUNT_ATTR_RDONLY | sys_.MOUNT_ATTR_NOSUID


def take_own_mounts(within_s: float = 2.0) -> None:
    """Enter a new mount namespace; without root, inside a new user namespace.

    Only a single-threaded process may enter a user namespace, and a joined thread may exist a moment longer.
    """
    uid, gid = os.getuid(), os.getgid()
    if uid == 0:
        sys_.unshare(sys_.CLONE_NEWNS)
    else:
        deadline = time.monotonic() + within_s
        while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < deadline:
            time.sleep(0.001)
        sys_.unshare(sys_.CLONE_NEWUSER | sys_.CLONE_NEWNS)
        map_user(uid, gid)
    keep_mounts_private()


def map_user(uid: int, gid: int, inside: int = 0, inside_gid: int | None = None) -> None:
    """Map uid and gid of this process to `inside` in its new user namespace."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{inside} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{inside if inside_gid is None else inside_gid} {gid} 1")


def keep_mounts_private() -> None:
    """Stop mount propagation from this process's mount namespace to others."""
    sys_.mount(None, "/", None, sys_.MS_REC | sys_.MS_PRIVATE, None)


def build(root: Path, *, binds: dict[str, str], files: dict[str, str], size_mb: int = SIZE_MB) -> None:
    """Mount system folders, `binds` (path inside -> outside) and `files` on `root`.

    The caller has its own mount namespace and the right to mount in it. The mounts end with that namespace.
    """
    begin(root, size_mb)
    for path in SYSTEM:
        if os.path.exists(path) and not os.path.islink(path):
            bind(path, _inside(root, path))
    for path in LINKS:
        _link_or_bind(root, path)
    for inside, outside in binds.items():
        if not _inside(root, inside).exists():
            bind(outside, _inside(root, inside))
    for inside, text in {**_default_files(), **files}.items():
        target = _inside(root, inside)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(0o644)
    finish(root, folders=("proc", "tmp", "code", "work", "run"))


def begin(root: Path, size_mb: int = SIZE_MB) -> None:
    """Mount an empty, writable tmpfs on `root`."""
    root.mkdir(parents=True, exist_ok=True)
    sys_.mount("tmpfs", str(root), "tmpfs", sys_.MS_NOSUID | sys_.MS_NODEV, f"mode=755,size={size_mb}m")


def make_writable() -> None:
    """Let the program of this sandbox create entries in `/` and `/etc`, until the sandbox ends.

    Mounts stay as they are, and entries of other users can be neither changed nor replaced.
    """
    sys_.mount_setattr(sys_.AT_FDCWD, "/", 0, 0, sys_.MOUNT_ATTR_RDONLY)
    for path in ("/", "/etc"):
        os.chmod(path, 0o1777)  # noqa: S103 - as every /tmp


def finish(root: Path, *, folders: tuple[str, ...]) -> None:
    """Add devices and empty mount points to a tree, and make it read-only."""
    (root / "dev").mkdir()
    make_devices(root / "dev")
    for folder in folders:
        (root / folder).mkdir(exist_ok=True)
    if os.getuid() != 0 or not is_initial_user_namespace():
        # In a user namespace the kernel allows a new /proc only where one is already mounted; see `mount_proc`.
        sys_.mount("/proc", str(root / "proc"), None, sys_.MS_BIND | sys_.MS_REC, None)
    sys_.mount_setattr(sys_.AT_FDCWD, str(root), 0, READ_ONLY | sys_.MOUNT_ATTR_NODEV, 0, 0)


def mount_proc(staging: str = "/run") -> None:
    """Mount /proc of this process's PID namespace, replacing the host's.

    `staging` is a folder on which nothing is mounted yet.
    """
    flags = sys_.MS_NOSUID | sys_.MS_NODEV | sys_.MS_NOEXEC
    if not os.path.ismount("/proc"):
        sys_.mount("proc", "/proc", "proc", flags, None)
        return
    sys_.mount("proc", staging, "proc", flags, None)
    sys_.umount2("/proc", sys_.MNT_DETACH)
    sys_.mount(staging, "/proc", None, sys_.MS_MOVE, None)


def is_initial_user_namespace() -> bool:
    """Whether ids of this process are those of the machine."""
    return Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]


def enter(root: str) -> None:
    """Make the tree the root of this mount namespace, and unmount the host's root."""
    sys_.mount(None, "/", None, sys_.MS_REC | sys_.MS_PRIVATE, None)
    # pivot_root requires a mount point of this namespace: bind the tree onto itself.
    sys_.mount(root, root, None, sys_.MS_BIND | sys_.MS_REC, None)
    os.chdir(root)
    sys_.pivot_root(".", ".")
    sys_.umount2(".", sys_.MNT_DETACH)
    os.chdir("/")


def _inside(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def bind(source: str, target: Path) -> None:
    """Bind-mount a folder or file read-only."""
    if stat.S_ISDIR(os.stat(source).st_mode):
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    sys_.mount(source, str(target), None, sys_.MS_BIND | sys_.MS_REC, None)
    sys_.mount_setattr(sys_.AT_FDCWD, str(target), sys_.AT_RECURSIVE, READ_ONLY | sys_.MOUNT_ATTR_NODEV, 0, 0)


def _link_or_bind(root: Path, path: str) -> None:
    target = _inside(root, path)
    if os.path.islink(path):
        target.symlink_to(os.readlink(path))
    elif os.path.isdir(path):
        bind(path, target)


def make_devices(dev: Path, *, with_shm: bool = True) -> None:
    """Bind-mount devices in a folder, and add the links that programs expect beside them."""
    for name in DEVICES:
        (dev / name).touch()
        sys_.mount(f"/dev/{name}", str(dev / name), None, sys_.MS_BIND, None)
        sys_.mount_setattr(sys_.AT_FDCWD, str(dev / name), 0, sys_.MOUNT_ATTR_NOSUID | sys_.MOUNT_ATTR_NOEXEC, 0, 0)
    for name, target in {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}.items():
        (dev / name).symlink_to(target)
    if with_shm:
        # POSIX semaphores and shared memory count against the size of /tmp.
        (dev / "shm").symlink_to("/tmp")  # noqa: S108


def account_files(name: str, uid: int) -> dict[str, str]:
    """Return the files that name root and the user of a program: programs ask for their own user."""
    users = {"root": 0, **({name: uid} if uid else {})}
    return {
        "/etc/passwd": "".join(f"{name}:x:{uid}:{uid}:{name}:/tmp:/bin/sh\n" for name, uid in users.items()),
        "/etc/group": "".join(f"{name}:x:{uid}:\n" for name, uid in users.items()),
    }


def _default_files() -> dict[str, str]:
    return {
        **account_files("function", USER_ID),
        "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "/etc/resolv.conf": resolv_conf(),
        "/etc/hostname": "function\n",
        # A sandbox without interfaces cannot detect IPv6 connectivity, so prefer IPv4, which more hosts have.
        "/etc/gai.conf": "precedence ::ffff:0:0/96  100\n",
    }


def resolv_conf() -> str:
    """Return a resolv.conf with the sandbox's resolver and the host's search domains."""
    lines = ["nameserver 127.0.0.1", "options timeout:5 attempts:2"]
    try:
        host = Path("/etc/resolv.conf").read_text().splitlines()
    except OSError:
        host = []
    return "\n".join([*lines, *(line for line in host if line.split()[:1] in (["search"], ["domain"]))]) + "\n"
