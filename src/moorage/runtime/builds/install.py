"""Commands that install the dependencies of a plan."""

from __future__ import annotations

from moorage.runtime.builds.detection import managers
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.environment import Layout, Step
from moorage.runtime.builds.ports import Plan

VENV = ".venv"
UV = "uv>=0.5,<1"


def steps(plan: Plan, folder: Folder, layout: Layout) -> list[Step]:
    """Return the commands in order; empty without dependencies."""
    if not plan.install:
        return []
    if plan.language == "python":
        return _python_steps(plan, folder, layout)
    return [_node_step(managers.node_manager(folder), layout)]


def _node_step(manager: managers.NodeManager, layout: Layout) -> Step:
    argv = [f"{layout.bin}/{manager.name}", *manager.install, *manager.flags]
    if manager.name == "pnpm":
        argv.append(f"--store-dir={layout.cache}/pnpm")
    # NODE_ENV=production would skip devDependencies, which most front ends need for their build.
    return Step(manager.label, argv, without=("NODE_ENV",))


def _python_steps(plan: Plan, folder: Folder, layout: Layout) -> list[Step]:
    """Create a virtual environment and fill it with pip or uv; may build from source."""
    python = f"{VENV}/bin/python"
    create = [layout.python, "-m", "venv", "--clear", "--copies", "--without-pip", VENV]
    install = [Step("python -m venv", create, without=("PYTHONPATH", "PYTHONHOME"))]
    pip_env = {"PYTHONPATH": layout.pip}
    pip = [python, "-m", "pip", "install", "--no-warn-script-location", "--progress-bar=off", "--no-compile"]
    server = plan.server.split()
    if plan.install.startswith("uv "):
        target = f"{layout.tmp}/uv"
        install.append(Step("pip install uv", [*pip, "--target", target, UV], pip_env))
        sync = [f"{target}/bin/uv", "sync", "--frozen", "--no-dev", "--no-editable", "--no-progress"]
        uv_env = {"UV_PROJECT_ENVIRONMENT": f"{layout.base}/{VENV}", "UV_PYTHON": python, "UV_NO_MANAGED_PYTHON": "1"}
        install.append(Step(plan.install, sync, uv_env))
        return install + ([Step(f"pip install {plan.server}", [*pip, *server], pip_env)] if server else [])
    install.append(Step(plan.install, [*pip, *_requirements(folder), *server], pip_env))
    return install


def _requirements(folder: Folder) -> list[str]:
    if folder.has("requirements.txt"):
        return ["-r", "requirements.txt"]
    if "build-system" in folder.project:
        return ["."]
    return managers.named_dependencies(folder)
