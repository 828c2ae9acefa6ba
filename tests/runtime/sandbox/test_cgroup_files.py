"""Parsing of cgroup files of other machines, and the values written to control files."""

from __future__ import annotations

from pathlib import Path

from moorage.runtime.sandbox.cgroups import files
from moorage.runtime.sandbox.cgroups.v2 import V2Cgroups, V2Group, could_open_v2

V1 = "35 33 0:{0} {3} {1}/{2} rw,relatime - cgroup cgroup rw,{2}\n"
V2 = "43 33 0:40 / {0} rw,relatime - cgroup2 cgroup2 rw\n"
ALL = frozenset({"memory", "cpu", "pids", "freezer", "idle", "cpuacct"})
FILES = {
    "memory.max": "max", "memory.stat": "anon 1000\nfile 500000\nkernel 7\nshmem 24\n", "pids.max": "max",
    "memory.events": "low 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 1\n", "cpu.weight": "100", "cpu.idle": "0",
    "cgroup.freeze": "0", "cgroup.kill": "", "cgroup.procs": "0\n12\n13\n",
    "cpu.stat": "usage_usec 4711\nuser_usec 4000\nsystem_usec 711\n",
}  # fmt: skip


def folders(path: Path, *names: str) -> None:
    for name in names:
        (path / name).mkdir(parents=True)


def group_in(tmp_path: Path, controllers: frozenset[str] = ALL) -> tuple[V2Group, Path]:
    """A v2 cgroup made of plain files."""
    groups = V2Cgroups("t", str(tmp_path), str(tmp_path), str(tmp_path), controllers)
    groups.can_kill = True
    group = groups.create("cell-1")
    folder = Path(group.folder)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return group, folder


def test_each_controller_of_version_1_has_its_own_place(tmp_path: Path) -> None:
    folders(tmp_path, "memory/mine", "cpu,cpuacct", "pids")
    names = ("memory", "cpu,cpuacct", "pids")
    mountinfo = "".join(V1.format(number, tmp_path, name, "/") for number, name in enumerate(names))

    found = files.hierarchies(mountinfo, "4:memory:/mine\n3:cpu,cpuacct:/\n2:pids:/of/the/host\n0::/\n")

    assert [tree.folder for tree in found] == [f"{tmp_path}/memory/mine", f"{tmp_path}/cpu,cpuacct", f"{tmp_path}/pids"]
    assert [set(tree.controllers) for tree in found] == [{"memory"}, {"cpu", "cpuacct"}, {"pids"}]


def test_a_container_that_sees_only_its_own_part_stands_at_the_top_of_that(tmp_path: Path) -> None:
    folders(tmp_path, "memory/below", "pids/of")
    mountinfo = V1.format(1, tmp_path, "memory", "/docker/1f") + V1.format(2, tmp_path, "pids", "/docker/1f")

    found = files.hierarchies(mountinfo, "4:memory:/docker/1f/below\n3:pids:/../of\n")

    assert [tree.folder for tree in found] == [f"{tmp_path}/memory/below", f"{tmp_path}/pids"]


def test_version_2_says_what_may_be_handed_on(tmp_path: Path) -> None:
    folders(tmp_path, "system.slice/moorage.service")
    (tmp_path / "system.slice/moorage.service/cgroup.controllers").write_text("cpu memory pids\n")

    found = files.hierarchies(V2.format(tmp_path), "0::/system.slice/moorage.service\n")

    assert found[0].folder == f"{tmp_path}/system.slice/moorage.service"
    assert found[0].controllers == {"cpu", "memory", "pids"}


def test_a_group_that_may_not_hand_on_its_controllers_is_of_no_use(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")

    found = could_open_v2(files.hierarchies(V2.format(tmp_path), "0::/\n")[0])

    assert found == frozenset()


def test_cells_stand_beside_the_platform_and_not_below_it() -> None:
    assert files.parent_of_platform("/sys/fs/cgroup/a/moorage-t-platform") == "/sys/fs/cgroup/a"
    assert files.parent_of_platform("/sys/fs/cgroup/a/moorage.service") == "/sys/fs/cgroup/a/moorage.service"


def test_limits_of_version_2_go_to_their_files(tmp_path: Path) -> None:
    group, folder = group_in(tmp_path)

    group.limit(memory_mb=256, pids=64, weight=150)

    assert (folder / "memory.max").read_text() == str(256 * 2**20)
    assert (folder / "pids.max").read_text().startswith("64")
    assert (folder / "cpu.weight").read_text() == "150"


def test_an_idle_group_of_version_2_gets_its_new_weight_when_it_wakes(tmp_path: Path) -> None:
    group, folder = group_in(tmp_path)
    group.limit(memory_mb=256, pids=64, weight=150)

    group.idle(True)
    group.limit(memory_mb=256, pids=64, weight=200)
    while_idle = (folder / "cpu.idle").read_text(), (folder / "cpu.weight").read_text()
    group.idle(False)

    assert while_idle == ("1", "150")
    assert ((folder / "cpu.idle").read_text(), (folder / "cpu.weight").read_text()) == ("0", "200")


def test_a_kernel_without_idle_groups_gives_the_least_weight(tmp_path: Path) -> None:
    group, folder = group_in(tmp_path, ALL - {"idle"})

    group.idle(True)

    assert (folder / "cpu.weight").read_text().startswith("1")
    assert (folder / "cpu.idle").read_text() == "0"


def test_what_version_2_counts_is_read_from_its_files(tmp_path: Path) -> None:
    group, _ = group_in(tmp_path)

    assert (group.cpu_us(), group.memory_bytes(), group.oom_kills()) == (4711, 1024, 1)
    assert group.processes() == [12, 13]


def test_a_group_of_version_2_is_killed_by_its_switch(tmp_path: Path) -> None:
    group, folder = group_in(tmp_path)

    group.kill()

    assert (folder / "cgroup.kill").read_text() == "1"
