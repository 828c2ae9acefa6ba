"""Root folder of an image, built from programs of this machine and their libraries."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

PROGRAMS = ("sh", "cat", "ls", "id", "sleep", "touch", "mkdir", "readlink", "grep", "hostname")


def make_root(root: Path, *more: str) -> Path:
    """Make a root folder with the usual programs, and with some more."""
    for program in (*PROGRAMS, *more):
        _copy(root, program)
    (root / "bin").symlink_to("usr/bin")
    for name in ("lib", "lib64"):
        if (root / "usr" / name).exists():
            (root / name).symlink_to(f"usr/{name}")
    (root / "etc").mkdir()
    (root / "etc" / "motd").write_text("of the image")
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh")
    (root / "app").mkdir()
    (root / "app" / "data").write_text("inside")
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755)
    return root


def _copy(root: Path, program: str) -> None:
    """Copy a program and its libraries to below /usr, as most images have them."""
    found = shutil.which(program, path="/usr/bin:/bin")
    assert found is not None, f"the tests need the program {program}"
    _copy_files(root, libraries(Path(found)) | {f"/usr/bin/{program}": Path(found)})


def copy_libraries(root: Path, modules: Iterable[Path]) -> None:
    """Copy the libraries of extension modules that the image has."""
    for module in modules:
        _copy_files(root, libraries(module))


def libraries(file: Path) -> dict[str, Path]:
    """Return the shared libraries of a program or module by their paths in an image."""
    listed = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=True).stdout
    return {word: Path(word) for line in listed.splitlines() for word in line.split() if word.startswith("/")}


def _copy_files(root: Path, sources: Mapping[str, Path]) -> None:
    for path, source in sources.items():
        target = root / (path if path.startswith("/usr/") else f"/usr{path}")[1:]
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source.resolve(), target)
            target.chmod(0o755)
