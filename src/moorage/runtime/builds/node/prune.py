"""Reduce a built workspace to one app: the packages that it depends on, without links between them.

The files are untrusted. No process of the build runs any more, so they do not change meanwhile.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from moorage.core.kit import folders
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.workspaces import Workspace

MODULES = "node_modules"


def prune(root: Folder, app: str) -> None:
    """Remove the packages that an app does not need; `root` is the workspace, at a path without links.

    Package managers link packages of a workspace into `node_modules` of the root or of each package. The links that
    are needed move to the root, where every package finds them: in place, copies of them would contain each other.
    """
    workspace = Workspace(root)
    needed = workspace.dependencies(app)
    kept = {app, *needed}
    targets: dict[str, Path] = {}
    for holder in ("", *sorted(kept)):
        for name, link in _links(root.path, root.path / holder / MODULES):
            package = _package_of(workspace, link)
            if package is None:
                continue
            target = root.path / package
            if package in needed and _is_taken(root.path / MODULES / name, targets.setdefault(name, target), target):
                continue
            link.unlink()
    for name, target in targets.items():
        link = root.path / MODULES / name
        if not os.path.lexists(link) and _make(root.path, link.parent):
            link.symlink_to(target)
    for path in workspace.packages:
        if path not in kept and not any(each.startswith(f"{path}/") for each in kept):
            folders.remove(root.path / path)


def _make(root: Path, folder: Path) -> bool:
    """Create a folder and its parents below `root`; return False, with nothing created, where the path has links."""
    if folders.has_links(root, folder):
        return False
    with contextlib.suppress(FileExistsError, NotADirectoryError):  # a file of that name
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    return folder.is_dir()


def _is_taken(at_root: Path, wanted: Path, target: Path) -> bool:
    """Return whether the root has another package of the same name."""
    return wanted != target or (at_root.exists() and not at_root.is_symlink())


def _package_of(workspace: Workspace, link: Path) -> str | None:
    target = Path(os.path.realpath(link))
    if not target.is_relative_to(workspace.root.path):
        return None
    path = target.relative_to(workspace.root.path).as_posix()
    return path if path in workspace.packages else None


def _links(root: Path, modules: Path) -> Iterator[tuple[str, Path]]:
    """Yield the links of a `node_modules` folder with the names of their packages."""
    if not folders.is_real(root, modules):
        return
    for entry in sorted(os.listdir(modules)):
        path = modules / entry
        if path.is_symlink():
            yield entry, path
        elif entry.startswith("@") and path.is_dir():
            scoped = ((f"{entry}/{name}", path / name) for name in sorted(os.listdir(path)))
            yield from ((name, each) for name, each in scoped if each.is_symlink())
