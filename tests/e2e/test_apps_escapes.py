"""What a hostile app tries: its neighbour of another organization, the platform and the machine are none the worse.

The app runs whatever a test sends it. Every attempt is set beside the same one where it has to work, so that a test
which does not really try anything fails.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.apps_support import Apps, eventually, pairs, shims_of, started_apps
from tests.e2e.functions_support import wait_until
from tests.e2e.projects_support import is_alive
from tests.products.repositories.support import Checkout
from tests.runtime.engines.engine_support import LAB, PRELUDE
from tests.runtime.sandbox.sandbox_support import outside_address, serving

from moorage.runtime.sandbox import syscalls
from moorage.runtime.sandbox.usage import process_tree

pytestmark = [
    pytest.mark.group("apps-escapes"),
    pytest.mark.boundary(
        "code-to-host", "An app reads, changes and signals nothing of the platform, the machine or a neighbour."
    ),
]

PIRATE, TRADER = "pirate", "trader"
OWN, THEIRS = "a-secret-of-the-pirates", "a-secret-of-the-traders"
FULL = "its disk is full (1024 MB): /data is read-only now"
DENIED = (
    *("mount", "umount2", "pivot_root", "chroot", "unshare", "setns", "open_tree", "fsopen", "mount_setattr"),
    *("ptrace", "process_vm_readv", "pidfd_getfd", "keyctl", "add_key", "bpf", "perf_event_open", "userfaultfd"),
    *("io_uring_setup", "open_by_handle_at", "init_module", "kexec_load", "syslog", "swapon"),
)


@dataclass
class Sea:
    """A platform with two apps of two organizations on it."""

    pirates: Apps
    traders: Apps

    def run(self, code: str) -> Any:
        return self.pirates.run(PIRATE, code)

    def boot(self) -> str:
        """Return what only the one process says that the neighbour's app has run in all the time."""
        return str(self.traders.run(TRADER, "answer = os.stat('/proc/self').st_ctime_ns"))

    @property
    def data(self) -> Path:
        return self.pirates.running.data

    def said(self) -> list[str]:
        return self.pirates.printed_by(PIRATE)

    def platform(self) -> dict[int, str]:
        """Return the processes that no app may touch, with their names: the platform's, the shims', and our own."""
        running = self.pirates.running
        children = {pid: name for name, pid in running.children().items()}
        shims = dict.fromkeys(shims_of(self.data), "shim")
        return {os.getpid(): "test", running.process.pid: "supervisor", **children, **shims}

    def port_of(self, name: str) -> int:
        """Return at which port of this machine an app is reached."""
        return int(self.run("answer = PORT") if name == PIRATE else self.traders.run(TRADER, "answer = PORT"))


@pytest.fixture(scope="module")
def sea(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sea]:
    folder = tmp_path_factory.mktemp("escapes")
    work = Checkout.init(folder / "lab")
    work.commit("a lab", main_py=LAB)
    with started_apps(folder / "data") as apps:
        found = Sea(apps.tenant("Pirates"), apps.tenant("Traders"))

        def launch(who: Apps, name: str, secret: str) -> None:
            given = {"secrets": pairs({"TOKEN": secret}), "env": pairs({"OWNER": name})}
            who.live(who.launch(name, work, owner=f"{name}s", language="python", disk=1, **given))

        with ThreadPoolExecutor(2) as threads:
            asked = [
                threads.submit(launch, found.pirates, PIRATE, OWN),
                threads.submit(launch, found.traders, TRADER, THEIRS),
            ]
            for each in asked:
                each.result()
        yield found


@pytest.fixture
def unharmed(sea: Sea) -> Iterator[None]:
    """See to it that the platform's processes and the neighbour's app are the same after a test as before it."""
    wait_until(lambda: len(shims_of(sea.data)) == 2)  # one for each app, none that drains
    before, boot = sea.platform(), sea.boot()
    yield
    assert [name for pid, name in before.items() if not is_alive(pid)] == []
    assert sea.boot() == boot


# Files, processes and what they hold.


def test_no_file_of_the_platform_or_of_a_neighbour_can_be_opened(sea: Sea) -> None:
    sea.traders.run(TRADER, "write('/data/cargo')")
    paths = [str(path) for path in sea.data.rglob("*") if path.is_file() and not path.is_symlink()]

    answer = sea.run(
        f"""
        ways = ("", "/proc/1/root", "/proc/self/root", "/proc/1/cwd", "/work/../..", "/data/..", "/tmp/..")
        opened = [way + path for path in {paths!r} for way in ways if attempt(open, way + path) == "done"]
        answer = [opened, attempt(open, "/work/main.py"), attempt(open, "/proc/self/root/work/main.py")]
        """
    )

    names = {Path(path).name for path in paths}
    assert {"moorage.db", "main.py", "cargo", "shim.json"} <= names
    assert answer == [[], "done", "done"]


