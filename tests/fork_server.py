"""A process that has imported the command line and forks one child for each command of a test.

Imports are four fifths of the CPU time of a command. Commands whose imports or start are tested run with `python -m`.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import sys
import termios
import traceback
from typing import Any

import moorage.client
from moorage.cli import main
from moorage.cli.commands import ENTRIES

MAX_MESSAGE = 1 << 17
STORE = (
    *("moorage.platform.moving.artifacts", "moorage.platform.moving.store", "moorage.platform.backups.backup"),
    *("alembic.command", "alembic.script", "sqlalchemy.dialects.postgresql.psycopg", "psycopg"),
)
FILES = 4  # standard input, output and error, and the pipe for the PID and the exit code


def serve(requests: socket.socket) -> None:
    """Fork a child for each message, until the tests close the socket."""
    running: dict[int, int] = {}
    wakeup, signalled = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(signalled)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        selector.register(wakeup, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == wakeup:
                    os.read(wakeup, 4096)
                    _report(running)
                elif not _begin(requests, running):
                    return


def _begin(requests: socket.socket, running: dict[int, int]) -> bool:
    message, files, *_ = socket.recv_fds(requests, MAX_MESSAGE, FILES)
    if not message:
        return False
    command = json.loads(message)
    if "--data" in command["words"]:
        _import_store()
    pid = os.fork()
    if pid == 0:
        requests.close()
        _run(command, files)
    running[pid] = files[3]
    os.write(files[3], f"{pid} ".encode())
    for file in files[:3]:
        os.close(file)
    return True


def _report(running: dict[int, int]) -> None:
    """Write the exit codes of ended children."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            file = running.pop(ended[0])
            with contextlib.suppress(BrokenPipeError):
                os.write(file, str(os.waitstatus_to_exitcode(ended[1])).encode())
            os.close(file)


def _run(command: dict[str, Any], files: list[int]) -> None:
    """Become the process of a command."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background ignores it
    for target, file in enumerate(files[:3]):
        os.dup2(file, target)
    os.closerange(3, 64)
    if command["has_terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # Ctrl-C reaches the command as SIGINT
    os.chdir(command["cwd"])
    os.environ.clear()
    os.environ.update(command["env"])
    sys.modules["__main__"] = main
    sys.argv = [main.__file__, *command["words"]]
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", buffering=1 if os.isatty(1) else -1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os._exit(_code_of_main())


def _code_of_main() -> int:
    try:
        main.main()
        code: object = 0
    except SystemExit as error:
        code = error.code
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    return code if isinstance(code, int) else int(code is not None)


@functools.cache
def _import_store() -> None:
    """Import the modules that commands on a data folder import when they use them."""
    for name in STORE:
        importlib.import_module(name)
    importlib.import_module("moorage.platform.opening").all_tables()
    gc.collect()
    gc.freeze()


def _import_all() -> None:
    for entry in ENTRIES:
        importlib.import_module(entry.module)
    for found in pkgutil.walk_packages(moorage.client.__path__, "moorage.client."):
        importlib.import_module(found.name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        _import_all()
        serve(requests)
