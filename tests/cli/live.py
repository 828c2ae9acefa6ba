"""The `moorage` command against a running platform."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import forked
from tests.cli.terminal import Shown, run_in_terminal
from tests.command import environment
from tests.e2e.projects_support import Sites

from moorage.client import Client


@dataclass(frozen=True, slots=True)
class Shell:
    """A user of the command line with an own home, signed in to the platform as the demo user."""

    home: Path
    sites: Sites
    env: dict[str, str]

    def __call__(
        self, *words: str | Path, cwd: Path | None = None, stdin: str = "", **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a pipe."""
        return forked.run([*map(str, words)], cwd=cwd or self.home, env=self.env | env, stdin=stdin)

    def ok(self, *words: str | Path, cwd: Path | None = None, stdin: str = "", **env: str) -> str:
        """Run a command in a pipe that must succeed, and return its standard output."""
        done = self(*words, cwd=cwd, stdin=stdin, **env)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def json(self, *words: str | Path, cwd: Path | None = None) -> Any:
        return json.loads(self.ok(*words, "--json", cwd=cwd))

    def terminal(
        self, *words: str | Path, keys: Mapping[str, str] | None = None, cwd: Path | None = None, **env: str
    ) -> Shown:
        """Run a command in a pseudo-terminal."""
        return run_in_terminal([*map(str, words)], env=self.env | env, keys=keys, cwd=cwd or self.home)

    @property
    def signed_out(self) -> Shell:
        """The same user without a credential in the environment."""
        return Shell(self.home, self.sites, self.env | {"MOORAGE_TOKEN": "", "MOORAGE_URL": "", "MOORAGE_ORG": ""})

    @property
    def client(self) -> Client:
        return Client(self.env["MOORAGE_URL"], token=self.env["MOORAGE_TOKEN"], organization=self.sites.org)


def shell(home: Path, sites: Sites) -> Shell:
    home.mkdir(exist_ok=True)
    env = environment(URL=sites.running.url, TOKEN=sites.token, ORG=sites.org)
    env |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "XDG_CACHE_HOME": str(home / "cache")}
    return Shell(home, sites, {name: value for name, value in env.items() if name not in ("FORCE_COLOR", "NO_COLOR")})