def test_only_its_own_processes_and_variables_are_seen(sea: Sea) -> None:
    answer = sea.run(
        """
        answer = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                answer[name] = open(f"/proc/{name}/environ").read()
            except OSError as error:
                answer[name] = errno.errorcode[error.errno]
        """
    )

    neighbour = next(pid for pid in _everybody(sea) if THEIRS.encode() in _environment(pid))
    assert is_alive(neighbour)
    assert answer.pop("1") == "EACCES"
    assert len(answer) in (1, 2)  # the app, and a shell that may have started it
    assert all(f"TOKEN={OWN}" in text and THEIRS not in text for text in answer.values())


def _everybody(sea: Sea) -> Iterator[int]:
    """Yield the processes of all apps."""
    waiting = shims_of(sea.data)
    while waiting:
        children = list(process_tree.children(waiting.pop()))
        waiting += children
        yield from children


def _environment(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


@pytest.mark.usefixtures("unharmed")
def test_no_process_outside_can_be_signalled(sea: Sea) -> None:
    outside = [*sea.platform(), *_everybody(sea)]
    groups = sorted({os.getpgid(pid) for pid in outside})

    answer = sea.run(
        f"""
        child = subprocess.Popen(["/bin/sleep", "600"])
        answer = {{
            "single": [attempt(os.kill, pid, 0) for pid in {outside!r}],
            "groups": [attempt(os.killpg, group, 0) for group in {groups!r}],
            "handles": [attempt(os.pidfd_open, pid) for pid in {outside!r}],
        }}
        if set(answer["single"]) == {{"ESRCH"}}:  # Otherwise this would not end well for whoever runs the test.
            answer["all"] = attempt(os.kill, -1, 9)
            answer["child"] = child.wait(10)
        """
    )

    assert answer["single"] == ["ESRCH"] * len(outside)
    assert answer["groups"] == ["ESRCH"] * len(groups)
    assert answer["handles"] == ["ESRCH"] * len(outside)
    assert (answer["all"], answer["child"]) == ("done", -9)


def test_nothing_of_a_release_can_be_changed_by_what_runs_it(sea: Sea) -> None:
    answer = sea.run(
        """
        answer = [
            attempt(write, "/work/main.py"), attempt(write, "/work/new.py"),
            attempt(os.chmod, "/work/main.py", 0o777), attempt(os.symlink, "/etc/passwd", "/work/link"),
            attempt(os.rename, "/work/main.py", "/work/other.py"), attempt(os.unlink, "/work/other.py"),
            *(attempt(write, f"{place}/new") for place in ("/usr/bin", "/etc", "/tmp", "/data")),
        ]
        """
    )

    releases = [path.parent for path in sea.data.glob("app-releases/*/main.py")]
    assert answer == ["done"] * 6 + ["EROFS"] + ["done"] * 3
    assert releases
    assert not any((folder / name).exists() for folder in releases for name in ("new.py", "link", "other.py"))
    assert all((folder / "main.py").stat().st_size > 1 for folder in releases)


def test_a_neighbours_project_does_not_exist_for_another_organization(sea: Sea) -> None:
    path = f"/v1/projects/{TRADER}"
    reads = [path, f"{path}/logs", f"{path}/metrics", f"{path}/secrets", f"{path}/deployments"]

    refused = [sea.pirates.call("GET", each, status=404)["code"] for each in reads]
    refused.append(sea.pirates.call("POST", f"{path}/exec", {"command": "env"}, status=404)["code"])

    assert refused == ["not_found"] * 6
    assert [THEIRS in str(sea.traders.call("GET", each)) for each in reads] == [False] * 5
    assert sea.traders.execute(TRADER, "echo $TOKEN")["stdout"] == "****\n"


# The network.


def test_neither_the_platform_nor_a_neighbour_nor_the_machine_is_reached(sea: Sea) -> None:
    own, other, host = sea.port_of(PIRATE), sea.port_of(TRADER), outside_address()
    with serving("127.0.0.1") as site:
        ports = [*sea.pirates.running.ports.values(), other, site.port]
        for port in ports:
            socket.create_connection(("127.0.0.1", port), 10).close()
        eventually(lambda: len(site.visits), lambda count: count == 1)

        answer = sea.run(
            f"""
            def all_of(address, ports):
                return sorted({{attempt(connected, address, port) for port in ports}})

            answer = {{
                "own": all_of("127.0.0.1", [{own}]),
                "loopback": all_of("127.0.0.1", {ports!r}),
                "another": all_of("127.0.0.2", {ports!r}),
                "none": all_of("0.0.0.0", {ports!r}),
                "mapped": all_of("::ffff:127.0.0.1", {ports!r}),
                "six": all_of("::1", {ports!r}),
                "host": all_of("{host}", [*{ports!r}, {own}]),
                "mapped host": all_of("::ffff:{host}", {ports!r}),
            }}
            """
        )

        assert len(site.visits) == 1
    assert answer.pop("own") == ["done"]
    assert (answer.pop("host"), answer.pop("mapped host")) == (["EACCES"], ["EACCES"])
    assert list(answer.values()) == [["ECONNREFUSED"]] * 5


def test_metadata_and_private_networks_are_closed(sea: Sea) -> None:
    places = ["169.254.169.254", "169.254.170.2", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "fe80::1"]
    places += ["fd00:ec2::254", "fc00::1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "224.0.0.1", "198.18.0.1"]

    answer = sea.run(f"answer = {{place: attempt(connected, place, 80) for place in {places!r}}}")

    assert answer == dict.fromkeys(places, "EACCES")


def test_no_socket_of_the_platform_can_be_connected_to(sea: Sea) -> None:
    paths = [str(path) for path in sea.data.rglob("*") if stat.S_ISSOCK(path.lstat().st_mode)]
    name = f"moorage-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(f"\0{name}")
        server.listen()
        client.connect(f"\0{name}")

        answer = sea.run(
            f"""
            def reach(address):
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect(address)

            with socket.socket(socket.AF_UNIX) as mine:
                mine.bind("\\0mine")
                mine.listen()
                answer = [attempt(reach, "\\0mine"), attempt(reach, "\\0{name}")]
            answer.append(sorted({{attempt(reach, path) for path in {paths!r} if len(path) < 108}}))
            """
        )

    assert {"shim.sock", "edge.sock"} <= {Path(path).name for path in paths}
    assert answer == ["done", "ECONNREFUSED", ["ENOENT"]]


def test_no_datagram_leaves_an_app_for_this_machine(sea: Sea) -> None:
    host = outside_address()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("0.0.0.0", 0))
        listener.settimeout(10)
        port = listener.getsockname()[1]

        sea.run(
            f"""
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for place in ("127.0.0.1", "{host}", "255.255.255.255"):
                    attempt(sender.sendto, b"from the pirates", (place, {port}))
            """
        )
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"from the test", ("127.0.0.1", port))

        assert listener.recv(100) == b"from the test"


