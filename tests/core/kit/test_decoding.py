"""Typed decoders in several threads."""

from __future__ import annotations

import subprocess
import sys

# Twelve threads decode types for the first time; a process of its own, because a failure is a segmentation fault.
PROGRAM = """
import sys, threading
import msgspec
from moorage.client.models import projects
from moorage.core.kit.decoding import decode

class Problem(msgspec.Struct):
    code: str
    fields: dict[str, str] = {}

class Failure(msgspec.Struct):
    error: Problem

sys.setswitchinterval(1e-6)
barrier = threading.Barrier(12)

def run():
    barrier.wait()
    for kind in (Failure, projects.ProjectDetail, list[projects.ProjectListItem]):
        try:
            decode(b'{"error": {"code": "x"}}', kind)
        except msgspec.ValidationError:
            pass

threads = [threading.Thread(target=run) for _ in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(decode(b'{"error": {"code": "x"}}', Failure).error.code)
"""


def test_threads_may_decode_a_type_for_the_first_time_at_once() -> None:
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)

        assert (done.returncode, done.stdout) == (0, "x\n"), done.stderr
