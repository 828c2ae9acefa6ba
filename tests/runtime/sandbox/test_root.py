"""Root file system of sandboxes: its content, and that it is read-only."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.workers.invoker_support import MODES, give, path_of, python_of, user_of

# Enters namespaces as the invoker does, builds and enters the tree, and prints the answer of a test's code.
DRIVER = """
import errno, json, os, sys
from pathlib import Path
from moorage.runtime.sandbox import root
from moorage.runtime.sandbox import syscalls as sys_

given = json.loads(sys.argv[1])
uid, gid = os.getuid(), os.getgid()
kinds = sys_.CLONE_NEWNS | (sys_.CLONE_NEWUSER if uid else 0)
sys_.unshare(kinds)
if uid:
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
sys_.mount(None, "/", None, sys_.MS_REC | sys_.MS_PRIVATE, None)
root.build(Path(given["tree"]), binds=given["binds"], files=given["files"])
sys_.unshare(sys_.CLONE_NEWPID | sys_.CLONE_NEWNS)
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
root.enter(given["tree"])
root.mount_proc()

def attempt(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"

def write(path):
    with open(path, "w") as file:
        file.write("x")

exec(given["code"])
print(json.dumps(answer))
"""


@dataclass
class Tree:
    mode: str
    folder: Path

    def look(self, code: str, *, binds: dict[str, str] | None = None, files: dict[str, str] | None = None) -> Any:
        """Run code inside the tree with all rights that building it needs; return its answer."""
        given = {"tree": str(self.folder / "tree"), "binds": binds or {}, "files": files or {}, "code": code}
        done = subprocess.run(
            [python_of(self.mode), "-c", DRIVER, json.dumps(given)],
            env={"PATH": os.environ["PATH"], **path_of(self.mode)},
            capture_output=True,
            text=True,
            cwd="/",
            timeout=60,
            check=False,
            **user_of(self.mode),
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(params=MODES)
def tree(request: pytest.FixtureRequest) -> Iterator[Tree]:
    with tempfile.TemporaryDirectory(prefix="root-") as folder:
        Path(folder).chmod(0o755)
        give(Path(folder), request.param)
        yield Tree(request.param, Path(folder))


def test_only_known_folders_are_there(tree: Tree) -> None:
    names = tree.look("answer = [os.listdir('/'), os.listdir('/etc'), os.listdir('/dev')]")

    assert set(names[0]) <= {
        *("bin", "sbin", "lib", "lib32", "lib64", "usr", "etc", "dev", "proc", "tmp", "code", "work", "run"),
    }
    assert not {"shadow", "gshadow", "sudoers", "ssh", "machine-id"} & set(names[1])
    assert set(names[2]) == {"null", "zero", "full", "random", "urandom", "fd", "stdin", "stdout", "stderr", "shm"}


def test_nothing_can_be_written_to_even_with_every_right(tree: Tree) -> None:
    folders = ["/", "/usr/bin", "/etc", "/dev", "/code", "/work", "/run", "/tmp"]

    answers = tree.look(f"answer = [attempt(write, folder + '/x') for folder in {folders}]")

    assert set(answers) == {"EROFS"}


def test_every_mount_is_sealed(tree: Tree) -> None:
    mounts = tree.look("answer = [line.split()[1:4:2] for line in open('/proc/mounts').read().splitlines()]")

    open_ones = [place for place, options in mounts if "ro" not in options.split(",")]
    suid_ones = [place for place, options in mounts if "nosuid" not in options.split(",")]
    assert suid_ones == []
    assert [place for place in open_ones if not place.startswith("/dev/") and place != "/proc"] == []


def test_devices_work_and_no_other_can_be_made(tree: Tree) -> None:
    code = """
answer = [attempt(write, "/dev/null"), len(open("/dev/urandom", "rb").read(8)), len(open("/dev/zero", "rb").read(2))]
answer += [attempt(write, "/dev/full"), attempt(os.mknod, "/dev/sda", 0o60600, os.makedev(8, 0))]
"""

    assert tree.look(code) in (["done", 8, 2, "ENOSPC", "EROFS"], ["done", 8, 2, "ENOSPC", "EPERM"])


def test_files_and_binds_are_where_they_were_asked_for(tree: Tree) -> None:
    (tree.folder / "given").mkdir()
    (tree.folder / "given" / "file").write_text("from outside")
    give(tree.folder / "given", tree.mode)
    binds = {"/opt/given": str(tree.folder / "given"), "/opt/one": str(tree.folder / "given" / "file")}
    code = """
answer = [open(path).read() for path in ("/opt/given/file", "/opt/one", "/etc/extra")]
answer += [attempt(write, path) for path in ("/opt/given/file", "/opt/one", "/etc/extra")]
"""

    answer = tree.look(code, binds=binds, files={"/etc/extra": "made"})

    assert answer == ["from outside", "from outside", "made", "EROFS", "EROFS", "EROFS"]


def test_names_are_looked_up_in_the_sandbox_s_own_resolver(tree: Tree) -> None:
    resolv, hosts, passwd = tree.look(
        "answer = [open(path).read() for path in ('/etc/resolv.conf', '/etc/hosts', '/etc/passwd')]"
    )

    servers = [line.split()[1] for line in resolv.splitlines() if line.startswith("nameserver")]
    assert servers == ["127.0.0.1"]
    assert "localhost" in hosts
    assert [line.split(":")[2] for line in passwd.splitlines()] == ["0", "1000"]


def test_only_processes_of_its_own_are_in_sight(tree: Tree) -> None:
    assert tree.look("answer = [name for name in os.listdir('/proc') if name.isdigit()]") == ["1"]


def test_the_host_s_tree_is_out_of_reach(tree: Tree) -> None:
    (tree.folder / "beside").write_text("secret")
    path = str(tree.folder / "beside")

    code = f"answer = [os.path.exists(door + {path!r}) for door in ('', '/..', '/proc/1/root', '/proc/self/cwd')]"

    assert tree.look(code) == [False] * 4


def test_nothing_of_it_is_left_on_the_host(tree: Tree) -> None:
    tree.look("answer = 1")

    assert str(tree.folder) not in Path("/proc/self/mountinfo").read_text()
    assert list((tree.folder / "tree").iterdir()) == []
