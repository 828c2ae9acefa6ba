"""The Python worker: loads one function and runs its calls, one at a time.

The modules of this package import only the standard library and run on Python 3.9 and later. The worker's loop is on
the path of every call: features that a call does not use (logs, headers, an event loop) cost it nothing. `frames.py`
describes the frames.
"""

from __future__ import annotations

import builtins
import contextlib
import fcntl
import gc
import json
import keyword
import os
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

with contextlib.suppress(ImportError, AttributeError, OSError):  # Builds without ctypes fall back to `os.putenv`.
    import ctypes

    _putenv = ctypes.CDLL(None).putenv

_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__))
_PACKAGE_FOLDER = os.path.normpath(os.path.join(_OWN_FOLDER, "../../../.."))
if __name__ == "__main__":
    sys.path[:1] = [_PACKAGE_FOLDER]

from moorage.runtime.workers.python import forks as python_forks  # noqa: E402
from moorage.runtime.workers.python.answers import JSON, MESSAGE_CHARACTERS, Json, Refused, Responses, json_bytes  # noqa: E402
from moorage.runtime.workers.python.loading import find_main, library_folders, load_module, parameters_of  # noqa: E402
from moorage.runtime.workers.python.logs import Logs, NativeOutput, Stream, size_text  # noqa: E402

LENGTH = struct.Struct("<I")
CALL = struct.Struct("<IBIB32s13s")  # length, type, id, flags, activation id, deadline
LOADED = struct.Struct("<IBBII")  # length, type, ok, load_us, log length
REPLY = struct.Struct("<IBIBHBIII")  # length, type, id, outcome, status, kind, run_us, head length, log length
LATE = struct.Struct("<IB32s")  # length, type, activation id
READY_FRAME = b"\x01\x00\x00\x00\x10"
LOAD = 1
DONE, FAILED, ENDED = 0, 1, 2

BUFFER = 32768  # bytes; holds a few dozen usual calls. A larger frame gets a temporary buffer.
HIGH_DESCRIPTOR = 900
CLEAN_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}  # noqa: S108

_HIDDEN_FRAMES = (
    os.path.join(os.path.dirname(__file__), ""),
    "<frozen importlib",
    os.path.join(os.path.dirname(os.__file__), "asyncio", ""),
)
_parse = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_end_process = os._exit
_OWN_MODULES: list[str] = []


