"""render.yaml: a web service or static site becomes the project; cron jobs and databases come along."""

from __future__ import annotations

from pathlib import Path

from moorage.cli.importing.documents import CannotImport, Node, read
from moorage.cli.importing.result import Result
from moorage.cli.manifest.reading import Entry

LANGUAGES = {"node": "nodejs", "python": "python", "go": "go", "docker": "docker"}
TIERS = {"free": "free", "starter": "micro", "standard": "small", "pro": "medium", "pro plus": "large",
         "pro max": "xlarge", "pro ultra": "xlarge"}  # fmt: skip
KINDS = {"keyvalue": "Redis is not offered", "redis": "Redis is not offered"}
CRONJOB_KEYS = {"rootDir": "base-dir", "buildCommand": "build-cmd", "startCommand": "start-cmd",
                "dockerCommand": "command", "dockerfilePath": "dockerfile-path",
                "dockerContext": "docker-build-context-dir"}  # fmt: skip
LEFT = {
    "initialDeployHook": ("there are no hooks of a deployment", "run the command after the first deployment"),
    "buildFilter": ("every push is deployed", "set auto-deploy = false"),
    "ipAllowList": ("addresses are not filtered", "test the address in the app"),
}


def run(path: Path, folder: Path, service: str | None = None) -> Result:
    document = read(path)
    services = {each["name"].text(each.path): each for each in document["services"].items()}
    if not services and not document["databases"]:
        raise CannotImport(f"{path.name}: services and databases are missing")
    chosen = _choose(path.name, services, service)
    result = Result.named(chosen or "", folder)
    databases = {}
    for each in document["databases"].items():
        databases[each["name"].text()] = each
        _database(result, each)
    groups = {each["name"].text(): each for each in document["envVarGroups"].items()}
    if chosen is not None:
        _project(result, services[chosen], groups)
    for name, each in services.items():
        if name != chosen:
            _other(result, name, each, groups)
    return result


def _choose(file: str, services: dict[str, Node], wanted: str | None) -> str | None:
    if wanted is not None and wanted not in services:
        raise CannotImport(f"{file} has no service {wanted}; there is {', '.join(services) or 'none'}")
    return wanted or next((name for name, each in services.items() if each["type"].text() in ("web", "static")), None)


def runtime_of(node: Node) -> str:
    return node["runtime"].text() or node["env"].text()


def _database(result: Result, node: Node) -> None:
    result.database(
        node["name"].text(),
        "postgresql",
        node["postgresMajorVersion"].text(),
        username=node["user"].text(),
        db_name=node["databaseName"].text(),
        instance_type=TIERS.get(node["plan"].text(), "micro" if node["plan"] else ""),
    )
    if node["readReplicas"]:
        result.leave(f"replicas of {node['name'].text()}", "replicas cannot be read", 'set architecture = "replicaset"')


def _project(result: Result, node: Node, groups: dict[str, Node]) -> None:
    is_static = runtime_of(node) == "static" or node["type"].text() == "static"
    result.set(
        kind="static" if is_static else None,
        base_dir=node["rootDir"].text().strip("/"),
        build_cmd=node["buildCommand"].text(),
        build_dir=node["staticPublishPath"].text().removeprefix("./").strip("/"),
        start_cmd=node["startCommand"].text(),
        branch=node["branch"].text(),
        health_check_path=node["healthCheckPath"].text(),
    )
    if not is_static:
        result.set(tier=TIERS.get(node["plan"].text()))
    if runtime_of(node) == "docker":
        result.dockerfile(node["dockerfilePath"].text(), node["dockerContext"].text())
        result.set(start_cmd=node["dockerCommand"].text())
    elif node["image"]:
        result.set(kind="container", public_image=node["image"]["url"].text(), start_cmd=node["dockerCommand"].text())
    _variables(result, node, groups)
    scaling = node["scaling"]
    result.replicas(
        scaling["minInstances"].number() or node["numInstances"].number(),
        scaling["maxInstances"].number(),
        scaling["targetCPUPercent"].number(),
    )
    for each in node["domains"].items():
        result.domain(each.text())
    for each in node["routes"].items():
        _route(result, each)
    for each in node["headers"].items():
        result.header_pattern(each["path"].text("/*"), each["name"].text(), each["value"].text())
    if node["disk"]:
        result.set(disk=int(node["disk"]["sizeGB"].number() or 1))
        if node["disk"]["mountPath"].text() != "/data":
            what = f"disk at {node['disk']['mountPath'].text()}"
            result.leave(what, "the disk of an app is at /data", "change the folder in the app")
    result.leave_keys([key for key in LEFT if node[key]], LEFT)
    if node["preDeployCommand"]:
        result.leave_release_command("preDeployCommand", node["preDeployCommand"].text())
    if node["previews"] or node["pullRequestPreviewsEnabled"].flag():
        result.set(pr_preview=True)


def _variables(result: Result, node: Node, groups: dict[str, Node], target: Entry | None = None) -> None:
    for each in node["envVars"].items():
        if each["fromGroup"]:
            group = groups.get(each["fromGroup"].text())
            if group is not None:
                _variables(result, group, {}, target)
            continue
        name = each["key"].text()
        if each["fromDatabase"]:
            if name != "DATABASE_URL":
                step = "read the address from the secret DATABASE_URL, which the link makes"
                result.leave(f"variable {name}", "its value comes from a database", step)
        elif each["fromService"]:
            result.leave(
                f"variable {name}", "its value is the address of a service", "set it after that project exists"
            )
        elif each["generateValue"].flag() or not each["value"]:
            result.secret(name)
        else:
            result.env(name, each["value"].text(), target)


def _route(result: Result, node: Node) -> None:
    source, destination = node["source"].text(), node["destination"].text()
    if node["type"].text() == "redirect":
        result.redirect_pattern(source, destination, int(node["status"].number() or 301))
    else:
        result.rewrite(source, destination)


def _other(result: Result, name: str, node: Node, groups: dict[str, Node]) -> None:
    kind = node["type"].text()
    if kind == "cron":
        _cronjob(result, name, node, groups)
    elif kind in KINDS:
        result.leave(f"service {name}", KINDS[kind], "use a service elsewhere and store its address as a secret")
    elif kind in ("web", "static"):
        step = f"run `moorage import --service {name}` in another folder"
        result.leave(f"service {name}", "a moorage.toml has one project", step)
    else:
        result.leave_process(f"service {name} ({kind})")


def _cronjob(result: Result, name: str, node: Node, groups: dict[str, Node]) -> None:
    entry: Entry = {"name": name[:52], "cron-schedule": node["schedule"].text()}
    language = LANGUAGES.get(runtime_of(node))
    if language is None:
        step = "set language to nodejs, python, go or docker"
        result.leave(f"runtime {runtime_of(node) or '(none)'} of cron job {name}", "it is built from its sources", step)
    else:
        entry["language"] = language
    for key, field in CRONJOB_KEYS.items():
        if node[key]:
            entry[field] = node[key].text()
    _variables(result, node, groups, entry)
    result.draft.add("cronjobs", entry)
