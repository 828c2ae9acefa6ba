"""Configuration of an image while it is built; fields of the base image that are unknown here are kept."""

from __future__ import annotations

import copy
import datetime
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from moorage.core.kit.records import dataclass
from moorage.runtime.images.dockerfile import instructions as ins

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHELL = ("/bin/sh", "-c")
MAX_HISTORY_TEXT = 1_000
_PORT = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?(?:/(tcp|udp|sctp))?")
MAX_PORTS = 1_000


def scratch(architecture: str) -> dict[str, Any]:
    """Return the configuration of an image without files."""
    config = {"Env": [f"PATH={PATH}"], "WorkingDir": "/"}
    return {"architecture": architecture, "os": "linux", "config": config, "rootfs": _rootfs([]), "history": []}


def _rootfs(diff_ids: Sequence[str]) -> dict[str, Any]:
    return {"type": "layers", "diff_ids": list(diff_ids)}


@dataclass(slots=True)
class Config:
    """Image configuration of a stage, and its instructions so far."""

    document: dict[str, Any]
    cmd_is_set: bool = False
    _config: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.document = copy.deepcopy(self.document)
        config = self.document.get("config")
        self._config = self.document["config"] = config if isinstance(config, dict) else {}

    @property
    def env(self) -> dict[str, str]:
        pairs = (each.partition("=") for each in self._config.get("Env") or [])
        return {name: value for name, _, value in pairs}

    @property
    def workdir(self) -> str:
        return self._config.get("WorkingDir") or "/"

    @property
    def user(self) -> str:
        return self._config.get("User") or ""

    @property
    def shell(self) -> tuple[str, ...]:
        return tuple(self._config.get("Shell") or SHELL)

    def take_triggers(self) -> list[str]:
        """Return the ONBUILD triggers of the base image, and remove them."""
        return [each for each in self._config.pop("OnBuild", None) or [] if isinstance(each, str)]

    def set_env(self, name: str, value: str) -> None:
        env = {**self.env, name: value}
        self._config["Env"] = [f"{each}={text}" for each, text in env.items()]

    def set_workdir(self, path: str) -> None:
        self._config["WorkingDir"] = path

    def set_user(self, user: str) -> None:
        self._config["User"] = user

    def set_text(self, key: str, value: str) -> None:
        self._config[key] = value

    def set_label(self, name: str, value: str) -> None:
        self._config["Labels"] = {**(self._config.get("Labels") or {}), name: value}

    def set_shell(self, words: Sequence[str]) -> None:
        self._config["Shell"] = list(words)

    def add_trigger(self, trigger: str) -> None:
        self._config["OnBuild"] = [*(self._config.get("OnBuild") or []), trigger]

    def set_cmd(self, command: ins.Command) -> None:
        self._config["Cmd"] = self.argv(command)
        self.cmd_is_set = True

    def set_entrypoint(self, command: ins.Command) -> None:
        self._config["Entrypoint"] = self.argv(command)
        if not self.cmd_is_set:
            self._config.pop("Cmd", None)

    def argv(self, command: ins.Command) -> list[str]:
        if command.is_shell:
            return [*self.shell, command.words[0]] if command.words[0] else []
        return list(command.words)

    def set_healthcheck(self, check: ins.Healthcheck) -> None:
        if check.command is None:
            self._config["Healthcheck"] = {"Test": ["NONE"]}
            return
        words = check.command.words
        test = ["CMD-SHELL", words[0]] if check.command.is_shell else ["CMD", *words]
        retries = {"Retries": check.retries} if check.retries else {}
        self._config["Healthcheck"] = {"Test": test, **check.intervals, **retries}

    def expose(self, words: Sequence[str]) -> None:
        ports = dict(self._config.get("ExposedPorts") or {})
        for word in words:
            ports |= {port: {} for port in _ports(word)}
        if len(ports) > MAX_PORTS:
            raise ValueError(f"the image exposes more than {MAX_PORTS:,} ports")
        self._config["ExposedPorts"] = ports

    def add_volumes(self, paths: Sequence[str]) -> None:
        if not all(paths):
            raise ValueError("the path of a volume is empty")
        self._config["Volumes"] = {**(self._config.get("Volumes") or {}), **{path: {} for path in paths}}

    def add_history(self, text: str, created_ms: int, *, is_empty: bool) -> None:
        entry = {"created": _moment(created_ms), "created_by": text[:MAX_HISTORY_TEXT]}
        history = self.document.get("history")
        self.document["history"] = [
            *(history if isinstance(history, list) else []),
            entry | ({"empty_layer": True} if is_empty else {}),
        ]

    def encode(self, diff_ids: Sequence[str], created_ms: int) -> bytes:
        """Return the finished configuration."""
        document = {**self.document, "rootfs": _rootfs(diff_ids), "created": _moment(created_ms)}
        for key in ("container", "container_config", "docker_version", "id", "parent"):
            document.pop(key, None)
        return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()


def _ports(word: str) -> list[str]:
    match = _PORT.fullmatch(word.lower())
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if match is None or not 1 <= first <= last <= 65_535 or last - first >= MAX_PORTS:
        raise ValueError(f"{word!r} should be a port such as 8080, 53/udp or 8000-8010")
    return [f"{port}/{match[3] or 'tcp'}" for port in range(first, last + 1)]


def _moment(created_ms: int) -> str:
    moment = datetime.datetime.fromtimestamp(created_ms / 1000, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def run_env(config: Config, args: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of RUN: arguments in scope, and variables of the image, which win."""
    return {"PATH": PATH, **args, **config.env}
