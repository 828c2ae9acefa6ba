"""Runs programs in writable image roots, as root and as an ordinary user."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.runtime.workers.invoker_support import ORDINARY_USER, is_another, path_of, python_of, user_of

from moorage.runtime.sandbox.rootfs.spec import ImageRoot
from moorage.runtime.sandbox.runs import main as sandbox
from moorage.runtime.sandbox.runs.main import Job

FIRST_ID = 1_000_000_000
PATH = "/usr/bin:/bin"


@dataclass
class ImageRunner:
    """Runs jobs in an image's root as one user of this machine."""

    mode: str
    home: Path  # belongs to that user
    image: Path
    maps_ids: bool = True

    @property
    def is_root(self) -> bool:
        return self.mode == "root"

    def folder(self, name: str) -> Path:
        """Create a folder of the platform's user."""
        path = self.home / name
        path.mkdir(exist_ok=True)
        self.give(path)
        return path

    def give(self, path: Path, uid: int | None = None) -> None:
        own = ORDINARY_USER if is_another(self.mode) else os.getuid()
        os.chown(path, own if uid is None else uid, own if uid is None else uid)

    def job(self, argv: Sequence[str], *, lowers: Sequence[Path] = (), upper: str = "", **changed: Any) -> Job:
        folders = [str(self.image), *map(str, lowers)]
        on_disk = str(self.folder(upper)) if upper else ""
        root = ImageRoot(folders, on_disk, size_mb=16, first_id=FIRST_ID if self.is_root else 0, maps_ids=self.maps_ids)
        names = {name: changed.pop(name) for name in ("user", "size_mb", "first_id") if name in changed}
        given: dict[str, Any] = {"env": {"PATH": PATH}, "network": False, "timeout_s": 60.0, **changed}
        return Job(argv=list(argv), work="", root=replace(root, **names), **given)

    def run(self, argv: Sequence[str], **changed: Any) -> sandbox.Finished:
        job = self.job(argv, **changed)
        done = subprocess.run(
            [python_of(self.mode), "-m", "moorage.runtime.sandbox.runs.main"],
            input=json.dumps(asdict(job)).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": os.environ["PATH"], "TMPDIR": str(self.folder("tmp")), **path_of(self.mode)},
            cwd="/",
            timeout=120,
            check=False,
            **user_of(self.mode),
        )
        assert list((self.home / "tmp").iterdir()) == []
        return sandbox.Finished(done.returncode, done.stdout.decode())

    def shell(self, script: str, **changed: Any) -> sandbox.Finished:
        return self.run(["sh", "-c", script], **changed)

    def lines(self, script: str, **changed: Any) -> list[str]:
        """Run a script that succeeds; return the lines that it prints."""
        done = self.shell(script, **changed)
        assert done.code == 0, done
        return done.output.splitlines()
