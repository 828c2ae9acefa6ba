"""Seccomp filter of sandboxed processes, assembled as a classic BPF program.

It denies calls that lead out of a sandbox or into rarely used parts of the kernel, and allows the rest, so that
ordinary programs run. `connect` and `listen` can be sent to a supervisor, which may replace a sandbox's socket by a
host socket; the filter also denies calls that would direct such a socket to another target.
"""

from __future__ import annotations

import ctypes
import errno
import socket
import struct

from moorage.runtime.sandbox import syscalls

_DENIED = (
    *("mount", "umount2", "pivot_root", "move_mount", "open_tree", "open_tree_attr", "mount_setattr", "chroot"),
    *("fsopen", "fsmount", "fsconfig", "fspick", "quotactl", "quotactl_fd", "swapon", "swapoff", "acct"),
    "file_setattr",
    *("unshare", "setns", "sethostname", "setdomainname", "seccomp"),
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "uselib"),
    *("add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd", "lookup_dcookie", "nfsservctl"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("open_by_handle_at", "name_to_handle_at", "fanotify_init", "syslog", "vhangup", "reboot"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module"),
    *("settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "ioperm", "iopl", "modify_ldt"),
    "sched_setattr",  # With a short time slice, a task preempts those of the platform and of other tenants.
)
# Calls that change owners and users, which a user namespace with a single id does not have.
_OWNERS = (
    *("chown", "fchown", "lchown", "fchownat", "setuid", "setgid", "setreuid", "setregid"),
    *("setresuid", "setresgid", "setgroups"),
)
# Kernel memory that is in no mapping: memfd files, System V messages and semaphores.
_UNMAPPED = ("memfd_create", "memfd_secret", "msgget", "semget")
_MAX_SEGMENT_BYTES = 4096
_NEW_NAMESPACES = (
    syscalls.CLONE_NEWNS
    | syscalls.CLONE_NEWCGROUP
    | syscalls.CLONE_NEWUTS
    | syscalls.CLONE_NEWIPC
    | syscalls.CLONE_NEWUSER
    | syscalls.CLONE_NEWPID
    | syscalls.CLONE_NEWNET
)
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
_NETLINK_ROUTE = 0
_SOCKET_TYPE_MASK = 0xF
_QUERY_PERSONALITY = 0xFFFFFFFF
_TIOCSTI = 0x5412
_TIOCLINUX = 0x541C
# Interface, address and neighbour ioctls: on a host socket they would return data of the host.
_SIOC_INTERFACES = (0x8910, 0x8BFF)
# The owner of a file could remove it from its project quota with either.
_FS_IOC_FSSETXATTR = 0x401C5820
_FS_IOC_SETFLAGS = 0x40086602
_SO_BINDTODEVICE = 25
_SO_BINDTOIFINDEX = 62
_IP_OPTIONS = 4  # source routes
_IPV6_ROUTES = (57, 5, 6)  # IPV6_RTHDR, IPV6_2292RTHDR, IPV6_2292PKTOPTIONS
_TCP_ULP = 31

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_AND = 0x54  # BPF_ALU | BPF_AND | BPF_K
_JUMP_EQUAL = 0x15
_JUMP_GREATER = 0x25
_JUMP_AT_LEAST = 0x35
_JUMP_ANY_BIT = 0x45
_RETURN = 0x06
_OFFSET_NUMBER = 0
_OFFSET_ARCH = 4
_OFFSET_ARGUMENTS = 16

_Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand
_Block = list[_Instruction]


def build(
    *,
    notify: bool,
    listens: bool = False,
    is_counted: bool = True,
    keeps_session: bool = False,
    pretends_owners: bool = False,
    arch: str | None = None,
) -> bytes:
    """Assemble the filter; with `notify`, `connect` and `listen` wait for an answer.

    With `listens`, `bind` waits too: accepted connections are host sockets, which could be bound to any port of the
    host after they have ended. Without `is_counted`, no memory controller counts the kernel memory of a process, so
    calls that allocate memory outside of mappings are denied. With `keeps_session`, `setsid` and
    `sched_setaffinity` succeed without effect: a new session would have a CPU share of its own with autogroup
    scheduling, and the organization may have to leave a CPU free. With `pretends_owners`, changes of owners
    and users succeed without effect: programs made for containers expect several ids.
    """
    arch = arch or syscalls.ARCH
    program = _check_architecture(arch) + _check_arguments(arch, notify=notify)
    if notify:
        for name in ("connect", "listen", *(("bind",) if listens else ())):
            program += _when_called(name, arch, [_NOTIFY])
    program += _when_called("clone3", arch, [_fail(errno.ENOSYS)])  # Its flags are in memory; libc falls back to clone.
    for name in (*(_OWNERS if pretends_owners else ()), *(("setsid", "sched_setaffinity") if keeps_session else ())):
        program += _when_called(name, arch, [_fail(0)])
    program += [] if is_counted else _unmapped_memory(arch)
    for name in _DENIED:
        if syscalls.number(name, arch) is not None:
            program += _when_called(name, arch, [_EPERM])
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in [*program, _ALLOW])


def install(program: bytes, *, listener: bool) -> int | None:
    """Install the filter, also for children; with `listener`, return its descriptor.

    `no_new_privs` must be set before. The filter denies the seccomp call, so this works once.
    """
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(instructions))
    if not listener:
        syscalls.seccomp(syscalls.SECCOMP_SET_MODE_FILTER, 0, header)
        return None
    return _install_with_listener(header)


