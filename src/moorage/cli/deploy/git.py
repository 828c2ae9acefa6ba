"""git for snapshots: its own repository in the cache folder, never the user's."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from moorage.cli.output.terminal import plain

# Settings of the user and of the machine must not change the snapshot: filters, hooks, line endings, ignored files.
_ISOLATED = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
_SETTINGS = {"core.hooksPath": os.devnull, "core.autocrlf": "false", "gc.auto": "0", "core.fsmonitor": "false"}


class GitFailed(Exception):
    """git ended with an error; the text has its last lines."""


def find_git() -> str | None:
    return shutil.which("git")


@dataclass(slots=True)
class Git:
    """Runs git with a given repository, work tree and index."""

    git_dir: Path
    work_tree: Path
    alternates: Path | None = None  # objects of the user's repository, which need not be copied
    excludes: Path | None = None
    env: dict[str, str] = field(default_factory=dict)

    def run(self, *words: str, stdin: bytes | None = None, env: dict[str, str] | None = None) -> bytes:
        """Run a git command on the snapshot's repository and return its output; raises GitFailed."""
        done = subprocess.run(
            ["git", *self._settings(), *words],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            env=self._environment() | (env or {}),
            cwd=self.work_tree,
        )
        if done.returncode != 0:
            raise GitFailed(reason_of(done.stderr, words[0]))
        return done.stdout

    def create(self) -> None:
        """Create the repository."""
        argv = ["git", "init", "--quiet", "--bare", str(self.git_dir)]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, env=kept | _ISOLATED)
        if done.returncode != 0:
            raise GitFailed(reason_of(done.stderr, "init"))

    def transfer(
        self, *words: str, headers: Sequence[str], on_progress: Callable[[str], None] | None = None
    ) -> tuple[int, bytes, list[str]]:
        """Run a command that speaks to the platform; return its code, output and the lines of its log."""
        process = subprocess.Popen(
            ["git", *self._settings(), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **self._locations(), "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **_as_config(headers)},
            cwd=self.work_tree,
            start_new_session=True,  # Ctrl-C is for the command, which says how to go on
        )
        assert process.stdout is not None
        assert process.stderr is not None
        lines: list[str] = []
        text = b""
        while chunk := os.read(process.stderr.fileno(), 4096):
            text += chunk
            *whole, text = text.replace(b"\r", b"\n").split(b"\n")
            for line in whole:
                lines.append(plain(line.decode("utf-8", "replace")).strip())
                if on_progress is not None and lines[-1]:
                    on_progress(lines[-1])
        if text:
            lines.append(plain(text.decode("utf-8", "replace")).strip())
        output = process.stdout.read()
        return process.wait(), output, [line for line in lines if line]

    def _settings(self) -> list[str]:
        given = dict(_SETTINGS) | ({"core.excludesFile": str(self.excludes)} if self.excludes else {})
        return [word for name, value in given.items() for word in ("-c", f"{name}={value}")]

    def _locations(self) -> dict[str, str]:
        given = {"GIT_DIR": str(self.git_dir), "GIT_WORK_TREE": str(self.work_tree)}
        if self.alternates is not None:
            given["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = str(self.alternates)
        return given

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        return kept | _ISOLATED | self._locations() | self.env


def user_git(folder: Path, *words: str) -> bytes | None:
    """Run a reading command in the user's repository; None where it fails, or where there is none."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", "-C", str(folder), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=kept | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
    )
    return done.stdout if done.returncode == 0 else None


def basic_authorization(token: str) -> str:
    return f"Authorization: Basic {base64.b64encode(f'git:{token}'.encode()).decode()}"


def _as_config(headers: Sequence[str]) -> dict[str, str]:
    """Return request headers as variables: arguments of a process can be read by every user of the machine."""
    pairs = {"GIT_CONFIG_COUNT": str(len(headers))}
    for number, header in enumerate(headers):
        pairs |= {f"GIT_CONFIG_KEY_{number}": "http.extraHeader", f"GIT_CONFIG_VALUE_{number}": header}
    return pairs


def reason_of(stderr: bytes, command: str) -> str:
    lines = [plain(line) for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    return "; ".join(lines[-3:]) or f"git {command} failed"
