"""vercel.json: build settings, redirects and headers."""

from __future__ import annotations

from pathlib import Path

from moorage.cli.importing.documents import Node, read
from moorage.cli.importing.result import Result

CRON_STEP = "write a function that requests the path and add it to [[schedules]]"
LEFT = {
    "installCommand": ("dependencies are installed by the lock file", "put another command in front of build-cmd"),
    "functions": ("settings of single functions do not exist", "deploy them as functions, or as a part of the app"),
    "routes": ("the old form mixes several features", "write redirects, rewrites and headers, and import again"),
    "builds": ("the build is found out from the files", "set build-cmd and build-dir"),
    "regions": ("the platform runs on its own machines", "remove it"),
    "images": ("images are not resized by the platform", "let the app or the build resize them"),
    "ignoreCommand": ("every push is deployed", "push to another branch, or set auto-deploy = false"),
    "trailingSlash": ("a redirect cannot test the end of every path", "redirect single paths in [[redirects]]"),
}
IGNORED = frozenset(
    (
        "$schema", "version", "name", "framework", "buildCommand", "outputDirectory", "devCommand", "redirects",
        "rewrites", "headers", "env", "build", "crons", "cleanUrls", "public", "git", "github", "alias", "scope",
        "fluid", "relatedProjects",
    )
)  # fmt: skip


def run(path: Path, folder: Path, service: str | None = None) -> Result:
    document = read(path)
    result = Result.named(document["name"].text(), folder)
    result.set(build_cmd=document["buildCommand"].text(), build_dir=document["outputDirectory"].text())
    for table in (document["env"], document["build"]["env"]):
        for name, each in table.table().items():
            _variable(result, name, each.text())
    for each in document["redirects"].items():
        _redirect(result, each)
    for each in document["headers"].items():
        _headers(result, each)
    for each in document["rewrites"].items():
        result.rewrite(each["source"].text(), each["destination"].text())
    for each in document["crons"].items():
        what = f"cron {each['path'].text()} ({each['schedule'].text()})"
        result.leave(what, "schedules call functions, not paths of a project", CRON_STEP)
    for each in document["alias"].items() if document["alias"].is_list else ():
        result.domain(each.text())
    result.leave_keys(document.table_value().keys() - IGNORED, LEFT)
    return result


def _variable(result: Result, name: str, value: str) -> None:
    if value.startswith("@"):
        result.secret(name)
    else:
        result.env(name, value)


def _redirect(result: Result, node: Node) -> None:
    source = node["source"].text()
    if node["has"] or node["missing"]:
        why = "a redirect cannot test headers, cookies or queries"
        result.leave(f"redirect {source}", why, "decide in the app")
        return
    status = int(node["statusCode"].number() or (308 if node["permanent"].flag(True) else 307))
    result.redirect_pattern(source, node["destination"].text(), status)


def _headers(result: Result, node: Node) -> None:
    source = node["source"].text()
    if node["has"] or node["missing"]:
        result.leave(f"headers of {source}", "a header rule cannot test the request", "set them in the app")
        return
    for each in node["headers"].items():
        result.header_pattern(source, each["key"].text(), each["value"].text())
