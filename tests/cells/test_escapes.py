"""Every way out of a cell that we know of, tried from inside a function, as root and as an ordinary user."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cells.invoker_support import CANARY, MODES, Host, Lab, lab_on, node_lab_on, running, until
from tests.sandbox.sandbox_support import outside_address, serving

from moorage.sandbox import syscalls

pytestmark = pytest.mark.xdist_group("cells-escapes")

MB = 2**20
SECRET = "what nobody may read"


@pytest.fixture(scope="module", params=MODES)
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    with running(request.param) as running_host:
        yield running_host


@pytest.fixture(scope="module")
def lab(host: Host) -> Lab:
    return lab_on(host)


@pytest.fixture(scope="module")
def node(host: Host) -> Lab:
    return node_lab_on(host)


@pytest.fixture
def is_healthy(host: Host, lab: Lab) -> Iterator[None]:
    """Whatever a test does, both processes live on and the next call is answered."""
    yield
    assert (host.invoker.poll(), host.edge.poll()) == (None, None)
    assert lab.run("answer = 'fine'") == "fine"


# What belongs to others.


def test_nothing_of_the_host_and_of_the_platform_can_be_read(host: Host, lab: Lab) -> None:
    other = host.put({"main.py": "def main(args): pass", "secret.txt": SECRET})
    (host.data / "moorage.db").write_text(SECRET)
    (host.data / "moorage.db").chmod(0o644)
    paths = [str(path) for path in host.data.rglob("*") if path.is_file()]
    paths += [
        "/etc/shadow",
        "/etc/gshadow",
        "/root/.ssh",
        "/home",
        "/var/lib",
        "/var/run",
        "/sys/kernel",
        "/boot",
        "/mnt",
    ]
    paths += ["/dev/sda", "/dev/mem", "/dev/kmsg", "/dev/net/tun", "/dev/fuse", "/dev/pts", "/proc/kcore", "/proc/kmsg"]

    answers = lab.run("answer = {path: attempt(read, path) for path in args['paths']}", paths=paths)

    assert host.result(other) is None
    assert sum(path.endswith("secret.txt") for path in answers) == 1
    assert set(answers.values()) <= {"ENOENT", "EACCES", "EPERM"}


def test_ways_around_the_root_lead_nowhere_else(host: Host, lab: Lab) -> None:
    code = """
    doors = ["/proc/1/root", "/proc/self/root", "/proc/self/cwd/../..", "/tmp/../../..", "/proc/1/cwd/../../../.."]
    os.symlink(args["data"], "/tmp/link")
    answer = [os.path.exists(door + args["data"]) for door in doors] + [os.path.exists("/tmp/link")]
    os.unlink("/tmp/link")
    """

    assert lab.run(code, data=str(host.data)) == [False] * 6


def test_only_the_function_s_own_code_is_in_sight(host: Host, lab: Lab) -> None:
    own = host.put({"main.py": "import os\ndef main(args): return sorted(os.listdir('/code'))", "mine.txt": "x"})

    assert host.result(own) == ["main.py", "mine.txt"]
    assert lab.run("answer = os.listdir('/code')") == ["main.py"]


def test_the_platform_s_environment_is_nowhere(host: Host, lab: Lab, node: Lab) -> None:
    code = """
    found = dict(os.environ)
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    answer = str(found)
    for path in [f"/proc/{pid}/{name}" for pid in pids for name in ("environ", "cmdline")]:
        answer += str(read(path)) if attempt(read, path) == "done" else ""
    """

    assert CANARY in Path(f"/proc/{host.edge.pid}/environ").read_text()
    python_saw = lab.run(code)
    node_saw = node.run("return JSON.stringify(process.env) + require('fs').readFileSync('/proc/1/environ')")
    assert CANARY not in python_saw
    assert CANARY not in node_saw
    assert "MOORAGE" not in python_saw + node_saw


def test_processes_of_others_are_not_in_sight(host: Host, lab: Lab, node: Lab) -> None:
    assert node.run("return process.pid") == 1

    seen = lab.run("answer = [name for name in os.listdir('/proc') if name.isdigit()]")

    assert seen == ["1"]
    assert len(host.cells()) > 2


def test_two_functions_never_are_the_same_user_where_the_platform_is_root(host: Host, lab: Lab) -> None:
    other = lab_on(host, org="2")
    inside = [each.run("answer = [os.getuid(), os.getgid(), os.getgroups()]") for each in (lab, other)]

    users = [os.stat(f"/proc/{pid}").st_uid for pid in host.cells()]

    if host.mode == "root":
        assert len(set(users)) == len(users)
        assert min(users) >= 200_000
        assert inside[0][0] != inside[1][0]
        assert all(each == [each[0], each[0], []] for each in inside)
    else:
        assert [each[:2] for each in inside] == [[1000, 1000]] * 2
        assert set(users) == {os.stat(f"/proc/{host.invoker.pid}").st_uid}


# Rights.


def test_no_rights_are_left(lab: Lab, node: Lab) -> None:
    wanted = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
    texts = [
        lab.run("answer = read('/proc/self/status').decode()"),
        node.run("return require('fs').readFileSync('/proc/self/status', 'utf8')"),
    ]

    for text in texts:
        status = dict(line.split(":\t") for line in text.splitlines() if ":\t" in line)
        caps = [status[name] for name in wanted if name.startswith("Cap")]
        assert set(caps) == {"0" * 16}
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


def test_no_mount_gives_programs_the_rights_of_their_owner(lab: Lab) -> None:
    mounts = lab.run("answer = [line.split()[1:4:2] for line in read('/proc/mounts').decode().splitlines()]")

    assert len(mounts) > 5
    assert [place for place, options in mounts if "nosuid" not in options.split(",")] == []


def test_setuid_programs_stay_who_called_them(lab: Lab) -> None:
    code = """
    found = [name for name in os.listdir("/usr/bin") if os.lstat(f"/usr/bin/{name}").st_mode & 0o4000]
    out = subprocess.run(["/usr/bin/su", "-c", "id -u"], capture_output=True, text=True)
    mount = subprocess.run(["/usr/bin/mount", "-t", "tmpfs", "none", "/tmp"], capture_output=True, text=True)
    answer = [len(found), out.returncode, out.stdout, mount.returncode]
    """

    count, su_code, printed, mount_code = lab.run(code)

    assert count > 0
    assert su_code != 0
    assert printed == ""
    assert mount_code != 0


CLOSED = sorted(
    {
        *("unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen"),
        *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "keyctl", "add_key", "request_key"),
        *("io_uring_setup", "bpf", "perf_event_open", "userfaultfd", "open_by_handle_at", "name_to_handle_at"),
        *("seccomp", "reboot", "kexec_load", "init_module", "finit_module", "settimeofday", "sethostname", "swapon"),
    }
)
CALL = """
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(one) for one in arguments])
    return errno.errorcode[ctypes.get_errno()] if result < 0 else "done"