def _install_with_listener(header: bytes) -> int:
    """Prefer WAIT_KILLABLE_RECV (Linux 5.19): only fatal signals interrupt calls."""
    flags = syscalls.SECCOMP_FILTER_FLAG_NEW_LISTENER
    killable = flags | syscalls.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
    try:
        return syscalls.seccomp(syscalls.SECCOMP_SET_MODE_FILTER, killable, header)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return syscalls.seccomp(syscalls.SECCOMP_SET_MODE_FILTER, flags, header)


def _fail(code: int) -> _Instruction:
    return (_RETURN, 0, 0, 0x00050000 | code)


_ALLOW: _Instruction = (_RETURN, 0, 0, 0x7FFF0000)
_NOTIFY: _Instruction = (_RETURN, 0, 0, 0x7FC00000)
_KILL: _Instruction = (_RETURN, 0, 0, 0x80000000)
_EPERM = _fail(errno.EPERM)


def _load_argument(index: int) -> _Instruction:
    """Load the lower half of an argument that the kernel truncates to 32 bits."""
    return (_LOAD, 0, 0, _OFFSET_ARGUMENTS + 8 * index)


def _when(value: int, block: _Block) -> _Block:
    """Run a block, which returns, if the loaded value equals `value`."""
    return [(_JUMP_EQUAL, 0, len(block), value), *block]


