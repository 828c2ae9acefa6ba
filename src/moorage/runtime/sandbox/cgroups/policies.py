"""The idle class without a CPU controller.

With autogroup scheduling, the policy SCHED_IDLE counts only within a session, and misleads the scheduler: a thread that
wakes up is placed on a CPU with such a task as if it were free, and then waits there. So threads leave one CPU free
instead. Without autogroups, or with a single CPU, they have SCHED_IDLE, which unprivileged users usually cannot take
back.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable
from functools import partial

from moorage.core.kit.processes import cpus, sessions
from moorage.runtime.sandbox.usage import process_tree

MAX_ROUNDS = 5  # A thread that starts during a round gets the policy in the next one.


def can_leave_idle(controllers: frozenset[str]) -> bool:
    """Whether groups with these controllers can leave the idle class again."""
    return "cpu" in controllers or _leaves_cpu_free() or _may_leave_idle()


def set_idle(processes: Callable[[], Iterable[int]], on: bool) -> None:
    """Move all threads of these processes into the idle class, or back if this user may."""
    if _leaves_cpu_free():
        change = partial(cpus.leave_one_free, on=on)
    elif on or _may_leave_idle():
        change = partial(_set_policy, policy=os.SCHED_IDLE if on else os.SCHED_OTHER)
    else:
        return
    for _ in range(MAX_ROUNDS):
        if not change([thread for pid in processes() for thread in process_tree.threads(pid)]):
            return


def _leaves_cpu_free() -> bool:
    return sessions.have_weights() and cpus.can_leave_one_free()


def _set_policy(threads: Iterable[int], policy: int) -> bool:
    """Set the policy of these threads; return whether one changed."""
    has_changed = False
    for thread in threads:
        with contextlib.suppress(ProcessLookupError):
            if os.sched_getscheduler(thread) != policy:
                os.sched_setscheduler(thread, policy, os.sched_param(0))
                has_changed = True
    return has_changed


_idle: list[bool] = []


def _may_leave_idle() -> bool:
    """Whether this user may leave SCHED_IDLE; unprivileged users usually may not."""
    if not _idle:
        trial = threading.Thread(target=lambda: _idle.append(_goes_idle_and_back()))
        trial.start()
        trial.join()
    return _idle[0]


def _goes_idle_and_back() -> bool:
    """Test on the current thread, which must end afterwards: it may stay idle."""
    own = [threading.get_native_id()]
    try:
        for policy in (os.SCHED_IDLE, os.SCHED_OTHER):
            os.sched_setscheduler(own[0], policy, os.sched_param(0))
    except OSError:
        return False
    return True
