"""System calls that are missing in Python's standard library, called through libc.

All functions raise `OSError` with the kernel's errno and start no thread, so they are safe in a forked child. The table
has the call numbers of both supported architectures, because the seccomp filter needs them too.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal

# name: (x86_64, aarch64); None if the architecture does not have the call
NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bind": (49, 200),
    "bpf": (321, 280),
    "capset": (126, 91),
    "chown": (92, None),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "connect": (42, 203),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "file_setattr": (469, 469),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "iopl": (172, None),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lchown": (94, None),
    "listen": (50, 201),
    "lookup_dcookie": (212, 18),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "seccomp": (317, 277),
    "semget": (64, 190),
    "sendmmsg": (307, 269),
    "sendmsg": (46, 211),
    "sendto": (44, 206),
    "setdomainname": (171, 162),
    "setfsgid": (123, 152),
    "setfsuid": (122, 151),
    "setgid": (106, 144),
    "setgroups": (116, 159),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setregid": (114, 143),
    "setresgid": (119, 149),
    "setresuid": (117, 147),
    "setreuid": (113, 145),
    "setsid": (112, 157),
    "setsockopt": (54, 208),
    "settimeofday": (164, 170),
    "setuid": (105, 146),
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}

ARCHES = ("x86_64", "aarch64")
ARCH = os.uname().machine

MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_BIND = 0x1000
MS_MOVE = 0x2000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MS_SLAVE = 0x80000
MS_SHARED = 0x100000

MNT_DETACH = 0x2

CLONE_PARENT = 0x8000
CLONE_NEWNS = 0x20000
CLONE_NEWCGROUP = 0x2000000
CLONE_NEWUTS = 0x4000000
CLONE_NEWIPC = 0x8000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000

OPEN_TREE_CLONE = 0x1
OPEN_TREE_CLOEXEC = os.O_CLOEXEC

MOVE_MOUNT_F_EMPTY_PATH = 0x4
MOVE_MOUNT_T_EMPTY_PATH = 0x40

MOUNT_ATTR_RDONLY = 0x1
MOUNT_ATTR_NOSUID = 0x2
MOUNT_ATTR_NODEV = 0x4
MOUNT_ATTR_NOEXEC = 0x8
MOUNT_ATTR_IDMAP = 0x100000

RESOLVE_NO_MAGICLINKS = 0x2
RESOLVE_NO_SYMLINKS = 0x4
RESOLVE_BENEATH = 0x8
RESOLVE_IN_ROOT = 0x10

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_READ = 23
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

SECCOMP_SET_MODE_FILTER = 1
SECCOMP_FILTER_FLAG_NEW_LISTENER = 0x8
SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV = 0x20

_KCMP_FILES = 2
_PROJECT_QUOTA = 2
_IOPRIO_WHO_PROCESS = 1
_IOPRIO_LOWEST = (2 << 13) | 7  # the lowest of the eight levels in the best-effort class
_CAPABILITY_VERSION_3 = 0x20080522
_MAX_CAPABILITIES = 64

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

_libc_with_gil = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter lock during a call
_libc_with_gil.syscall.restype = ctypes.c_long
_ZERO_WORDS = tuple(ctypes.c_long(0) for _ in range(4))

_Argument = int | bytes | None | ctypes.Array[ctypes.c_char]


def number(name: str, arch: str = ARCH) -> int | None:
    """Return the number of a system call; None if the architecture does not have it."""
    return NUMBERS[name][ARCHES.index(arch)]


def _call(name: str, *arguments: _Argument) -> int:
    """Make a system call with machine words: variadic integers would have 32 bits."""
    call_number = number(name)
    if call_number is None:
        raise OSError(errno.ENOSYS, f"{name} does not exist on {ARCH}")
    words = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    result: int = _libc.syscall(ctypes.c_long(call_number), *words)
    if result < 0:
        _raise_errno(name)
    return result


def _raise_errno(name: str) -> None:
    code = ctypes.get_errno()
    raise OSError(code, f"{name}: {os.strerror(code)}")


def _path(path: str | bytes | os.PathLike[str] | None) -> bytes | None:
    return None if path is None else os.fsencode(path)


def fork_into(flags: int) -> int:
    """Fork a child, or with CLONE_PARENT a sibling, directly into new namespaces.

    This saves the second fork that `unshare` would need for a PID namespace. Only for single-threaded processes: unlike
    `fork`, it does not handle the locks of the C library.
    """
    clone = number("clone")
    assert clone is not None
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    # With the interpreter lock held, which the child needs too.
    child: int = _libc_with_gil.syscall(ctypes.c_long(clone), ctypes.c_long(flags | signal.SIGCHLD), *_ZERO_WORDS)
    if child == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    if child < 0:
        _raise_errno("clone")
    return child


def sched_setattr(thread: int, attributes: bytes) -> None:
    """Set the scheduling attributes of a thread from the bytes of a `struct sched_attr`."""
    _call("sched_setattr", thread, attributes, 0)


def unshare(flags: int) -> None:
    _call("unshare", flags)


def setns(fd: int, kind: int = 0) -> None:
    _call("setns", fd, kind)


def sethostname(name: str) -> None:
    encoded = name.encode()
    _call("sethostname", encoded, len(encoded))


def prctl(option: int, second: int = 0, third: int = 0, fourth: int = 0, fifth: int = 0) -> int:
    words = [ctypes.c_ulong(argument) for argument in (second, third, fourth, fifth)]
    result: int = _libc.prctl(ctypes.c_int(option), *words)
    if result < 0:
        _raise_errno("prctl")
    return result


def no_new_privs() -> None:
    """Prevent all programs executed later from gaining privileges, irrevocably."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def set_pdeathsig(sig: int) -> None:
    """Get a signal when the parent thread ends. A change of uid clears this."""
    prctl(PR_SET_PDEATHSIG, sig)


