"""Builds the writable root of an image and makes it this process's root.

The root is an overlay mount of the image's folders and a folder of changes. Two small folders of the sandbox are layers
too: the top one has the mount points of /dev, /proc and files of /etc, the lowest one folders that the image may
lack. So nothing of the sandbox itself becomes part of the changes. As root, id-mapped mounts show the ids of the image
as ids of the workload's range; the kernel can do this below an overlay mount since Linux 5.19. Older kernels, and file
systems without id-mapped mounts, get copies of the image's folders whose owners are ids of the range (`copies`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from moorage.core.kit.records import dataclass
from moorage.runtime.sandbox import root
from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.network import setup as network
from moorage.runtime.sandbox.rootfs import accounts, copies, users
from moorage.runtime.sandbox.rootfs.spec import CHANGES, IDS, OVERLAY_WORK, ImageRoot
from moorage.runtime.sandbox.rootfs.users import Identity

STAGING_MB = 16
_MAX_STAGED_BYTES = 2**20  # of a file that is copied for its owner, such as a secret
SHM_MB = 64
_FLAGS = sys_.MS_NOSUID | sys_.MS_NODEV
_ATTRIBUTES = sys_.MOUNT_ATTR_NOSUID | sys_.MOUNT_ATTR_NODEV
_PROC_FLAGS = _FLAGS | sys_.MS_NOEXEC
_OPTIONS = "index=off,metacopy=off,redirect_dir=nofollow"
_PORTS = "sys/net/ipv4/ip_unprivileged_port_start"
_CANNOT_MAP = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)  # id-mapped mounts, or an overlay of them
_IN_ROOT = sys_.RESOLVE_IN_ROOT | sys_.RESOLVE_NO_MAGICLINKS


@dataclass(frozen=True, slots=True)
class HostFolders:
    """Folders and files of the host in a sandbox: path inside -> path outside."""

    read_only: Mapping[str, str]
    writable: Mapping[str, str]
    unlinked: frozenset[str] = frozenset()  # paths inside that links of the image must not lead to

    @property
    def all(self) -> dict[str, str]:
        return {**self.read_only, **self.writable}


def enter(tree: Path, image: ImageRoot, folders: HostFolders, *, has_network: bool, cwd: str = "/") -> Identity:
    """Mount the image's root below `tree`, make it this process's root, and return the program's user.

    `cwd` becomes the working directory, and is created if it is missing. The caller is process 1 of its namespaces,
    with all capabilities in their user namespace, and calls `users.become` with the result. Raises OSError, and
    ValueError with a message for the user.
    """
    builder = _Builder(tree, image, is_root=root.is_initial_user_namespace())
    root.begin(tree, STAGING_MB)
    with builder.namespaces():
        identity = builder.build(folders)
        root.enter(str(builder.merged))
        sys_.sethostname(image.hostname)
        if has_network:
            network.prepare_namespace()
        _enter_folder(cwd, builder.first_id)
        return identity


def _allow_all_ports(proc: Path) -> None:
    """Let the program bind to ports below 1024 of its own network namespace.

    `proc` is not in the root of the image, where a folder of a tenant might hide it.
    """
    with contextlib.suppress(OSError):
        (proc / _PORTS).write_text("0")


def _enter_folder(path: str, owner: int) -> None:
    """Create the working directory, as other runtimes do, and enter it.

    Links of the image are followed inside the sandbox only: /proc/self/fd leads to folders of the machine.
    """
    root_folder = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    reached, folder = ".", os.dup(root_folder)
    try:
        for part in PurePosixPath(path).relative_to("/").parts:
            reached = f"{reached}/{part}"
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=folder)
                os.chown(part, owner, owner, dir_fd=folder, follow_symlinks=False)
            os.close(folder)
            folder = -1
            folder = sys_.openat2(root_folder, reached, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, _IN_ROOT)
        os.fchdir(folder)
    except OSError as error:
        raise ValueError(f"the image's folder {path!r} cannot be entered: {error.strerror}") from None
    finally:
        os.close(root_folder)
        if folder >= 0:
            os.close(folder)


class _Builder:
    """Mounts of one root; all of them are below `tree`, a tmpfs."""

    def __init__(self, tree: Path, image: ImageRoot, *, is_root: bool) -> None:
        self._tree = tree
        self._image = image
        self._is_root = is_root
        self._process_users: int | None = None
        self._disk_users: int | None = None
        self._staged = 0
        self._mounts: set[int] = set()  # ids of the overlay and of the host folders in it
        self._copies_ids = is_root and not image.maps_ids
        self.first_id = image.first_id if is_root else 0
        self.merged = tree / "merged"
        if is_root and image.first_id < IDS:
            raise ValueError("an image runs as root only with a range of ids of its own")

    @contextlib.contextmanager
    def namespaces(self) -> Iterator[None]:
        """Mount /proc, which the maps are written through, and hold the user namespaces."""
        proc = self._make("proc")
        sys_.mount("proc", str(proc), "proc", _PROC_FLAGS, None)
        _allow_all_ports(proc)
        if not self._is_root:
            yield
            return
        inside, disk = users.process_extents(self.first_id), users.disk_extents(self.first_id)
        with users.user_namespace(disk, disk, str(proc)) as self._disk_users:
            with users.user_namespace(inside, inside, str(proc)) as kept:
                self._process_users = os.dup(kept)
            yield

    def build(self, folders: HostFolders) -> Identity:
        self._mount_overlay(folders)
        tree = os.open(self.merged, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            user = accounts.resolve(tree, self._image.user)
            identity = replace(user, namespace=self._process_users, first_id=self.first_id)
            self._mounts.add(self._mount_id(tree))
            self._provide(tree)
            for inside, outside in folders.all.items():
                clone = self._clone_for(identity, outside, is_writable=inside in folders.writable)
                try:
                    self._attach(tree, inside, clone, is_own=False, is_unlinked=inside in folders.unlinked)
                finally:
                    os.close(clone)
        finally:
            os.close(tree)
        return identity

    def _make(self, name: str, mode: int = 0o755) -> Path:
        """Create a folder of the sandbox that belongs to root inside."""
        path = self._tree / name
        path.mkdir(parents=True)
        path.chmod(mode)
        os.chown(path, self.first_id, self.first_id)
        return path

    def _mount_overlay(self, folders: HostFolders) -> None:
        self._make("merged")
        top, lowest = self._top_layer().name, self._lowest_layer(folders).name
        try:
            self._try_overlay(top, lowest, "c" if self._copies_ids else "l")
        except OSError as error:
            if self._copies_ids or not self._is_root or error.errno not in _CANNOT_MAP:
                raise
            self._copies_ids = True
            self._try_overlay(top, lowest, "c")

    def _try_overlay(self, top: str, lowest: str, prefix: str) -> None:
        """Mount the overlay of the image's folders, which are placed at names with a prefix."""
        lowers = [
            self._place(copies.ensure(lower, self.first_id) if self._copies_ids else lower, f"{prefix}{number}")
            for number, lower in enumerate(self._image.lowers)
        ]
        upper = self._place_upper(f"{prefix}-upper")
        names = ":".join((top, *reversed(lowers), lowest))
        layers = f"lowerdir={names},upperdir={upper}/{CHANGES},workdir={upper}/{OVERLAY_WORK}"
        # Paths relative to the staging folder are short and have no characters that the options would need escaped.
        before = os.getcwd()
        os.chdir(self._tree)
        try:
            # A user namespace may not use trusted extended attributes, so the kernel uses those of users.
            options = f"{layers},{_OPTIONS}" if self._is_root else f"{layers},userxattr"
            sys_.mount("overlay", self.merged.name, "overlay", _FLAGS, options)
        finally:
            os.chdir(before)

    def _top_layer(self) -> Path:
        """Make the folders and files of /etc that mounts cover, with the image's own attributes of /etc.

        They hide links of the image, which would lead a mount to another place.
        """
        top, etc = self._make("top"), self._make("top/etc")
        for name in ("dev", "proc", "sys"):
            self._make(f"top/{name}")
        for name in self._etc_files():
            (etc / name).touch()
            os.chown(etc / name, self.first_id, self.first_id)
        for lower in reversed(self._image.lowers):
            with contextlib.suppress(OSError):
                status = os.stat(f"{lower}/etc", follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    etc.chmod(stat.S_IMODE(status.st_mode))
                    if self._is_root and max(status.st_uid, status.st_gid) < IDS:
                        os.chown(etc, self.first_id + status.st_uid, self.first_id + status.st_gid)
                    os.utime(etc, ns=(status.st_atime_ns, status.st_mtime_ns))
                    break
        return top

    def _lowest_layer(self, folders: HostFolders) -> Path:
        """Make mount points that the image may lack."""
        lowest = self._make("lowest")
        self._make("lowest/tmp", 0o1777)
        for inside, outside in folders.all.items():
            target = lowest / inside.lstrip("/")
            missing = [path for path in (target, *target.parents) if not path.exists() and path != lowest]
            if stat.S_ISDIR(os.stat(outside).st_mode):
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.touch()
            for path in missing:
                os.chown(path, self.first_id, self.first_id)
        return lowest

    def _place_upper(self, name: str) -> str:
        image = self._image
        if image.upper:
            for folder in (CHANGES, OVERLAY_WORK):
                Path(image.upper, folder).mkdir(mode=0o755, exist_ok=True)
                if self._copies_ids:
                    copies.move_owners(f"{image.upper}/{folder}", self.first_id)
            return self._place(image.upper, name)
        upper = self._make(name)
        sys_.mount("tmpfs", str(upper), "tmpfs", _FLAGS, f"mode=755,size={image.size_mb}m")
        for folder in (CHANGES, OVERLAY_WORK):
            (upper / folder).mkdir(mode=0o755)
            os.chown(upper / folder, self.first_id, self.first_id)
        return name

    def _place(self, outside: str, name: str) -> str:
        """Mount a folder of image files with the ids of the workload; return the name."""
        self._make(name)
        clone = self._clone(outside, None if self._copies_ids else self._disk_users)
        try:
            sys_.move_mount(clone, "", sys_.AT_FDCWD, str(self._tree / name), sys_.MOVE_MOUNT_F_EMPTY_PATH)
        finally:
            os.close(clone)
        return name

    def _clone(self, outside: str, namespace: int | None, *, is_writable: bool = True) -> int:
        clone = sys_.open_tree(sys_.AT_FDCWD, outside, sys_.OPEN_TREE_CLONE | sys_.OPEN_TREE_CLOEXEC)
        attributes = _ATTRIBUTES | (0 if is_writable else sys_.MOUNT_ATTR_RDONLY)
        if namespace is None:
            sys_.mount_setattr(clone, "", sys_.AT_EMPTY_PATH, attributes, 0, sys_.MS_PRIVATE)
        else:
            attributes |= sys_.MOUNT_ATTR_IDMAP
            sys_.mount_setattr(clone, "", sys_.AT_EMPTY_PATH, attributes, 0, sys_.MS_PRIVATE, namespace)
        return clone

    def _provide(self, tree: int) -> None:
        """Mount /dev, /proc, and the sandbox's own files of /etc."""
        self._move(tree, "proc", self._tree / "proc", stays=True)
        dev = self._make("devices")
        root.make_devices(dev, with_shm=False)
        shm = self._make("devices/shm", 0o1777)
        sys_.mount("tmpfs", str(shm), "tmpfs", _PROC_FLAGS, f"mode=1777,size={SHM_MB}m")
        sys_.mount(str(dev), str(dev), None, sys_.MS_BIND | sys_.MS_REC, None)
        sys_.mount_setattr(sys_.AT_FDCWD, str(dev), 0, root.READ_ONLY, 0, 0)
        self._move(tree, "dev", dev)
        etc = self._make("etc")
        for name, text in self._etc_files().items():
            (etc / name).write_text(text)
            os.chown(etc / name, self.first_id, self.first_id)
            self._move(tree, f"etc/{name}", etc / name, stays=True)

    def _etc_files(self) -> dict[str, str]:
        image = self._image
        hosts = "".join(f"{address} {name}\n" for name, address in image.hosts.items())
        return {
            "hostname": f"{image.hostname}\n",
            "hosts": f"127.0.0.1 localhost {image.hostname}\n::1 localhost\n{hosts}",
            "resolv.conf": root.resolv_conf(),
        }

    def _move(self, tree: int, inside: str, mounted: Path, *, stays: bool = False) -> None:
        """Move a mount, or with `stays` a copy of it or of a file, into the root."""
        flags = (sys_.OPEN_TREE_CLONE | sys_.AT_RECURSIVE) | sys_.OPEN_TREE_CLOEXEC
        clone = sys_.open_tree(sys_.AT_FDCWD, mounted, flags)
        try:
            self._attach(tree, inside, clone)
        finally:
            os.close(clone)
        if not stays:
            sys_.umount2(str(mounted), sys_.MNT_DETACH)

    def _clone_for(self, identity: Identity, outside: str, *, is_writable: bool) -> int:
        """Return a detached mount of a host folder with the owners that the program sees."""
        if self._copies_ids:
            outside = self._with_owners(outside, identity, is_writable=is_writable)
        with self._owner_namespace(outside, identity) as namespace:
            return self._clone(outside, namespace, is_writable=is_writable)

    def _mount_id(self, descriptor: int) -> int:
        """Return the id of the mount that a descriptor refers to."""
        text = (self._tree / f"proc/self/fdinfo/{descriptor}").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("mnt_id:"))

    @contextlib.contextmanager
    def _owner_namespace(self, outside: str, identity: Identity) -> Iterator[int | None]:
        """Yield the map of a host folder: ids of the image, or its owner as the program's user."""
        status = os.stat(outside)
        if self._copies_ids:
            yield None
            return
        if not self._is_root or max(status.st_uid, status.st_gid) < IDS:
            yield self._disk_users
            return
        uids = users.owner_extents(self.first_id, status.st_uid, identity.uid)
        gids = users.owner_extents(self.first_id, status.st_gid, identity.gid)
        with users.user_namespace(uids, gids, str(self._tree / "proc")) as namespace:
            yield namespace

    def _with_owners(self, outside: str, identity: Identity, *, is_writable: bool) -> str:
        """Return a host folder or file with owners of the range: the same, or a copy of a file in the staging folder.

        Read-only folders of the platform stay as they are: their modes let every user read them.
        """
        status = os.stat(outside)
        if stat.S_ISDIR(status.st_mode):
            if is_writable or max(status.st_uid, status.st_gid) >= IDS:
                copies.move_owners(outside, self.first_id, (identity.uid, identity.gid))
            return outside
        if status.st_size > _MAX_STAGED_BYTES:
            return outside
        self._staged += 1
        target = self._tree / f"staged-{self._staged}"
        target.write_bytes(Path(outside).read_bytes())
        os.chown(target, *(self.first_id + number % IDS for number in (status.st_uid, status.st_gid)))
        target.chmod(stat.S_IMODE(status.st_mode))
        return str(target)

    def _attach(self, tree: int, inside: str, clone: int, *, is_own: bool = True, is_unlinked: bool = False) -> None:
        """Mount a detached mount on a path below the root, whose links stay inside.

        One that is not the sandbox's own is not mounted over /dev, /proc or the sandbox's files: the process that
        enters the root uses these while it has all rights. With `is_unlinked` no link may lead to the path.
        """
        links = _IN_ROOT | sys_.RESOLVE_NO_SYMLINKS if is_unlinked else _IN_ROOT
        try:
            target = sys_.openat2(tree, inside.lstrip("/"), os.O_PATH | os.O_CLOEXEC, links)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            raise ValueError(f"the image has a link or a file at {inside!r}, where a folder is needed") from None
        try:
            if not is_own and self._mount_id(target) not in self._mounts:
                raise ValueError(
                    f"no folder can be mounted at {inside!r}: it leads to /dev, /proc or a file of the sandbox"
                )
            flags = sys_.MOVE_MOUNT_F_EMPTY_PATH | sys_.MOVE_MOUNT_T_EMPTY_PATH
            sys_.move_mount(clone, "", target, "", flags)
            if not is_own:
                self._mounts.add(self._mount_id(clone))
        finally:
            os.close(target)
