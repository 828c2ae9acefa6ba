"""Cgroups of this machine: real processes that exceed limits, with every kind of group that it supports."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.runtime.workers.invoker_support import in_reach

from moorage.core.kit.processes import sessions
from moorage.runtime.sandbox.cgroups import files
from moorage.runtime.sandbox.cgroups import groups as cgroups
from moorage.runtime.sandbox.cgroups.groups import Cgroups, Group, NoCgroups
from moorage.runtime.sandbox.cgroups.v1 import open_v1
from moorage.runtime.sandbox.cgroups.v2 import V2Cgroups

SRC = Path(cgroups.__file__).parents[4]
TREES = files.own_hierarchies()
# v1 without v2, and v2 beside v1, as far as this machine has them
KINDS = ["found", "none", *(["v1"] if any(not tree.is_v2 for tree in TREES) else []),
         *(["v2"] if any(tree.is_v2 for tree in TREES) else [])]  # fmt: skip
LIMITING = [kind for kind in KINDS if kind in ("found", "v1")]
BURN = "while True: pass"
WAIT = "import sys; sys.stdin.read()"
HOG = "import sys; sys.stdin.readline(); print(len(b'x' * 200_000_000))"
BOMB = """
import os, signal, sys
sys.stdin.readline()
children = []
try:
    for _ in range(200):
        children.append(os.fork())
        if children[-1] == 0:
            signal.pause()
except BlockingIOError:
    print(len(children), flush=True)
sys.stdin.readline()
"""
READER = """
import sys
sys.stdin.readline()
held = b"x" * 50_000_000
size = len(open("{}", "rb").read())
print("held", flush=True)
sys.stdin.readline()
"""
FAMILY = """
import os, signal, sys
sys.stdin.readline()
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        os.fork()
        signal.pause()
print("all there", flush=True)
signal.pause()
"""

Start = Callable[..., subprocess.Popen[str]]


def open_kind(kind: str, token: str) -> Cgroups:
    if kind == "none":
        return NoCgroups()
    if kind == "v1":
        found = open_v1(token, [tree for tree in TREES if not tree.is_v2])
        assert found is not None
        return found
    if kind == "v2":
        tree = next(tree for tree in TREES if tree.is_v2)
        unified = V2Cgroups(token, tree.mount, tree.folder, tree.folder, frozenset())
        unified.detect_controllers()
        return unified
    return cgroups.find(token)


@pytest.fixture
def token() -> Iterator[str]:
    made = f"t{uuid.uuid4().hex[:8]}"
    yield made
    assert left_of(made) == []


@pytest.fixture
def made(request: pytest.FixtureRequest, token: str) -> Iterator[Cgroups]:
    """Cgroups of the parametrized kind, otherwise those that `find` returns."""
    opened = open_kind(getattr(request, "param", "found"), token)
    yield opened
    opened.sweep()
    opened.close()


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python children; all are killed and reaped at the end."""
    with contextlib.ExitStack() as stack:

        def begin(code: str, *, core: int | None = None) -> subprocess.Popen[str]:
            words = [sys.executable, "-I", "-S", "-c", code]
            child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(child)
            stack.callback(child.kill)
            if core is not None:
                os.sched_setaffinity(child.pid, {core})
            return child

        yield begin


@pytest.fixture
def group(made: Cgroups) -> Iterator[Group]:
    created = made.create("cell-1")
    yield created
    end(created)


def left_of(token: str) -> list[str]:
    return files.find_named([tree.mount for tree in TREES], files.prefix_of(token))


def cells_of(token: str) -> list[str]:
    return [path for path in left_of(token) if not path.endswith("-platform")]


def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline, "this should have happened by now"
        time.sleep(0.01)


def end(group: Group) -> None:
    group.kill()
    until(lambda: group.processes() == [])
    group.remove()


def used_during(group: Group, pause_s: float) -> int:
    before = group.cpu_us()
    time.sleep(pause_s)
    return group.cpu_us() - before


