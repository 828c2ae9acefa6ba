"""Start command, environment, port and health check of an image, for apps and cronjob runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from signal import SIGTERM
from typing import Any

from moorage.core.kit.records import dataclass
from moorage.runtime.images.manifests import DEFAULT_SHELL, ImageConfig
from moorage.runtime.sandbox.rootfs.spec import PATH

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_SHELL_CHARACTERS = frozenset("$&|;<>`()*?~\n")


class NoCommand(Exception):
    """An image and its settings name no program; the message is for the user."""


@dataclass(frozen=True, slots=True)
class ImageLaunch:
    argv: list[str]
    env: dict[str, str]  # of the image, overridden by the owner's
    stop_signal: int


def launch(config: ImageConfig, command: str, env: Mapping[str, str]) -> ImageLaunch:
    """Return how to start an image; `command` replaces its CMD unless it is "". Raises NoCommand."""
    own_env = {"PATH": PATH, **config.env, **env}
    return ImageLaunch(argv_of(config, command), own_env, config.stop_signal or int(SIGTERM))


def argv_of(config: ImageConfig, command: str) -> list[str]:
    """Return the entry point with a command, or with the image's own one.

    Without an entry point, a command with unquoted characters of the shell is passed to the shell of the image. Others
    are split into words, because small images have no shell.
    """
    words = list(config.cmd)
    if command.strip():
        if not config.entrypoint and _SHELL_CHARACTERS.intersection(_QUOTED.sub("", command)):
            words = [*(config.shell or DEFAULT_SHELL), command]
        else:
            try:
                words = shlex.split(command)
            except ValueError as error:
                raise NoCommand(f"its command cannot be read: {str(error).lower()}") from None
    argv = [*config.entrypoint, *words]
    if not argv:
        raise NoCommand("the image names no program to run: set `command`, or `startCmd` of an app")
    return argv


def health_fields(config: ImageConfig) -> dict[str, Any]:
    """Return the fields of an AppSpec that have the image's HEALTHCHECK."""
    check = config.healthcheck
    if check is None:
        return {}
    return {
        "health_argv": list(check.argv),
        "health_interval_s": check.interval_s,
        "health_timeout_s": check.timeout_s,
        "health_start_s": check.start_period_s,
        "health_retries": check.retries,
    }
