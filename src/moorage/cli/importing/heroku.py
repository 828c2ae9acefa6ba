"""Procfile and app.json: the process `web` becomes the project, add-ons become databases."""

from __future__ import annotations

import re
from pathlib import Path

from moorage.cli.importing.documents import CannotImport, Node, read, read_text
from moorage.cli.importing.result import Result

ADD_ONS = {
    "heroku-postgresql": "postgresql",
    "postgresql": "postgresql",
    "jawsdb": "mysql",
    "jawsdb-maria": "mysql",
    "cleardb": "mysql",
}
_LINE = re.compile(r"^([A-Za-z0-9_-]+):\s*(.+)$")
_BIG = {"standard-1x": "micro", "standard-2x": "mini", "performance-m": "medium", "performance-l": "xlarge"}


def run(path: Path, folder: Path, service: str | None = None) -> Result:
    """Import both files of a folder, whichever of them was named."""
    app_file, procfile = path.parent / "app.json", path.parent / "Procfile"
    app = read(app_file) if app_file.exists() else Node(None, app_file.name)
    result = Result.named(app["name"].text(), folder)
    for each in app["addons"].items():
        _add_on(result, each["plan"].text() if each.is_table else each.text())
    for name, each in app["env"].table().items():
        _variable(result, name, each)
    if procfile.exists():
        _processes(result, processes(procfile), service or "web")
    web = app["formation"]["web"]
    result.replicas(web["quantity"].number())
    result.set(tier=_BIG.get(web["size"].text().lower()))
    for each in app["cron"].items():
        _cron(result, each)
    _leave_rest(result, app)
    return result


def processes(path: Path) -> dict[str, str]:
    commands = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.match(line.strip())
        if match is None:
            raise CannotImport(f"{path.name}:{number}: should be `name: command`")
        commands[match[1]] = match[2].strip()
    if not commands:
        raise CannotImport(f"{path.name} has no process")
    return commands


def _processes(result: Result, commands: dict[str, str], chosen: str) -> None:
    if chosen in commands:
        result.set(start_cmd=commands[chosen])
    for name, command in commands.items():
        if name == chosen:
            continue
        if name == "release":
            result.leave_release_command("process release", command)
        else:
            result.leave_process(f"process {name} ({command})")


def _add_on(result: Result, plan: str) -> None:
    name = plan.partition(":")[0]
    if name in ADD_ONS:
        known = len(result.draft.sections.get("databases", []))
        result.database(f"{result.project['name']}-db{known + 1 if known else ''}", ADD_ONS[name])
    elif name == "scheduler":
        result.leave("add-on scheduler", "its jobs are not in the file", "add each job to [[cronjobs]]")
    else:
        step = "use a service elsewhere and store its address as a secret"
        result.leave(f"add-on {plan}", "the platform does not offer it", step)


def _variable(result: Result, name: str, node: Node) -> None:
    if not node.is_table:
        result.env(name, node.text())
    elif node["generator"].text() == "secret" or not node["value"]:
        if node["required"].flag(True) or node["generator"]:
            result.secret(name)
    else:
        result.env(name, node["value"].text())


def _cron(result: Result, node: Node) -> None:
    number = len(result.draft.sections.get("cronjobs", [])) + 1
    name = f"{result.project['name']}-job-{number}"
    entry = {"name": name[:52], "cron-schedule": node["schedule"].text(), "start-cmd": node["command"].text()}
    result.draft.add("cronjobs", entry)


def _leave_rest(result: Result, app: Node) -> None:
    for each in app["buildpacks"].items():
        step = "`moorage detect` shows what is found out; set build-cmd to change it"
        result.leave(f"buildpack {each['url'].text()}", "the build is found out from the files", step)
    for name in app["scripts"].table():
        result.leave(
            f"script {name}", "there are no hooks of a deployment", "run the command after the first deployment"
        )
    for name in app["formation"].table():
        if name != "web":
            result.leave(f"formation {name}", "a project has one process", "see the process of that name")
    if app["environments"]:
        result.leave("environments", "there is one set of settings", "make a second project for it")
