"""Commands that install the dependencies of a plan."""

from __future__ import annotations

import hashlib
import json
import re
import shlex

from moorage.runtime.builds.detection import managers, python_managers
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.workspaces import install_folder
from moorage.runtime.builds.environment import Layout, Retry, Step
from moorage.runtime.builds.ports import Plan
from moorage.runtime.builds.python import install as python_install

NODE_MODULES = "node_modules"
# A package manager's complaint, the note for the log, and the arguments that install in spite of it. A lock file often
# lacks the packages for Linux, because it was written on another system.
_STALE = "{0} does not match package.json: some versions are chosen anew; run `{1} install` and commit {0} to fix them"
# Output of any length may come between two messages. The first message is found once, so that the search is linear.
_UNREACHABLE = r"(?:ENOTFOUND|EAI_AGAIN|ENETUNREACH|ECONNREFUSED|ETIMEDOUT)"
_NO_SCRIPTS = "an install script cannot download its program from here: installing without install scripts"
# node-sass has a binary on GitHub only for a few versions of Node.js, and old ones need Python 2 to be compiled.
_NO_SASS = re.compile(r"gyp ERR! cwd \S*node_modules/node-sass\b")
_SASS = "node-sass cannot be installed here: sass, its successor, takes its place; replace it in package.json"
_SASS_ALIAS = "node-sass@npm:sass@1.62.1"
_GONE = "the lock file names an archive that the package registry does not have: the versions are chosen anew"
_GONE_ARCHIVES = {
    "npm": (re.compile(r"404 Not Found - GET \S+\.tgz"), "package-lock.json npm-shrinkwrap.json"),
    "yarn": (
        re.compile(r"https?://\S{1,500}\.tgz: Request failed \\?\"404|Response Code: 404[\s\S]{0,300}\.tgz"),
        "yarn.lock",
    ),
    "pnpm": (re.compile(r"ERR_PNPM_FETCH_404[^\n]{0,500}\.tgz"), "pnpm-lock.yaml"),
}
_NODE_RETRIES = (
    ("npm", _NO_SASS, _SASS, ("install", "--legacy-peer-deps", _SASS_ALIAS)),
    ("yarn", _NO_SASS, _SASS, ("add", "--ignore-engines", "--ignore-workspace-root-check", _SASS_ALIAS)),
    ("pnpm", _NO_SASS, _SASS, ("add", _SASS_ALIAS)),
    (
        "npm",
        re.compile(r"`npm ci` can only install packages when your package\.json"),
        _STALE.format("package-lock.json", "npm"),
        ("install",),
    ),
    (
        "npm",
        re.compile(r"npm (?:error|ERR!) (?:code )?ERESOLVE"),
        "the versions in package.json conflict: installing without the checks of peer dependencies",
        ("install", "--legacy-peer-deps"),
    ),
    (
        "npm",
        re.compile(rf"\A(?>[\s\S]*?npm (?:error|ERR!) command failed\n)[\s\S]*?{_UNREACHABLE}"),
        _NO_SCRIPTS,
        ("install", "--ignore-scripts"),
    ),
    (
        "pnpm",
        re.compile(
            rf"\A(?>[\s\S]*?(?:ELIFECYCLE|install: Failed))[\s\S]*?{_UNREACHABLE}"
            rf"|\A(?>[\s\S]*?{_UNREACHABLE})[\s\S]*?ELIFECYCLE"
        ),
        _NO_SCRIPTS,
        ("install", "--no-frozen-lockfile", "--ignore-scripts"),
    ),
    (
        "yarn",
        re.compile(rf"\A(?>[\s\S]*?Exit code: \d{{1,9}}\nCommand: )[\s\S]*?{_UNREACHABLE}"),
        _NO_SCRIPTS,
        ("install", "--ignore-scripts", "--ignore-engines"),
    ),
    (
        "yarn",
        re.compile(r"The engine \"node\" is incompatible with this module"),
        "a package is made for another version of Node.js: installing without this check; name the version in "
        "`engines` of package.json",
        ("install", "--ignore-engines"),
    ),
    (
        "pnpm",
        re.compile(r"ERR_PNPM_(?:OUTDATED_LOCKFILE|LOCKFILE_CONFIG_MISMATCH)"),
        _STALE.format("pnpm-lock.yaml", "pnpm"),
        ("install", "--no-frozen-lockfile"),
    ),
    (
        "yarn",
        re.compile(r"Your lockfile needs to be updated"),
        _STALE.format("yarn.lock", "yarn"),
        ("install",),
    ),
    (
        "yarn",
        re.compile(r"The lockfile would have been (?:modified|created)"),
        _STALE.format("yarn.lock", "yarn"),
        ("install", "--no-immutable"),
    ),
)
# Modules of Node.js that package.json often lists by mistake. Registries have an empty placeholder of these packages,
# or no version at all; Node.js never loads them.
_CORE = "fs|http|os|net|tls|dns|dgram|child_process|cluster|readline|zlib|vm|worker_threads|perf_hooks|async_hooks"
_NO_CORE = re.compile(
    rf"No (?:matching version|valid versions|versions) (?:found|available) for \"?(?:{_CORE})(?:[@\"]|$)"
    rf"|'(?:{_CORE})@[^'\n]*' is not in"
    rf"|/({_CORE})/-/\1-[\w.-]+\.tgz|\b(?:{_CORE})@\S{{0,200}} failed to resolve",
    re.MULTILINE,
)
_CORE_NOTE = "package.json lists a module that is a part of Node.js: it is left out; remove it from package.json"
_WITHOUT_CORE = (
    'const fs = require("fs"), text = JSON.parse(fs.readFileSync("package.json", "utf8")); '
    f'for (const name of "{_CORE}".split("|")) for (const key of ["dependencies", "devDependencies"]) '
    'if (text[key]) delete text[key][name]; fs.writeFileSync("package.json", JSON.stringify(text, null, 2));'
)
# Bun refuses a lock file of another version, and archives that are not what it names.
_BUN_FAILED = re.compile(r"(?m)^error: |InvalidLockfile|Bun has crashed|panic\b")
_WITHOUT_BUN = "Bun cannot install from its lock file: npm installs what package.json lists"
CACHE_FORMAT = 1  # raise it when the same commands install something else


