"""Run groups of tests in several processes, which are forked after the tests were collected: `--processes 5`.

Each process would take 10 s of CPU time to collect all tests. A process takes another group (marker `group`) when it
starts the last test of its own, because pytest keeps the fixtures that the next test needs, too.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import random
import signal
import time
import traceback
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from tests import order, ports

SILENCE_S = 2.0
Groups = list[list[pytest.Item]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=0, help="run groups of tests in this many processes (default: 0)")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--processes"):
        config.pluginmanager.register(Heartbeat(), "heartbeat")
        config.pluginmanager.register(Processes(config.getoption("--processes")), "processes")


class Heartbeat:
    """Prints a line after two seconds of silence, so that the run does not look stuck.

    A timer, and not a thread: a process with threads should not fork.
    """

    def __init__(self) -> None:
        self._output = os.dup(1)  # pytest captures descriptor 1 later.
        self._started_at = self._told_at = time.monotonic()
        self._done = 0
        signal.signal(signal.SIGALRM, lambda *_: self._tick())
        signal.setitimer(signal.ITIMER_REAL, SILENCE_S / 4, SILENCE_S / 4)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._told_at = time.monotonic()
        self._done += report.when == "call"

    def pytest_unconfigure(self) -> None:
        self.stop()

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._told_at >= SILENCE_S:
            self._told_at = now
            os.write(self._output, f"\ntests: {self._done} done, {now - self._started_at:.0f} s\n".encode())


@dataclass
class _Process:
    number: int
    pid: int
    link: Connection
    left: deque[int] = field(default_factory=deque)  # tests that it has not finished

    def node(self) -> SimpleNamespace:
        """Return the object by which pytest shows where a test ran."""
        text = f"process {self.number}"
        return SimpleNamespace(gateway=SimpleNamespace(id=text), _workerinfocache=f"[{text}]")


class Processes:
    def __init__(self, count: int) -> None:
        self._count = count
        self._running: dict[Connection, _Process] = {}
        self._waiting: deque[list[int]] = deque()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        order.longest_first(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or session.config.option.collectonly:
            return None  # pytest itself reports the errors, or the tests.
        numbered = enumerate(map(order.name_of, session.items))
        self._waiting.extend(
            [number for number, _ in group] for _, group in itertools.groupby(numbered, lambda pair: pair[1])
        )
        try:
            for number in range(min(self._count, len(self._waiting))):
                self._start(session, number)
            while self._running:
                for link in wait(list(self._running)):
                    self._receive(session, self._running[link])  # type: ignore[index]
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
        finally:
            self._stop()
        return True

    def _start(self, session: pytest.Session, number: int) -> None:
        link, other = Pipe()
        pid = os.fork()
        if pid == 0:
            for process in (*self._running.values(), _Process(number, 0, link)):
                process.link.close()
            _run(session, other, number)
        other.close()
        self._running[link] = _Process(number, pid, link)

    def _receive(self, session: pytest.Session, process: _Process) -> None:
        """Handle one message of a process: it wants a group, has a report of a test, or has ended."""
        hook = session.config.hook
        try:
            message = process.link.recv()
        except (EOFError, ConnectionResetError):
            self._ended(session, process)
            return
        if message is None:
            group = self._waiting.popleft() if self._waiting else []
            process.left.extend(group)
            process.link.send(group)
            return
        report = hook.pytest_report_from_serializable(config=session.config, data=message)
        report.node = process.node()
        hook.pytest_runtest_logreport(report=report)
        if report.when == "teardown":
            process.left.popleft()
            hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)

    def _ended(self, session: pytest.Session, process: _Process) -> None:
        del self._running[process.link]
        process.link.close()
        _, status = os.waitpid(process.pid, 0)
        if not process.left:
            return
        item = session.items[process.left.popleft()]
        text = f"the process of the test ended with {os.waitstatus_to_exitcode(status)}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        session.config.hook.pytest_runtest_logreport(report=report)
        if process.left:
            self._waiting.appendleft(list(process.left))
        if self._waiting:
            self._start(session, process.number)

    def _stop(self) -> None:
        """Close the links: each process tears its fixtures down after its present test."""
        for process in self._running.values():
            process.link.close()
        for process in self._running.values():
            os.waitpid(process.pid, 0)
        self._running.clear()


class _Reports:
    def __init__(self, config: pytest.Config, link: Connection) -> None:
        self._config = config
        self._link = link

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._link.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


def _run(session: pytest.Session, link: Connection, number: int) -> NoReturn:
    """Run the groups that the parent gives out, in a forked process, and end it."""
    code = 1
    try:
        _prepare(session.config, link, number)
        with contextlib.suppress(EOFError, ConnectionError, KeyboardInterrupt):
            for item, following in itertools.pairwise(itertools.chain(_tests(session.items, link), [None])):
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        session.config.hook.pytest_sessionfinish(session=session, exitstatus=0)
        atexit._run_exitfuncs()
        code = 0
    except BaseException:  # noqa: BLE001 - nothing may return to the frames of the parent
        traceback.print_exc()
    os._exit(code)


def _prepare(config: pytest.Config, link: Connection, number: int) -> None:
    plugins = config.pluginmanager
    plugins.get_plugin("heartbeat").stop()  # type: ignore[union-attr]
    for name in ("heartbeat", "processes", "terminalreporter"):
        plugins.unregister(name=name)
    config.workerinput = {}  # type: ignore[attr-defined]  # pytest's sign of a process whose parent reports
    capture: Any = plugins.get_plugin("capturemanager")
    capture.stop_global_capturing()  # into files that all processes share
    capture.start_global_capturing()
    plugins.register(_Reports(config, link))
    random.seed()
    ports.take(number)


def _tests(items: list[pytest.Item], link: Connection) -> Iterator[pytest.Item]:
    while True:
        link.send(None)
        group = link.recv()
        if not group:
            return
        yield from (items[number] for number in group)
