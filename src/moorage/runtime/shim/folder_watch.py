"""End a shim whose run folder is gone: no control process can find it any more, so it ends by itself.

The folder is looked for in every state of the app, also while none runs: an app whose data is gone as well cannot be
started again, and its shim would try for ever.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moorage.runtime.shim.supervisor import Keeper

LOOK_S = 5.0
RESTLESS_LOOK_S = 1.0  # while the app is started, waits to be, or is stopped: not for long, and rarely
GRACE_S = 5.0  # for the app to end
LAST_S = 60  # until the kernel ends a shim that did not end by itself


async def watch(keeper: Keeper) -> None:
    """Return once the folder is gone, or another shim's. The shim is ending then."""
    while keeper.home.is_ours:  # noqa: ASYNC110 - the folder belongs to the file system
        await asyncio.sleep(RESTLESS_LOOK_S if keeper.is_restless else LOOK_S)
    end_within()
    keeper.stop(0 if keeper.is_stopping else GRACE_S)


def end_within(seconds: int = LAST_S) -> None:
    """Let the kernel end this process after a while, unless it has ended by then.

    The default action of the signal also ends a process that no longer turns its event loop. It is for a shim without
    an app or without a folder: the processes of a sandbox end with their shim.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)
