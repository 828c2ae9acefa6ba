"""netlify.toml, with `_redirects` and `_headers` beside it: build settings, redirects and headers."""

from __future__ import annotations

from pathlib import Path

from moorage.cli.importing.documents import Node, read, read_text
from moorage.cli.importing.result import Result

LEFT = {
    "context": ("there is one set of settings", "make a second project for another environment"),
    "plugins": ("builds have no plug-ins", "run the tool in build-cmd"),
    "functions": ("functions are deployed by themselves", "deploy each function, and call its address"),
    "edge_functions": ("there are no functions at the edge", "deploy each as a function, or use redirects and headers"),
    "ignore": ("every push is deployed", "set auto-deploy = false"),
    "template": ("there are no templates", "remove it"),
}
IGNORED = frozenset(("build", "redirects", "headers", "dev"))
_BUILD = frozenset(("base", "command", "publish", "environment", "processing"))


def run(path: Path, folder: Path, service: str | None = None) -> Result:
    document = read(path)
    result = Result.named("", folder)
    build = document["build"]
    result.set(base_dir=build["base"].text().strip("/"), build_cmd=build["command"].text())
    result.set(build_dir=_publish(build))
    for name, each in build["environment"].table().items():
        result.env(name, each.text())
    for each in document["redirects"].items():
        _redirect(result, each)
    for each in document["headers"].items():
        for name, value in each["values"].table().items():
            _header(result, each["for"].text(), name, value.text())
    _read_lists(result, path.parent, build)
    result.leave_keys(document.table_value().keys() - IGNORED, LEFT)
    result.leave_keys(build.table_value().keys() - _BUILD, LEFT, "build.")
    return result


def _publish(build: Node) -> str:
    """Return the folder to publish; the other platform counts it from the base folder too."""
    publish, base = build["publish"].text().strip("/"), build["base"].text().strip("/")
    return publish.removeprefix(f"{base}/") if base else publish


def _redirect(result: Result, node: Node) -> None:
    source, to = node["from"].text(), node["to"].text()
    if node["conditions"] or node["query"] or node["signed"]:
        why = "a redirect cannot test countries, languages, roles or queries"
        result.leave(f"redirect {source}", why, "decide in the app")
        return
    _add(result, source, to, int(node["status"].number() or 301))


def _add(result: Result, source: str, to: str, status: int) -> None:
    what = f"redirect {source} → {to} ({status})"
    if source.startswith(("http://", "https://")):
        result.leave(what, "rules match paths, not hosts", "add the host to [[domains]] and redirect its paths")
    elif status == 200:
        result.rewrite(source, to)
    else:
        result.redirect_pattern(source, to, status)


def _header(result: Result, source: str, name: str, value: str) -> None:
    if name.lower() == "basic-auth":
        result.leave(f"password of {source}", "pages have no passwords", "ask for it in the app")
        return
    result.header_pattern(source, name, value)


def _read_lists(result: Result, folder: Path, build: Node) -> None:
    for place in dict.fromkeys((folder, folder / _publish(build), folder / "public")):
        for name, parse in (("_redirects", _redirects), ("_headers", _header_list)):
            if (place / name).is_file():
                parse(result, read_text(place / name))


def _redirects(result: Result, text: str) -> None:
    """Read lines such as `/old /new 301!`."""
    for line in text.splitlines():
        words = line.partition("#")[0].split() if not line.lstrip().startswith("#") else []
        if len(words) < 2:
            continue
        status = words[-1].rstrip("!")
        if len(words) > 3 or (len(words) == 3 and not status.isdecimal()):
            result.leave(f"redirect {line.strip()}", "a redirect cannot test the request", "decide in the app")
        else:
            _add(result, words[0], words[1], int(status) if len(words) == 3 else 301)


def _header_list(result: Result, text: str) -> None:
    """Read blocks of a path, and below it lines such as `  X-Frame-Options: DENY`."""
    source = ""
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, sign, value = line.strip().partition(":")
        if line[0] not in " \t":
            source = line.strip()
        elif sign and source:
            _header(result, source, name, value.strip())
