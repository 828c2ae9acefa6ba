"""The idle class without a CPU controller: the scheduling policy SCHED_IDLE of each thread.

Every user may set it, but unprivileged users usually cannot take it back.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable

from moorage.runtime.sandbox.usage import process_tree

MAX_ROUNDS = 5  # A thread that starts during a round gets the policy in the next one.


def can_leave_idle(controllers: frozenset[str]) -> bool:
    """Whether groups with these controllers can leave the idle class again."""
    return "cpu" in controllers or _may_leave_idle()


def set_idle(processes: Callable[[], Iterable[int]], on: bool) -> None:
    """Move all threads of these processes into the idle class, or back if this user may."""
    if not on and not _may_leave_idle():
        return
    policy = os.SCHED_IDLE if on else os.SCHED_OTHER
    for _ in range(MAX_ROUNDS):
        if not _set_policy(processes(), policy):
            return


def _set_policy(pids: Iterable[int], policy: int) -> bool:
    """Set the policy of all threads of these processes; return whether one changed."""
    has_changed = False
    for pid in pids:
        for thread in process_tree.threads(pid):
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
