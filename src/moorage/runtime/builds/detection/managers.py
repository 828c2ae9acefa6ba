"""Detect the package manager of a project and its install command."""

from __future__ import annotations

import re

from moorage.core.kit.records import dataclass
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.workspaces import install_folder

NPM_LOCKS = ("package-lock.json", "npm-shrinkwrap.json")
# Pinned major versions keep builds reproducible. Newer ones cannot read the oldest lock files.
PNPM_BY_LOCK = {"5": "7", "6": "8"}
PNPM = "10"
YARN_CLASSIC = "1"
YARN = "4"
BUN = "1"
BUN_LOCKS = ("bun.lock", "bun.lockb")
PNPM_PACKAGE = f"pnpm@{PNPM}"
YARN_PACKAGE = f"yarn@{YARN_CLASSIC}"
BUN_PACKAGE = f"bun@{BUN}"
# Always with devDependencies, which most sites need for their build.
NPM_FLAGS = ("--include=dev", "--no-audit", "--no-fund", "--loglevel=warn")
_INPUTS = (
    *NPM_LOCKS,
    *BUN_LOCKS,
    "bunfig.toml",
    "package.json",
    "pnpm-lock.yaml",
    "yarn.lock",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".pnpmfile.cjs",
)
# sqlite3 depends on a node-gyp of its own, which lock files name.
_OWN_GYP = re.compile(r"\bnode-gyp\b(?!-)|[\"'/ ](?:connect-)?sqlite3[\"'@:]")
_LOCAL = ("file:", "link:", "portal:", "workspace:", "patch:", ".", "/", "git", "github:")
_INSTALL_SCRIPTS = {"preinstall", "install", "postinstall", "prepublish", "preprepare", "prepare", "postprepare"}
_GENERATING = {"@prisma/client", "prisma"}  # Their installation reads other files of the project.


@dataclass(frozen=True, slots=True)
class NodeManager:
    name: str  # "npm", "pnpm", "yarn" or "bun"
    package: str  # npm package of the manager; "" for npm itself
    install: tuple[str, ...]
    flags: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return " ".join((self.name, *self.install))


def node_manager(folder: Folder) -> NodeManager:
    """Return the manager by `packageManager` of package.json, else by lock file; a workspace's root decides."""
    folder = install_folder(folder)
    declared = (folder.package or {}).get("packageManager")
    match = re.match(r"(npm|pnpm|yarn|bun)@(\d+\.\d+\.\d+)\b", declared if isinstance(declared, str) else "")
    name, version = (match[1], match[2]) if match else (_by_lock(folder), "")
    if name == "pnpm":
        return _pnpm(folder, version)
    if name == "yarn":
        return _yarn(folder, version)
    if name == "bun":
        return _bun(folder, version)
    return NodeManager("npm", "", ("ci",) if folder.has(*NPM_LOCKS) else ("install",), NPM_FLAGS)


def _by_lock(folder: Folder) -> str:
    if folder.has(*NPM_LOCKS):
        return "npm"
    if folder.has("pnpm-lock.yaml"):
        return "pnpm"
    if folder.has("yarn.lock"):
        return "yarn"
    return "bun" if folder.has(*BUN_LOCKS) else "npm"


def _pnpm(folder: Folder, version: str) -> NodeManager:
    lock = folder.find_text("pnpm-lock.yaml")
    major = re.search(r"^lockfileVersion:\s*['\"]?(\d+)", lock or "", re.MULTILINE)
    version = version or PNPM_BY_LOCK.get(major[1] if major else "", PNPM)
    # Hoisted, because pnpm's default layout consists of links, which artifacts do not support.
    # pnpm 10 runs install scripts of no package by default; here they run in a sandbox, like those of npm.
    # A project that lists those with scripts has its own choice, and pnpm refuses both.
    texts = f"{(folder.package or {}).get('pnpm')} {folder.find_text('pnpm-workspace.yaml')}"
    has_choice = re.search(r"BuiltDependencies|\ballowBuilds\b|dangerouslyAllowAllBuilds", texts) is not None
    scripts = () if has_choice else ("--config.dangerously-allow-all-builds=true",)
    # npm, which runs pnpm, sets a level at which the output of failed install scripts is hidden.
    output = ("--reporter=append-only", "--loglevel=info")
    flags = ("--prod=false", "--config.node-linker=hoisted", *scripts, *output)
    frozen = "--no-frozen-lockfile" if lock is None else "--frozen-lockfile"
    return NodeManager("pnpm", f"pnpm@{version}", ("install", frozen), flags)


def _yarn(folder: Folder, version: str) -> NodeManager:
    lock = folder.find_text("yarn.lock")
    is_classic = version.startswith("1.") if version else lock is None or "__metadata:" not in lock
    if is_classic:
        install = ("install", "--frozen-lockfile") if lock is not None else ("install",)
        # By default a package that does not arrive within 30 s fails the installation.
        flags = ("--non-interactive", "--production=false", "--network-timeout=300000")
        return NodeManager("yarn", f"yarn@{version or YARN_CLASSIC}", install, flags)
    install = ("install", "--no-immutable" if lock is None else "--immutable")
    return NodeManager("yarn", f"@yarnpkg/cli-dist@{version or YARN}", install)


def _bun(folder: Folder, version: str) -> NodeManager:
    install = ("install", "--frozen-lockfile") if folder.has(*BUN_LOCKS) else ("install",)
    # Since version 1.3 the default layout of workspaces consists of links, as that of pnpm; older ones have no option.
    is_old = re.match(r"1\.[012]\.|0\.", version) is not None
    return NodeManager("bun", f"bun@{version or BUN}", install, () if is_old else ("--linker=hoisted",))


def has_own_gyp(folder: Folder) -> bool:
    """Return whether a package may bring a node-gyp of its own, which compiles native modules."""
    root = install_folder(folder)
    names = ("package.json", *NPM_LOCKS, "yarn.lock", "pnpm-lock.yaml", "bun.lock")
    return any(_OWN_GYP.search(place.find_text(name) or "") for place in (folder, root) for name in names)


def inputs(folder: Folder) -> dict[str, str] | None:
    """Return the files on which `node_modules` depends; None if scripts or other folders matter too."""
    package = folder.package or {}
    is_local = any(version.startswith(_LOCAL) for version in folder.node_packages.values())
    has_more = "workspaces" in package or "pnpm" in package or folder.has("binding.gyp", "pnpm-workspace.yaml")
    if is_local or has_more or _INSTALL_SCRIPTS & folder.scripts.keys() or _GENERATING & folder.node_packages.keys():
        return None
    return {name: text for name in _INPUTS if (text := folder.find_text(name)) is not None}
