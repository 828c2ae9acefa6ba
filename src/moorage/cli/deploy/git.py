"""git for snapshots: its own repository in the cache folder, never the user's."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from moorage.cli.output.terminal import plain

# The configuration of a repository may come from a stranger, and names programs that reading commands start. git passes
# these settings on to the processes that it starts in nested repositories.
_NO_PROGRAMS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "log.showSignature": "false",  # starts gpg.program
    "safe.bareRepository": "explicit",  # A folder that looks like a repository is none.
}
# Without transports, an object that is missing in a partial clone is not fetched with core.sshCommand and the like.
_NO_TRANSPORTS = {"GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
# Settings of the user and of the machine must not change the snapshot: filters, hooks, line endings, ignored files.
_ISOLATED = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", **_NO_TRANSPORTS}
_SETTINGS = {**_NO_PROGRAMS, "core.autocrlf": "false", "gc.auto": "0"}


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
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, env=_plain_environment() | _ISOLATED)
        if done.returncode != 0:
            raise GitFailed(reason_of(done.stderr, "init"))

    def transfer(
        self, *words: str, headers: Sequence[str], on_progress: Callable[[str], None] | None = None
    ) -> tuple[int, bytes, list[str]]:
        """Run a command that speaks to the platform; return its code, output and the lines of its log."""
        given = _as_config([("http.extraHeader", header) for header in headers])
        process = subprocess.Popen(
            ["git", *self._settings(), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **self._locations(), "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **given},
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
        return _plain_environment() | _ISOLATED | self._locations() | self.env


def user_git(folder: Path, *words: str) -> bytes | None:
    """Run a reading command in the user's repository; None where it fails, or where there is none.

    The command starts no program that the repository's configuration names.
    """
    return _read(folder, words, _NO_PROGRAMS)


def has_changes(folder: Path) -> bool:
    """Report whether files of a folder differ from the last commit of its repository.

    Filters are programs of the repository's configuration, so they are off: a file with a filter, such as one of Git
    LFS, counts as changed when it was written again with the same content.
    """
    listed = user_git(folder, "config", "-z", "--name-only", "--get-regexp", r"^filter\.") or b""
    filters = {os.fsdecode(name): "" for name in listed.split(b"\0") if name}
    words = ("status", "--porcelain", "--ignore-submodules=dirty", "--", ".")  # no git process in submodules
    return bool(_read(folder, words, _NO_PROGRAMS | filters))


def _read(folder: Path, words: Sequence[str], settings: Mapping[str, str]) -> bytes | None:
    done = subprocess.run(
        ["git", "-C", str(folder), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=_plain_environment() | _NO_TRANSPORTS | {"GIT_OPTIONAL_LOCKS": "0"} | _as_config([*settings.items()]),
    )
    return done.stdout if done.returncode == 0 else None


def _plain_environment() -> dict[str, str]:
    """Return the environment without variables of git, which could name another repository."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


def basic_authorization(token: str) -> str:
    return f"Authorization: Basic {base64.b64encode(f'git:{token}'.encode()).decode()}"


def _as_config(settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return settings as variables: arguments of a process can be read by every user of the machine."""
    pairs = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings):
        pairs |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return pairs


def reason_of(stderr: bytes, command: str) -> str:
    lines = [plain(line) for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    return "; ".join(lines[-3:]) or f"git {command} failed"
