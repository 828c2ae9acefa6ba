"""The seccomp filter: it denies dangerous calls, and ordinary programs run."""

from __future__ import annotations

import ctypes
import errno
import json
import struct
import subprocess
import sys
import textwrap

import pytest
from tests.runtime.sandbox.sandbox_support import PRELUDE, SOURCE, python_inside, run_inside

from moorage.runtime.sandbox import seccomp, syscalls
from moorage.runtime.workers.runtimes import installed

pytestmark = pytest.mark.boundary("code-to-host", "System calls that lead out of a sandbox are closed.")

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, NOTIFY, KILL, EPERM = 0x7FFF0000, 0x7FC00000, 0x80000000, 0x00050001
FAIL = 0x00050000
DENIED = sorted(
    {
        *("mount", "umount2", "pivot_root", "move_mount", "open_tree", "mount_setattr", "chroot", "unshare", "setns"),
        *("fsopen", "fsmount", "fsconfig", "fspick", "quotactl", "swapon", "swapoff", "acct", "sethostname"),
        *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "seccomp"),
        *("add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd"),
        *("io_uring_setup", "io_uring_enter", "io_uring_register"),
        *("open_by_handle_at", "name_to_handle_at", "fanotify_init", "syslog", "vhangup", "reboot"),
        *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module"),
        *("settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "lookup_dcookie", "nfsservctl"),
        "sched_setattr",
    }
)


def test_every_call_that_leads_out_of_a_sandbox_is_not_permitted() -> None:
    numbers = json.dumps({name: syscalls.number(name) for name in DENIED})

    answers = python_inside(
        None, "tell({name: call(n, -1, 0, 0, 0) for name, n in json.loads(argv[0]).items()})", numbers
    )

    assert answers == dict.fromkeys(DENIED, "EPERM")


@pytest.mark.parametrize("arch", syscalls.ARCHES)
def test_the_filter_itself_closes_those_calls_on_either_machine(arch: str) -> None:
    program = seccomp.build(notify=False, arch=arch)

    verdicts = {name: verdict(program, AUDIT_ARCH[arch], syscalls.number(name, arch) or 0) for name in DENIED}

    assert verdicts == dict.fromkeys(DENIED, EPERM)


def test_threads_and_processes_start_but_not_in_new_namespaces() -> None:
    code = """
    clone, clone3 = argv
    kinds = [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]
    answers = {call(clone, kind | 17, 0, 0, 0, 0) for kind in kinds}
    started = []
    thread = threading.Thread(target=started.append, args=("thread",))
    thread.start()
    thread.join()
    if os.fork() == 0:
        os._exit(7)
    tell([sorted(answers), call(clone3, 0, 0), started, os.waitstatus_to_exitcode(os.wait()[1])])
    """

    answer = python_inside(None, code, syscalls.number("clone"), syscalls.number("clone3"))

    assert answer == [["EPERM"], "ENOSYS", ["thread"], 7]


def test_only_sockets_of_ordinary_kinds_are_made() -> None:
    code = """
    kinds = {
        "tcp": (2, 1, 0), "udp6": (10, 2, 17), "unix": (1, 1, 0), "route": (16, 3, 0),
        "raw": (2, 3, 1), "packet": (17, 3, 0), "vsock": (40, 1, 0), "alg": (38, 5, 0), "audit": (16, 3, 9),
        "raw with flags": (2, 3 | socket.SOCK_CLOEXEC, 255), "sctp": (2, 1, 132), "mptcp": (2, 1, 262),
        "high bits": (2 | 1 << 16, 3, 0),
    }
    tell({name: attempt(socket.socket, *kind) for name, kind in kinds.items()}
         | {"pair": attempt(socket.socketpair, 1), "internet pair": attempt(socket.socketpair, 2)})
    """

    answers = python_inside(None, code)

    opened = {name for name, answer in answers.items() if answer == "done"}
    assert opened == {"tcp", "udp6", "unix", "route", "pair"}
    assert {answers[name] for name in ("sctp", "mptcp", "audit")} == {"EPROTONOSUPPORT"}
    assert {answers[name] for name in answers.keys() - opened - {"sctp", "mptcp", "audit"}} == {"EPERM"}


def test_an_argument_with_its_upper_half_set_is_judged_by_the_half_that_the_kernel_uses() -> None:
    code = "tell([call(argv[0], 17 | 1 << 32, 3 | 1 << 32, 0), call(argv[0], 1 | 1 << 32, 1, 0)])"

    answers = python_inside(None, code, syscalls.number("socket"))

    assert answers == ["EPERM", "done"]


