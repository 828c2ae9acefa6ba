"""A registry with a base image that has Python, for the end-to-end tests of images."""

from __future__ import annotations

import io
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.runtime.images.registry_support import RegistryServer, running_registry
from tests.runtime.shim.image_support import make_root

from moorage.runtime.images import machine

PROGRAMS = ("python3", "chown", "chmod", "rm", "env", "stat", "true", "test")
_LEFT_OUT = ("__pycache__", "test", "idlelib", "ensurepip", "lib2to3", "tkinter", "config-*", "distutils", "pydoc_data")


def python_root(folder: Path, *more: str) -> Path:
    """Make the root folder of an image that has Python, and some more programs."""
    root = make_root(folder / "base", *PROGRAMS, *more)
    library = f"/usr/lib/python{sys.version_info[0]}.{sys.version_info[1]}"
    shutil.copytree(library, root / library[1:], ignore=shutil.ignore_patterns(*_LEFT_OUT), symlinks=True)
    for name in ("tmp", "root", "srv"):
        (root / name).mkdir()
    (root / "tmp").chmod(0o1777)
    return root


def _layer(folder: Path) -> bytes:
    root = python_root(folder)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        archive.add(root, ".", filter=_of_root)
    return packed.getvalue()


def _of_root(header: tarfile.TarInfo) -> tarfile.TarInfo:
    header.uid = header.gid = 0
    header.uname = header.gname = ""
    return header


@contextmanager
def serving_python() -> Iterator[RegistryServer]:
    """Run a registry with the image `python`."""
    with tempfile.TemporaryDirectory(prefix="registry-") as folder, running_registry(Path(folder)) as registry:
        path = "PATH=/usr/local/bin:/usr/bin:/bin"
        registry.push("python", _layer(Path(folder)), architecture=machine.architecture(), Env=[path])
        yield registry
