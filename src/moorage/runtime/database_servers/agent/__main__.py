"""Process 1 of the pod of a database: reaps processes, and runs the agent as its child."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main() -> int:
    """Fork the agent; forward signals to it; end with its exit code.

    Child processes of a killed server become children of process 1, which has to wait for them.
    """
    agent = os.fork()
    if agent == 0:
        from moorage.runtime.database_servers.agent import running

        return running.main()

    def forward(number: int, _: Any) -> None:
        os.kill(agent, number)

    for number in SIGNALS:
        signal.signal(number, forward)
    while True:
        try:
            pid, status = os.wait()
        except InterruptedError:
            continue
        if pid == agent:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
