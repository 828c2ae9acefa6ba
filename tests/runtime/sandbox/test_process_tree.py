"""Memory of process trees, with real processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moorage.runtime.sandbox.usage import process_tree

MB = 2**20
HOLD = """
import mmap, sys
private = bytearray({private})
shared = mmap.mmap(-1, {shared}) if {shared} else None
reserved = mmap.mmap(-1, {reserved}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) if {reserved} else None
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def holding(private: int = 1, shared: int = 0, reserved: int = 0) -> Iterator[int]:
    """Run a process that holds so many bytes, and yield its PID."""
    code = HOLD.format(private=private, shared=shared, reserved=reserved)
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process.pid
        process.kill()


@pytest.mark.parametrize(
    ("held", "uses_more"),
    [({}, False), ({"private": 100 * MB}, True), ({"shared": 100 * MB}, True), ({"reserved": 100 * MB}, False)],
)
def test_what_processes_use_is_compared_with_a_limit(held: dict[str, int], uses_more: bool) -> None:
    with holding(**held) as pid:
        assert process_tree.use_more_than([pid], 80 * MB) is uses_more


def test_memory_of_several_processes_counts_together() -> None:
    with holding(private=50 * MB) as first, holding(private=50 * MB) as second:
        assert not process_tree.use_more_than([first], 80 * MB)
        assert process_tree.use_more_than([first, second], 80 * MB)


def test_small_address_spaces_are_not_measured_any_further(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def record(path: str) -> str:
        read.append(path)
        return Path(path).read_text()

    monkeypatch.setattr(process_tree, "read", record)

    with holding() as pid:
        assert not process_tree.use_more_than([pid], 4096 * MB)

    assert read
    assert not [path for path in read if path.endswith(("smaps_rollup", "maps"))]