"""


def test_calls_that_lead_out_or_deep_into_the_kernel_are_closed(lab: Lab) -> None:
    numbers = {name: syscalls.number(name) for name in CLOSED}

    answers = lab.run(CALL + "answer = {name: call(n, 0, 0, 0, 0) for name, n in args['calls'].items()}", calls=numbers)

    assert answers == dict.fromkeys(CLOSED, "EPERM")


def test_no_new_namespace_can_be_made_by_clone_either(lab: Lab) -> None:
    code = CALL + "answer = [call(args['clone'], 0x10000000 | 17, 0, 0, 0, 0), call(args['clone3'], 0, 0)]"

    answers = lab.run(code, clone=syscalls.number("clone"), clone3=syscalls.number("clone3"))

    assert answers == ["EPERM", "ENOSYS"]


def test_sockets_of_unusual_kinds_cannot_be_made(lab: Lab) -> None:
    code = """
    kinds = {"vsock": (40, 1, 0), "packet": (17, 3, 0), "raw": (2, 3, 1), "alg": (38, 5, 0), "audit": (16, 3, 9)}
    answer = {name: attempt(socket.socket, *kind) for name, kind in kinds.items()}
    """

    assert lab.run(code) == dict.fromkeys(("vsock", "packet", "raw", "alg", "audit"), "EPERM")


def test_device_files_cannot_be_made_or_used(lab: Lab) -> None:
    code = """
    kinds = {"block": 0o60600, "character": 0o20600}
    answer = [attempt(os.mknod, "/tmp/device", mode, os.makedev(1, 1)) for mode in kinds.values()]
    answer += [attempt(os.setuid, 0), attempt(os.setgid, 0), attempt(os.setgroups, [0]), attempt(os.nice, -5)]
    answer += [attempt(os.chown, "/tmp", 0, 0), attempt(os.sched_setscheduler, 0, 1, os.sched_param(50))]
    """

    assert set(lab.run(code)) <= {"EPERM", "EACCES", "EINVAL"}


# Signals.


@pytest.mark.usefixtures("is_healthy")
def test_signals_reach_nobody_outside(host: Host, lab: Lab) -> None:
    code = """
    targets = [*args["pids"], os.getppid() or 99999, -1]
    answer = [attempt(os.kill, target, signal.SIGKILL) for target in targets]
    """

    answers = lab.run(code, pids=[host.invoker.pid, host.edge.pid, os.getpid()])

    assert set(answers) == {"ESRCH"}


@pytest.mark.usefixtures("is_healthy")
def test_a_function_that_signals_itself_or_its_group_ends_nothing_else(lab: Lab) -> None:
    assert lab.run("os.kill(1, signal.SIGKILL); os.kill(0, signal.SIGKILL); answer = 'lives'") == "lives"


# Using up what everybody needs.


@pytest.mark.usefixtures("is_healthy")
def test_a_fork_bomb_is_bounded_and_goes_with_its_cell(host: Host, lab: Lab) -> None:
    bomb = lab_on(host)
    code = """
    started = 0
    while started < 1000:
        try:
            if os.fork() == 0:
                signal.pause()
            started += 1
        except OSError as error:
            answer = [started, errno.errorcode[error.errno]]
            break
    """

    before = len(host.cells())
    started, why = bomb.run(code)

    assert why == "EAGAIN"
    assert 8 <= started < 150
    assert lab.run("answer = 'fine'") == "fine"
    host.drop(bomb.number)
    until(lambda: len(host.cells()) <= before + 8, "the bomb's end")


@pytest.mark.usefixtures("is_healthy")
def test_threads_are_bounded_as_well(host: Host) -> None:
    code = """
    hold, started = threading.Event(), 0
    try:
        for _ in range(1000):
            threading.Thread(target=hold.wait, daemon=True).start()
            started += 1
    except RuntimeError:
        answer = started
    hold.set()
    """

    assert 8 <= lab_on(host).run(code) < 150


@pytest.mark.usefixtures("is_healthy")
def test_the_private_disk_is_full_at_64_mb_shared_memory_included(host: Host) -> None:
    lab = lab_on(host, memory_mb=512)
    code = """
    written, number = 0, 0
    try:
        while written < 200 * 2**20:
            with open(f"{args['folders'][number % 2]}/file{number}", "wb", buffering=0) as file:
                written += file.write(bytes(2**20))
            number += 1
    except OSError as error:
        answer = [written, errno.errorcode[error.errno]]
    """

    written, why = lab.run(code, folders=["/tmp", "/dev/shm"])

    assert why == "ENOSPC"
    assert 60 * MB <= written <= 64 * MB


def test_one_file_is_bounded_and_so_are_their_names(host: Host) -> None:
    lab = lab_on(host, memory_mb=512)
    code = """
    with open("/tmp/long", "wb") as file:
        answer = [attempt(os.ftruncate, file.fileno(), 65 * 2**20)]
    try:
        for number in range(100_000):
            os.mkdir(f"/tmp/{number}")
    except OSError as error:
        answer += [number, errno.errorcode[error.errno]]
    """

    why, count, then = lab.run(code)

    assert (why, then) == ("EFBIG", "ENOSPC")
    assert count < 20_001


@pytest.mark.parametrize(
    "folder",
    [
        *(
            "/",
            "/code",
            "/usr",
            "/usr/lib",
            "/usr/bin",
            "/etc",
            "/dev",
            "/opt",
            "/opt/moorage",
            "/run",
            "/work",
            "/proc",
        ),
        *("/proc/sys/kernel", "/proc/1"),
    ],
)
def test_nothing_but_the_private_disk_can_be_written_to(lab: Lab, folder: str) -> None:
    code = "answer = [attempt(write, args['folder'] + '/x'), attempt(os.mkdir, args['folder'] + '/y')]"

    assert set(lab.run(code, folder=folder)) <= {"EROFS", "EACCES", "ENOENT", "EPERM"}


def test_files_that_are_there_cannot_be_changed(lab: Lab, node: Lab) -> None:
    paths = ["/code/main.py", "/etc/passwd", "/etc/resolv.conf", "/usr/bin/env", "/opt/moorage/node_worker.js"]
    paths += ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/1/oom_score_adj/x", "/proc/self/setgroups"]
    code = "answer = [attempt(write, path) for path in args['paths']] + [attempt(os.unlink, p) for p in args['paths']]"

    answers = lab.run(code, paths=paths)
    by_node = node.run(
        "return args.paths.map(path => { try { require('fs').writeFileSync(path, 'x'); return 'done' } "
        "catch (error) { return error.code } })",
        paths=paths,
    )

    assert "done" not in answers + by_node
    assert {answers[0], answers[3]} <= {"EROFS", "EACCES"}


@pytest.mark.usefixtures("is_healthy")
def test_memory_is_bounded_and_the_caller_is_told(host: Host) -> None:
    lab = lab_on(host, memory_mb=128)
    code = "held = []\nfor _ in range(80): held.append(b'x' * (8 * 2**20)); time.sleep(0.01)\ntime.sleep(3)\n"

    errors = [lab.error(code) for _ in range(2)]

    assert errors == ["the function used more than its 128 MB of memory"] * 2
    assert lab.run("answer = 'fine'") == "fine"


@pytest.mark.usefixtures("is_healthy")
def test_memory_of_children_counts_as_well(host: Host) -> None:
    lab = lab_on(host, memory_mb=128)
    code = """
    for _ in range(4):
        if os.fork() == 0:
            held = [b"x" * (5 * 2**20) for _ in range(16)]
            time.sleep(20)
            os._exit(0)
    while True:
        if os.waitpid(-1, 0)[1]:
            os._exit(3)
    """

    told = host.call(lab.number, lab.params(code))

    assert told["status"] == "error"
    assert "128 MB of memory" in told["error"] or "exit" in told["error"]


@pytest.mark.usefixtures("is_healthy")
def test_the_memory_of_node_is_bounded_too(host: Host) -> None:
    node = node_lab_on(host, memory_mb=128)
    code = "const held = []; for (let n = 0; n < 60; n++) { held.push(Buffer.alloc(8e6, 1)); await 0 }"

    error = node.error(code + "; await new Promise(done => setTimeout(done, 3000))")

    assert error == "the function used more than its 128 MB of memory"
    assert node.run("return 'fine'") == "fine"


@pytest.mark.usefixtures("is_healthy")
def test_one_organization_s_endless_loops_do_not_keep_another_from_its_answers(host: Host, lab: Lab) -> None:
    hogs = [lab_on(host, org="66", timeout_ms=3000) for _ in range(4)]
    quiet = lab_on(host, org="2")

    with ThreadPoolExecutor(len(hogs)) as threads:
        endless = [threads.submit(hog.error, "while True: pass") for hog in hogs]
        answers = [quiet.run("answer = 'fine'") for _ in range(50)]
        still_running = sum(not each.done() for each in endless)

    assert answers == ["fine"] * 50
    assert still_running > 0
    assert {each.result() for each in endless} == {"the function ran past its 3000 ms timeout"}


# The network.


@contextmanager
def listening_everywhere(host_name: str) -> Iterator[tuple[int, str, list[Any]]]:
    """Listen on all addresses of the host, and on an abstract socket, and count who comes."""
    visits: list[Any] = []
    name = f"\0moorage-test-{host_name}-{os.getpid()}"
    with (
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as tcp,
        socket.socket(socket.AF_UNIX) as unix,
    ):
        unix.bind(name)
        unix.listen()

        def serve(listener: socket.socket) -> None:
            while True:
                try:
                    visits.append(listener.accept()[1])
                except OSError:
                    return

        threads = [threading.Thread(target=serve, args=[each]) for each in (tcp, unix)]
        for thread in threads:
            thread.start()
        yield tcp.getsockname()[1], name[1:], visits
        for listener in (tcp, unix):
            listener.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def test_nothing_of_the_host_answers_a_function(host: Host, lab: Lab) -> None:
    code = """
    places = [(address, port) for address in args["addresses"] for port in args["ports"]]
    answer = {}
    for address, port in places:
        answer[f"{address} {port}"] = attempt(socket.create_connection, (address, port), 5)
    with socket.socket(socket.AF_UNIX) as unix:
        answer["abstract"] = attempt(unix.connect, "\\0" + args["name"])
    """

    with listening_everywhere(host.mode) as (port, name, visits):
        addresses = ["127.0.0.1", "127.0.0.53", "::1", "0.0.0.0", outside_address(), "169.254.169.254", "10.0.0.1"]
        ports = [port, host.port, 22]
        answers = lab.run(code, addresses=addresses, ports=ports, name=name)

    assert len(answers) == 22
    assert set(answers.values()) <= {"ECONNREFUSED", "EACCES"}
    assert visits == []


def test_without_a_network_a_function_reaches_nothing_that_others_reach() -> None:
    address = outside_address()
    code = "answer = attempt(socket.create_connection, (args['address'], args['port']), 5)"

    for mode in MODES:
        with serving(address) as site, running(mode, MOORAGE_SANDBOX_ALLOW=address) as host:
            answers = [
                lab_on(host, network=network).run(code, address=address, port=site.port)
                for network in ("internet", "none")
            ]

        assert answers[0] == "done"
        assert answers[1] in {"ENOSYS", "EACCES", "ENETUNREACH"}
        assert len(site.visits) == 1


def test_datagrams_reach_nobody(host: Host, lab: Lab) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("0.0.0.0", 0))
        receiver.settimeout(0.2)
        port = receiver.getsockname()[1]
        code = """
        answer = []
        for address in args["addresses"]:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                answer.append(attempt(sender.sendto, b"x", (address, args["port"])))
        """

        answers = lab.run(code, addresses=["127.0.0.1", outside_address(), "169.254.169.254"], port=port)

        assert "ENETUNREACH" in answers
        with pytest.raises(TimeoutError):
            receiver.recv(1)


# The socket to the gateway.

GARBAGE = {
    "random bytes": "os.urandom(4096)",
    "an endless frame": "b'\\xff' * 100_000",
    "an empty frame": "bytes(5)",
    "an answer to nobody": "(21).to_bytes(4, 'little') + bytes([18]) + b'\\xff' * 20",
    "a cut answer": "(3).to_bytes(4, 'little') + bytes([18, 1, 1])",
    "a kind that is none": "(2).to_bytes(4, 'little') + bytes([77, 1])",
    "that it is ready": "(1).to_bytes(4, 'little') + bytes([16])",
    "that its code is loaded, again": "(10).to_bytes(4, 'little') + bytes([17, 1]) + bytes(8)",
    "that its code cannot be loaded": "(10).to_bytes(4, 'little') + bytes([17, 0]) + bytes(8)",
    "late lines of nobody": "(33).to_bytes(4, 'little') + bytes([19]) + b'\\xff' * 32",
}


@pytest.mark.usefixtures("is_healthy")
@pytest.mark.parametrize("sent", GARBAGE)
def test_garbage_for_the_gateway_fails_that_call_alone(host: Host, lab: Lab, sent: str) -> None:
    bad = lab_on(host, timeout_ms=5000)
    others_before = lab.run("answer = os.getpid()")

    told = bad.error(f"edge_socket().sendall({GARBAGE[sent]})\ntime.sleep(60)")

    assert told == "the function's process sent what is no answer"
    assert lab.run("answer = os.getpid()") == others_before
    assert bad.run("answer = 'fine'") == "fine"
    assert len([record for record in host.records() if record.function_id == bad.number]) == 2


@pytest.mark.usefixtures("is_healthy")
def test_an_answer_that_a_function_forges_is_no_more_than_its_own(host: Host, lab: Lab) -> None:
    code = """
    import struct
    body = b'"forged"'
    head = struct.pack("<IBIBHBIII", 21 + len(body), 18, args["id"], 0, 200, 2, 4_000_000_000, 0, 0)
    edge_socket().sendall(head + body)
    time.sleep(60)
    """

    told = host.call(lab_on(host, timeout_ms=2000).number, lab.params(code, id=1))

    assert (told["status"], told["result"]) == ("success", "forged")
    assert told["durationMs"] < 2000
    assert next(each.duration_us for each in host.records() if each.activation == told["activationId"]) < 2_000_000


@pytest.mark.usefixtures("is_healthy")
def test_what_a_function_says_late_is_bounded(host: Host) -> None:
    lab = lab_on(host)
    code = """
    import struct
    text = b"x" * 1_000_000
    entry = struct.pack("<BqI", 1, 0, len(text)) + text
    frame = struct.pack("<IB", 33 + len(entry), 19) + b"a" * 32 + entry
    sock = edge_socket()
    for _ in range(40):
        sock.sendall(frame)
    """

    lab.run(code)
    lab.run("answer = 1")

    written = sum(len(record.log) for record in host.records() if record.function_id == lab.number)
    assert 0 < written <= 21 * MB


@pytest.mark.usefixtures("is_healthy")
def test_an_error_message_that_a_function_forges_is_cut(host: Host) -> None:
    lab = lab_on(host)
    code = """
    import struct
    body = b"e" * 5_000_000
    edge_socket().sendall(struct.pack("<IBIBHBIII", 21 + len(body), 18, 1, 1, 0, 2, 0, 0, 0) + body)
    time.sleep(60)
    """

    assert len(lab.error(code)) <= 10_000


@pytest.mark.usefixtures("is_healthy")
def test_a_function_that_closes_every_descriptor_fails_alone(host: Host) -> None:
    lab = lab_on(host)

    told = lab.error("os.closerange(0, 1024)")

    assert "ended" in told
    assert lab.run("answer = 'fine'") == "fine"


@pytest.mark.usefixtures("is_healthy")
def test_descriptors_sent_to_the_gateway_stay_nobody_s(host: Host) -> None:
    lab = lab_on(host, timeout_ms=5000)
    count = len(os.listdir(f"/proc/{host.edge.pid}/fd"))
    code = "socket.send_fds(edge_socket(), [bytes(64)], [os.open('/dev/null', 0) for _ in range(50)]); time.sleep(60)"

    told = lab.error(code)

    assert told == "the function's process sent what is no answer"
    assert len(os.listdir(f"/proc/{host.edge.pid}/fd")) < count + 25


@pytest.mark.usefixtures("is_healthy")
def test_descriptors_on_their_way_to_nowhere_do_not_keep_others_from_a_cell(host: Host) -> None:
    lab, other = lab_on(host), lab_on(host, org="2")
    code = """
    pairs, null = [], os.open("/dev/null", os.O_RDONLY)
    try:
        while len(pairs) < 400:
            pairs.append(socket.socketpair())
            socket.send_fds(pairs[-1][0], [b"x"], [null] * 250)
    except OSError as error:
        sys.hold, answer = pairs, errno.errorcode[error.errno]
    """

    why = lab.run(code)

    assert why in {"ETOOMANYREFS", "EMFILE"}
    assert other.run("answer = 'fine'") == "fine"


@pytest.mark.usefixtures("is_healthy")
def test_node_cannot_misuse_its_socket_either(host: Host) -> None:
    node = node_lab_on(host, timeout_ms=5000)
    code = """
    const fs = require('fs')
    for (const name of fs.readdirSync('/proc/self/fd')) {
      try {
        if (fs.readlinkSync('/proc/self/fd/' + name).startsWith('socket:')) fs.writeSync(+name, Buffer.alloc(999, 255))
      } catch {}
    }
    await new Promise(() => setTimeout(() => {}, 60000))
    """

    told = node.error(code)

    assert told == "the function's process sent what is no answer"
    assert node.run("return 'fine'") == "fine"
