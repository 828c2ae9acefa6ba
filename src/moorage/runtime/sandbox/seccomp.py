"""The filter of system calls that every sandboxed process runs under, written as a classic BPF program.

It closes what leads out of a sandbox or deep into the kernel and leaves the rest open, so that ordinary programs run.
The ways to an address, `connect` and `listen`, can be handed to a supervisor: then a socket of the host may stand in
the place of a sandbox's own one, and the filter also closes what would turn such a socket to another target.
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
)
# Memory of the kernel's own that no mapping shows: files without a name, messages and semaphores of System V.
_UNMAPPED = ("memfd_create", "memfd_secret", "msgget", "semget")
_LARGEST_SEGMENT = 4096
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
# Questions about interfaces, addresses and neighbours: a socket of the host would answer them about the host.
_SIOC_INTERFACES = (0x8910, 0x8BFF)
# The owner of a file could take it out of its project quota with either.
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


def build(*, notify: bool, door: bool = False, is_counted: bool = True, arch: str | None = None) -> bytes:
    """Make the program for a machine; with `notify`, `connect` and `listen` wait for the answer of a listener.

    So does `bind` with `door`: connections that come in are sockets of the host, which are free to be bound to any of
    its ports once they have ended. Without `is_counted` no memory controller counts what the kernel holds for a
    process: memory that no process has mapped cannot be made then.
    """
    arch = arch or syscalls.ARCH
    program = _foreign_machine(arch) + _judged_by_argument(arch, notify=notify)
    if notify:
        for name in ("connect", "listen", *(("bind",) if door else ())):
            program += _when_called(name, arch, [_NOTIFY])
    program += _when_called("clone3", arch, [_fail(errno.ENOSYS)])  # Its flags lie in memory; libc falls back to clone.
    program += [] if is_counted else _unmapped_memory(arch)
    for name in _DENIED:
        if syscalls.number(name, arch) is not None:
            program += _when_called(name, arch, [_EPERM])
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in [*program, _ALLOW])


def install(program: bytes, *, listener: bool) -> int | None:
    """Put this thread and all it starts under the filter; with `listener`, return the descriptor that is notified.

    `no_new_privs` must be set before. The filter forbids a second one, so this works once.
    """
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(instructions))
    if not listener:
        syscalls.seccomp(syscalls.SECCOMP_SET_MODE_FILTER, 0, header)
        return None
    return _install_with_listener(header)


def _install_with_listener(header: bytes) -> int:
    """Prefer that signals which do not kill leave a call alone that the listener is working on (Linux 5.19)."""
    flags = syscalls.SECCOMP_FILTER_FLAG_NEW_LISTENER
    patient = flags | syscalls.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
    try:
        return syscalls.seccomp(syscalls.SECCOMP_SET_MODE_FILTER, patient, header)
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
    """Load the lower half of an argument: every argument judged here is one that the kernel itself cuts to 32 bits."""
    return (_LOAD, 0, 0, _OFFSET_ARGUMENTS + 8 * index)


def _when(value: int, block: _Block) -> _Block:
    """Run a block, which returns, when the loaded value is this one."""
    return [(_JUMP_EQUAL, 0, len(block), value), *block]


def _unless(values: tuple[int, ...], verdict: _Instruction) -> _Block:
    """Return a verdict unless the loaded value is one of these."""
    jumps = [(_JUMP_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    return [*jumps, verdict]


def _when_called(name: str, arch: str, block: _Block) -> _Block:
    called = syscalls.number(name, arch)
    return [] if called is None else _when(called, block)


def _foreign_machine(arch: str) -> _Block:
    """Kill a call in the numbering of another machine, where every number below would mean something else."""
    checks: _Block = [(_LOAD, 0, 0, _OFFSET_ARCH), *_unless((_AUDIT_ARCH[arch],), _KILL), (_LOAD, 0, 0, _OFFSET_NUMBER)]
    return [*checks, (_JUMP_AT_LEAST, 0, 1, _X32_BIT), _KILL] if arch == "x86_64" else checks


def _judged_by_argument(arch: str, *, notify: bool) -> _Block:
    """Judge what depends on arguments. Calls that servers make often stand first, because the filter runs each time."""
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
    """Close the calls that make memory which is held without being mapped. Programs know kernels without them (ENOSYS).

    PostgreSQL marks its folder with a segment of a few bytes, so segments of a page may be made.
    """
    closed = [one for name in _UNMAPPED for one in _when_called(name, arch, [_fail(errno.ENOSYS)])]
    size = _OFFSET_ARGUMENTS + 8
    too_large = _fail(errno.ENOSPC)
    segment: _Block = [
        (_LOAD, 0, 0, size + 4),  # the upper half: a size has 64 bits
        (_JUMP_EQUAL, 1, 0, 0),
        too_large,
        (_LOAD, 0, 0, size),
        (_JUMP_GREATER, 0, 1, _LARGEST_SEGMENT),
        too_large,
        _ALLOW,
    ]
    return [*closed, *_when_called("shmget", arch, segment)]


def _send(flags_argument: int) -> _Block:
    """Close the send that also connects: it would take a socket of the host anywhere, past the supervisor."""
    return [_load_argument(flags_argument), (_JUMP_ANY_BIT, 0, 1, socket.MSG_FASTOPEN), _EPERM, _ALLOW]


def _socket() -> _Block:
    families = (socket.AF_INET, socket.AF_INET6)
    return [
        _load_argument(0),
        *_when(socket.AF_UNIX, [_ALLOW]),
        *_when(socket.AF_NETLINK, [_load_argument(2), *_unless((_NETLINK_ROUTE,), _EPERM), _ALLOW]),
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
    """Close the options that send a connected socket's packets another way, and the protocols stacked on TCP.

    Sockets of the host share ports, as long as none of them takes its SO_REUSEADDR back. Servers set this option as a
    matter of course, so where there may be such sockets it is pretended to be set.
    """
    pretended = _when(socket.SO_REUSEADDR, [_fail(0)]) if pretend else []
    return [
        _load_argument(1),
        *_when(socket.SOL_SOCKET, [_load_argument(2), *pretended, *_closed(_SO_BINDTODEVICE, _SO_BINDTOIFINDEX)]),
        *_when(socket.IPPROTO_IP, [_load_argument(2), *_closed(_IP_OPTIONS)]),
        *_when(socket.IPPROTO_IPV6, [_load_argument(2), *_closed(*_IPV6_ROUTES)]),
        *_when(socket.IPPROTO_TCP, [_load_argument(2), *_closed(_TCP_ULP)]),
        _ALLOW,
    ]


def _closed(*options: int) -> _Block:
    return [*(one for option in options for one in _when(option, [_EPERM])), _ALLOW]