class Context:
    """The `context` argument of a handler with two parameters."""

    __slots__ = ("activation_id", "api_host", "deadline", "function_name", "function_version", "namespace")

    def __init__(self, fixed: dict[str, str], activation: bytes, deadline: bytes) -> None:
        self.activation_id = activation.decode()
        self.deadline = int(deadline)
        self.function_name = fixed["__OW_ACTION_NAME"]
        self.function_version = fixed["__OW_ACTION_VERSION"]
        self.namespace = fixed["__OW_NAMESPACE"]
        self.api_host = fixed["__OW_API_HOST"]

    def get_remaining_time_in_millis(self) -> int:
        return max(0, self.deadline - time.time_ns() // 1_000_000)


class PinnedVariable:
    """A C environment variable that is overwritten in place.

    `setenv` never frees the replaced value, so setting an activation id per call would leak memory.
    """

    def __init__(self, name: str, width: int) -> None:
        self._name = name.encode()
        self._room: memoryview | None = None
        self._known: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
        with contextlib.suppress(NameError):
            self._text = ctypes.create_string_buffer(self._name + b"=" + b"0" * width)
            if _putenv(self._text) == 0:
                self._room = memoryview(self._text).cast("B")[len(name) + 1 : -1]

    def set(self, value: bytes) -> None:
        self._known[self._name] = value
        if self._room is not None:
            self._room[:] = value
        else:
            os.putenv(self._name, value)


class Worker:
    """One instance of a function, serving calls from a socket."""

    def __init__(self, channel: socket.socket, code: str) -> None:
        self.logs = Logs()
        self._channel = channel
        self._code = code
        self._native = NativeOutput(())
        self._respond = Responses().answer
        self._result_limit = 6 * 1024 * 1024
        self._fixed: dict[str, str] = {}
        self._invoke: Callable[[Json], Json] = dict
        self._loop: Any = None
        self._buffer = bytearray(BUFFER)
        self._room = memoryview(self._buffer)
        self._start = self._end = 0
        self._out: list[bytes] = []
        self._running = False
        self._ident = 0
        self._activation = self._deadline = b""
        self._set_activation: Callable[[bytes], object] = bytes
        self._set_deadline: Callable[[bytes], object] = bytes
        self._began = self._pid = 0
        self._exit_code = 1
        self._is_fork = self._is_forking = False
        self._hidden: list[Any] = []

    def serve(self) -> NoReturn:
        self._out.append(READY_FRAME)
        self._flush()
        while True:
            self._read()
            self._answer_all()

    # Frames

    def _read(self) -> None:
        """Read more data; the next frame then starts at offset 0 of the buffer."""
        rest = b""
        if self._start != self._end:
            rest = bytes(self._buffer[self._start : self._end])
        size = max(BUFFER, LENGTH.unpack_from(rest)[0] + 4 if len(rest) >= 4 else 0)
        if size != len(self._buffer):
            self._buffer = bytearray(size)
            self._room = memoryview(self._buffer)
        self._room[: len(rest)] = rest
        count = self._channel.recv_into(self._room[len(rest) :] if rest else self._room)
        if not count:
            _end_process(0)
        self._start, self._end = 0, len(rest) + count

    def _answer_all(self) -> None:
        """Process all complete frames in the buffer, after sending late output."""
        self._end_late()
        buffer, at, end = self._buffer, 0, self._end
        while end - at >= 4 and (after := at + 4 + LENGTH.unpack_from(buffer, at)[0]) <= end:
            if buffer[at + 4] == LOAD:
                self._load(json.loads(bytes(buffer[at + 5 : after])))
            else:
                self._call(buffer, at, after)
            at = self._start = after
        self._flush()
        self._begin_late()

    def _flush(self) -> None:
        with self.logs.guard:
            out = b"".join(self._out)
            self._out.clear()
            try:
                if out:
                    self._channel.sendall(out)
            except OSError:  # The edge is gone, or the function forked this process from the worker.
                _end_process(0)

    def _begin_late(self) -> None:
        if self._activation:
            with self.logs.guard:
                self.logs.late = self._send_late
                if self.logs.dirty:
                    self._send_late()

    def _end_late(self) -> None:
        logs = self.logs
        if logs.late is not None:
            with logs.guard:
                logs.late = None
            if self._native.has_more():
                self._native.move(logs)
            if logs.dirty:
                self._add_late(logs.take())

    def _send_late(self) -> None:
        """Send output of the time between calls; runs in the thread that printed it."""
        self._add_late(self.logs.take_lines())
        self._flush()

    def _add_late(self, block: bytes) -> None:
        if block:
            self._out += (LATE.pack(33 + len(block), 19, self._activation), block)

    # Calls

    def _call(self, buffer: bytearray, at: int, after: int) -> None:
        _, _, self._ident, web, self._activation, self._deadline = CALL.unpack_from(buffer, at)
        self.logs.restart()
        self._set_activation(self._activation)
        self._set_deadline(self._deadline)
        if self._out:
            # Replies are sent before the next call runs: if that call ends the process, only it counts as started.
            self._flush()
        self._began = time.perf_counter_ns()
        try:
            self._running = True
            result = self._invoke(self._params(str(buffer[at + CALL.size : after], "utf-8")))
            if type(result) is not dict and hasattr(result, "__await__"):
                result = self._finish(result)
            status, kind, head, body = self._respond(result) if web else (0, JSON, b"", json_bytes(result))
            if len(body) > self._result_limit:
                raise Refused(
                    f"the function's result is {size_text(len(body), exact=True)}, "
                    f"at most {size_text(self._result_limit)} are allowed"
                )
        except BaseException as error:  # noqa: BLE001 - any exception of the function is its result
            outcome, body = self._failure(error)
            self._reply(outcome, 0, JSON, b"", body)
        else:
            self._reply(DONE, status, kind, head, body)

    def _params(self, text: str) -> Json:
        params: Json = _parse(text, 0)[0]
        if type(params) is dict:
            params.update(self._fixed)
            params["__OW_ACTIVATION_ID"] = self._activation.decode()
            params["__OW_DEADLINE"] = self._deadline.decode()
        return params

    def _reply(self, outcome: int, status: int, kind: int, head: bytes, body: bytes) -> None:
        logs = self.logs
        self._running = False
        if logs.forked:
            _end_process(0)
        if self._native.has_more():
            self._native.move(logs)
        if logs.closed:
            outcome, head, body = ENDED, b"", logs.closed.encode()
        block = logs.take() if logs.dirty else b""
        took = time.perf_counter_ns() - self._began
        size = 21 + len(head) + len(block) + len(body)
        took = min(took // 1000, 0xFFFFFFFF)
        start = REPLY.pack(size, 18, self._ident, outcome, status, kind, took, len(head), len(block))
        self._out += (start, head, block, body)
        if outcome == ENDED:
            self._flush()
            _end_process(self._exit_code)

    def _finish(self, awaitable: Any) -> Json:
        """Await an async handler; leftover tasks continue during later calls."""
        if self._loop is None or self._loop.is_closed():
            import asyncio  # Only async functions pay for the import.

            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        return self._loop.run_until_complete(awaitable)

    def _failure(self, error: BaseException) -> tuple[int, bytes]:
        """Return outcome and message of a failed call; log the traceback."""
        if isinstance(error, Refused):
            return FAILED, str(error).encode("utf-8", "replace")
        if not isinstance(error, SystemExit):
            return FAILED, show_error(self.logs, error).encode("utf-8", "replace")
        code = error.code or 0
        if not isinstance(code, int):
            self.logs.add(2, f"{code}\n")
            code = 1
        self._exit_code = code & 0xFF
        return ENDED, f"the function called exit (code {code})".encode()

    def _exit(self, code: int) -> None:
        """Replacement of `os._exit` that replies to the running call first."""
        if self._running and os.getpid() == self._pid:
            outcome, message = self._failure(SystemExit(code))
            self._reply(outcome, 0, JSON, b"", message)
        _end_process(code)

    # Loading

    def take_process(self) -> None:
        """Redirect standard streams, `os._exit` and forks to the worker."""
        self._pid = os.getpid()
        self._native = NativeOutput((1, 2))
        self.logs.journal = python_forks.high_journal()
        sys.stdout = sys.__stdout__ = self._stdout = Stream(self.logs, 1)  # type: ignore[misc, assignment]
        sys.stderr = sys.__stderr__ = self._stderr = Stream(self.logs, 2)  # type: ignore[misc, assignment]
        os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 0)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - stays open
        os._exit = self._exit  # type: ignore[assignment]
        builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]
        os.register_at_fork(after_in_child=self._detach_child)

    def _detach_child(self) -> None:
        """In a child that the function forked: close the socket, print to 1 and 2."""
        if self._is_forking:
            return
        self._channel.close()
        self._running = False
        self.logs.guard = threading.RLock()
        self.logs.late = None
        self.logs.forked = True

    def _load(self, load: dict[str, Any]) -> None:
        if self._is_fork:
            self._out.append(LOADED.pack(10, 17, True, 0, 0))
            return
        began = time.perf_counter_ns()
        self.logs.limit = load["log_limit"]
        self._result_limit = load["result_limit"]
        message = b""
        try:
            self._prepare(load)
            self._bind(find_main(os.path.join(self._code, load["main"])))
        except BaseException as error:  # noqa: BLE001 - any exception of the function is a load failure
            message = self._failure(error)[1]
        if self._native.has_more():
            self._native.move(self.logs)
        message = message or self.logs.closed.encode()
        if load.get("template") and not message and not python_forks.can_fork(self._channel.fileno()):
            message = b"the function has threads or connections"
        block = self.logs.take()
        micros = (time.perf_counter_ns() - began) // 1000
        head = LOADED.pack(10 + len(block) + len(message), 17, not message, min(micros, 0xFFFFFFFF), len(block))
        self._out += (head, block, message)
        if message:
            self._flush()
            _end_process(1)
        gc.freeze()
        if load.get("template"):
            self._flush()
            self._become_fork(python_forks.serve(self._channel, self._set_forking))

    def _set_forking(self, is_forking: bool) -> None:
        self._is_forking = is_forking

    def _become_fork(self, channel: socket.socket) -> None:
        """In a fork of the snapshot: become an instance with loaded code."""
        self._channel, self._pid, self._is_fork = channel, os.getpid(), True
        self._start = self._end = 0
        self._native = NativeOutput((1, 2))
        self.logs.journal = python_forks.high_journal()
        self._activation = b""
        self._out.append(READY_FRAME)

    def _prepare(self, load: dict[str, Any]) -> None:
        """Set environment, working directory and import paths of the function."""
        for name, value in CLEAN_ENV.items():
            os.environ.setdefault(name, value)
        special = {
            "NAMESPACE": "namespace",
            "ACTION_NAME": "action",
            "ACTION_VERSION": "version",
            "API_HOST": "api_host",
        }
        self._fixed = {**dict(load["env"]), **{f"__OW_{name}": load[key] for name, key in special.items()}}
        os.environ.update(self._fixed)
        time.tzset()
        self._set_activation = PinnedVariable("__OW_ACTIVATION_ID", 32).set
        self._set_deadline = PinnedVariable("__OW_DEADLINE", 13).set
        os.chdir(self._code)
        own_paths = ("", _PACKAGE_FOLDER, _OWN_FOLDER)
        code, *libraries = library_folders(self._code)
        sys.path[:] = [code, *(path for path in sys.path if path not in own_paths), *libraries]
        sys.argv = [os.path.join(self._code, load["main"])]
        for path in (code, *libraries):  # A cached lookup may date from before the code was mounted.
            sys.path_importer_cache.pop(path, None)
        # Hidden from the function but not freed: freeing writes to shared pages, which the kernel would copy.
        self._hidden = [sys.modules.pop(name, None) for name in _OWN_MODULES]

    def _bind(self, main: Callable[..., Json]) -> None:
        count = parameters_of(main)
        if count == 0:
            self._invoke = lambda params: main()
        elif count == 1:
            self._invoke = main
        else:
            self._invoke = lambda params: main(params, Context(self._fixed, self._activation, self._deadline))


