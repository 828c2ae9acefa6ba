"""Specs as the local engine sends them to shims: names of logs and volumes are replaced by paths of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from moorage.core.kit.records import dataclass
from moorage.runtime.engines.ports import AppSpec, ReplicaSpec, RunSpec, ServerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFiles:
    """Files of a program on this machine: a release, or the root of an image."""

    release: str = ""  # folder of the program's files, mounted read-only
    base: str = ""  # mount point of `release` below the work folder, "" for the work folder itself
    workdir: str = ""  # working directory in the release or in the image, "" for its root
    binds: Mapping[str, str] = field(default_factory=dict)  # read-only bind mounts: path inside -> path outside
    image: str = ""  # root folder of an unpacked image, which replaces the system's files and the release
    image_user: str = ""  # USER of the image, resolved in its own accounts; "" for root inside
    image_ids: int = 0  # first host id of the range for the ids of the image, if the platform runs as root


NO_FILES = LocalFiles()


def local_files(spec: ReplicaSpec) -> LocalFiles:
    """Return the files of a program that this engine prepared."""
    assert spec.files is None or isinstance(spec.files, LocalFiles)
    return spec.files or NO_FILES


@dataclass(frozen=True, kw_only=True)
class ShimSpec(ReplicaSpec):
    """Common part of the specs for shims; `log` and `volume` are paths, sent by field name."""

    files: LocalFiles = NO_FILES
    doors: list[str] = field(default_factory=list)  # addresses of the egress rules, as "address:port"


@dataclass(frozen=True, kw_only=True)
class ShimApp(ShimSpec, AppSpec):
    pass


@dataclass(frozen=True, kw_only=True)
class ShimServer(ShimSpec, ServerSpec):
    pass


@dataclass(frozen=True, kw_only=True)
class ShimRun(ShimSpec, RunSpec):
    result: str = ""  # file with the exit code, written before the shim exits