def _unless(values: tuple[int, ...], verdict: _Instruction) -> _Block:
    """Return a verdict unless the loaded value is one of `values`."""
    jumps = [(_JUMP_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    return [*jumps, verdict]


def _when_called(name: str, arch: str, block: _Block) -> _Block:
    number = syscalls.number(name, arch)
    return [] if number is None else _when(number, block)


def _check_architecture(arch: str) -> _Block:
    """Kill a process that uses call numbers of another architecture."""
    checks: _Block = [(_LOAD, 0, 0, _OFFSET_ARCH), *_unless((_AUDIT_ARCH[arch],), _KILL), (_LOAD, 0, 0, _OFFSET_NUMBER)]
    return [*checks, (_JUMP_AT_LEAST, 0, 1, _X32_BIT), _KILL] if arch == "x86_64" else checks


def _check_arguments(arch: str, *, notify: bool) -> _Block:
    """Check calls by their arguments, frequent calls first: the filter always runs."""
    blocks = {
        "sendto": _send(3),
        "sendmsg": _send(2),
        "sendmmsg": _send(3),
        "ioctl": _ioctl(),
        "setsockopt": _setsockopt(pretend=notify),
        "socket": _socket(),
        "socketpair": [_load_argument(0), *_unless((socket.AF_UNIX,), _EPERM), _ALLOW],
        "clone": [_load_argument(0), (_JUMP_ANY_BIT, 0, 1, _NEW_NAMESPACES), _EPERM, _ALLOW],
        "personality": [_load_argument(0), *_unless((0, _QUERY_PERSONALITY), _EPERM), _ALLOW],
    }
    return [instruction for name, block in blocks.items() for instruction in _when_called(name, arch, block)]


def _unmapped_memory(arch: str) -> _Block:
    """Deny memory outside of mappings, with ENOSYS as on kernels without these calls.

    PostgreSQL marks its folder with a shared memory segment of a few bytes, so segments up to a page are allowed.
    """
    denied = [instruction for name in _UNMAPPED for instruction in _when_called(name, arch, [_fail(errno.ENOSYS)])]
    size = _OFFSET_ARGUMENTS + 8
    too_large = _fail(errno.ENOSPC)
    segment: _Block = [
        (_LOAD, 0, 0, size + 4),  # the upper half: a size has 64 bits
        (_JUMP_EQUAL, 1, 0, 0),
        too_large,
        (_LOAD, 0, 0, size),
        (_JUMP_GREATER, 0, 1, _MAX_SEGMENT_BYTES),
        too_large,
        _ALLOW,
    ]
    return [*denied, *_when_called("shmget", arch, segment)]


def _send(flags_argument: int) -> _Block:
    """Deny MSG_FASTOPEN: it would connect a host socket to an unchecked address."""
    return [_load_argument(flags_argument), (_JUMP_ANY_BIT, 0, 1, socket.MSG_FASTOPEN), _EPERM, _ALLOW]


def _socket() -> _Block:
    families = (socket.AF_INET, socket.AF_INET6)
    return [
        _load_argument(0),
        *_when(socket.AF_UNIX, [_ALLOW]),
        # As a kernel without them: `useradd` fails if the audit protocol exists and must not be used.
        *_when(
            socket.AF_NETLINK,
            [_load_argument(2), *_unless((_NETLINK_ROUTE,), _fail(errno.EPROTONOSUPPORT)), _ALLOW],
        ),
        *_unless(families, _EPERM),
        *(_load_argument(1), (_AND, 0, 0, _SOCKET_TYPE_MASK)),
        *_unless((socket.SOCK_STREAM, socket.SOCK_DGRAM), _EPERM),
        _load_argument(2),
        *_unless((0, socket.IPPROTO_TCP, socket.IPPROTO_UDP), _fail(errno.EPROTONOSUPPORT)),
        _ALLOW,
    ]


def _ioctl() -> _Block:
    first, last = _SIOC_INTERFACES
    return [
        _load_argument(1),
        *_when(_TIOCSTI, [_EPERM]),
        *_when(_TIOCLINUX, [_EPERM]),
        *_when(_FS_IOC_FSSETXATTR, [_fail(errno.ENOTTY)]),
        *_when(_FS_IOC_SETFLAGS, [_fail(errno.ENOTTY)]),
        (_JUMP_AT_LEAST, 0, 2, first),
        (_JUMP_GREATER, 1, 0, last),
        _EPERM,
        _ALLOW,
    ]


def _setsockopt(*, pretend: bool) -> _Block:
    """Deny options that redirect a connected socket, and protocols on top of TCP.

    Host sockets share ports as long as none of them clears SO_REUSEADDR. Servers usually set this option, so where a
    socket may be a host socket, setting it succeeds without effect (`pretend`).
    """
    pretended = _when(socket.SO_REUSEADDR, [_fail(0)]) if pretend else []
    return [
        _load_argument(1),
        *_when(socket.SOL_SOCKET, [_load_argument(2), *pretended, *_deny(_SO_BINDTODEVICE, _SO_BINDTOIFINDEX)]),
        *_when(socket.IPPROTO_IP, [_load_argument(2), *_deny(_IP_OPTIONS)]),
        *_when(socket.IPPROTO_IPV6, [_load_argument(2), *_deny(*_IPV6_ROUTES)]),
        *_when(socket.IPPROTO_TCP, [_load_argument(2), *_deny(_TCP_ULP)]),
        _ALLOW,
    ]


def _deny(*options: int) -> _Block:
    return [*(instruction for option in options for instruction in _when(option, [_EPERM])), _ALLOW]
