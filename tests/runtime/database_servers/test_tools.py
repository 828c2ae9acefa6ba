"""Tools of a hostile server: files, networks and limits of their sandbox."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.database_servers.server_support import MARIADB, POSTGRESQL, find_software

from moorage.core.kit import folders
from moorage.runtime.database_servers.kinds import kind_of
from moorage.runtime.database_servers.mariadb.dumps import connection_options
from moorage.runtime.database_servers.ports import ADMIN, RUN, Access, Credentials, ServerFailed, Software
from moorage.runtime.database_servers.postgres import physical_backups
from moorage.runtime.database_servers.tools import Toolbox

pytestmark = pytest.mark.boundary(
    "code-to-host", "A hostile database server that takes over a tool reaches nothing more."
)
UID = 610_900_000 if os.getuid() == 0 else 0
CREDENTIALS = Credentials("keeper_1", "password", "har_bour")
SECRET = "of-another-database"


class Yard:
    """Folders of a database, of another one, and of a tool that does all it can."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.other = folder / "databases" / "8" / "s1" / "data"
        self.server = folder / "databases" / "7" / "s1"
        self.work = folder / "databases" / "7" / "work"
        self.tools = folder / "software" / "bin"
        for path in (self.other, self.server / RUN, self.work, self.tools):
            path.mkdir(parents=True)
        (self.other / "rows").write_text(SECRET)
        (self.folder / "outside").mkdir()
        (self.folder / "outside").chmod(0o777)
        if UID:
            folders.change_owner(self.server, UID)
            folders.change_owner(self.work, UID)

    @property
    def access(self) -> Access:
        return Access(str(self.server), 5432, "password")

    def software(self, name: str, program: str, script: str) -> Software:
        """Return software with one tool that is a shell script."""
        (self.tools / program).write_text(f"#!/bin/sh\n{script}\n")
        (self.tools / program).chmod(0o755)
        return replace(find_software(name), tools=str(self.tools))


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    tmp_path.chmod(0o755)
    return Yard(tmp_path)


@contextlib.contextmanager
def listening() -> Iterator[int]:
    """Yield a port of this machine that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def attempts(yard: Yard, port: int) -> str:
    """Return a script that fails unless all ways out are closed, with the first open one as its last line."""
    ways = {
        "files of another database": f"cat {yard.other}/rows",
        "accounts of the machine": "grep -q ':/root:' /etc/passwd",
        "passwords of the machine": "cat /etc/shadow",
        "a folder that all users may write": f"touch {yard.folder}/outside/x",
        "its own software": "touch /software/bin/x",
        "processes of the machine": f"ls /proc/{os.getpid()}/",
        "a port of the machine": f"exec 3<>/dev/tcp/127.0.0.1/{port}",
        "a folder above its own": "touch ../x /x /mnt/x",
    }
    lines = [f"(bash -c '{way}') >/dev/null 2>&1 && echo 'it reached {name}' >&2" for name, way in ways.items()]
    return "\n".join(
        [*(line.replace("':/root:'", '":/root:"') for line in lines), "echo 'it reached nothing' >&2", "exit 1"]
    )


@pytest.mark.parametrize("program", ["pg_dump", "pg_basebackup", "pg_restore", "mariadb-dump", "mariadb"])
def test_a_tool_reaches_no_files_and_no_networks_of_others(yard: Yard, program: str) -> None:
    target = yard.folder / "dump"
    with listening() as port:
        script = attempts(yard, port)
        with pytest.raises(ServerFailed) as failed:
            run_tool(yard, program, script, target)

    assert str(failed.value) == "it reached nothing"
    assert list((yard.folder / "outside").iterdir()) == []


def run_tool(yard: Yard, program: str, script: str, target: Path) -> None:
    """Run an operation of the platform whose tool is this script."""
    name = MARIADB if program.startswith("mariadb") else POSTGRESQL
    software = yard.software(name, program, script)
    kind = kind_of(software.type)
    if program == "pg_dump":
        kind.dump(software, yard.access, CREDENTIALS, target)
    elif program == "pg_basebackup":
        physical_backups.copy(software, yard.access, yard.work, target)
    elif program == "pg_restore":
        target.write_bytes(b"a dump")
        kind.check(software, target)
    else:
        with Toolbox(software, yard.work) as box:
            args = connection_options(box, yard.access, ADMIN)
            if program == "mariadb-dump":
                box.read(program, args, {}, lambda _: None)
            else:
                box.feed(program, args, {}, iter([b"a dump"]))


def test_a_copy_that_leaves_its_folder_is_written_nowhere(yard: Yard) -> None:
    # Servers before 2026 could send `pg_basebackup` such names of files.
    script = 'for each in "$@"; do target=$each; done\nmkdir $target\necho x > $target/../../x; echo x > $target/../x'
    software = yard.software(POSTGRESQL, "pg_basebackup", script)

    with pytest.raises(ServerFailed):
        physical_backups.copy(software, yard.access, yard.work, yard.folder / "copy")

    assert [path.name for path in yard.folder.rglob("x")] == ["x"]
    assert (yard.work / "x").exists()


def test_a_tool_cannot_change_the_file_that_it_reads(yard: Yard) -> None:
    script = "cat > /dev/null; echo y > /proc/self/fd/0; echo y >> /dev/stdin; exit 0"
    software = yard.software(POSTGRESQL, "pg_restore", script)
    dump = yard.work / "dump"
    dump.write_bytes(b"a dump")
    if UID:
        os.chown(dump, UID, UID)

    with contextlib.suppress(ServerFailed):
        kind_of("postgresql").check(software, dump)

    assert dump.read_bytes() == b"a dump"
