"""fly.toml: the app, its variables, health check, size, replicas and disk."""

from __future__ import annotations

from pathlib import Path

from moorage.cli.importing.documents import Node, read
from moorage.cli.importing.result import Result, gigabytes, tier_for

SIZES_GB = {"shared-cpu-1x": 0.25, "shared-cpu-2x": 0.5, "shared-cpu-4x": 1, "shared-cpu-8x": 2,
            "performance-1x": 2, "performance-2x": 4, "performance-4x": 8, "performance-8x": 16}  # fmt: skip
IGNORED = frozenset(
    (
        "app", "env", "build", "http_service", "services", "vm", "mounts", "deploy", "processes", "checks",
        "kill_signal", "kill_timeout", "swap_size_mb", "primary_region", "metrics",
    )
)  # fmt: skip
LEFT = {
    "statics": ("files are served by the app", "let the app serve them, or make a static project"),
    "files": ("files beside the app do not exist", "add them to the repository, or store them as secrets"),
    "restart": ("an app that exits is always started again", "remove it"),
    "experimental": ("there is no such setting", "remove it"),
}


def run(path: Path, folder: Path, service: str | None = None) -> Result:
    document = read(path)
    result = Result.named(document["app"].text(), folder)
    for name, each in document["env"].table().items():
        result.env(name, each.text())
    _build(result, document["build"], folder)
    http = document["http_service"]
    result.set(health_check_path=_health_path(document, http))
    port = http["internal_port"].text()
    if port and port not in ("8080", "3000", "8000", "5000") and "PORT" not in result.project.get("env", {}):
        result.env("PORT", port)
    result.replicas(http["min_machines_running"].number())
    _size(result, document["vm"])
    _mounts(result, document["mounts"])
    _processes(result, document["processes"], service or "app")
    if document["deploy"]["release_command"]:
        result.leave_release_command("deploy.release_command", document["deploy"]["release_command"].text())
    for each in document["services"].items():
        _service(result, each)
    result.leave_keys(document.table_value().keys() - IGNORED, LEFT)
    return result


def _build(result: Result, build: Node, folder: Path) -> None:
    """Use the image, else the Dockerfile; a file without [build] means the folder's own, if it has one."""
    if build["image"]:
        result.set(kind="container", public_image=build["image"].text())
    elif build["builder"] or build["buildpacks"]:
        step = "`moorage detect` shows the commands; set build-cmd and start-cmd to change them"
        result.leave("build", "this platform has no buildpacks", step)
    elif build or (folder / "Dockerfile").is_file():
        args = {name: each.text() for name, each in build["args"].table().items()}
        result.dockerfile(build["dockerfile"].text(), target=build["build-target"].text(), args=args)


def _health_path(document: Node, http: Node) -> str | None:
    checks = [*http["checks"].items()] if http["checks"].is_list else list(http["checks"].table().values())
    checks += list(document["checks"].table().values())
    for service in document["services"].items():
        checks += list(service["http_checks"].items())
    return next((each["path"].text() for each in checks if each["path"]), None)


def _size(result: Result, vm: Node) -> None:
    first = next(vm.items(), vm) if vm.is_list else vm
    memory = first["memory"].text()
    size = gigabytes(memory) if memory else SIZES_GB.get(first["size"].text())
    result.set(tier=tier_for(size))
    if vm.is_list and len(vm.value) > 1:
        result.leave("further [[vm]]", "all replicas have one tier", "choose the tier for the largest one")


def _mounts(result: Result, mounts: Node) -> None:
    nodes = list(mounts.items()) if mounts.is_list else [mounts] if mounts else []
    if not nodes:
        return
    size = gigabytes(nodes[0]["initial_size"].text()) if nodes[0]["initial_size"] else None
    result.set(disk=max(round(size or 1), 1))
    target = nodes[0]["destination"].text()
    if target != "/data":
        result.leave(f"mount at {target}", "the disk of an app is at /data", "change the folder in the app")
    if len(nodes) > 1:
        result.leave("further mounts", "an app has one disk", "use folders below /data")


def _processes(result: Result, processes: Node, chosen: str) -> None:
    commands = {name: each.text() for name, each in processes.table().items()}
    main = chosen if chosen in commands else next((each for each in ("web", "app") if each in commands), None)
    if main is not None:
        result.set(start_cmd=commands[main])
    for name, command in commands.items():
        if name != main:
            result.leave_process(f"process {name} ({command})")


def _service(result: Result, node: Node) -> None:
    if node["protocol"].text() == "udp":
        result.leave("service with UDP", "apps are reached by HTTP only", "run this part elsewhere")
    handlers = {word.text() for port in node["ports"].items() for word in port["handlers"].items()}
    if not handlers & {"http", "tls"}:
        step = "run this part elsewhere, or serve HTTP"
        result.leave(f"service on port {node['internal_port'].text()}", "apps are reached by HTTP only", step)
