"""The zygote: a small Python process that has loaded what every cell needs, and forks cells off itself.

It runs as `python -I -S zygote.py FD` under the interpreter whose functions it serves, so it uses the standard library
and a few modules of ours that do the same. It never runs users' code: a cell seals itself off right after the fork.

    invoker ── zygote
       └────── cell: process 1 of its own world; forked by the zygote, but the invoker's child
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import gc
import json
import os
import resource
import signal
import socket
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))

from moorage.runtime.sandbox import root, seccomp
from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.cgroups import files
from moorage.runtime.sandbox.network import setup as network
from moorage.runtime.workers.python import worker as python_worker

TYPE_CHECKING = False  # What type checkers take for true; importing typing for the real one costs every cell memory.
if TYPE_CHECKING:
    from typing import Any, NoReturn

# Modules that functions use often: what the zygote has loaded costs a cell no time and, being shared, little memory.
PRELOADED = """
asyncio base64 collections.abc concurrent.futures contextlib copy csv dataclasses datetime decimal email.utils
enum functools hashlib hmac html http.client inspect io itertools logging math operator pathlib pprint queue
random re secrets ssl string subprocess tempfile textwrap threading time traceback types typing urllib.parse
urllib.request uuid warnings zlib
"""
NAMESPACES = (
    sys_.CLONE_NEWNS
    | sys_.CLONE_NEWPID
    | sys_.CLONE_NEWNET
    | sys_.CLONE_NEWIPC
    | sys_.CLONE_NEWUTS
    | sys_.CLONE_NEWCGROUP
)
SEALED = 15  # the frame that carries a cell's network descriptors up; see `frames.py`
HEAD_SIZE = 5  # of the frame that says what to begin with: its length in four bytes, and its type
FIRST_FREE_FD = 5
MOST_DESCRIPTORS = 1024
COUNTS_BY_NAMESPACE = (5, 14)  # Before, a user's processes were counted together, whatever namespace they were in.


def main() -> None:
    """Serve the invoker until it closes the channel."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    setup = json.loads(channel.recv(65536))
    for name in PRELOADED.split():
        with contextlib.suppress(ImportError):
            __import__(name)
    python_worker.pretouch()
    if setup["sandbox"]:
        sys_.unshare(sys_.CLONE_NEWNS)
        root.enter(setup["root"])
    # What every cell would do alike is done once here: each page a cell writes to is memory of its own.
    os.environ.clear()
    os.environ.update(setup["env"])
    if setup["own_users"]:
        sys_.drop_bounding_set()
    is_counted = setup["is_counted"]
    programs = {notify: seccomp.build(notify=notify, is_counted=is_counted) for notify in (True, False)}
    flags = sys_.CLONE_PARENT | (NAMESPACES if setup["sandbox"] else 0)
    gc.collect()
    gc.freeze()
    channel.send(b'{"zygote": "ready"}')
    while True:
        message, descriptors = _receive(channel)
        if message is None:
            return
        try:
            said: dict[str, Any] = {"pid": sys_.fork_into(flags)}
        except OSError as error:
            said = {"failed": f"cannot make a cell: {error}"}
        if said.get("pid") == 0:
            _cell(message, descriptors, setup, programs)
        channel.send(json.dumps({"cell": message["cell"], **said}).encode())
        for descriptor in descriptors:
            os.close(descriptor)


