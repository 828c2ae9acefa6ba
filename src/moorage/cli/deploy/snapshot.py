"""The state of a folder as one commit, made in a repository of its own; the user's repository is only read."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from moorage.cli.deploy.git import Git, GitFailed, basic_authorization, has_changes, user_git

# Never sent, also without a line in .gitignore: local secrets, and files of this machine.
ALWAYS_LEFT_OUT = (
    ".git",
    ".env",
    ".env.local",
    ".env.*.local",
    ".moorage/",
    "/moorage.toml",
    "/.moorage.schema.json",
    "/.moorageignore",
    "node_modules/",
    "__pycache__/",
    ".DS_Store",
)
IGNORE_FILE = ".moorageignore"
MAX_BYTES = 1024 * 2**20
LARGEST_SHOWN = 5
STORE_ONLY = "X-Moorage-Deploy: none"
_GITLINK = b"160000"


class TooLarge(Exception):
    """The files of a folder are more than the platform takes."""


@dataclass(frozen=True, slots=True)
class Commit:
    sha: str
    is_new: bool  # False: the platform has this state already
    parent: str | None  # the platform's commit before; None: the branch does not exist there


class Snapshot:
    """Commits of one folder; the repository is kept in the cache, so that the next one only reads changed files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        repository = _repository_of(folder)
        excludes = cache_folder(folder) / "exclude"
        self._git = Git(cache_folder(folder) / "repository.git", folder, repository, excludes)
        self._head = _head_of(folder) if repository is not None else None

    def prepare(self) -> None:
        """Create the cache, and put the files of the folder into the index; raises TooLarge or GitFailed."""
        self.open()
        check_size(self.files(), self.folder, MAX_BYTES)
        if self._head is not None:  # Files that are tracked in spite of .gitignore stay.
            self._git.run("read-tree", self._head)
            # For a known submodule, `git add` would start `git status` in it, which starts programs that the
            # submodule's configuration names. It finds a submodule in the folder by itself.
            self._forget(self._nested())
        self._git.run("add", "--all", ".")
        self._expand_nested()

    def open(self) -> None:
        """Create the repository and the list of ignored files."""
        git_dir = self._git.git_dir
        git_dir.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = (git_dir.parent / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # released with the process
        if not (git_dir / "HEAD").exists():
            self._git.create()
        (git_dir / "index.lock").unlink(missing_ok=True)  # of a command that was killed
        assert self._git.excludes is not None
        self._git.excludes.write_text("\n".join([*ALWAYS_LEFT_OUT, *_own_rules(self.folder), ""]), encoding="utf-8")

    def files(self) -> list[str]:
        """Return the files that are sent, relative to the folder."""
        listed = self._git.run("ls-files", "-z", "--others", "--cached", "--exclude-standard")
        return [os.fsdecode(name) for name in listed.split(b"\0") if name]

    def commit(self, url: str, branch: str, token: str) -> Commit:
        """Make a commit on top of the platform's branch."""
        parent = self._remote_head(url, branch, token)
        tree = self._git.run("write-tree").decode().strip()
        if parent is not None and self._git.run("rev-parse", f"{parent}^{{tree}}").decode().strip() == tree:
            return Commit(parent, False, parent)
        words = ["commit-tree", tree, "-m", _subject(self.folder), *(("-p", parent) if parent else ())]
        return Commit(self._git.run(*words, env=_author(self.folder)).decode().strip(), True, parent)

    def push(
        self, commit: Commit, url: str, branch: str, token: str, on_progress: Callable[[str], None] | None = None
    ) -> None:
        """Send a commit to a branch of the platform, without starting a deployment."""
        headers = [basic_authorization(token), STORE_ONLY]
        target = f"{commit.sha}:refs/heads/{branch}"
        code, _, lines = self._git.transfer("push", "--progress", url, target, headers=headers, on_progress=on_progress)
        if code != 0:
            raise GitFailed(_push_error(lines))
        self._git.run("update-ref", "refs/moorage/pushed", commit.sha)

    def _remote_head(self, url: str, branch: str, token: str) -> str | None:
        """Return the platform's commit of a branch, and fetch it where the cache does not have it."""
        headers = [basic_authorization(token)]
        code, output, lines = self._git.transfer("ls-remote", url, f"refs/heads/{branch}", headers=headers)
        if code != 0:
            if any("not found" in line.lower() for line in lines):
                return None  # The first push creates the repository.
            raise GitFailed(_push_error(lines))
        head = output.decode().partition("\t")[0].strip()
        if not head:
            return None
        try:
            self._git.run("cat-file", "-e", f"{head}^{{tree}}")
        except GitFailed:
            words = ("fetch", "--quiet", "--depth=1", url, head)
            code, _, lines = self._git.transfer(*words, headers=headers)
            if code != 0:
                raise GitFailed(_push_error(lines)) from None
        return head

    def _nested(self) -> list[str]:
        """Return the repositories in the index: submodules, and others inside of the folder."""
        entries = self._git.run("ls-files", "-z", "--stage").split(b"\0")
        return [os.fsdecode(each.partition(b"\t")[2]) for each in entries if each.startswith(_GITLINK)]

    def _forget(self, names: list[str]) -> None:
        """Remove entries from the index."""
        if names:
            self._git.run("update-index", "--force-remove", "-z", "--stdin", stdin=_joined(names))

    def _expand_nested(self) -> None:
        """Replace repositories inside of the folder (submodules, too) by their files. Links stay links."""
        nested = self._nested()
        self._forget(nested)
        left_out = [f"--exclude={each}" for each in ALWAYS_LEFT_OUT]
        for path in nested:
            words = ("ls-files", "-z", "--others", "--cached", "--exclude-standard", *left_out)
            listed = user_git(self.folder / path, *words) or b""
            names = [os.path.join(path, os.fsdecode(each)) for each in listed.split(b"\0") if each]
            if present := [each for each in names if _is_present(self.folder, each)]:
                self._git.run("update-index", "--add", "-z", "--stdin", stdin=_joined(present))


def _joined(names: list[str]) -> bytes:
    return b"".join(os.fsencode(each) + b"\0" for each in names)


def _is_present(folder: Path, name: str) -> bool:
    """Report whether a listed name is a file or a link, and none of its folders is a link."""
    top, path = os.path.realpath(folder), os.path.join(folder, name)
    return os.path.realpath(os.path.dirname(path)) == os.path.dirname(os.path.join(top, name)) and (
        os.path.islink(path) or os.path.isfile(path)
    )


def cache_folder(folder: Path) -> Path:
    """Return the folder for the snapshots of a folder."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return base / "moorage" / "snapshots" / hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:24]


def _repository_of(folder: Path) -> Path | None:
    """Return the objects of the git repository that a folder belongs to."""
    common = user_git(folder, "rev-parse", "--path-format=absolute", "--git-common-dir")
    objects = Path(os.fsdecode(common).strip()) / "objects" if common else None
    return objects if objects is not None and objects.is_dir() else None


def is_repository(folder: Path) -> bool:
    """Report whether a folder is the top of a git repository."""
    return (folder / ".git").exists()


def _head_of(folder: Path) -> str | None:
    """Return the tree of the last commit for a folder, which may be below the top of its repository."""
    prefix = (user_git(folder, "rev-parse", "--show-prefix") or b"").decode().strip().rstrip("/")
    tree = user_git(folder, "rev-parse", "--verify", "--quiet", f"HEAD:{prefix}")
    return tree.decode().strip() if tree else None


def _own_rules(folder: Path) -> list[str]:
    """Return the rules of .moorageignore, and the user's own ones for this repository."""
    rules: list[str] = []
    common = user_git(folder, "rev-parse", "--path-format=absolute", "--git-common-dir")
    paths = [Path(os.fsdecode(common).strip()) / "info" / "exclude"] if common else []
    for path in (*paths, folder / IGNORE_FILE):
        if path.is_file():
            rules += path.read_text(encoding="utf-8", errors="replace").splitlines()
    return rules


def check_size(names: list[str], folder: Path, limit: int) -> None:
    """Raise TooLarge, with the largest files, if the files have more bytes than the limit."""
    sizes = {}
    for name in names:
        path = folder / name
        if path.is_file() and not path.is_symlink():
            sizes[name] = path.stat().st_size
    total = sum(sizes.values())
    if total > limit:
        largest = sorted(sizes, key=lambda name: -sizes[name])[:LARGEST_SHOWN]
        listed = ", ".join(f"{name} ({sizes[name] / 2**20:.0f} MB)" for name in largest)
        raise TooLarge(
            f"the folder has {total / 2**20:,.0f} MB in {len(sizes)} files, and at most {limit // 2**20} MB are sent; "
            f"the largest are {listed}. List files that the app does not need in {IGNORE_FILE}"
        )


def _subject(folder: Path) -> str:
    """Return the message: the user's last one, marked where files differ from it."""
    last = (user_git(folder, "log", "-1", "--format=%s") or b"").decode("utf-8", "replace").strip()
    if not last:
        return "moorage deploy"
    return f"{last} (with uncommitted changes)" if has_changes(folder) else last


def _author(folder: Path) -> dict[str, str]:
    def setting(name: str, default: str) -> str:
        return (user_git(folder, "config", name) or b"").decode("utf-8", "replace").strip() or default

    name, email = setting("user.name", "moorage deploy"), setting("user.email", "deploy@localhost")
    return {
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": email,
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": email,
    }


def _push_error(lines: list[str]) -> str:
    """Return the lines of git that name the error."""
    errors = [
        line.removeprefix("remote:").strip() for line in lines if line.startswith(("remote:", "fatal:", "error:", "!"))
    ]
    return "; ".join(each for each in errors[-3:] if each) or "; ".join(lines[-2:]) or "git push failed"
