"""CPU fairness: the idle class for long computations and greedy organizations.

A CPU quota would throttle in bursts, also on an idle machine. The idle class of the scheduler (`cpu.idle`) does not:
its tasks get exactly the CPU time that no other task uses.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from moorage.runtime.workers.cpu.rescheduler import Rescheduler
from moorage.runtime.workers.sandbox import FunctionSandbox

CPU_BOUND_SHARE = 0.3  # of one core: a watched call that uses more is CPU-bound
RUNNABLE_SHARE = 0.6  # of the time: a call that runs, or is runnable and waits for a CPU, for longer is CPU-bound too
MAX_CREDIT_S = 0.3  # CPU time that an organization can accumulate
MIN_CREDIT_S = -1.0  # largest debt
SHARE_FACTOR = 1.5  # multiple of the fair share that an organization earns
IDLE_SHARE_FACTOR = 0.5  # the same in the idle class, where an organization that still gets half of its share stays
# An organization that returns to the idle class soon after it left stays there at least this long, then twice as long
# each time: a flood would otherwise change its class every few seconds, and others would wait for each of its turns.
RETURN_S = 10.0
MIN_STAY_S = 4.0
MAX_STAY_S = 64.0
# Of the balance in the idle class, where a flood has many sandboxes to read, and of an organization that is alone.
SLOW_UPDATE_INTERVAL_S = 0.4
MIN_CREDIT_ALONE_S = -0.05  # The debt of an organization that is alone counts when another one becomes active.
ORG_EXPIRY_S = 10.0


class WatchedCall:
    def __init__(self, sandbox: FunctionSandbox, now: float) -> None:
        self.sandbox = sandbox
        self.at = now
        # A sandbox that is in the idle class stays there until the call ends, so it is not checked.
        self.cpu_us = 0 if sandbox.is_idle_class else cpu_us_of(sandbox)
        self.runnable_us = 0 if sandbox.is_idle_class else runnable_us_of(sandbox)

    def is_cpu_bound(self, now: float) -> bool:
        """Whether the sandbox used, or waited for, a CPU since the last check."""
        elapsed_us = (now - self.at) * 1e6
        cpu_us, runnable_us = cpu_us_of(self.sandbox), runnable_us_of(self.sandbox)
        uses_cpu = cpu_us - self.cpu_us > CPU_BOUND_SHARE * elapsed_us
        is_runnable = runnable_us - self.runnable_us > RUNNABLE_SHARE * elapsed_us
        self.at, self.cpu_us, self.runnable_us = now, cpu_us, runnable_us
        return uses_cpu or is_runnable


class CpuCredit:
    """Token bucket of one organization's CPU time, and its busy sandboxes."""

    def __init__(self, now: float) -> None:
        self.balance_s = MAX_CREDIT_S
        self.active_at = self.updated_at = now
        self.sandboxes: dict[FunctionSandbox, int] = {}
        self.is_idle_class = False
        self._changed_at = -math.inf  # when it last entered or left the idle class
        self._stay_s = 0.0

    def change_class(self, is_idle_class: bool, now: float) -> None:
        if is_idle_class:
            has_returned = now - self._changed_at < RETURN_S
            self._stay_s = min(MAX_STAY_S, max(MIN_STAY_S, 2 * self._stay_s)) if has_returned else 0.0
        self.is_idle_class, self._changed_at = is_idle_class, now

    def may_leave_idle_class(self, now: float) -> bool:
        return self.is_idle_class and self.balance_s > MAX_CREDIT_S / 5 and now - self._changed_at >= self._stay_s

    def update(self, fair_s: float, spent_s: float, least_s: float = MIN_CREDIT_S) -> None:
        """Add what the organization earned while its fair share was `fair_s`, and subtract what it spent.

        With one factor for both classes, an organization that floods the platform would change its class about once a
        second, and others would wait for it in each of its turns in the normal class.
        """
        earned_s = fair_s * (IDLE_SHARE_FACTOR if self.is_idle_class else SHARE_FACTOR)
        self.balance_s = max(least_s, min(MAX_CREDIT_S, self.balance_s + earned_s - spent_s))