def test_another_port_that_an_app_listens_on_is_its_own_affair(sea: Sea) -> None:
    port = sea.run(
        """
        kept = socket.create_server(("0.0.0.0", 0))
        __builtins__["kept"] = kept
        connected("127.0.0.1", kept.getsockname()[1])
        answer = kept.getsockname()[1]
        """
    )

    with socket.socket() as visitor:
        visitor.settimeout(10)
        assert visitor.connect_ex(("127.0.0.1", port)) != 0
    assert sea.traders.run(TRADER, f"answer = attempt(connected, '127.0.0.1', {port})") == "ECONNREFUSED"


def test_a_command_beside_an_app_is_confined_as_the_app_is(sea: Sea) -> None:
    database = next(path for path in sea.data.rglob("moorage.db"))
    tried = [
        f"open('{database}')",
        f"connected('127.0.0.1', {sea.pirates.running.ports['api']})",
        f"connected('127.0.0.1', {sea.port_of(TRADER)})",
        "connected('169.254.169.254', 80)",
        f"os.kill({sea.pirates.running.process.pid}, 9)",
        "open('/work/main.py', 'w')",
        "open('/work/main.py')",
    ]
    lines = "".join(f"print(attempt(lambda: {each}))\n" for each in tried)

    told = sea.pirates.execute(PIRATE, f"cat > /tmp/try.py <<'END'\n{PRELUDE}\n{lines}END\nPORT=1 python /tmp/try.py")

    assert told["stdout"].split() == ["ENOENT", "ECONNREFUSED", "ECONNREFUSED", "EACCES", "ESRCH", "EROFS", "done"]


# The kernel.


def test_what_leads_deeper_into_the_kernel_is_denied(sea: Sea) -> None:
    numbers = {name: syscalls.number(name) for name in DENIED}

    answer = sea.run(
        f"""
        libc = ctypes.CDLL(None, use_errno=True)

        def call(number):
            ctypes.set_errno(0)
            return "done" if libc.syscall(number, 0, 0, 0, 0, 0) >= 0 else errno.errorcode[ctypes.get_errno()]

        answer = {{name: call(number) for name, number in {numbers!r}.items()}}
        answer["getpid"] = call({_number_of_getpid()})
        answer["raw"] = [
            attempt(socket.socket, family, kind, protocol)
            for family, kind, protocol in (
                (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP), (socket.AF_INET6, socket.SOCK_RAW, 58),
                (socket.AF_PACKET, socket.SOCK_RAW, 3), (socket.AF_NETLINK, socket.SOCK_RAW, 16), (40, 1, 0),
            )
        ]
        """
    )

    assert answer.pop("getpid") == "done"
    assert "done" not in answer.pop("raw")
    assert answer == dict.fromkeys(DENIED, "EPERM")


