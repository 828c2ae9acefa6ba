"""The edge of the platform for one function: its HTTP server, its rules and its pool, with workers of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable

from moorage.cli.dev.screen import Screen
from moorage.cli.dev.workers import WorkerLink
from moorage.core.net import host_header
from moorage.runtime.edge.calls.caps import Caps
from moorage.runtime.edge.calls.function import AnyFunction
from moorage.runtime.edge.calls.instance import Instance
from moorage.runtime.edge.calls.pool import Pool
from moorage.runtime.edge.connections.answers import Answer, Failure, Request
from moorage.runtime.edge.connections.handlers import PublicHandler
from moorage.runtime.edge.connections.listener import Listener
from moorage.runtime.edge.connections.protocol import Connection
from moorage.runtime.edge.connections.web import FunctionTarget, TargetCache
from moorage.runtime.edge.routes import Table

DOMAIN = "localhost"
CAPS = Caps(function_instances=8, queue=200)
SHARED_PREFIX = b"/api/v1/web/"
FOREIGN_HOST = Failure(
    403,
    "forbidden",
    "This host name is not served: use localhost or an IP address, or start `moorage functions dev` with --host NAME",
)

OnLoaded = Callable[[AnyFunction, bool, int, bytes, str], None]


class DevPool(Pool):
    """The pool of the platform, which also loads code before the first call and prints how that ended."""

    def __init__(
        self, link: WorkerLink, screen: Screen, find: Callable[[int], AnyFunction | None], on_loaded: OnLoaded
    ):
        super().__init__(link, screen, CAPS, find)
        self._on_loaded = on_loaded

    def warm(self, function: AnyFunction) -> None:
        """Load a function without a call, so that an error in its code shows right after a save."""
        depth, function.depth = function.depth, 2  # The supply starts nothing for a function that nothing waits for.
        self._supply.grow(function)
        function.depth = depth
        self._pause.end()

    def loaded(self, instance: Instance, ok: bool, load_us: int, log: bytes, message: str) -> None:
        if not instance.function.is_retired:
            self._on_loaded(instance.function, ok, load_us, log, message)
        super().loaded(instance, ok, load_us, b"", message)

    def lone_calls(self, longer_than_s: float) -> list[tuple[int, str]]:
        """Return worker and activation of calls that have run for a while, where no other call waits behind them."""
        now = time.perf_counter()
        return [
            (each.sandbox_id, each.calls[0].activation.decode())
            for each in self._by_sandbox.values()
            if len(each.calls) == 1 and now - each.calls[0].started > longer_than_s
        ]


class DevTargets(TargetCache):
    """Addresses of the function: those of the platform, and every other path of this server below it."""

    def __init__(self, org: str, name: str) -> None:
        super().__init__(DOMAIN)
        self._host = f"org-{org}.{DOMAIN}".encode()
        self._path = f"/default/{name}".encode()

    def _parse(self, target: bytes, host: bytes | None) -> FunctionTarget | None:
        own = host.lower().partition(b":")[0] if host else b""
        if own == self._host or target.startswith(SHARED_PREFIX):
            return super()._parse(target, host)
        if not self._is_full(target):
            rest = target[1:] if target[1:2] in (b"", b"?") else target
            target = self._path + rest
        return super()._parse(target, self._host)

    def _is_full(self, target: bytes) -> bool:
        """Report whether a target is the function's path on the platform, or below it."""
        rest = target[len(self._path) :]
        return target.startswith(self._path) and (rest[:1] in (b"", b"/", b"?") or rest.startswith(b".http"))


class DevHandler(PublicHandler):
    """Refuses requests to host names of others.

    A page of such a name could point it to this machine (DNS rebinding), and would then read the function's answers.
    """

    def __init__(self, table: Table, pool: Pool, targets: TargetCache, host: str) -> None:
        super().__init__(table, pool, targets)
        self._names = (host.lower(),)

    def __call__(self, connection: Connection, request: Request) -> Answer | None:
        return self._refuse(request) or super().__call__(connection, request)

    def answer_early(self, request: Request) -> Answer | None:
        return self._refuse(request) or super().answer_early(request)

    def _refuse(self, request: Request) -> Answer | None:
        host = request.find_header(b"host")  # absent in HTTP/1.0, which browsers do not use
        is_own = host is None or host_header.is_own(host.decode("latin-1"), self._names)
        return None if is_own else FOREIGN_HOST.answer_to(request)


class DevConnection(Connection):
    """A connection that reports its requests with their status and duration."""

    def __init__(self, listener: DevListener) -> None:
        super().__init__(listener)
        self._screen = listener.screen
        self._began = 0.0

    def _handle(self, request: Request) -> None:
        self._began = time.perf_counter()
        super()._handle(request)

    def finish(self, rendered: bytes) -> None:
        request = self._current
        if request is not None:
            # The body may be large; the status is in the first line: `HTTP/1.1 200 OK`.
            self._screen.request(request.method, request.target, int(rendered[9:12]), time.perf_counter() - self._began)
        super().finish(rendered)

    def _answer_unread(self, answer: Answer, *, lingers: bool = True) -> None:
        self._screen.request(b"refused", self._target, answer.status, 0.0)
        super()._answer_unread(answer, lingers=lingers)


class DevListener(Listener):
    def __init__(self, handler: Callable[[Connection, Request], Answer | None], screen: Screen, **options: object):
        super().__init__(handler, **options)  # type: ignore[arg-type]
        self.screen = screen

    def __call__(self) -> Connection:
        super().__call__()  # wakes the watch of deadlines
        return DevConnection(self)
