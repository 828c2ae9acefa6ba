"""Submodules of a commit: which repositories of the code host or the built-in git server they are, and where they go.

Their addresses and folders come from users. An address only chooses a name of a repository; it is never connected to.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from moorage.core.kit.records import dataclass
from moorage.products.repositories.git import Git
from moorage.products.repositories.names import Name, parse_name

FILE = ".gitmodules"
MAX_COUNT = 50  # of a deployment, nested ones included
READ_TIMEOUT_S = 30
_SETTINGS = r"^submodule\..*\.(path|url)$"
_GITLINK = re.compile(rb"160000 commit ([0-9a-f]{40,64})\t(.+)", re.DOTALL)
_SCP = re.compile(r"(?:[\w.-]+@)?([\w.-]+):(?!//)(.+)")
_SCHEMES = frozenset(("https", "http", "ssh", "git"))


@dataclass(frozen=True, slots=True)
class Submodule:
    """Entry of a commit that names a commit of another repository."""

    path: str  # below the folder of its repository
    commit: str
    url: str  # "" where .gitmodules has none


async def read(git: Git, repository: Path, commit: str) -> list[Submodule]:
    """Return the submodules of a commit."""
    tree = await git.run("ls-tree", "-r", "-z", "--full-tree", commit, cwd=repository, within_s=READ_TIMEOUT_S)
    # A large repository has a million entries, which would block the event loop for a second.
    links = await asyncio.to_thread(_links, tree.out)
    if not links:
        return []
    # A file that the settings include could be any file of this machine.
    words = ("config", "--no-includes", "--null", f"--blob={commit}:{FILE}", "--get-regexp", _SETTINGS)
    done = await git.run(*words, cwd=repository, within_s=READ_TIMEOUT_S)
    return await asyncio.to_thread(_with_urls, links, done.out)


def _links(tree: bytes) -> list[tuple[str, str]]:
    """Return path and commit of each submodule in the output of `git ls-tree`."""
    matches = (_GITLINK.fullmatch(entry) for entry in tree.split(b"\0") if entry.startswith(b"160000 "))
    return [(os.fsdecode(match[2]), match[1].decode()) for match in matches if match]


def _with_urls(links: list[tuple[str, str]], settings: bytes) -> list[Submodule]:
    urls = _urls(settings.decode(errors="replace"))
    return [Submodule(path, commit, urls.get(path, "")) for path, commit in links]


def _urls(text: str) -> Mapping[str, str]:
    """Return the addresses by path, of the names and values that git prints."""
    settings: dict[str, dict[str, str]] = {}
    for entry in text.split("\0"):
        key, _, value = entry.partition("\n")
        name, _, setting = key.rpartition(".")
        settings.setdefault(name, {})[setting] = value
    return {each["path"].rstrip("/"): each["url"] for each in settings.values() if "path" in each and "url" in each}


def hosts_of(*urls: str) -> Mapping[str, str]:
    """Return the folder of the repositories by host, for these addresses."""
    parts = [urlsplit(url) for url in urls]
    return {each.netloc.rpartition("@")[2]: each.path.strip("/") for each in parts}


def name_of(url: str, parent: Name, hosts: Mapping[str, str]) -> Name | None:
    """Return the repository of an address at one of the hosts; None for another host.

    A relative address starts at the repository with the submodule, as it does for git.
    """
    if url.startswith(("./", "../")):
        return parse_name(posixpath.normpath(f"{parent}/{url}"))
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    host, path = parts.netloc.rpartition("@")[2], parts.path
    if parts.scheme not in _SCHEMES:
        match = _SCP.fullmatch(url)
        host, path = (match[1], match[2]) if match else ("", "")
    for name in (host, host.partition(":")[0]):
        if name in hosts:
            return parse_name(path.strip("/").removeprefix(hosts[name]).strip("/"))
    return None


def folder_of(target: Path, path: str) -> Path | None:
    """Return the empty folder of a submodule below a checkout; None where a file, a link or another folder is."""
    folder = target
    for part in path.split("/"):
        folder = folder / part
        if part in ("", ".", "..") or part.lower() == ".git" or folder.is_symlink() or not folder.is_dir():
            return None
    return None if any(folder.iterdir()) else folder
