"""The pool: dispatches calls, scales instances, records and answers calls.

Every submitted call ends with exactly one record, then one answer. The record comes first, so that no answered call is
lost when a process is killed.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable
from typing import Any, cast

from moorage.runtime.edge import spool
from moorage.runtime.edge.calls.backlog import Backlog
from moorage.runtime.edge.calls.call import Call, WebCall
from moorage.runtime.edge.calls.caps import Caps
from moorage.runtime.edge.calls.instance import (
    MAX_MESSAGE_BYTES,
    Instance,
    PlainReply,
    PooledFunction,
    native_log_entries,
)
from moorage.runtime.edge.calls.pause import IDLE_CHECK_INTERVAL_S, Pause
from moorage.runtime.edge.calls.reasons import load_message, reason, timeout_message, waited_message
from moorage.runtime.edge.calls.recorder import Recorder, Spool
from moorage.runtime.edge.calls.replies import FRAME_TIMEOUT_S, Replies
from moorage.runtime.edge.calls.scheduling import Scheduling
from moorage.runtime.edge.calls.supply import Link, Supply
from moorage.runtime.edge.connections import answers, web
from moorage.runtime.edge.connections.answers import Failure
from moorage.runtime.workers.frames import DONE, ENDING

WATCH_AFTER_S = 0.15  # run time from which the invoker checks whether a call is CPU-bound
BUSY_REPORT_INTERVAL_S = 0.25
END_REPORT_TIMEOUT_S = 1.0  # wait for the invoker's report about an ended sandbox
_pack_plain = spool.pack_plain


class Pool:
    def __init__(self, link: Link, records: Spool, caps: Caps, find: Callable[[int], Any]) -> None:
        self._link = link
        self._caps = caps
        self._find = find  # function id -> its current Function
        self._by_sandbox: dict[int, Instance] = {}
        self._supply = Supply(link, caps, self._evict)
        self._backlog = Backlog(caps)
        self._pause, self._scheduling = Pause(), Scheduling()
        self.replies = Replies()
        self._end_reports: dict[int, dict[str, Any]] = {}
        self._loop = asyncio.get_running_loop()
        self._recorder = Recorder(records, self._loop)
        self.soon = self._loop.call_soon
        self._idle_checked_at = self._busy_reported_at = time.perf_counter()
        self.calls = 0

    # Dispatching.

    def submit(self, call: Call) -> None:
        """Send a call to an instance, else queue it; refuse it if the queue is full."""
        if self._pause.is_long:
            self._pause.end()
        function = call.function
        if call.is_large and not self._backlog.hold(call):
            call.refuse(answers.QUEUE_FULL)
            return
        if not function.queue:
            instance = function.find_instance(call, call.arrived)
            if instance is not None:
                if call.is_alone:
                    self._recorder.record_start(call)
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

    def _dispatch_queue(self, function: PooledFunction) -> None:
        """Send queued calls to instances that can take them."""
        queue = function.queue
        while queue:
            now = time.perf_counter()
            instance = function.find_instance(queue[0], now)
            if instance is None:
                break
            call = queue.popleft()
            self._backlog.count(call, -1)
            if call.is_alone:
                self._recorder.record_start(call)
            instance.send(call, now)
        if queue:
            self._supply.grow(function)

    # Replies.

    def complete(
        self,
        instance: Instance,
        call: Call,
        outcome: int,
        status: int,
        kind: int,
        head: bytes,
        log: bytes | memoryview,
        body: bytes,
        run_us: int,
        now: float,
    ) -> None:
        """Record and answer a call after its reply, then dispatch the next one."""
        function = instance.function
        error = None
        if outcome != DONE:
            error = function.hide(body[:MAX_MESSAGE_BYTES].decode("utf-8", "replace"))
        else:
            try:
                call.check(status, head, body)
            except web.BadReply as bad:
                error = str(bad)
        # The run time comes from an untrusted worker, so it is capped by the time since sending.
        run_us = min(run_us, int((now - call.sent) * 1e6) + 1)
        if instance.load_log:
            log, instance.load_log = instance.load_log + log, b""
        self._record_end(call, run_us, now, error, log)
        if error is None:
            call.reply(status, kind, body, run_us)
        else:
            call.fail(error, run_us)
        function.observe(run_us, call.number)
        if outcome == ENDING:
            self._drop(instance)
        else:
            self._after_reply(instance)

    def _after_reply(self, instance: Instance) -> None:
        """Dispatch the next calls after a reply, or drop an outdated instance."""
        function = instance.function
        if instance.is_watched:
            instance.is_watched = False
            self._link.send({"unwatch": instance.sandbox_id})
        if instance.is_outdated:
            if not instance.calls:
                self._drop(instance)
                self._dispatch_queue(function)
        elif function.queue:
            self._dispatch_queue(function)

    def complete_plain(self, instance: Instance, plain: list[PlainReply]) -> None:
        """`complete` for a batch of plain replies."""
        function = instance.function
        now, now_ms = time.perf_counter(), int(time.time() * 1000)
        instance.note_reply(now)
        packed = []
        for call, _, _, _, run_us in plain:
            # The run time comes from an untrusted worker, so it is capped by the time since sending.
            max_us = int((now - call.sent) * 1e6) + 1
            ran_us = run_us if run_us < max_us else max_us
            wait_us = int((now - call.arrived) * 1e6) - ran_us
            packed.append(
                _pack_plain(
                    spool.HEAD_SIZE, spool.END, spool.WEB, 1, call.cold, function.id, function.org_id,
                    function.version, function.memory_mb, now_ms - ran_us // 1000, ran_us, max(wait_us, 0), 0,
                    call.activation, 0, 0,
                )
            )  # fmt: skip
            function.observe(ran_us, call.number)
        self.calls += len(plain)
        self._recorder.record_packed(packed)
        for call, status, kind, body, _ in plain:
            cast(WebCall, call).reply_plainly(status, kind, body)
        self._after_reply(instance)

    def _record_end(self, call: Call, run_us: int, now: float, error: str | None, log: bytes | memoryview) -> None:
        self.calls += 1
        if call.is_large:
            self._backlog.release(call)
        self._recorder.record_end(call, run_us, now, error, log)

    def printed_late(self, instance: Instance, activation: bytes, log: bytes) -> None:
        self._recorder.record_late_log(instance.function, activation, log)

    # Failures.

    def _fail(self, call: Call, message: str, *, log: bytes = b"", now: float | None = None) -> None:
        now = now or time.perf_counter()
        run_us = int((now - call.started) * 1e6) if call.started else 0
        message = call.function.hide(message)
        self._record_end(call, run_us, now, message, log)
        call.fail(message, run_us)

    def _fail_waiting(self, function: PooledFunction, message: str, log: bytes = b"") -> None:
        """Fail all queued calls of a function whose instances cannot start."""
        while function.queue:
            call = function.queue.popleft()
            self._backlog.count(call, -1)
            self._fail(call, message, log=log)

    def fail_instance(self, instance: Instance, message: str) -> None:
        """Drop an instance after a protocol error and fail its running call."""
        calls = list(instance.calls)
        instance.calls.clear()
        self._drop(instance)
        if calls:
            self._fail(calls[0], message)
            self._requeue(calls[1:])
        elif not instance.is_open and instance.function.queue:
            self._fail_waiting(instance.function, message)

    def _kill_overdue(self, instance: Instance, message: str) -> None:
        """Kill an instance past a timeout; the report of its end has the logs."""
        instance.kill_reason = message
        instance.is_open = False
        others = list(instance.calls)[1:]
        for _ in others:
            instance.calls.pop()
        self._link.send({"kill": instance.sandbox_id})
        self._loop.call_later(END_REPORT_TIMEOUT_S, self._finish_ended, instance, {})
        self._requeue(others)

    def _requeue(self, calls: list[Call]) -> None:
        """Put calls that were not started back to the front of the queue."""
        for call in reversed(calls):
            function = self._find(call.function.id)
            if function is None:
                self._refuse(call, answers.NOT_FOUND)
                continue
            if call.number:  # It was sent to an instance: the wait behind another call does not count.
                call.number, call.arrived = 0, time.perf_counter()
            call.function = function
            call.started = 0.0
            function.queue.appendleft(call)
            self._backlog.count(call, 1)
        for function in {call.function for call in calls}:
            self._dispatch_queue(function)

    def disconnected(self, instance: Instance) -> None:
        """Finish an instance whose socket closed, after the invoker's report."""
        instance.is_disconnected = True
        if instance.is_closed:
            return
        report = self._end_reports.pop(instance.sandbox_id, None)
        if report is not None:
            self._finish_ended(instance, report)
        else:
            instance.is_open = False
            self._loop.call_later(END_REPORT_TIMEOUT_S, self._finish_ended, instance, {})

    def sandbox_ended(self, report: dict[str, Any]) -> None:
        """Handle the invoker's report of an end, after the replies in the socket are read."""
        instance = self._by_sandbox.get(report["cell"])
        if instance is None or instance.is_closed:
            self._release_sandbox(report["cell"])
        elif instance.is_disconnected:
            self._finish_ended(instance, report)
        else:
            self._end_reports[report["cell"]] = report

    def _finish_ended(self, instance: Instance, report: dict[str, Any]) -> None:
        if instance.is_closed:
            return
        was_loading = not instance.is_loaded
        calls = list(instance.calls)
        instance.calls.clear()
        self._drop(instance)
        message = instance.kill_reason or reason(report)
        native = native_log_entries(report.get("out", ""), report.get("err", ""), int(time.time() * 1000))
        log = base64.b64decode(report.get("journal", "")) + native
        if calls:
            self._fail(calls[0], message, log=instance.load_log + log)
            self._requeue(calls[1:])
        elif was_loading:
            self._fail_waiting(instance.function, message, log)
        else:
            self._dispatch_queue(instance.function)

    # Instances.

    def _evict(self, org: str | None) -> bool:
        idle = [
            each
            for each in self._by_sandbox.values()
            if each.is_open and not each.calls and (org is None or each.function.org == org)
        ]
        if not idle:
            return False
        # The organization with most sandboxes loses one, so that its growth does not end instances of others.
        self._drop(min(idle, key=lambda each: (-self._supply.sandboxes_of(each.function.org), each.idle_since)))
        return True

    def sandbox_taken(self, take: int, sandbox_id: int, _how: str, sock: Any) -> None:
        """Create an instance from a sandbox that the invoker handed over."""
        function = self._supply.pop_take(take)
        if function is None:
            sock.close()
            self._link.send({"kill": sandbox_id})
            return
        instance = Instance(self, function, sandbox_id)
        self._by_sandbox[sandbox_id] = instance
        function.instances.append(instance)
        self._loop.create_task(self._connect(instance, sock))
        self._supply.request_sandboxes()

    async def _connect(self, instance: Instance, sock: Any) -> None:
        transport, _ = await self._loop.create_unix_connection(lambda: instance, sock=sock)
        if transport.is_closing():
            # The loop has closed the descriptor; `sock` must not close another file that reuses its number.
            sock.detach()
        instance.is_attached = True
        if instance.is_closed:
            transport.abort()
        elif instance.function.is_retired:
            self._drop(instance)

    def take_refused(self, take: int, why: str) -> None:
        function = self._supply.pop_take(take)
        if function is not None:
            self._supply.release(function.org)
            self._fail_waiting(function, f"the function cannot run here: {why}")
            self._supply.request_sandboxes()

    def loaded(self, instance: Instance, ok: bool, load_us: int, log: bytes, message: str) -> None:
        instance.load_log = log
        instance.is_loaded = True
        if not ok:
            self._drop(instance)
            self._fail_waiting(instance.function, message, log)
            return
        instance.is_open = not instance.is_outdated and not instance.function.is_retired
        instance.idle_since = time.perf_counter()
        if not instance.is_open:
            self._drop(instance)
            return
        self._dispatch_queue(instance.function)
        self._supply.request_snapshot(instance.function, load_us)

    def thaw(self, instance: Instance) -> None:
        instance.is_frozen = False
        self._link.send({"thaw": instance.sandbox_id})

    def _drop(self, instance: Instance) -> None:
        """Close an instance and kill its sandbox; requeue its calls."""
        if instance.is_closed:
            return
        instance.close()
        if not instance.kill_reason:
            self._link.send({"kill": instance.sandbox_id})
        if instance in instance.function.instances:
            instance.function.instances.remove(instance)
        self._requeue(list(instance.calls))
        instance.calls.clear()
        self._release_sandbox(instance.sandbox_id)

    def _release_sandbox(self, sandbox_id: int) -> None:
        self._end_reports.pop(sandbox_id, None)
        instance = self._by_sandbox.pop(sandbox_id, None)
        if instance is not None:
            self._supply.release(instance.function.org)
            self._supply.request_sandboxes()

    def retire(self, old: PooledFunction, new: PooledFunction | None) -> None:
        """Replace a revision: running calls finish, queued calls move, idle instances end."""
        old.is_retired = True
        self._supply.retire(old)
        calls = list(old.queue)
        for call in calls:
            old.queue.popleft()
            self._backlog.count(call, -1)
        for instance in list(old.instances):
            self._end_after_calls(instance)
        if new is not None:
            new.samples, new.slow_share, new.mean_us = old.samples, old.slow_share, old.mean_us
            new.depth = old.depth
        self._requeue(calls)

    def replace(self, sandbox_id: int) -> None:
        """End an instance after its calls; queued calls get another one."""
        instance = self._by_sandbox.get(sandbox_id)
        if instance is not None:
            self._end_after_calls(instance)

    def _end_after_calls(self, instance: Instance) -> None:
        instance.is_open, instance.is_outdated = False, True
        if not instance.calls and instance.is_loaded:
            self._drop(instance)

    # Periodic checks.

    async def run(self) -> None:
        """Enforce deadlines, freeze and end idle instances, until cancelled.

        Without calls it wakes up once a second, and without instances not at all.
        """
        while True:
            await self._pause.wait(self._by_sandbox.values(), bool(self._backlog.functions))
            now = time.perf_counter()
            self._scheduling.update(self.calls, now)
            self._check_deadlines(now)
            if now - self._idle_checked_at >= IDLE_CHECK_INTERVAL_S:
                self._idle_checked_at = now
                self._check_idle(now)
            if now - self._busy_reported_at >= BUSY_REPORT_INTERVAL_S:
                self._busy_reported_at = now
                self._report_busy()

    def _check_deadlines(self, now: float) -> None:
        for instance in list(self._by_sandbox.values()):
            if instance.is_closed or instance.kill_reason:
                continue
            function = instance.function
            if instance.reserved and now - instance.reserved_at > FRAME_TIMEOUT_S:
                self.fail_instance(instance, "the function's process sent an incomplete frame")
            elif instance.calls:
                running_s = now - instance.calls[0].started
                if running_s > function.timeout_s:
                    function.add_sample(int(running_s * 1e6))  # Lowers `depth`: requeued calls must not wait again.
                    self._kill_overdue(instance, timeout_message(function))
                elif running_s > WATCH_AFTER_S and not instance.is_watched:
                    instance.is_watched = True
                    self._link.send({"watch": instance.sandbox_id})
            elif not instance.is_loaded and now - instance.created_at > function.timeout_s:
                self._kill_overdue(instance, load_message(function))
        for function in list(self._backlog.functions):
            while function.queue and now - function.queue[0].arrived > function.timeout_s:
                call = function.queue.popleft()
                self._backlog.count(call, -1)
                self._fail(call, waited_message(function))
            if function.queue:
                self._supply.grow(function)

    def _check_idle(self, now: float) -> None:
        for instance in list(self._by_sandbox.values()):
            if instance.calls or not instance.is_open:
                continue
            idle_s = now - instance.idle_since
            if idle_s > self._caps.reap_s:
                self._drop(instance)
            elif idle_s > self._caps.freeze_s and not instance.is_frozen:
                instance.is_frozen = True
                self._link.send({"freeze": instance.sandbox_id})
        if self._link.is_memory_low:
            self._evict(None)
        self._supply.request_sandboxes()

    def _report_busy(self) -> None:
        busy = [each for each in self._by_sandbox.values() if each.was_busy or each.calls]
        if busy:
            self._link.send({"busy": [each.sandbox_id for each in busy]})
        for each in busy:
            each.was_busy = False

    def memory_changed(self) -> None:
        """Retry queued requests after a memory report or a reconnect of the invoker."""
        self._supply.request_sandboxes()

    @property
    def sandbox(self) -> bool | None:
        return self._link.sandbox

    @property
    def in_flight(self) -> int:
        return sum(len(each.calls) for each in self._by_sandbox.values()) + self._backlog.queued

    @property
    def instances(self) -> int:
        return len(self._by_sandbox)