def say(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()


def heard(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def used_together(one: Group, other: Group, *, total_us: int) -> tuple[int, int]:
    """Wait until both together have used this CPU time; return the time of each."""
    before = one.cpu_us(), other.cpu_us()
    until(lambda: one.cpu_us() + other.cpu_us() - sum(before) >= total_us)
    return one.cpu_us() - before[0], other.cpu_us() - before[1]


def is_fair(one: Group, other: Group) -> bool:
    """Whether both got their share. Kernels before 6.6 first deduct the CPU time that a group used while idle."""
    used = used_together(one, other, total_us=200_000)
    return min(used) > 0.25 * sum(used)


def test_what_is_found_here_limits_memory_processor_and_processes(made: Cgroups) -> None:
    assert made.kind in ("v1", "v2")
    assert {"memory", "cpu", "pids", "freezer", "idle", "cpuacct"} == made.controllers
    assert cgroups.look() == (made.kind, made.controllers)


@pytest.mark.parametrize("made", LIMITING, indirect=True)
def test_a_process_that_takes_more_memory_than_its_group_may_is_killed(group: Group, start: Start) -> None:
    hog = start(HOG)
    group.limit(memory_mb=64, pids=64, weight=100)
    group.attach(hog.pid)

    say(hog)

    assert hog.wait(30) == -9
    assert group.oom_kills() == 1


@pytest.mark.parametrize("made", LIMITING, indirect=True)
def test_limits_can_be_raised_and_lowered(group: Group, start: Start) -> None:
    hog = start(HOG)
    for memory_mb in (128, 64, 512):
        group.limit(memory_mb=memory_mb, pids=64, weight=100)
    group.attach(hog.pid)

    say(hog)

    assert heard(hog) == "200000000"
    assert group.oom_kills() == 0


@pytest.mark.parametrize("made", LIMITING, indirect=True)
def test_a_fork_bomb_stops_at_the_limit_of_processes(group: Group, start: Start) -> None:
    bomb = start(BOMB)
    group.limit(memory_mb=256, pids=20, weight=100)
    group.attach(bomb.pid)

    say(bomb)

    assert heard(bomb) == "19"
    assert len(group.processes()) == 20


@pytest.mark.parametrize("made", KINDS, indirect=True)
def test_a_frozen_group_uses_no_time_until_it_is_thawed(group: Group, start: Start) -> None:
    group.attach(start(BURN).pid)
    until(lambda: used_during(group, 0.05))

    group.freeze()
    time.sleep(0.05)
    frozen = used_during(group, 0.3)
    group.thaw()

    assert frozen == 0
    until(lambda: used_during(group, 0.05))


@pytest.mark.parametrize("made", KINDS, indirect=True)
def test_everybody_in_a_group_is_killed_though_frozen_and_in_other_sessions(group: Group, start: Start) -> None:
    family = start(FAMILY)
    group.attach(family.pid)
    say(family)  # A child that was forked before the move would not be in the group.
    assert heard(family) == "all there"
    until(lambda: len(group.processes()) == 7)
    members = group.processes()

    group.freeze()
    group.kill()

    assert family.wait(30) == -9
    until(lambda: group.processes() == [])
    assert family.pid in members


@pytest.mark.parametrize("made", [kind for kind in KINDS if kind != "v2"], indirect=True)
def test_an_idle_group_gets_what_others_leave_and_its_share_again_afterwards(
    made: Cgroups, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "have_weights", lambda: False)
    core = max(os.sched_getaffinity(0))
    busy, idle = made.create("cell-busy"), made.create("cell-idle")
    for group in (busy, idle):
        group.limit(memory_mb=256, pids=64, weight=100)
        group.attach(start(BURN, core=core).pid)

    idle.idle(True)
    idle.limit(memory_mb=128, pids=64, weight=200)
    of_busy, of_idle = used_together(busy, idle, total_us=500_000)
    idle.idle(False)
    until(lambda: is_fair(busy, idle))
    for group in (busy, idle):
        end(group)

    assert of_idle < 0.15 * (of_busy + of_idle)


@pytest.mark.boundary("tenant-to-tenant", "Without cgroups, a flood leaves one CPU to others.")
@pytest.mark.parametrize("made", ["none"], indirect=True)
def test_without_cgroups_an_idle_group_leaves_one_cpu_free_and_has_all_again_afterwards(
    made: Cgroups, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "have_weights", lambda: True)
    own = os.sched_getaffinity(0)
    group = made.create("cell-idle")
    child = start(WAIT)
    group.attach(child.pid)

    group.idle(True)
    idle = os.sched_getaffinity(child.pid), os.sched_getscheduler(child.pid)
    group.idle(False)

    alone = len(own) == 1
    assert idle == (own if alone else own - {min(own)}, os.SCHED_IDLE if alone else os.SCHED_OTHER)
    assert os.sched_getaffinity(child.pid) == own


@pytest.mark.parametrize("made", ["found"] if {"v1", "v2"}.issubset(KINDS) else [], indirect=True)
def test_idle_groups_are_weighed_together_as_one(made: Cgroups, start: Start) -> None:
    first, second = made.create("cell-first"), made.create("cell-second")
    pids = [start(BURN).pid for _ in range(2)]
    for group, pid in zip((first, second), pids, strict=True):
        group.limit(memory_mb=256, pids=64, weight=100)
        group.attach(pid)
        group.idle(True)

    behind = [Path(cpu_group(pid)) for pid in pids]
    first.idle(False)
    forward = Path(cpu_group(pids[0]))
    members = [group.processes() for group in (first, second)]
    for group in (first, second):
        end(group)

    assert {path.parent.name for path in behind} == {behind[0].parent.name}
    assert behind[0].parent.name.endswith("-behind")
    assert (forward.name, forward.parent) == (behind[0].name, behind[0].parent.parent)
    assert members == [[pid] for pid in pids]


def cpu_group(pid: int) -> str:
    """Return the CPU cgroup of a process."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return next(line.split(":", 2)[2] for line in lines if "cpu" in line.split(":", 2)[1].split(","))


def test_the_platform_outweighs_a_cell(made: Cgroups, token: str, start: Start) -> None:
    core = max(os.sched_getaffinity(0))
    ours, theirs = start(BURN, core=core), start(BURN, core=core)
    cell, watched = made.create("cell-1"), NoCgroups().create("platform")
    cell.limit(memory_mb=256, pids=64, weight=100)
    cell.attach(theirs.pid)
    watched.attach(ours.pid)

    made.platform([ours.pid])
    of_platform, of_cell = used_together(watched, cell, total_us=700_000)
    end(cell)

    assert of_platform > 3 * of_cell


def test_a_process_that_works_for_one_tenant_leaves_the_platforms_group(made: Cgroups, start: Start) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(SRC)!r})
from moorage.runtime.sandbox.cgroups import files as cgroup_files
sys.stdin.readline()
cgroup_files.leave_platform()
print(sum("-platform" in tree.folder for tree in cgroup_files.own_hierarchies() if not tree.is_v2), flush=True)
sys.stdin.readline()
"""
    child = start(code)
    made.platform([child.pid])

    say(child)
    left_in = heard(child)
    say(child)
    child.wait(30)

    assert left_in == "0"


def test_a_process_that_the_platform_starts_makes_its_groups_beside_the_platforms(
    made: Cgroups, token: str, start: Start
) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(SRC)!r})
sys.stdin.readline()
from moorage.runtime.sandbox.cgroups import groups as cgroups
found = cgroups.find({token!r})
group = found.create("cell-of-child")
print(found.kind, flush=True)
sys.stdin.readline()
group.remove()
"""
    child = start(code)
    made.platform([child.pid])

    say(child)
    kind = heard(child)
    cells, platforms = ({os.path.dirname(path) for path in left_of(token) if path.endswith(end)}
                        for end in ("-cell-of-child", "-platform"))  # fmt: skip
    say(child)
    child.wait(30)

    assert kind == made.kind
    assert platforms
    assert platforms <= cells


@pytest.mark.parametrize("made", KINDS, indirect=True)
def test_memory_is_counted_without_the_cache_of_files(group: Group, start: Start, tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(os.urandom(1024) * 60_000)
    child = start(READER.format(file))
    group.attach(child.pid)

    say(child)

    assert heard(child) == "held"
    assert 50_000_000 < group.memory_bytes() < 90_000_000


@pytest.mark.parametrize("made", KINDS, indirect=True)
def test_a_process_that_has_ended_cannot_be_attached(group: Group, start: Start) -> None:
    ended = start("")
    ended.wait(30)

    with pytest.raises(ProcessLookupError):
        group.attach(ended.pid)
    assert group.processes() == []


@pytest.mark.parametrize("made", KINDS, indirect=True)
def test_a_group_that_was_removed_is_gone_and_can_be_removed_again(made: Cgroups, token: str, start: Start) -> None:
    group = made.create("cell-1")
    group.attach(start(BURN).pid)
    before = cells_of(token)

    group.kill()
    until(lambda: group.processes() == [])
    group.remove()
    group.remove()

    assert bool(before) == (made.kind != "none")
    assert cells_of(token) == []
    made.create("cell-1").remove()


@pytest.mark.parametrize("made", LIMITING, indirect=True)
def test_a_group_that_cannot_be_made_leaves_nothing_behind(made: Cgroups, token: str) -> None:
    made.create("cell-1")
    first, *others = cells_of(token)
    for folder in others:
        os.rmdir(folder)

    with pytest.raises(FileExistsError):
        made.create("cell-1")
    left = cells_of(token)
    os.rmdir(first)

    assert left == [first]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "none"])
def test_what_an_earlier_run_left_is_swept_and_nothing_else(kind: str, token: str, start: Start) -> None:
    left, ours, other = start(BURN), start(WAIT), start(WAIT)
    earlier, later = open_kind(kind, token), open_kind(kind, token)
    for opened, name, child in ((earlier, "cell-1", left), (later, "cell-2", ours)):
        group = opened.create(name)
        group.attach(child.pid)
        group.freeze()
    stranger = f"{os.path.dirname(cells_of(token)[0])}/moorage-{token}x-cell-1"
    os.mkdir(stranger)
    files.write(f"{stranger}/cgroup.procs", str(other.pid))

    swept = later.sweep()
    again = later.sweep()
    names = {os.path.basename(path) for path in cells_of(token)}
    by_another = open_kind(kind, token).sweep()
    is_spared = other.poll() is None
    other.kill()
    other.wait()
    files.remove([stranger])
    later.close()

    assert (swept, again, by_another) == (1, 0, 1)
    assert (left.wait(30), ours.wait(30)) == (-9, -9)
    assert names == {f"moorage-{token}-cell-2"}
    assert is_spared


def test_sweeping_spares_the_platforms_own_processes(made: Cgroups, token: str, start: Start) -> None:
    ours = start(WAIT)
    made.platform([ours.pid])

    swept = open_kind("found", token).sweep()

    assert swept == 0
    assert ours.poll() is None


def test_a_process_number_that_was_given_anew_is_not_taken_for_the_old_one(start: Start) -> None:
    group = NoCgroups().create("cell-1")
    child = start(WAIT)
    group.attach(child.pid)
    group._roots[child.pid] -= 1  # As if another process had had its PID.

    group.kill()

    assert group.processes() == []
    assert child.poll() is None


def test_an_ordinary_user_gets_lists_of_processes_that_still_stop_and_end() -> None:
    code = """
