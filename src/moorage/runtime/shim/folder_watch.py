"""Exit of a shim without a run folder, which no control process can find.

The folder is checked in every phase, also while no app runs: an app whose data is gone cannot start, and its shim would
retry forever.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moorage.runtime.shim.supervisor import ReplicaSupervisor

CHECK_INTERVAL_S = 5.0
TRANSITION_CHECK_INTERVAL_S = 1.0  # while the app starts, waits for a restart, or stops: short phases
APP_GRACE_S = 5.0
EXIT_DEADLINE_S = 60


async def watch(supervisor: ReplicaSupervisor) -> None:
    """Stop the app and return when the run folder is gone or another shim's."""
    while supervisor.run_folder.is_ours:  # noqa: ASYNC110 - the folder belongs to the file system
        await asyncio.sleep(TRANSITION_CHECK_INTERVAL_S if supervisor.is_in_transition else CHECK_INTERVAL_S)
    end_within()
    supervisor.stop(0 if supervisor.is_stopping else APP_GRACE_S)


def end_within(seconds: int = EXIT_DEADLINE_S) -> None:
    """Kill this process with SIGALRM after `seconds`, unless it has exited by then.

    The signal's default action also ends a process with a blocked event loop. Only a shim without an app or without a
    run folder calls this: the processes of a sandbox die with their shim.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)