def _number_of_getpid() -> int:
    return {"x86_64": 39, "aarch64": 172}[os.uname().machine]


def test_programs_that_make_others_root_do_not(sea: Sea) -> None:
    answer = sea.run(
        """
        def user_of(path):
            with subprocess.Popen([path], stdin=-1, stdout=-3, stderr=-3, start_new_session=True) as child:
                lines = open(f"/proc/{child.pid}/status").read().splitlines()
                child.kill()
            return next(line.split()[2] for line in lines if line.startswith("Uid:"))

        paths = [entry.path for entry in os.scandir("/usr/bin") if entry.is_file() and entry.stat().st_mode & 0o4000]
        own = next(line.split()[2] for line in open("/proc/self/status") if line.startswith("Uid:"))
        answer = [os.getuid(), own, sorted({user_of(path) for path in [*paths, "/bin/sleep"]})]
        """
    )

    uid = answer[0]
    assert uid != 0
    assert answer == [uid, str(uid), [str(uid)]]
    assert sea.traders.run(TRADER, "answer = os.getuid()") != uid or os.getuid() != 0


# Using things up. These come last: they cost the app its life.


@pytest.mark.usefixtures("unharmed")
def test_a_full_disk_can_be_read_only_until_there_is_room_again(sea: Sea) -> None:
    answer = sea.run(
        """
        def fill(path, size):
            with open(path, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)

        answer = [attempt(fill, "/tmp/large", 300 << 20), attempt(fill, "/data/huge", 1025 << 20)]
        os.unlink("/data/huge")
        os.unlink("/tmp/large")
        answer += [attempt(fill, f"/data/{name}", 600 << 20) for name in "ab"]
        """
    )
    eventually(sea.said, lambda lines: FULL in lines)
    refused = sea.run("answer = attempt(write, '/data/c')")
    more = sea.pirates.execute(PIRATE, "fallocate -l 900M /data/c && echo has more && sleep 60")
    removed = sea.pirates.execute(PIRATE, "rm /data/a /data/b /data/c")
    eventually(sea.said, lambda lines: "/data is writable again" in lines)

    assert answer[0] in ("ENOSPC", "EFBIG")
    assert answer[1:] == ["EFBIG", "done", "done"]
    assert more["stdout"] == "has more\n"
    assert more["reason"].startswith("it wrote too much to the disk")
    assert (refused, removed["exitCode"]) == ("EROFS", 0)
    assert sea.run("answer = attempt(write, '/data/c')") == "done"


@pytest.mark.usefixtures("unharmed")
def test_a_fork_bomb_is_bounded_and_the_app_recovers(sea: Sea) -> None:
    made = sea.run(
        """
        def end():
            tried.wait(60)
            for pid in made:
                os.kill(pid, 9)
                os.waitpid(pid, 0)

        import contextlib

        made, tried = [], threading.Event()
        threading.Thread(target=end).start()  # There is no room for it later.
        with contextlib.suppress(OSError):
            while len(made) < 5000:  # Forks of Python itself would use the app's memory up first.
                made.append(os.posix_spawn("/bin/sleep", ["sleep", "600"], {}))
        answer = len(made)
        tried.set()
        """
    )
    others = (sea.pirates.call("GET", "/v1/whoami")["orgName"], sea.boot())
    again = eventually(lambda: sea.run("answer = subprocess.run(['/bin/true']).returncode"), lambda code: code == 0)

    assert 100 <= made <= 512
    assert (others[0], again) == ("Pirates", 0)


@pytest.mark.usefixtures("unharmed")
def test_an_app_that_takes_too_much_memory_is_ended_and_started_again(sea: Sea) -> None:
    hog = "import time\nhold = []\nwhile True:\n    hold.append(b'x' * (8 << 20))\n    time.sleep(0.004)"
    lost = sea.pirates.ask(PIRATE, "POST", "/", hog)

    assert lost.status == 502
    eventually(sea.said, lambda lines: "ended: it ran out of memory (1024 MB); starting again" in lines)
    assert eventually(lambda: sea.pirates.ask(PIRATE, "GET", "/").status, lambda status: status == 200) == 200
