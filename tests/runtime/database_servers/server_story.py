"""Runs one server as an unprivileged user: start, write, crash, restart, stop.

That user cannot read the tests, so this file runs as a program from a copy of it and of `server_support`:
`python -m tests.runtime.database_servers.server_story FOLDER boxed`, with the software as JSON on stdin.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests import ports
from tests.runtime.database_servers import server_support
from tests.runtime.database_servers.server_support import WAIT_S, lab_in

from moorage.runtime.database_servers.ports import Software


def story_of_an_ordinary_user(software: Software, *, is_boxed: bool) -> Any:
    """Run `main` as an unprivileged user; return its JSON output."""
    # Imported here, because the copy of this file runs without the other tests.
    from tests import memory
    from tests.runtime.workers.invoker_support import give, in_reach, path_of, python_of, user_of

    home = Path(tempfile.mkdtemp(prefix="srv-", dir=memory.place()))
    home.chmod(0o755)
    try:
        own = home / ("long-" * 20)
        shutil.copytree(software.template, own / "template", symlinks=True)
        tests = own / "story" / "tests"
        package = tests / "runtime" / "database_servers"
        package.mkdir(parents=True)
        for file in (__file__, server_support.__file__):
            shutil.copy(file, package)
        shutil.copy(ports.__file__, tests)
        give(own, "user")
        software = dataclasses.replace(
            software, home=str(in_reach(Path(software.home))), template=str(own / "template")
        )
        done = subprocess.run(
            [
                python_of("user"),
                "-m",
                "tests.runtime.database_servers.server_story",
                str(own),
                "boxed" if is_boxed else "outside",
            ],
            input=json.dumps(dataclasses.asdict(software)),
            env={"PATH": os.environ["PATH"], **path_of("user")},
            cwd=own / "story",
            text=True,
            capture_output=True,
            timeout=WAIT_S,
            check=False,
            **user_of("user"),
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def main() -> None:
    """Start a server, write rows, kill it, and read the rows after its restart."""
    software = Software(**json.load(sys.stdin))
    with lab_in(Path(sys.argv[1])) as lab:
        server = lab.start(software, is_boxed=sys.argv[2] == "boxed")
        server.ask("CREATE TABLE t (n int)", "INSERT INTO t VALUES (1)")
        server.crash()
        print(json.dumps({"rows": server.ask("SELECT n FROM t"), "version": server.kind.version(server.access)}))


if __name__ == "__main__":
    main()
