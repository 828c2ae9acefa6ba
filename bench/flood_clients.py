"""The clients of one organization that floods the platform: calls, logs, uploads, pushes and streams at once.

`python -m bench.flood_clients` reads its orders as JSON from standard input and floods until it is ended. It runs in
the idle scheduling class, in the session and the cgroup that `bench.flood` gives it: clients of a real flood have
machines of their own.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import random
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.function_platform import multipart
from moorage.core.kit.processes.sessions import LOWEST_PRIORITY, set_session_nice

BOUNDARY = "the-bench-boundary"
CALL_S = 30.0
REFUSED_PAUSE_S = 0.2  # after 429 or a broken connection


@dataclass(frozen=True)
class Orders:
    api_port: int
    edge_port: int
    tokens: list[str]
    burn: str  # path of a function that computes
    talk: str  # path of a function that prints
    talker: str  # its name
    folder: str
    callers: int
    printers: int
    uploaders: int
    pushers: int
    streams: int
    upload_bytes: int


def main() -> int:
    orders = Orders(**json.load(sys.stdin))
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    set_session_nice(LOWEST_PRIORITY)
    kinds: list[tuple[int, Callable[[Orders, int], None]]] = [
        (orders.callers, lambda orders, _: _call(orders, orders.burn)),
        (orders.printers, lambda orders, _: _call(orders, orders.talk)),
        (orders.uploaders, _upload),
        (orders.pushers, _push),
        (orders.streams, _stream),
    ]
    for count, work in kinds:
        for number in range(count):
            threading.Thread(target=_forever, args=(work, orders, number), daemon=True).start()
    print("flooding", flush=True)
    while True:
        time.sleep(3600)


def _forever(work: Callable[[Orders, int], None], orders: Orders, number: int) -> None:
    while True:
        try:
            work(orders, number)
        except (OSError, http.client.HTTPException, subprocess.SubprocessError):
            time.sleep(REFUSED_PAUSE_S)


def _call(orders: Orders, path: str) -> None:
    """Call a function on one connection until the connection breaks."""
    connection = http.client.HTTPConnection("127.0.0.1", orders.edge_port, timeout=CALL_S)
    with contextlib.closing(connection):
        while True:
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            if answer.status == 429:
                time.sleep(REFUSED_PAUSE_S)


def _upload(orders: Orders, number: int) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("index.html", "<h1>flood</h1>")
        archive.writestr("noise.txt", random.Random(number).randbytes(orders.upload_bytes).hex())
    body = multipart({"name": f"flood-{number}"}, packed.getvalue()).replace(b'name="code"', b'name="staticFiles"', 1)
    while True:
        status = _ask(orders, "POST", "/v1/projects/static-upload", body, number)
        if status == 429:
            time.sleep(REFUSED_PAUSE_S)


def _ask(orders: Orders, method: str, path: str, body: bytes, number: int) -> int:
    token = orders.tokens[number % len(orders.tokens)]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    connection = http.client.HTTPConnection("127.0.0.1", orders.api_port, timeout=CALL_S)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status


def _push(orders: Orders, number: int) -> None:
    """Push a new commit with a few megabytes, again and again."""
    work = Path(orders.folder) / f"flood-{number}"
    work.mkdir(parents=True, exist_ok=True)
    env = {"PATH": os.environ["PATH"], "HOME": str(work), "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1"}
    env |= {f"GIT_{role}_{what}": "bench" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=work, env=env, check=True, capture_output=True, timeout=CALL_S)

    git("init", "--quiet", "--initial-branch=main")
    token = orders.tokens[number % len(orders.tokens)]
    address = f"http://x:{token}@127.0.0.1:{orders.api_port}/git/flood/repo-{number}.git"
    while True:
        (work / "noise.bin").write_bytes(os.urandom(orders.upload_bytes))
        git("add", "--all")
        git("commit", "--quiet", "--message=more")
        git("push", "--quiet", "--force", address, "main")


def _stream(orders: Orders, number: int) -> None:
    """Follow the logs of the function that prints, and read as fast as they come."""
    token = orders.tokens[number % len(orders.tokens)]
    connection = http.client.HTTPConnection("127.0.0.1", orders.api_port, timeout=CALL_S)
    with contextlib.closing(connection):
        connection.request("GET", f"/v1/functions/{orders.talker}/logs/stream?access_token={token}")
        answer = connection.getresponse()
        if answer.status != 200:
            raise OSError(f"refused with {answer.status}")
        while answer.read1(65536):
            pass


if __name__ == "__main__":
    sys.exit(main())