def test_a_send_cannot_connect() -> None:
    code = """
    server = socket.create_server(("127.0.0.1", 0))
    def fresh():
        return socket.socket()
    fast = socket.MSG_FASTOPEN
    sendmsg = lambda: fresh().sendmsg([b"x"], [], fast, server.getsockname())
    tell([attempt(fresh().sendto, b"x", fast, server.getsockname()), attempt(sendmsg),
          attempt(socket.socket(2, 2).sendto, b"x", ("127.0.0.1", 9))])
    """

    answers = python_inside(None, code)

    assert answers == ["EPERM", "EPERM", "done"]


def test_options_that_turn_a_connection_another_way_are_closed() -> None:
    code = """
    sock, sock6 = socket.socket(), socket.socket(socket.AF_INET6)
    route = bytes([131, 7, 4, 127, 0, 0, 1, 0])
    tell([attempt(sock.setsockopt, 1, 25, b"lo"), attempt(sock.setsockopt, 1, 62, 1),
          attempt(sock.setsockopt, 0, 4, route),
          attempt(sock6.setsockopt, 41, 57, bytes(24)), attempt(sock.setsockopt, 6, 31, b"tls"),
          attempt(fcntl.ioctl, sock, 0x8912, bytes(40)), attempt(sock.setsockopt, 6, 1, 1)])
    """

    answers = python_inside(None, code)

    assert answers == ["EPERM"] * 6 + ["done"]


def test_keys_cannot_be_pushed_into_a_terminal() -> None:
    code = """
    import pty
    _, terminal = pty.openpty()
    tell([attempt(fcntl.ioctl, terminal, 0x5412, b"x"), attempt(fcntl.ioctl, terminal, 0x541C, b"x")])
    """

    answers = python_inside(None, code)

    assert answers == ["EPERM", "EPERM"]


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_memory_that_is_not_mapped_cannot_be_made_where_nothing_counts_it(arch: str) -> None:
    counted, uncounted = (seccomp.build(notify=False, is_counted=each, arch=arch) for each in (True, False))
    calls = [(name, 0) for name in ("memfd_create", "memfd_secret", "msgget", "semget")]
    calls += [("shmget", size) for size in (0, 56, 4096, 4097, 1 << 32, (1 << 40) + 56)]

    def verdicts(program: bytes) -> list[int]:
        numbers = [(syscalls.number(name, arch) or 0, size) for name, size in calls]
        return [verdict(program, AUDIT_ARCH[arch], number, (0, size, 0, 0, 0, 0)) for number, size in numbers]

    assert verdicts(counted) == [ALLOW] * 10
    assert verdicts(uncounted) == [FAIL | errno.ENOSYS] * 4 + [ALLOW] * 3 + [FAIL | errno.ENOSPC] * 3


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
@pytest.mark.parametrize("name", ["setsid", "sched_setaffinity"])
def test_a_cpu_share_or_cpus_of_its_own_are_only_pretended(name: str, arch: str) -> None:
    programs = [seccomp.build(notify=False, keeps_session=keeps_session, arch=arch) for keeps_session in (False, True)]
    number = syscalls.number(name, arch)
    assert number is not None

    verdicts = [verdict(program, AUDIT_ARCH[arch], number, (0,) * 6) for program in programs]

    assert verdicts == [ALLOW, FAIL]


@pytest.mark.boundary("tenant-to-tenant", "Code in a sandbox cannot take its files out of their project quota.")
def test_a_file_stays_in_its_project_quota() -> None:
    code = """
    file = os.memfd_create("x")
    tell([attempt(fcntl.ioctl, file, 0x401C5820, bytes(28)), attempt(fcntl.ioctl, file, 0x40086602, bytes(8)),
          call(argv[0], -100, 0, 0, 0, 0)])
    """

    answers = python_inside(None, code, syscalls.number("file_setattr"))

    assert answers == ["ENOTTY", "ENOTTY", "EPERM"]


def test_the_personality_can_be_asked_for_but_not_changed() -> None:
    code = "tell([call(argv[0], one) for one in (0xFFFFFFFF, 0, 0x0040000)])"

    answers = python_inside(None, code, syscalls.number("personality"))

    assert answers == ["done", "done", "EPERM"]


def test_node_runs_with_workers_children_timers_files_and_cryptography() -> None:
    code = """
    const {Worker} = require("worker_threads"), {execFile} = require("child_process"), crypto = require("crypto")
    const fs = require("fs/promises"), os = require("os"), path = require("path")
    const {promisify} = require("util")
    const worker = () => new Promise(done => new Worker(
        "require('worker_threads').parentPort.postMessage(6 * 7)", {eval: true}).on("message", done))
    async function main() {
        const folder = await fs.mkdtemp(path.join(os.tmpdir(), "node-"))
        await fs.writeFile(path.join(folder, "a"), "text")
        const child = await promisify(execFile)(process.execPath, ["-p", "1 + 1"])
        await new Promise(done => setTimeout(done, 5))
        const key = await promisify(crypto.pbkdf2)("a", "b", 1000, 32, "sha256")
        const read = await fs.readFile(path.join(folder, "a"), "utf8")
        await fs.rm(folder, {recursive: true})
        const loopback = os.networkInterfaces().lo.length > 0
        console.log(JSON.stringify([await worker(), child.stdout.trim(), key.length, read, loopback]))
    }
    main()
    """
    runtimes = [runtime for name, runtime in installed().items() if name.startswith("nodejs:")]

    answers = [json.loads(run_inside(None, [str(runtime.executable), "-e", code])) for runtime in runtimes]

    assert answers
    assert all(answer == [42, "2", 32, "text", True] for answer in answers)