def steps(plan: Plan, folder: Folder, layout: Layout) -> list[Step]:
    """Return the commands in order; empty without dependencies."""
    if not plan.install:
        return []
    if plan.language == "python":
        return python_install.steps(plan, folder, layout)
    manager = managers.node_manager(folder)
    return [node_step(manager, layout, install_folder(folder).base), *_package_steps(plan, manager, layout)]


def _package_steps(plan: Plan, manager: managers.NodeManager, layout: Layout) -> list[Step]:
    """Build the workspace packages that the app depends on."""
    argv = [f"{layout.bin}/{manager.name}", "run", "build"]
    return [Step(f"{manager.name} run build in {each}", argv, folder=each) for each in plan.packages]


def node_step(manager: managers.NodeManager, layout: Layout, where: str) -> Step:
    """Return the command that installs the packages of a folder with package.json."""

    def command(*arguments: str) -> list[str]:
        return [f"{layout.bin}/{manager.name}", *arguments, *manager.flags]

    retries = tuple(
        Retry(pattern, note, " ".join((manager.name, *arguments)), command(*arguments))
        for name, pattern, note, arguments in _NODE_RETRIES
        if name == manager.name
    )
    again = shlex.join(_again(manager, layout))
    text = f"{shlex.quote(layout.node)} -e {shlex.quote(_WITHOUT_CORE)} && exec {again}"
    without_core = Retry(_NO_CORE, _CORE_NOTE, f"{manager.name} install", ["/usr/bin/env", "sh", "-c", text])
    if gone := _GONE_ARCHIVES.get(manager.name):
        pattern, locks = gone
        text = f"rm -f {locks} && exec {shlex.join(command('install'))}"
        retries += (Retry(pattern, _GONE, f"{manager.name} install", ["/usr/bin/env", "sh", "-c", text]),)
    if manager.name == "bun":
        retries = (Retry(_BUN_FAILED, _WITHOUT_BUN, "npm install", _again(manager, layout)),)
    retries = (without_core, *retries)
    # NODE_ENV=production would skip devDependencies, which most front ends need for their build.
    argv = command(*manager.install)
    return Step(manager.label, argv, without=("NODE_ENV",), is_cached=True, folder=where, retries=retries)


def _again(manager: managers.NodeManager, layout: Layout) -> list[str]:
    """Return the command of npm that installs the packages of package.json and ignores lock files."""
    if manager.name == "bun":
        return [f"{layout.bin}/npm", "install", *managers.NPM_FLAGS]
    is_berry = manager.package.startswith("@yarnpkg/")
    options = ("--no-frozen-lockfile",) if manager.name == "pnpm" else ("--no-immutable",) if is_berry else ()
    return [f"{layout.bin}/{manager.name}", "install", *options, *manager.flags]


def cached_folder(plan: Plan) -> str:
    """Return the folder with the installed dependencies, below the base folder."""
    return python_install.VENV if plan.language == "python" else NODE_MODULES


def cache_key(plan: Plan, folder: Folder, commands: list[Step], context: object) -> str | None:
    """Return a digest of everything that an installation depends on; None if that is not known.

    `context` stands for the interpreter and the environment variables.
    """
    if plan.workdir:  # The dependencies of a workspace are in several folders.
        return None
    inputs = python_managers.inputs(folder) if plan.language == "python" else managers.inputs(folder)
    if inputs is None:
        return None
    argvs = [step.argv for step in commands if step.is_cached]
    text = json.dumps([CACHE_FORMAT, sorted(inputs.items()), argvs, context], default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