def show_error(logs: Logs, error: BaseException) -> str:
    """Log the traceback without frames of the worker; return the message."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_HIDDEN_FRAMES):
        frames = frames.tb_next
    logs.add(2, "".join(traceback.format_exception(type(error), error, frames)))
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - `__str__` of a user's exception may raise anything
        text = ""
    if isinstance(error, MemoryError):
        text = text or "the function ran out of memory"
    text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text.splitlines()[0][:MESSAGE_CHARACTERS]


def pretouch() -> None:
    """Warm up before the first fork: load a module, run a few calls in memory."""
    near, far = socket.socketpair()
    worker = Worker(far, "")
    answers = [
        {"statusCode": 200, "headers": {"x-a": "b"}, "body": {"a": [1, "b"]}},
        {"statusCode": "200", "body": ""},
        1,
    ]
    for result in answers:
        worker._invoke = lambda params, result=result: worker.logs.add(1, "a\n") and result  # type: ignore[misc]
        for web in (0, 1):
            frame = CALL.pack(CALL.size - 4 + 10, 2, 1, web, b"0" * 32, b"0" * 13) + b'{"a": "b"}'
            worker._buffer[: len(frame)] = frame
            worker._end = len(frame)
            worker._answer_all()
    show_error(worker.logs, ValueError("a"))
    near.close()
    far.close()
    with contextlib.suppress(OSError, Refused):
        load_module(keyword.__file__, ("keyword",))
    parameters_of(pretouch)
    # Iterating over all modules writes to their pages (reference counts), so it happens before the fork.
    _OWN_MODULES[:] = [name for name in sys.modules if name.partition(".")[0] == "moorage"]


def run(sock_fd: int = 3, code: str = "/code") -> NoReturn:
    """Serve calls from a socket, which moves to a high descriptor first."""
    try:
        high = fcntl.fcntl(sock_fd, fcntl.F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR)
    except OSError:  # The limit of descriptors is lower.
        high = fcntl.fcntl(sock_fd, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(sock_fd)
    channel = socket.socket(fileno=high)
    channel.settimeout(None)
    worker = Worker(channel, code)
    worker.take_process()
    worker.serve()


if __name__ == "__main__":
    pretouch()
    run(3, sys.argv[1] if len(sys.argv) > 1 else "/code")
