"""Mounts of RUN instructions: caches, files of the context or of another stage, scratch space, secrets."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from moorage.core.kit.records import dataclass
from moorage.runtime.images.building.files import selecting
from moorage.runtime.images.building.files.selecting import Hashes, Source
from moorage.runtime.images.building.files.tree import TreeError
from moorage.runtime.images.building.files.writing import Budget, LayerWriter
from moorage.runtime.images.building.state import StageState
from moorage.runtime.images.dockerfile import instructions as ins
from moorage.runtime.images.dockerfile.errors import DockerfileError

SECRETS = "/run/secrets"
_TRUE = ("true", "1", "")


@dataclass(slots=True)
class Mounted:
    """Folders and variables that a RUN instruction gets."""

    read_only: dict[str, str] = field(default_factory=dict)  # path inside -> path outside
    writable: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Places:
    """Host folders of mounts."""

    scratch: Path  # empty, of this step
    caches: Path  # of the project


class MountMaker:
    def __init__(self, state: StageState, run: ins.Run, secrets: Mapping[str, str]) -> None:
        self._state = state
        self._run = run
        self._secrets = secrets

    def options(self, mount: ins.Mount) -> dict[str, str]:
        """Return the options with variables replaced, and an absolute target."""
        options = {name: self._state.expand(self._run.line, value) for name, value in mount.options.items()}
        if mount.kind == "secret":
            options.setdefault("id", posixpath.basename(options.get("target", "")))
            if "target" not in options and "env" not in options:
                options["target"] = f"{SECRETS}/{options['id']}"
        if "target" in options:
            options["target"] = self._state.absolute(options["target"])
        if not options.get("target", "target").strip("/"):
            raise DockerfileError(self._run.line, "the target of a mount cannot be /")
        return options

    def key(self, sources: Mapping[int, tuple[Source, str]], hashes: Hashes) -> list[object]:
        """Return the part of the step's key for its mounts: no content of caches, no value of secrets."""
        keys: list[object] = []
        for number, mount in enumerate(self._run.mounts):
            options = self.options(mount)
            content = ""
            if number in sources:
                source, chain = sources[number]
                content = chain or hashes.of(self._select(source, options))
            keys.append([mount.kind, options, content])
        return keys

    def make(self, sources: Mapping[int, tuple[Source, str]], places: Places, budget: Budget) -> Mounted:
        """Prepare the folders on the host; raises DockerfileError."""
        made = Mounted()
        try:
            for number, mount in enumerate(self._run.mounts):
                options = self.options(mount)
                if mount.kind == "cache":
                    self._cache(options, places.caches, made)
                elif mount.kind == "tmpfs":
                    folder = places.scratch / f"tmpfs-{number}"
                    folder.mkdir()
                    folder.chmod(0o1777)
                    made.writable[options["target"]] = str(folder)
                elif mount.kind == "secret":
                    self._secret(options, places.scratch / f"secret-{number}", made)
                else:
                    self._bind(options, sources[number][0], places.scratch / f"bind-{number}", made, budget)
        except TreeError as error:
            raise DockerfileError(self._run.line, str(error)) from None
        return made

    def _cache(self, options: dict[str, str], caches: Path, made: Mounted) -> None:
        name = hashlib.sha256(options.get("id", options["target"]).encode()).hexdigest()[:32]
        folder = caches / name
        if not folder.is_dir():
            folder.mkdir(parents=True)
            folder.chmod(_number(options, "mode", 0o755, 8))
            _give(str(folder), options)
        is_read_only = options.get("ro", "false") in _TRUE
        (made.read_only if is_read_only else made.writable)[options["target"]] = str(folder)

    def _secret(self, options: dict[str, str], path: Path, made: Mounted) -> None:
        value = self._secrets.get(options["id"])
        if value is None:
            if options.get("required", "false") in _TRUE:
                raise TreeError(f"the secret {options['id']!r} is required, and the project has none of this name")
            return
        if "env" in options:
            made.env[options["env"]] = value
        if "target" in options:
            path.write_text(value)
            path.chmod(_number(options, "mode", 0o400, 8))
            _give(str(path), options)
            made.read_only[options["target"]] = str(path)

    def _select(self, source: Source, options: dict[str, str]) -> list[selecting.Match]:
        return selecting.select(source, [options.get("source", "/")])

    def _bind(self, options: dict[str, str], source: Source, path: Path, made: Mounted, budget: Budget) -> None:
        [match] = self._select(source, options)
        node = match.entries[0].node
        is_writable = options.get("rw", "false") in _TRUE
        is_plain = len(node.paths) == 1 and not source.ignored and not is_writable
        outside = node.path
        if not is_plain:
            path.mkdir()
            writer = LayerWriter(path, [], budget)
            for each in match.entries:
                place = ("data", *each.below)
                writer.put_node(place, each.node, each.owner, None)
            outside = str(path / "data")
        (made.writable if is_writable else made.read_only)[options["target"]] = outside


def _number(options: Mapping[str, str], name: str, default: int, base: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    try:
        number = int(text.removeprefix("0o"), base)
    except ValueError:
        raise TreeError(f"{name}={text[:40]} should be a number") from None
    if not 0 <= number <= (0o7777 if base == 8 else 65_535):
        raise TreeError(f"{name}={text[:40]} is out of range")
    return number


def _give(path: str, options: Mapping[str, str]) -> None:
    if os.geteuid() == 0:
        os.chown(path, _number(options, "uid", 0, 10), _number(options, "gid", 0, 10))
