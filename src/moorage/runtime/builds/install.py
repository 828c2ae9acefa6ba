"""Commands that install the dependencies of a plan."""

from __future__ import annotations

import hashlib
import json

from moorage.runtime.builds import python_install
from moorage.runtime.builds.detection import managers, python_managers
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.workspaces import install_folder
from moorage.runtime.builds.environment import Layout, Step
from moorage.runtime.builds.ports import Plan

NODE_MODULES = "node_modules"
CACHE_FORMAT = 1  # raise it when the same commands install something else


def steps(plan: Plan, folder: Folder, layout: Layout) -> list[Step]:
    """Return the commands in order; empty without dependencies."""
    if not plan.install:
        return []
    if plan.language == "python":
        return python_install.steps(plan, folder, layout)
    manager = managers.node_manager(folder)
    return [_node_step(manager, layout, install_folder(folder).base), *_package_steps(plan, manager, layout)]


def _package_steps(plan: Plan, manager: managers.NodeManager, layout: Layout) -> list[Step]:
    """Build the workspace packages that the app depends on."""
    argv = [f"{layout.bin}/{manager.name}", "run", "build"]
    return [Step(f"{manager.name} run build in {each}", argv, folder=each) for each in plan.packages]


def _node_step(manager: managers.NodeManager, layout: Layout, where: str) -> Step:
    argv = [f"{layout.bin}/{manager.name}", *manager.install, *manager.flags]
    if manager.name == "pnpm":
        argv.append(f"--store-dir={layout.cache}/pnpm")
    # NODE_ENV=production would skip devDependencies, which most front ends need for their build.
    return Step(manager.label, argv, without=("NODE_ENV",), is_cached=True, folder=where)


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
