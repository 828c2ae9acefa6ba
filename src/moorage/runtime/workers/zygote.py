"""The zygote: a Python process with preloaded modules that forks sandboxes.

It runs as `python -I -S zygote.py FD` under the interpreter whose functions it serves, so it imports only the standard
library and platform modules that do the same. It never runs users' code: a sandbox seals itself right after the fork.

    invoker ── zygote
       └────── sandbox: PID 1 of its namespace; forked by the zygote with CLONE_PARENT, so a child of the invoker
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

from moorage.runtime.sandbox import inside, root, seccomp
from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.cgroups import files
from moorage.runtime.sandbox.network import setup as network
from moorage.runtime.workers.python import worker as python_worker

TYPE_CHECKING = False  # Type checkers assume True; importing `typing` for the constant costs each sandbox memory.
if TYPE_CHECKING:
    from typing import Any, NoReturn

# Modules that functions often use: preloaded, they cost a sandbox no time and, as shared pages, little memory.
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
SEALED = 15  # frame type, see `frames.py`
HEAD_SIZE = 5  # of the BEGIN frame: four bytes of length, one of type
FIRST_FREE_FD = 5
MAX_DESCRIPTORS = 1024


def main() -> None:
    """Fork sandboxes for the invoker until it closes the channel."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    setup = json.loads(channel.recv(65536))
    for name in PRELOADED.split():
        with contextlib.suppress(ImportError):
            __import__(name)
    python_worker.pretouch()
    if setup["sandbox"]:
        sys_.unshare(sys_.CLONE_NEWNS)
        root.enter(setup["root"])
    # Work that is the same for all sandboxes happens before the fork: each page that a sandbox writes is copied.
    os.environ.clear()
    os.environ.update(setup["env"])
    if setup["own_users"]:
        sys_.drop_bounding_set()
    rules = {"is_counted": setup["is_counted"], "keeps_session": setup["keeps_session"]}
    programs = {notify: seccomp.build(notify=notify, **rules) for notify in (True, False)}
    flags = sys_.CLONE_PARENT | (NAMESPACES if setup["sandbox"] else 0)
    gc.collect()
    gc.freeze()
    channel.send(b'{"zygote": "ready"}')
    while True:
        message, descriptors = _receive(channel)
        if message is None:
            return
        try:
            reply: dict[str, Any] = {"pid": sys_.fork_into(flags)}
        except OSError as error:
            reply = {"failed": f"cannot create a function sandbox: {error}"}
        if reply.get("pid") == 0:
            _run_sandbox(message, descriptors, setup, programs)
        channel.send(json.dumps({"cell": message["cell"], **reply}).encode())
        for descriptor in descriptors:
            os.close(descriptor)


def _receive(channel: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    descriptors = array.array("i")
    data, ancillary, _, _ = channel.recvmsg(65536, socket.CMSG_SPACE(8 * descriptors.itemsize))
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    return (json.loads(data) if data else None), list(descriptors)


def _run_sandbox(
    message: dict[str, Any],
    descriptors: list[int],
    setup: dict[str, Any],
    programs: dict[bool, bytes],
) -> NoReturn:
    """Set up and seal the sandbox after the fork, then run the worker of BEGIN."""
    try:
        data, code, *outputs = descriptors if setup["sandbox"] else [descriptors[0], -1, *descriptors[1:]]
        os.setpgid(0, 0)  # Else a signal to the process group would reach its members in other namespaces.
        if setup["sandbox"]:
            inside.mount_own("function", {"/code": code}, f"size={message['tmp_mb']}m,nr_inodes=20000")
        _arrange_descriptors(data, outputs)
        for name, limit in message.get("rlimits", {}).items():
            resource.setrlimit(getattr(resource, name), tuple(limit))
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        if setup["sandbox"]:
            _seal(message, setup, programs[setup["notify"]])
        else:
            inside.set_limits(_limits(message))
            inside.give_up_rights(message["uid"] or None, is_bounded=True)
        # The kernel counts descriptors in flight per user and checks them against the sender's limit. Functions get a
        # lower limit than the platform, so that theirs cannot block ours.
        resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_DESCRIPTORS, MAX_DESCRIPTORS))
        begin = _read_begin()
        if begin is None:
            os._exit(0)
        if begin["argv"]:
            os.execve(begin["argv"][0], begin["argv"], begin["env"])  # noqa: S606 - an argv list, no shell
        python_worker.run(3, begin["code"])
    except BaseException as error:  # noqa: BLE001 - the child must never return into the zygote's loop
        with contextlib.suppress(OSError):
            os.write(2, f"cannot set up the function sandbox: {error!r}\n".encode())
    finally:
        os._exit(71)


def _arrange_descriptors(data: int, outputs: list[int]) -> None:
    """Set descriptors 0-4: /dev/null, stdout, stderr, socket, journal; close others."""
    out, err, journal = outputs
    null = os.open("/dev/null", os.O_RDONLY)
    high = [os.dup(descriptor) for descriptor in (null, out, err, data, journal)]
    safe = [_above(descriptor, 10) for descriptor in high]
    for target, source in enumerate(safe):
        os.dup2(source, target, inheritable=True)
    os.closerange(FIRST_FREE_FD, MAX_DESCRIPTORS)


def _above(descriptor: int, least: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD, least)


def _seal(message: dict[str, Any], setup: dict[str, Any], program: bytes) -> None:
    """Seal the sandbox, and send SEALED with the network's descriptors on the socket of the calls."""
    sockets = network.make_resolver_sockets() if setup["notify"] else ()
    if not message["uid"]:
        _enter_user_namespace(message)
    data = socket.socket(fileno=3)
    frame = (1).to_bytes(4, "little") + bytes([SEALED])
    uid = message["uid"] or None
    inside.seal(data, frame, sockets, limits=_limits(message), uid=uid, program=program, is_bounded=True)
    data.detach()


def _limits(message: dict[str, Any]) -> dict[int, int]:
    return {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: message["file_mb"] << 20}


def _enter_user_namespace(message: dict[str, Any]) -> None:
    """Map the platform's user, which runs functions where the platform is not root, to another id."""
    sys_.unshare(sys_.CLONE_NEWUSER)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{root.USER_ID} 0 1")
    _write("/proc/self/gid_map", f"{root.USER_ID} 0 1")
    if files.kernel() >= inside.NPROC_PER_NAMESPACE:
        resource.setrlimit(resource.RLIMIT_NPROC, (message["pids"], message["pids"]))


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    os.write(descriptor, text.encode())
    os.close(descriptor)


def _read_begin() -> dict[str, Any] | None:
    """Wait for the BEGIN frame and return its payload; None when the invoker is gone."""
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