import json, os, subprocess, time
from moorage.runtime.sandbox.cgroups import groups as cgroups
from moorage.core.kit.processes import sessions
from moorage.runtime.sandbox.cgroups import policies
sessions.have_weights = lambda: False
found = cgroups.find("user")
child = subprocess.Popen(["sleep", "100"])
group = found.create("cell-1")
group.attach(child.pid)
group.freeze()
deadline = time.monotonic() + 30
while (state := open(f"/proc/{child.pid}/stat").read().split()[2]) != "T" and time.monotonic() < deadline:
    time.sleep(0.01)
group.idle(True)
group.idle(False)
policy = os.sched_getscheduler(child.pid)
group.kill()
can_leave_idle = policies.can_leave_idle(found.controllers)
print(json.dumps([found.kind, sorted(found.controllers), found.sweep(), state, policy, can_leave_idle, child.wait()]))
"""
    clean = {"PYTHONPATH": str(in_reach(SRC)), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    words = ["/usr/bin/python3", "-c", code]
    done = subprocess.run(
        words, env=clean, user=12345, group=12345, extra_groups=[], cwd="/", capture_output=True, text=True
    )

    assert done.stderr == ""
    assert json.loads(done.stdout) == ["none", ["cpuacct", "freezer", "idle"], 0, "T", os.SCHED_IDLE, False, -9]
