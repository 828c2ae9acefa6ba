"""The commands that install a project's dependencies, as its plan says."""

from __future__ import annotations

from moorage.runtime.builds.detection import managers
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.ports import Plan
from moorage.runtime.builds.workshop import Layout, Step

VENV = ".venv"
UV = "uv>=0.5,<1"


def steps(plan: Plan, folder: Folder, layout: Layout) -> list[Step]:
    """Return what has to be run, in order; nothing where there is nothing to install."""
    if not plan.install:
        return []
    if plan.language == "python":
        return _python_steps(plan, folder, layout)
    return [_node_step(managers.node_manager(folder), layout)]


def _node_step(manager: managers.NodeManager, layout: Layout) -> Step:
    argv = [f"{layout.bin}/{manager.name}", *manager.install, *manager.flags]
    if manager.name == "pnpm":
        argv.append(f"--store-dir={layout.cache}/pnpm")
    # Set to "production", it would leave out what most front ends are built with.
    return Step(manager.label, argv, without=("NODE_ENV",))


def _python_steps(plan: Plan, folder: Folder, layout: Layout) -> list[Step]:
    """Make an environment of the app's own, then let pip fill it. Sources may be built: it all happens in a sandbox."""
    python = f"{VENV}/bin/python"
    make = [layout.python, "-m", "venv", "--clear", "--copies", "--without-pip", VENV]
    found = [Step("python -m venv", make, without=("PYTHONPATH", "PYTHONHOME"))]
    told = {"PYTHONPATH": layout.pip}
    pip = [python, "-m", "pip", "install", "--no-warn-script-location", "--progress-bar=off", "--no-compile"]
    server = [plan.server] if plan.server else []
    if plan.install.startswith("uv "):
        place = f"{layout.tmp}/uv"
        found.append(Step("pip install uv", [*pip, "--target", place, UV], told))
        sync = [f"{place}/bin/uv", "sync", "--frozen", "--no-dev", "--no-editable", "--no-progress"]
        own = {"UV_PROJECT_ENVIRONMENT": f"{layout.base}/{VENV}", "UV_PYTHON": python, "UV_NO_MANAGED_PYTHON": "1"}
        found.append(Step(plan.install, sync, own))
        return found + ([Step(f"pip install {plan.server}", [*pip, *server], told)] if server else [])
    found.append(Step(plan.install, [*pip, *_wanted(folder), *server], told))
    return found


def _wanted(folder: Folder) -> list[str]:
    if folder.has("requirements.txt"):
        return ["-r", "requirements.txt"]
    if "build-system" in folder.project:
        return ["."]
    return managers.named_dependencies(folder)
