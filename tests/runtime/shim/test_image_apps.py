"""Images as apps: port, user, volume, stop signal, health checks, and attempts to get out."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.engines.engine_support import APP_UID, Engine, Replica
from tests.runtime.shim.image_engine import FIRST_ID, LIBRARY, make_image, refusal, spec_of, start_lab
from tests.runtime.shim.image_support import make_root
from tests.runtime.workers.invoker_support import give, until

TRAP = """
import os, signal, sys, time
def stop(number, frame):
    os.write(1, b"stopped by %d\\n" % number)  # A handler may interrupt a print.
    os._exit(0)
signal.signal(int(sys.argv[1]), stop)
print("ready", flush=True)
while True:
    time.sleep(1)
"""


@pytest.fixture(scope="module")
def image(engine: Engine) -> Path:
    return make_image(engine)


@pytest.fixture(scope="module")
def lab(engine: Engine, image: Path) -> Replica:
    """An app that is root inside, and runs the code of tests."""
    return start_lab(engine, image, memory_mb=512)


def test_an_app_of_an_image_answers_at_its_port(lab: Replica) -> None:
    assert lab.get().startswith('"hello from')


def test_an_app_writes_to_its_root_and_as_root_changes_owners(engine: Engine, lab: Replica) -> None:
    code = """
    write("/made")
    os.chown("/made", 33, 44)
    found = os.stat("/made")
    answer = [found.st_uid, found.st_gid, os.getuid(), os.getcwd(), os.path.exists("/data")]
    """

    owner = [33, 44] if engine.mode == "root" else [0, 0]
    assert lab.run(code) == [*owner, 0, "/app", False]


def test_an_app_opens_its_output_streams_by_their_paths(lab: Replica) -> None:
    code = """
    with open("/dev/stdout", "a") as out, open("/dev/stderr", "a") as error:
        answer = [out.write("x"), error.write("y")]
    """

    assert lab.run(code) == [1, 1]


def test_a_process_of_the_image_is_unprivileged_outside(engine: Engine, lab: Replica) -> None:
    app = lab.look()["app_pid"]

    status = Path(f"/proc/{app}/status").read_text()

    outside = int(next(line.split()[1] for line in status.splitlines() if line.startswith("Uid:")))
    assert outside == (FIRST_ID if engine.mode == "root" else outside)
    assert outside != 0


def test_an_image_that_ignores_port_is_reached_at_the_port_it_exposes(engine: Engine, image: Path) -> None:
    code = "import http.server as s; s.HTTPServer(('', 80), s.SimpleHTTPRequestHandler).serve_forever()"
    spec = spec_of(engine, image, ["python3", "-c", code], binds=LIBRARY, inside_port=80)

    app = engine.begin(spec)

    assert "lab.py" in app.get()
    assert app.look()["other_port"] == 0


def test_an_image_reads_the_variable_port(engine: Engine, image: Path) -> None:
    app = start_lab(engine, image, inside_port=8123)

    assert app.run("answer = [PORT, os.environ['HOST'], os.environ['HOME']]") == [8123, "0.0.0.0", "/root"]


@pytest.mark.parametrize("user", ["", "node"])
def test_a_volume_belongs_to_the_user_of_the_image(engine: Engine, image: Path, user: str) -> None:
    volume = engine.volume()
    app = start_lab(engine, image, image_user=user, volume=volume, disk_mb=64)

    owner = app.run("write('/data/kept'); answer = os.stat('/data/kept').st_uid")

    assert owner == (1000 if user else 0)
    assert os.stat(f"{volume}/kept").st_uid == (APP_UID if engine.mode == "root" else os.stat(volume).st_uid)


@pytest.mark.boundary(
    "tenant-to-tenant", "No link of an image leads to the volume of an app, which is sealed by its path."
)
def test_an_image_with_a_link_at_the_volume_is_refused(engine: Engine, image: Path) -> None:
    linked = make_root(engine.home / "linked-image", "sh")
    (linked / "vol").mkdir()
    give(linked, engine.mode)
    (linked / "data").symlink_to("/vol")

    said = refusal(engine, linked, ["sh", "-c", "true"], volume=engine.volume(), disk_mb=64)

    assert "the image has a link or a file at '/data', where a folder is needed" in said


def test_a_full_volume_becomes_read_only(engine: Engine, image: Path) -> None:
    app = start_lab(engine, image, volume=engine.volume(), disk_mb=4)

    app.run("write('/data/much', 8 << 20); answer = 1")

    until(lambda: any("/data is read-only now" in line for line in app.log()), "a read-only volume")
    assert app.run("answer = [attempt(write, '/data/more'), attempt(write, '/more')]") == ["EROFS", "done"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT, signal.SIGWINCH, signal.SIGRTMIN + 3])
def test_an_app_is_stopped_by_the_signal_of_its_image(engine: Engine, image: Path, number: int) -> None:
    argv = ["python3", "-c", TRAP, str(int(number))]
    app = engine.begin(spec_of(engine, image, argv, binds=LIBRARY, stop_signal=int(number)), listens=False)
    until(lambda: "o ready" in app.log(), "its handler")

    app.stop(grace_s=30.0)

    assert f"o stopped by {int(number)}" in app.log()


# Health checks.


def start_checked(engine: Engine, image: Path, argv: list[str], **changed: Any) -> Replica:
    quick = {"health_interval_s": 0.2, "health_timeout_s": 20.0, "health_retries": 2, **changed}
    return start_lab(engine, image, health_argv=argv, **quick)


def test_a_health_check_runs_in_the_sandbox_of_the_app(engine: Engine, image: Path) -> None:
    argv = ["/bin/sh", "-c", "grep -q fine /health && echo $PORT $(id -u) > /seen"]
    app = start_checked(engine, image, argv, health_start_s=600.0)

    app.until(health="starting")
    app.run("open('/health', 'w').write('fine'); answer = 1")
    app.until(health="healthy")

    assert app.run("answer = [open('/seen').read().split(), PORT]")[0][1] == "0"
    app.run("os.unlink('/health'); answer = 1")
    app.until(health="unhealthy")
    assert any("it is unhealthy: the HEALTHCHECK of the image ended with exit code" in line for line in app.log())
    app.run("open('/health', 'w').write('fine'); answer = 1")
    app.until(health="healthy")


def test_an_app_that_stays_unhealthy_is_restarted(engine: Engine, image: Path) -> None:
    argv = ["/bin/sh", "-c", "test ! -e /broken"]
    app = start_checked(engine, image, argv, health_start_s=600.0, health_restart_s=0.1)
    app.until(health="healthy")

    app.run("open('/broken', 'w').close(); answer = 1")
    app.until(restarts=1)

    app.until(health="healthy")  # The file was in the root of the run that ended.
    assert any("ended: it was unhealthy for 0.1 s; starting again" in line for line in app.log())


def test_a_health_check_that_hangs_is_killed(engine: Engine, image: Path) -> None:
    app = start_checked(engine, image, ["sleep", "1000"], health_timeout_s=0.2)

    app.until(health="unhealthy")

    assert any("took longer than 0.2 s" in line for line in app.log())
    assert app.get().startswith('"hello')


def test_a_health_check_without_a_program_fails(engine: Engine, image: Path) -> None:
    app = start_checked(engine, image, ["/nothing"])

    app.until(health="unhealthy")

    assert any("exit code 127" in line for line in app.log())


def test_an_app_that_signals_process_one_changes_nothing(engine: Engine, image: Path) -> None:
    app = start_checked(engine, image, ["/bin/sh", "-c", ":"])
    app.until(health="healthy")

    app.run("[attempt(os.kill, 1, signal.SIGRTMIN + 1) for _ in range(50)]; answer = 1")

    assert app.get().startswith('"hello')
    app.until(health="healthy")


# Attempts to get out, as root of the image.


@pytest.mark.boundary("code-to-host", "Root of an image app sees no file, process or variable of the host.")
def test_nothing_of_the_host_is_in_sight(engine: Engine, lab: Replica) -> None:
    code = """
    paths = [{home!r}, "/root/.ssh", "/proc/1/root/work", "/proc/1/cwd/../work", "/etc/shadow", "/var/lib", "/sys/fs"]
    seen = [path for path in paths if os.path.exists(path)]
    processes = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    environ = b"".join(open(f"/proc/{{p}}/environ", "rb").read() for p in processes
                       if attempt(open, f"/proc/{{p}}/environ") == "done")
    answer = [seen, len(processes) < 20, b"of the platform" in environ, attempt(os.listdir, "/proc/1/fd")]
    """

    seen, is_alone, has_secret, fds = lab.run(code.format(home=str(engine.home)))

    assert seen == []
    assert is_alone
    assert not has_secret
    assert fds in ("EACCES", "EPERM")


@pytest.mark.boundary("code-to-host", "Root of an image app has no call that leads out of its sandbox.")
def test_calls_that_lead_out_are_closed(lab: Replica) -> None:
    code = """
    libc = ctypes.CDLL(None, use_errno=True)
    def call(name, *args):
        result = getattr(libc, name)(*args)
        return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]
    answer = {
        "mount": call("mount", b"tmpfs", b"/tmp", b"tmpfs", 0, None),
        "umount": call("umount2", b"/proc", 2),
        "unshare": call("unshare", 0x10000000),
        "unshare net": call("unshare", 0x40000000),
        "setns": call("setns", os.open("/proc/self/ns/mnt", os.O_RDONLY), 0),
        "chroot": call("chroot", b"/"),
        "pivot": call("syscall", 41, b".", b"."),
        "ptrace": call("ptrace", 16, 1, 0, 0),
        "sethostname": call("sethostname", b"x", 1),
        "mknod": attempt(os.mknod, "/disk", 0o60600, os.makedev(254, 0)),
        "null": attempt(os.mknod, "/null", 0o20666, os.makedev(1, 3)),
        "raw": attempt(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1),
        "packet": attempt(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 0),
        "nice": attempt(os.nice, -5),
        "trusted": attempt(os.setxattr, "/app", "trusted.overlay.opaque", b"y"),
        "sysctl": attempt(write, "/proc/sys/kernel/core_pattern"),
        "oom": attempt(write, "/proc/sysrq-trigger"),
        "remount": call("mount", None, b"/dev", None, 0x20 | 0x1000, None),
    }
    """

    assert {name for name, result in lab.run(code).items() if result == "done"} == set()


@pytest.mark.boundary("code-to-host", "A setuid program of an image gives no rights.")
def test_setuid_programs_and_capabilities_give_nothing(engine: Engine, image: Path) -> None:
    app = start_lab(engine, image, image_user="node")

    code = """
    import shutil
    shutil.copy("/usr/bin/id", "/tmp/id")
    os.chmod("/tmp/id", 0o6755)
    answer = [subprocess.run(["/tmp/id", "-u"], capture_output=True, text=True).stdout.strip(),
              attempt(os.setuid, 0), os.getuid(), attempt(os.chown, "/tmp/id", 0, 0), os.stat("/tmp/id").st_uid,
              attempt(open, "/etc/new", "w")]
    """
    uid, setuid, own, _, owner, new = app.run(code)

    assert (uid, own, owner) == ("1000", 1000, 1000)
    if engine.mode == "root":
        assert (setuid, new) == ("EPERM", "EACCES")


@pytest.mark.boundary("tenant-to-tenant", "Image apps reach neither the host nor other apps over the network.")
def test_neither_the_host_nor_another_app_is_reached(engine: Engine, image: Path, lab: Replica) -> None:
    other = start_lab(engine, image)

    refused = lab.run(f"answer = [attempt(connected, a, {other.port}) for a in ('127.0.0.1', 'localhost')]")

    assert "done" not in refused


@pytest.mark.boundary("tenant-to-tenant", "The writable root of an image app counts against its memory.")
def test_files_in_the_root_are_bounded(engine: Engine, image: Path) -> None:
    app = start_lab(engine, image, memory_mb=192)

    assert app.run("answer = attempt(write, '/much', 400 << 20)") in ("ENOSPC", "EFBIG")
    assert app.get().startswith('"hello')