class Fairness:
    def __init__(
        self,
        rescheduler: Rescheduler,
        *,
        can_leave_idle: bool,
        has_idle_session: bool = False,
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """Where sandboxes cannot change their class or session, they are replaced when their organization does."""
        self._rescheduler = rescheduler
        self._can_leave_idle = can_leave_idle
        self._has_idle_session = has_idle_session
        self._call_soon = call_soon
        self.cores = len(os.sched_getaffinity(0))
        self._watched: dict[FunctionSandbox, WatchedCall] = {}
        self._credits: dict[str, CpuCredit] = {}
        self._by_org: dict[str, set[FunctionSandbox]] = {}  # also sandboxes that are not busy

    def watch(self, sandbox: FunctionSandbox) -> None:
        # A sandbox that would have to end after each long computation would lose its state each time.
        if self._can_leave_idle and sandbox not in self._watched:
            self._watched[sandbox] = WatchedCall(sandbox, time.monotonic())

    def unwatch(self, sandbox: FunctionSandbox) -> None:
        if self._watched.pop(sandbox, None) is not None and not self._has_debt(sandbox.org):
            set_idle_class(sandbox, False)

    def count(self, sandboxes: Iterable[FunctionSandbox]) -> None:
        """Start to charge the CPU time of these sandboxes; `check` updates the balances.

        It runs soon when another organization becomes active: it may have to wait for one that was alone.
        """
        now, known = time.monotonic(), len(self._credits)
        for sandbox in sandboxes:
            credit = self._credits.setdefault(sandbox.org, CpuCredit(now))
            credit.active_at = now
            credit.sandboxes.setdefault(sandbox, cpu_us_of(sandbox))
            if credit.is_idle_class:
                set_idle_class(sandbox, True)
        if len(self._credits) > known:
            self._call_soon(self.check)

    def admit(self, sandbox: FunctionSandbox) -> None:
        """Start to charge the CPU time of a new sandbox; if its organization is in debt, put it into the idle class.

        Its first calls would otherwise be free, and in the normal class, until the edge reports it as busy.
        """
        self._by_org.setdefault(sandbox.org, set()).add(sandbox)
        self.count([sandbox])

    def needs_idle_session(self, org: str) -> bool:
        """Whether sandboxes of an organization belong into the session of the idle class."""
        return self._has_idle_session and self._has_debt(org)

    def is_misplaced(self, sandbox: FunctionSandbox) -> bool:
        """Whether a sandbox is in another class or session than its organization, and cannot leave it."""
        has_debt = self._has_debt(sandbox.org)
        is_left_behind = sandbox.is_idle_class and not has_debt and not self._can_leave_idle
        return is_left_behind or (self._has_idle_session and sandbox.is_in_idle_session != has_debt)

    def forget(self, sandbox: FunctionSandbox) -> None:
        self._watched.pop(sandbox, None)
        if credit := self._credits.get(sandbox.org):
            credit.sandboxes.pop(sandbox, None)
        if sandboxes := self._by_org.get(sandbox.org):
            sandboxes.discard(sandbox)
            if not sandboxes:
                del self._by_org[sandbox.org]

    def check(self) -> None:
        """Update idle classes from the CPU time used since the last check."""
        now = time.monotonic()
        for watched in self._watched.values():
            if not watched.sandbox.is_idle_class and now - watched.at > 0.05 and watched.is_cpu_bound(now):
                set_idle_class(watched.sandbox, True)
        self._update_credits(now)
        self._rescheduler.update(self.uses_idle_class(), now)

    def stop(self) -> None:
        self._rescheduler.stop()

    def uses_idle_class(self) -> bool:
        """Whether sandboxes of an organization, or a computation, are in the idle class."""
        return any(credit.is_idle_class for credit in self._credits.values()) or any(
            sandbox.is_idle_class for sandbox in self._watched
        )

    def _update_credits(self, now: float) -> None:
        expired = [org for org, each in self._credits.items() if now - each.active_at > ORG_EXPIRY_S]
        for org in expired:
            self._set_idle_class(org, self._credits.pop(org), False)
        is_alone = len(self._credits) == 1
        for org, credit in self._credits.items():
            elapsed_s = now - credit.updated_at
            if (credit.is_idle_class or is_alone) and elapsed_s < SLOW_UPDATE_INTERVAL_S:
                continue
            credit.updated_at = now
            # The share of an organization that is alone leaves room for another one.
            fair_s = self.cores / max(2, len(self._credits)) * elapsed_s
            spent = 0.0
            for sandbox, before in credit.sandboxes.items():
                cpu_us = cpu_us_of(sandbox)
                spent += (cpu_us - before) / 1e6
                credit.sandboxes[sandbox] = cpu_us
            credit.update(fair_s, spent, MIN_CREDIT_ALONE_S if is_alone else MIN_CREDIT_S)
            # An organization that is alone takes CPU time from no other.
            if credit.balance_s < 0 and not is_alone:
                self._set_idle_class(org, credit, True)
            elif credit.may_leave_idle_class(now) and sum(map(is_runnable, credit.sandboxes)) < max(1, self.cores):
                # With as many runnable sandboxes as CPUs it would flood them all, however little CPU time it gets now.
                self._set_idle_class(org, credit, False)

    def _set_idle_class(self, org: str, credit: CpuCredit, is_idle_class: bool) -> None:
        """Change the class of all sandboxes of an organization: one without a call now may get one at any time."""
        if credit.is_idle_class == is_idle_class:
            return
        credit.change_class(is_idle_class, time.monotonic())
        for sandbox in self._by_org.get(org, set()) | credit.sandboxes.keys():
            if is_idle_class or (self._can_leave_idle and sandbox not in self._watched):
                set_idle_class(sandbox, is_idle_class)
            if self.is_misplaced(sandbox):
                sandbox.replace()

    def _has_debt(self, org: str) -> bool:
        credit = self._credits.get(org)
        return credit is not None and credit.is_idle_class


def cpu_us_of(sandbox: FunctionSandbox) -> int:
    try:
        return int(sandbox.group.cpu_us())
    except OSError:
        return 0


def runnable_us_of(sandbox: FunctionSandbox) -> int:
    """Return the time that PID 1 of the sandbox ran or was runnable, in microseconds."""
    try:
        ran, waited, _ = Path(f"/proc/{sandbox.pid}/schedstat").read_text().split()
    except (OSError, ValueError):
        return 0
    return (int(ran) + int(waited)) // 1000


def is_runnable(sandbox: FunctionSandbox) -> bool:
    """Whether PID 1 of the sandbox runs or waits for a CPU."""
    try:
        return Path(f"/proc/{sandbox.pid}/stat").read_text().rpartition(")")[2].split()[0] == "R"
    except OSError:
        return False


def set_idle_class(sandbox: FunctionSandbox, on: bool) -> None:
    if sandbox.is_idle_class != on:
        sandbox.is_idle_class = on
        with contextlib.suppress(OSError):
            sandbox.group.idle(on)
