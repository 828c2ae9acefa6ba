"""The pool: which call goes to which instance, when there are more or fewer of them, and what comes of each call.

Every call that got this far ends in exactly one record and one answer, the record first: what a client has seen is
never lost, whatever is killed.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable
from typing import Any, Protocol, cast

from moorage.runtime.edge import spool
from moorage.runtime.edge.calls.backlog import Backlog
from moorage.runtime.edge.calls.call import Call, WebCall
from moorage.runtime.edge.calls.caps import Caps
from moorage.runtime.edge.calls.function import Function
from moorage.runtime.edge.calls.instance import MOST_MESSAGE, Instance, Plain, entries
from moorage.runtime.edge.calls.lost_records import LostRecords
from moorage.runtime.edge.calls.replies import FRAME_S, Replies
from moorage.runtime.edge.calls.supply import Link, Supply
from moorage.runtime.edge.connections import answers, web
from moorage.runtime.edge.connections.answers import Failure
from moorage.runtime.edge.connections.reasons import load_message, reason, timeout_message, waited_message
from moorage.runtime.workers.frames import DONE, ENDING

TICK_S = 0.05
LOOK_S = 1.0
WATCH_S = 0.15  # a call that runs longer is looked at: does it compute?
BUSY_S = 0.25
ENDED_S = 1.0  # the reason of an end comes from the invoker; this is how long it is waited for
_encode = spool.encode
_pack_plain = spool.pack_plain


class Spool(Protocol):
    """Where records go. What was appended outlives this process."""

    def append(self, record: bytes) -> None: ...

    def append_plain(self, packed: bytes) -> None: ...

    def fit(self, log: bytes, org_id: int) -> bytes: ...


class Pool:
    def __init__(self, link: Link, records: Spool, caps: Caps, find: Callable[[int], Any]) -> None:
        self._link = link
        self._records = records
        self._caps = caps
        self._find = find  # function id -> the Function in force
        self._cells: dict[int, Instance] = {}
        self._supply = Supply(link, caps, self._evict)
        self._backlog = Backlog(caps)
        self.replies = Replies()
        self._ended: dict[int, dict[str, Any]] = {}
        self._loop = asyncio.get_running_loop()
        self._lost = LostRecords(self._loop)
        self.soon = self._loop.call_soon
        self._looked_at = self._counted_at = time.perf_counter()
        self.calls = 0

    # Calls come in.

    def submit(self, call: Call) -> None:
        """Run a call, now or in its turn; past the bounds of the queue it is refused."""
        function = call.function
        if call.is_large and not self._backlog.hold(call):
            call.refuse(answers.QUEUE_FULL)
            return
        if not function.queue:
            instance = function.find_instance(call, call.arrived)
            if instance is not None:
                if call.is_alone:
                    self._note_start(call)
                instance.send(call, call.arrived)
                return
        if not self._backlog.has_room(call):
            self._refuse(call, answers.QUEUE_FULL)
            return
        call.number, call.started = 0, 0.0
        function.queue.append(call)
        self._backlog.count(call, 1)
        self._supply.grow(function)

    def _refuse(self, call: Call, failure: Failure) -> None:
        if call.is_large:
            self._backlog.release(call)
        call.refuse(failure)

    def _note_start(self, call: Call) -> None:
        function, now_ms = call.function, int(time.time() * 1000)
        self._write(
            _encode(
                spool.START, call.door, True, False, function.id, function.org_id, function.version,
                function.memory_mb, now_ms, 0, 0, call.schedule, call.activation,
            )
        )  # fmt: skip

    def _feed(self, function: Function) -> None:
        """Hand out what waits, as far as instances can take it."""
        queue = function.queue
        while queue:
            now = time.perf_counter()
            instance = function.find_instance(queue[0], now)
            if instance is None:
                break
            call = queue.popleft()
            self._backlog.count(call, -1)
            if call.is_alone:
                self._note_start(call)
            instance.send(call, now)
        if queue:
            self._supply.grow(function)

    # Replies.

    def replied(
        self,
        instance: Instance,
        call: Call,
        outcome: int,
        status: int,
        kind: int,
        head: bytes,
        log: bytes,
        body: bytes,
        run_us: int,
        now: float,
    ) -> None:
        """An instance has answered a call: record it, answer it, and give the instance its next one."""
        function = instance.function
        error = None
        if outcome != DONE:
            error = body[:MOST_MESSAGE].decode("utf-8", "replace")
        else:
            try:
                call.check(status, head, body)
            except web.BadReply as bad:
                error = str(bad)
        # A function's process may claim anything; it cannot have run longer than it was given.
        run_us = min(run_us, int((now - call.sent) * 1e6) + 1)
        if instance.load_log:
            log, instance.load_log = instance.load_log + log, b""
        self._end(call, run_us, now, error, log)
        if error is None:
            call.reply(status, kind, body, run_us)
        else:
            call.fail(error, run_us)
        function.hear(run_us, call.number)
        if outcome == ENDING:
            self._drop(instance)
        else:
            self._go_on(instance)

    def _go_on(self, instance: Instance) -> None:
        """Give an instance that has answered its next calls, or let it go."""
        function = instance.function
        if instance.is_watched:
            instance.is_watched = False
            self._link.tell({"unwatch": instance.cell})
        if function.is_gone:
            if not instance.calls:
                self._drop(instance)
        elif function.queue:
            self._feed(function)

    def settle(self, instance: Instance, plain: list[Plain]) -> None:
        """Do what `replied` does, for several calls at once whose replies leave nothing to think about."""
        function = instance.function
        now, now_ms = time.perf_counter(), int(time.time() * 1000)
        instance.note_reply(now)
        packed = []
        for call, _, _, _, run_us in plain:
            # A function's process may claim anything; it cannot have run longer than it was given.
            most_us = int((now - call.sent) * 1e6) + 1
            ran_us = run_us if run_us < most_us else most_us
            wait_us = int((now - call.arrived) * 1e6) - ran_us
            packed.append(
                _pack_plain(
                    spool.HEAD_SIZE, spool.END, spool.WEB, 1, call.cold, function.id, function.org_id,
                    function.version, function.memory_mb, now_ms - ran_us // 1000, ran_us, max(wait_us, 0), 0,
                    call.activation, 0, 0,
                )
            )  # fmt: skip
            function.hear(ran_us, call.number)
        self.calls += len(plain)
        try:
            self._records.append_plain(b"".join(packed))
        except OSError as problem:
            self._lost.note(problem, len(plain))
        for call, status, kind, body, _ in plain:
            cast(WebCall, call).reply_plainly(status, kind, body)
        self._go_on(instance)

    def _end(self, call: Call, run_us: int, now: float, error: str | None, log: bytes) -> None:
        function = call.function
        self.calls += 1
        if call.is_large:
            self._backlog.release(call)
        if log:
            log = self._records.fit(log, function.org_id)
        wait_us = int((now - call.arrived) * 1e6) - run_us
        record = _encode(
            spool.END, call.door, error is None, call.cold, function.id, function.org_id, function.version,
            function.memory_mb, int(time.time() * 1000) - run_us // 1000, run_us, wait_us if wait_us > 0 else 0,
            call.schedule, call.activation, error.encode("utf-8", "replace") if error else b"", log,
        )  # fmt: skip
        self._write(record)

    def _write(self, record: bytes) -> None:
        try:
            self._records.append(record)
        except OSError as problem:
            self._lost.note(problem)

    def printed_late(self, instance: Instance, activation: bytes, log: bytes) -> None:
        function = instance.function
        self._write(
            _encode(
                spool.LATE, spool.WEB, True, False, function.id, function.org_id, function.version,
                function.memory_mb, int(time.time() * 1000), 0, 0, 0, activation, b"",
                self._records.fit(log, function.org_id),
            )
        )  # fmt: skip

    # Failures.

    def _fail(self, call: Call, message: str, *, log: bytes = b"", now: float | None = None) -> None:
        now = now or time.perf_counter()
        run_us = int((now - call.started) * 1e6) if call.started else 0
        self._end(call, run_us, now, message, log)
        call.fail(message, run_us)

    def _fail_waiting(self, function: Function, message: str, log: bytes = b"") -> None:
        """Fail everything that waits for a function whose instances cannot even start."""
        while function.queue:
            call = function.queue.popleft()
            self._backlog.count(call, -1)
            self._fail(call, message, log=log)

    def broke(self, instance: Instance, message: str) -> None:
        """An instance has to go, and the call that runs in it fails."""
        calls = list(instance.calls)
        instance.calls.clear()
        self._drop(instance)
        if calls:
            self._fail(calls[0], message)
            self._send_elsewhere(calls[1:])
        elif not instance.is_open and instance.function.queue:
            self._fail_waiting(instance.function, message)

    def _end_overdue(self, instance: Instance, message: str) -> None:
        """Kill an instance that is past its time; what its call printed comes with the news of its end."""
        instance.verdict = message
        instance.is_open = False
        others = list(instance.calls)[1:]
        for _ in others:
            instance.calls.pop()
        self._link.tell({"kill": instance.cell})
        self._loop.call_later(ENDED_S, self._finish, instance, {})
        self._send_elsewhere(others)

    def _send_elsewhere(self, calls: list[Call]) -> None:
        """Calls that an instance held without having started them run again from the front of the queue."""
        for call in reversed(calls):
            function = self._find(call.function.id)
            if function is None:
                self._refuse(call, answers.NOT_FOUND)
                continue
            if call.number:  # An instance held it: the time it spent behind another call is not its own.
                call.number, call.arrived = 0, time.perf_counter()
            call.function = function
            call.started = 0.0
            function.queue.appendleft(call)
            self._backlog.count(call, 1)
        for function in {call.function for call in calls}:
            self._feed(function)

    def lost(self, instance: Instance) -> None:
        """The instance's socket ended by itself; why it did is what the invoker says."""
        instance.is_lost = True
        if instance.is_over:
            return
        ended = self._ended.pop(instance.cell, None)
        if ended is not None:
            self._finish(instance, ended)
        else:
            instance.is_open = False
            self._loop.call_later(ENDED_S, self._finish, instance, {})

    def ended(self, ended: dict[str, Any]) -> None:
        """The invoker saw a cell end. What it had answered is read to the end of its socket first."""
        instance = self._cells.get(ended["cell"])
        if instance is None or instance.is_over:
            self._count_cell(ended["cell"])
        elif instance.is_lost:
            self._finish(instance, ended)
        else:
            self._ended[ended["cell"]] = ended

    def _finish(self, instance: Instance, ended: dict[str, Any]) -> None:
        if instance.is_over:
            return
        was_loading = not instance.is_loaded
        calls = list(instance.calls)
        instance.calls.clear()
        self._drop(instance)
        message = instance.verdict or reason(ended)
        native = entries(ended.get("out", ""), ended.get("err", ""), int(time.time() * 1000))
        log = base64.b64decode(ended.get("journal", "")) + native
        if calls:
            self._fail(calls[0], message, log=instance.load_log + log)
            self._send_elsewhere(calls[1:])
        elif was_loading:
            self._fail_waiting(instance.function, message, log)
        else:
            self._feed(instance.function)

    # Instances come and go.

    def _evict(self, org: str | None) -> bool:
        idle = [
            each
            for each in self._cells.values()
            if each.is_open and not each.calls and (org is None or each.function.org == org)
        ]
        if not idle:
            return False
        # The organization with most gives way first, so that growing does not end the instances of others.
        self._drop(min(idle, key=lambda each: (-self._supply.cells_of(each.function.org), each.idle_since)))
        return True

    def took(self, take: int, cell: int, _how: str, sock: Any) -> None:
        """A cell has come for a function that asked."""
        function = self._supply.came(take)
        if function is None:
            sock.close()
            self._link.tell({"kill": cell})
            return
        instance = Instance(self, function, cell)
        self._cells[cell] = instance
        function.instances.append(instance)
        self._loop.create_task(self._connect(instance, sock))
        self._supply.pump()

    async def _connect(self, instance: Instance, sock: Any) -> None:
        transport, _ = await self._loop.create_unix_connection(lambda: instance, sock=sock)
        if transport.is_closing():
            # The loop has closed the descriptor; the socket object must not close whatever has its number by now.
            sock.detach()
        instance.is_attached = True
        if instance.is_over:
            transport.abort()
        elif instance.function.is_gone:
            self._drop(instance)

    def refused(self, take: int, why: str) -> None:
        function = self._supply.came(take)
        if function is not None:
            self._supply.leave(function.org)
            self._fail_waiting(function, f"the function cannot run here: {why}")
            self._supply.pump()

    def loaded(self, instance: Instance, ok: bool, load_us: int, log: bytes, message: str) -> None:
        instance.load_log = log
        instance.is_loaded = True
        if not ok:
            self._drop(instance)
            self._fail_waiting(instance.function, message, log)
            return
        instance.is_open = not instance.function.is_gone
        instance.idle_since = time.perf_counter()
        if not instance.is_open:
            self._drop(instance)
            return
        self._feed(instance.function)
        self._supply.want_template(instance.function, load_us)

    def thaw(self, instance: Instance) -> None:
        instance.is_frozen = False
        self._link.tell({"thaw": instance.cell})

    def _drop(self, instance: Instance) -> None:
        """Let an instance go. Calls that it still holds were moved away before."""
        if instance.is_over:
            return
        instance.close()
        if not instance.verdict:
            self._link.tell({"kill": instance.cell})
        if instance in instance.function.instances:
            instance.function.instances.remove(instance)
        self._send_elsewhere(list(instance.calls))
        instance.calls.clear()
        self._count_cell(instance.cell)

    def _count_cell(self, cell: int) -> None:
        self._ended.pop(cell, None)
        instance = self._cells.pop(cell, None)
        if instance is not None:
            self._supply.leave(instance.function.org)
            self._supply.pump()

    def retire(self, old: Function, new: Function | None) -> None:
        """Another revision is in force: what runs finishes, what waits goes there, what is idle ends."""
        old.is_gone = True
        self._supply.retire(old)
        calls = list(old.queue)
        for call in calls:
            old.queue.popleft()
            self._backlog.count(call, -1)
        for instance in list(old.instances):
            instance.is_open = False
            if not instance.calls and instance.is_loaded:
                self._drop(instance)
        if new is not None:
            new.learned, new.slow_share, new.usual_us = old.learned, old.slow_share, old.usual_us
            new.depth = old.depth
        self._send_elsewhere(calls)

    # Time passes.

    async def run(self) -> None:
        """Enforce deadlines, freeze and reap, until cancelled."""
        while True:
            await asyncio.sleep(TICK_S if self._cells or self._backlog.functions else TICK_S * 4)
            now = time.perf_counter()
            self._check_deadlines(now)
            if now - self._looked_at >= LOOK_S:
                self._looked_at = now
                self._check_idle(now)
            if now - self._counted_at >= BUSY_S:
                self._counted_at = now
                self._tell_busy()

    def _check_deadlines(self, now: float) -> None:
        for instance in list(self._cells.values()):
            if instance.is_over or instance.verdict:
                continue
            function = instance.function
            if instance.reserved and now - instance.reserved_at > FRAME_S:
                self.broke(instance, "the function's process did not finish what it began to send")
            elif instance.calls:
                running_s = now - instance.calls[0].started
                if running_s > function.timeout_s:
                    function.learn(int(running_s * 1e6))  # What waited behind it must not wait behind the next.
                    self._end_overdue(instance, timeout_message(function))
                elif running_s > WATCH_S and not instance.is_watched:
                    instance.is_watched = True
                    self._link.tell({"watch": instance.cell})
            elif not instance.is_loaded and now - instance.born > function.timeout_s:
                self._end_overdue(instance, load_message(function))
        for function in list(self._backlog.functions):
            while function.queue and now - function.queue[0].arrived > function.timeout_s:
                call = function.queue.popleft()
                self._backlog.count(call, -1)
                self._fail(call, waited_message(function))
            if function.queue:
                self._supply.grow(function)

    def _check_idle(self, now: float) -> None:
        for instance in list(self._cells.values()):
            if instance.calls or not instance.is_open:
                continue
            idle_s = now - instance.idle_since
            if idle_s > self._caps.reap_s:
                self._drop(instance)
            elif idle_s > self._caps.freeze_s and not instance.is_frozen:
                instance.is_frozen = True
                self._link.tell({"freeze": instance.cell})
        if self._link.is_memory_low:
            self._evict(None)
        self._supply.pump()

    def _tell_busy(self) -> None:
        busy = [each for each in self._cells.values() if each.worked or each.calls]
        if len({each.function.org for each in busy}) > 1:
            self._link.tell({"busy": [each.cell for each in busy]})
        for each in busy:
            each.worked = False

    def breathe(self) -> None:
        """The invoker says how memory stands, or is back: what waits may go on."""
        self._supply.pump()

    @property
    def sandbox(self) -> bool | None:
        return self._link.sandbox

    @property
    def in_flight(self) -> int:
        return sum(len(each.calls) for each in self._cells.values()) + sum(
            len(f.queue) for f in self._backlog.functions
        )

    @property
    def instances(self) -> int:
        return len(self._cells)