def set_dumpable(dumpable: bool) -> None:
    """Let processes of the same user inspect this one, which a change of uid forbids."""
    prctl(PR_SET_DUMPABLE, int(dumpable))


def yield_disk() -> None:
    """Lower the I/O priority, also of children; not all I/O schedulers support it."""
    _call("ioprio_set", _IOPRIO_WHO_PROCESS, 0, _IOPRIO_LOWEST)


def drop_bounding_set(keep: frozenset[int] = frozenset()) -> None:
    """Drop all capabilities of later programs but `keep`, before a change of uid forbids it."""
    for capability in range(_MAX_CAPABILITIES):
        try:
            if capability not in keep and prctl(PR_CAPBSET_READ, capability):
                prctl(PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno != errno.EINVAL:  # EINVAL: beyond the kernel's last capability.
                raise
            break


def drop_capabilities(*, bounding: bool = True, keep: frozenset[int] = frozenset()) -> None:
    """Drop all capabilities but `keep` in all five sets. Safe to repeat."""
    if bounding:
        drop_bounding_set(keep)
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = _CAPABILITY_VERSION_3.to_bytes(4, "little") + bytes(4)
    mask = sum(1 << capability for capability in keep)
    # Effective, permitted and inheritable set: the lower halves, then the upper ones.
    words = [half for shift in (0, 32) for half in (*(mask >> shift & 0xFFFFFFFF,) * 2, 0)]
    _call("capset", header, b"".join(word.to_bytes(4, "little") for word in words))


def mount(
    source: str | os.PathLike[str] | None,
    target: str | os.PathLike[str],
    fstype: str | None = None,
    flags: int = 0,
    data: str | None = None,
) -> None:
    _call("mount", _path(source), _path(target), _path(fstype), flags, _path(data))


def umount2(target: str | os.PathLike[str], flags: int = 0) -> None:
    _call("umount2", _path(target), flags)


def pivot_root(new: str | os.PathLike[str], old: str | os.PathLike[str]) -> None:
    _call("pivot_root", _path(new), _path(old))


def open_tree(dirfd: int, path: str | os.PathLike[str], flags: int) -> int:
    """Open a mount or, with OPEN_TREE_CLONE, a detached clone; the caller closes it."""
    return _call("open_tree", dirfd, _path(path), flags)


def move_mount(
    from_fd: int, from_path: str | os.PathLike[str], to_fd: int, to_path: str | os.PathLike[str], flags: int
) -> None:
    _call("move_mount", from_fd, _path(from_path), to_fd, _path(to_path), flags)


def mount_setattr(
    fd: int,
    path: str | os.PathLike[str],
    flags: int,
    attr_set: int = 0,
    attr_clr: int = 0,
    propagation: int = 0,
    userns_fd: int = 0,
) -> None:
    fields = (attr_set, attr_clr, propagation, userns_fd)
    attributes = b"".join(field.to_bytes(8, "little") for field in fields)
    _call("mount_setattr", fd, _path(path), flags, attributes, len(attributes))


def openat2(dirfd: int, path: str | bytes | os.PathLike[str], flags: int, resolve: int, mode: int = 0) -> int:
    how = b"".join(field.to_bytes(8, "little") for field in (flags, mode, resolve))
    return _call("openat2", dirfd, _path(path), how, len(how))


def pidfd_open(pid: int) -> int:
    """Open a process by its PID. The caller closes the descriptor."""
    return _call("pidfd_open", pid, 0)


def pidfd_getfd(pidfd: int, target_fd: int) -> int:
    """Duplicate a descriptor of another process, with O_CLOEXEC; the caller closes it."""
    return _call("pidfd_getfd", pidfd, target_fd, 0)


def share_descriptors(thread: int, other: int) -> bool:
    """Whether two threads share a descriptor table. OSError (ENOSYS) without kcmp."""
    return _call("kcmp", thread, other, _KCMP_FILES, 0, 0) == 0


def quotactl_fd(fd: int, command: int, project: int, block: ctypes.Array[ctypes.c_char]) -> None:
    """Get or set a project quota of the file system of `fd` (Linux 5.14)."""
    _call("quotactl_fd", fd, (command << 8) | _PROJECT_QUOTA, project, block)


def process_vm_readv(pid: int, address: int, length: int) -> bytes:
    """Read memory of another process; shorter if the range ends in unmapped memory."""
    buffer = ctypes.create_string_buffer(length)
    local = ctypes.addressof(buffer).to_bytes(8, "little") + length.to_bytes(8, "little")
    remote = address.to_bytes(8, "little") + length.to_bytes(8, "little")
    count = _call("process_vm_readv", pid, local, 1, remote, 1, 0)
    return buffer.raw[:count]


def connect(fd: int, address: bytes) -> None:
    """Connect to a struct sockaddr; unlike `socket.connect`, a signal ends the wait."""
    _call("connect", fd, address, len(address))


def bind(fd: int, address: bytes) -> None:
    """Bind to a struct sockaddr."""
    _call("bind", fd, address, len(address))


def set_file_user(uid: int, gid: int) -> None:
    """Set this thread's file system uid and gid; the kernel reports no failure."""
    _call("setfsgid", gid)
    _call("setfsuid", uid)


def seccomp(operation: int, flags: int, arguments: bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    return _call("seccomp", operation, flags, arguments)
