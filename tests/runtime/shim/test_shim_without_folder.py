"""A shim exits in every phase when its run folder and data are removed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.ports import free_port
from tests.runtime.engines.engine_support import Engine, Replica, lives
from tests.runtime.workers.invoker_support import until

# Stops slowly, as a database server that writes its last checkpoint.
SLOW = """
import os, signal, sys, time
def leave(*_):
    os.write(1, b"leaving\\n")
    time.sleep({seconds})
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("up", flush=True)
while not __import__("os").path.exists("/data/stop") or {seconds} > 1:
    time.sleep(0.05)
sys.exit(3)
"""


def server(engine: Engine, code: str) -> Replica:
    given = {"kind": "server", "port": free_port(), "volume": engine.volume(), "disk_mb": 100}
    return engine.start({"server.py": code}, [engine.python, "server.py"], listens=False, **given)


def remove(*servers: Replica) -> None:
    """Remove the files of a server, as an operator or a deletion does."""
    for each in servers:
        shutil.rmtree(each.folder)
        shutil.rmtree(each.spec["volume"], ignore_errors=True)


def printed(server: Replica, text: str) -> None:
    until(lambda: any(text in line for line in server.log()), f"{text!r} of {server.key}")


def test_a_shim_ends_when_its_folders_go_whatever_it_does(engine: Engine) -> None:
    failing = server(engine, "raise SystemExit(1)")
    crashing, running, stopping = (server(engine, SLOW.format(seconds=s)) for s in (0, 0, 600))
    failing.until(phase="waiting")
    for each in (crashing, running, stopping):
        printed(each, "up")
    os.kill(stopping.shim, signal.SIGTERM)
    printed(stopping, "leaving")

    Path(crashing.spec["volume"], "stop").touch()
    remove(failing, crashing, running, stopping)

    until(lambda: not any(lives(each.shim) for each in (failing, crashing, running, stopping)), "the end of the shims")
    engine.replicas.clear()


def test_the_kernel_ends_a_shim_that_no_longer_turns() -> None:
    code = "import time\nfrom moorage.runtime.shim import folder_watch\nfolder_watch.end_within(1)\ntime.sleep(600)"

    ended = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)

    assert ended.returncode == -signal.SIGALRM