def _receive(channel: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    descriptors = array.array("i")
    data, ancillary, _, _ = channel.recvmsg(65536, socket.CMSG_SPACE(8 * descriptors.itemsize))
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    return (json.loads(data) if data else None), list(descriptors)


def _cell(
    message: dict[str, Any],
    descriptors: list[int],
    setup: dict[str, Any],
    programs: dict[bool, bytes],
) -> NoReturn:
    """The cell: take up its place, give up every right, then wait to hear which worker to run."""
    try:
        data, code, *outputs = descriptors if setup["sandbox"] else [descriptors[0], -1, *descriptors[1:]]
        os.setsid()  # A signal to one's own process group reaches its members in other namespaces too.
        if setup["sandbox"]:
            _furnish(message, code)
        _arrange_descriptors(data, outputs)
        _limit(message)
        network_sockets = network.make_resolver_sockets() if setup["notify"] else None
        _give_up_rights(message, setup)
        if setup["sandbox"]:
            listener = seccomp.install(programs[setup["notify"]], listener=setup["notify"])
            _hand_up(listener, network_sockets)
        # Descriptors on their way count for the user, and against the sender's limit: functions get a lower one than
        # we need here, so that theirs cannot stand in our way.
        resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_DESCRIPTORS, MOST_DESCRIPTORS))
        begin = _hear_beginning()
        if begin is None:
            os._exit(0)
        if begin["argv"]:
            os.execve(begin["argv"][0], begin["argv"], begin["env"])  # noqa: S606 - an argv list, no shell
        python_worker.run(3, begin["code"])
    except BaseException as error:  # noqa: BLE001 - whatever it is, it must not run on in the zygote's place
        with contextlib.suppress(OSError):
            os.write(2, f"the cell could not be made: {error!r}\n".encode())
    finally:
        os._exit(71)


def _furnish(message: dict[str, Any], code: int) -> None:
    """Mount what is the cell's own: /proc of its processes, a small /tmp, and the place where its code will appear."""
    hidden = sys_.MS_NOSUID | sys_.MS_NODEV
    root.mount_proc()
    sys_.mount("tmpfs", "/tmp", "tmpfs", hidden, f"mode=1777,size={message['tmp_mb']}m,nr_inodes=20000")  # noqa: S108
    sys_.move_mount(code, "", -100, "/code", sys_.MOVE_MOUNT_F_EMPTY_PATH)
    sys_.sethostname("function")
    network.prepare_namespace()


def _arrange_descriptors(data: int, outputs: list[int]) -> None:
    """Leave 0 to 4: nothing in, the two outputs, the socket, the journal of logs; close everything else."""
    out, err, journal = outputs
    null = os.open("/dev/null", os.O_RDONLY)
    high = [os.dup(descriptor) for descriptor in (null, out, err, data, journal)]
    safe = [_above(descriptor, 10) for descriptor in high]
    for target, source in enumerate(safe):
        os.dup2(source, target, inheritable=True)
    os.closerange(FIRST_FREE_FD, MOST_DESCRIPTORS)


def _above(descriptor: int, least: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD, least)


def _limit(message: dict[str, Any]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (message["file_mb"] << 20, message["file_mb"] << 20))
    for name, (soft, hard) in message.get("rlimits", {}).items():
        resource.setrlimit(getattr(resource, name), (soft, hard))


def _give_up_rights(message: dict[str, Any], setup: dict[str, Any]) -> None:
    uid = message["uid"]
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    elif setup["sandbox"]:
        # Without root there is one user only: a namespace of its own hides that it is the platform's.
        sys_.unshare(sys_.CLONE_NEWUSER)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{root.USER_ID} 0 1")
        _write("/proc/self/gid_map", f"{root.USER_ID} 0 1")
        if files.kernel() >= COUNTS_BY_NAMESPACE:
            resource.setrlimit(resource.RLIMIT_NPROC, (message["pids"], message["pids"]))
    sys_.drop_capabilities(bounding=not uid)
    sys_.no_new_privs()
    sys_.set_pdeathsig(signal.SIGKILL)
    os.umask(0o022)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    os.write(descriptor, text.encode())
    os.close(descriptor)


def _hand_up(listener: int | None, sockets: tuple[socket.socket, socket.socket] | None) -> None:
    """Send the descriptors of the cell's network up, on the socket that its calls will come through."""
    frame = (1).to_bytes(4, "little") + bytes([SEALED])
    data = socket.socket(fileno=3)
    if listener is not None and sockets is not None:
        rights = array.array("i", [listener, sockets[0].fileno(), sockets[1].fileno()])
        data.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        os.close(listener)
        for each in sockets:
            each.close()
    else:
        data.sendmsg([frame])
    data.detach()


def _hear_beginning() -> dict[str, Any] | None:
    """Wait for the first frame and return what it says; None when the invoker is gone."""
    length = int.from_bytes(_read(HEAD_SIZE)[:4], "little") - 1
    return json.loads(_read(length)) if length > 0 else None


def _read(size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = os.read(3, size - len(data))
        if not more:
            return b""
        data += more
    return data


if __name__ == "__main__":
    main()