def test_python_runs_with_pools_of_threads_and_processes() -> None:
    code = """
    import asyncio, concurrent.futures, hashlib, subprocess, tempfile
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        lengths = list(threads.map(len, ["a", "bb"]))
    with concurrent.futures.ProcessPoolExecutor(2) as processes:
        numbers = list(processes.map(abs, [-1, -2]))
    asyncio.run(asyncio.sleep(0.01))
    with tempfile.TemporaryFile() as file:
        file.write(hashlib.sha256(os.urandom(8)).digest())
    tell([lengths, numbers, subprocess.check_output([sys.executable, "-c", "print(5)"], text=True)])
    """

    answer = python_inside(None, code)

    assert answer == [[1, 2], [1, 2], "5\n"]


@pytest.mark.parametrize("arch", syscalls.ARCHES)
@pytest.mark.parametrize("notify", [True, False])
def test_a_program_for_either_machine_is_whole_and_every_jump_in_it_lands(arch: str, notify: bool) -> None:
    program = seccomp.build(notify=notify, arch=arch)

    code = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    jumps = [at + 1 + max(true, false) for at, (kind, true, false, _) in enumerate(code) if kind & 7 == 5]
    assert max(jumps) < len(code)
    assert code[-1] == (6, 0, 0, ALLOW)


@pytest.mark.parametrize("arch", syscalls.ARCHES)
def test_a_call_in_the_numbering_of_another_machine_kills(arch: str) -> None:
    program = seccomp.build(notify=False, arch=arch)
    own = AUDIT_ARCH[arch]
    (other,) = set(AUDIT_ARCH.values()) - {own}

    verdicts = [verdict(program, own, 1000), verdict(program, other, 1000), verdict(program, own, 1000 | 0x40000000)]

    assert verdicts == [ALLOW, KILL, KILL if arch == "x86_64" else ALLOW]


@pytest.mark.parametrize("arch", syscalls.ARCHES)
def test_connections_are_asked_about_only_where_a_supervisor_listens(arch: str) -> None:
    calls = [syscalls.number(name, arch) or 0 for name in ("connect", "listen")]

    asked = [verdict(seccomp.build(notify=True, arch=arch), AUDIT_ARCH[arch], call) for call in calls]
    open_ = [verdict(seccomp.build(notify=False, arch=arch), AUDIT_ARCH[arch], call) for call in calls]

    assert (asked, open_) == ([NOTIFY, NOTIFY], [ALLOW, ALLOW])


def verdict(program: bytes, arch: int, number: int, arguments: tuple[int, ...] = (0,) * 6) -> int:
    """Interpret a BPF program as the kernel does, to test the one of the other architecture."""
    data = struct.pack("<iIQ6Q", ctypes.c_int(number).value, arch, 0, *arguments)
    at, value = 0, 0
    while True:
        kind, true, false, operand = struct.unpack_from("<HBBI", program, at * 8)
        at += 1
        if kind == 0x06:
            return int(operand)
        if kind == 0x20:
            (value,) = struct.unpack_from("<I", data, operand)
        elif kind == 0x54:
            value &= operand
        else:
            held = {0x15: value == operand, 0x25: value > operand, 0x35: value >= operand, 0x45: bool(value & operand)}
            at += true if held[kind] else false


def test_a_filter_without_a_supervisor_leaves_connections_inside_the_sandbox_alone() -> None:
    code = """
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    tell([attempt(client.send, b"x"), attempt(socket.create_connection, ("203.0.113.1", 80))])
    """

    answers = python_inside(None, code)

    assert answers == ["done", "ENETUNREACH"]


def test_without_the_promise_of_no_new_rights_the_filter_is_not_installed() -> None:
    code = """
    from moorage.runtime.sandbox import seccomp, syscalls
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    syscalls.drop_capabilities()
    first = attempt(lambda: seccomp.install(seccomp.build(notify=False), listener=False))
    syscalls.no_new_privs()
    tell([first, attempt(lambda: seccomp.install(seccomp.build(notify=False), listener=False))])
    """

    run = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code)], capture_output=True, check=True, text=True,
        env={"PYTHONPATH": str(SOURCE)},
    )  # fmt: skip

    assert json.loads(run.stdout) == ["EACCES", "done"]
