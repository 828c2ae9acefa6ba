"""Images of tests as apps and one-off runs of a real engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.runtime.engines.engine_support import LAB, Engine, Replica
from tests.runtime.shim.image_support import make_root
from tests.runtime.workers.invoker_support import give, until

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
FIRST_ID = 1_000_065_536
PASSWD = "root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1001::/home/node:/bin/sh\n"
# Python itself is in the image, its library is the machine's.
LIBRARY = {"/usr/lib": "/usr/lib"}


def make_image(engine: Engine) -> Path:
    """Make a root folder with Python and the lab of the app tests, which belongs to the platform's user."""
    image = make_root(engine.home / "image", "python3", "stat", "chown", "kill", "env")
    (image / "etc" / "passwd").write_text(PASSWD)
    (image / "app" / "lab.py").write_text(LAB)
    give(image, engine.mode)
    return image


def spec_of(engine: Engine, image: Path, argv: list[str], **changed: Any) -> dict[str, Any]:
    given = {"image": str(image), "binds": {}, "env": {"PATH": PATH}, "workdir": "/app"}
    ids = {"image_ids": FIRST_ID} if engine.mode == "root" else {}
    return engine.make({}, argv, **{**given, **ids, **changed})


def start_lab(engine: Engine, image: Path, **changed: Any) -> Replica:
    """Start the lab as an app of the image."""
    spec = spec_of(engine, image, ["python3", "lab.py"], **{"binds": LIBRARY, **changed})
    return engine.begin(spec, listens=changed.get("listens", True))


def run_script(engine: Engine, image: Path, script: str, **changed: Any) -> Replica:
    return start_run(engine, image, ["sh", "-c", script], **changed)


def start_run(engine: Engine, image: Path, argv: list[str], **changed: Any) -> Replica:
    spec = spec_of(engine, image, argv, **{"kind": "run", "workdir": "", **changed})
    folder = str(engine.home / "logs" / spec["key"])
    return engine.begin({**spec, "log": folder}, listens=False)


def output_of(run: Replica) -> list[str]:
    """Return what a run printed, once it has succeeded."""
    path = run.folder.parent.with_name("shims-results") / f"{run.key}.json"
    until(path.exists, f"the result of {run.key}")
    assert json.loads(path.read_text())["exitCode"] == 0, run.log()
    return [line[2:] for line in run.log() if line.startswith("o ")]


def refusal(engine: Engine, image: Path, argv: list[str], **changed: Any) -> str:
    spec = spec_of(engine, image, argv, **{"kind": "run", **changed})
    return str(engine.ask("start", spec=spec)["error"])
