"""File trees and configurations of images, in a form that can be compared."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Sequence
from typing import Any

FIELDS = ("Env", "Entrypoint", "Cmd", "WorkingDir", "User", "ExposedPorts", "Volumes", "Labels", "StopSignal", "Shell",
          "Healthcheck", "OnBuild")  # fmt: skip
KINDS = {tarfile.DIRTYPE: "folder", tarfile.SYMTYPE: "link", tarfile.FIFOTYPE: "pipe"}


def tree_of(layers: Sequence[bytes]) -> dict[str, tuple[object, ...]]:
    """Apply layers on top of each other; return kind, mode, owner and content of every path."""
    tree: dict[str, tuple[object, ...]] = {}
    for layer in layers:
        _apply(tree, layer)
    return dict(sorted(tree.items()))


def _apply(tree: dict[str, tuple[object, ...]], layer: bytes) -> None:
    added: dict[str, tuple[object, ...]] = {}
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        for member in archive:
            name = member.name.strip("/").removeprefix("./")
            above, _, last = name.rpartition("/")
            if name in ("", "."):
                continue
            if last == ".wh..wh..opq":
                _remove(tree, above, keeps_folder=True)
            elif last.startswith(".wh."):
                _remove(tree, f"{above}/{last[4:]}".strip("/"))
            else:
                added[name] = _entry(archive, member, added)
    for name, entry in added.items():
        if entry[0] != "folder" or (name in tree and tree[name][0] != "folder"):
            _remove(tree, name)
        tree[name] = entry


def _remove(tree: dict[str, tuple[object, ...]], name: str, *, keeps_folder: bool = False) -> None:
    for path in [path for path in tree if path.startswith(f"{name}/") or (path == name and not keeps_folder)]:
        del tree[path]


def _entry(
    archive: tarfile.TarFile, member: tarfile.TarInfo, added: dict[str, tuple[object, ...]]
) -> tuple[object, ...]:
    owner = (member.uid, member.gid)
    if member.islnk():
        return added[member.linkname.strip("/").removeprefix("./")]
    if member.issym():
        return ("link", member.linkname, *owner)
    mode = oct(member.mode & 0o7777)
    if not member.isreg():
        return (KINDS.get(member.type, "other"), mode, *owner)
    content = archive.extractfile(member)
    assert content is not None
    return ("file", mode, *owner, hashlib.sha256(content.read()).hexdigest())


def config_of(config: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that decide how an image runs; an empty one is as good as a missing one."""
    found = {name: config[name] for name in FIELDS if config.get(name)}
    if "Env" in found:
        found["Env"] = sorted(found["Env"])
    return found
