"""The start command of an image."""

from __future__ import annotations

import pytest

from moorage.runtime.images.launching import NoCommand, argv_of
from moorage.runtime.images.manifests import ImageConfig


@pytest.mark.parametrize(
    ("config", "command", "argv"),
    [
        ({"cmd": ("node", "app.js")}, "", ["node", "app.js"]),
        ({"entrypoint": ("/init",), "cmd": ("serve",)}, "", ["/init", "serve"]),
        ({"entrypoint": ("/init",), "cmd": ("serve",)}, "work --all", ["/init", "work", "--all"]),
        ({"entrypoint": ("sh", "-c")}, "'echo $A; id'", ["sh", "-c", "echo $A; id"]),
        ({"cmd": ("a",)}, "node app.js", ["node", "app.js"]),
        ({"cmd": ("a",)}, "node app.js $PORT", ["/bin/sh", "-c", "node app.js $PORT"]),
        ({"cmd": ("a",)}, 'sh -c "date; id"', ["sh", "-c", "date; id"]),
        ({"shell": ("/bin/ash", "-ec")}, "a && b", ["/bin/ash", "-ec", "a && b"]),
    ],
)
def test_a_command_replaces_cmd(config: dict[str, tuple[str, ...]], command: str, argv: list[str]) -> None:
    assert argv_of(ImageConfig(**config), command) == argv  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["", " ", "sh 'open"])
def test_nothing_to_run_is_refused(command: str) -> None:
    with pytest.raises(NoCommand):
        argv_of(ImageConfig(), command)
