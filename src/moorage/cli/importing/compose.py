"""docker-compose.yml: the service that is built becomes the project, database images become databases."""

from __future__ import annotations

import re
from pathlib import Path

from moorage.cli.importing.documents import CannotImport, Node, read
from moorage.cli.importing.result import DATABASE_URL, Result, gigabytes, tier_for

DATABASES = {
    "postgres": "postgresql",
    "postgis": "postgresql",
    "pgvector": "postgresql",
    "postgresql": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
}
OTHER_STORES = ("redis", "valkey", "mongo", "memcached", "rabbitmq", "elasticsearch", "kafka", "minio", "opensearch")
# Settings that the platform decides itself, with the same effect.
NOT_NEEDED = frozenset(
    (
        "build", "image", "command", "entrypoint", "environment", "env_file", "ports", "expose", "healthcheck",
        "deploy", "volumes", "depends_on", "restart", "networks", "container_name", "hostname", "links", "init",
        "working_dir", "stdin_open", "tty", "labels", "platform", "profiles", "mem_limit", "cpus", "scale",
        "stop_grace_period", "logging", "develop", "user",
    )
)  # fmt: skip
_VARIABLE = re.compile(r"\$\{(\w+)(?::?([-?+])([^}]*))?\}|\$(\w+)")
_HEALTH = re.compile(r"https?://[^/\s'\"]+(/[^\s'\"|;&]*)?")


def run(path: Path, folder: Path, service: str | None = None) -> Result:
    document = read(path)
    services = document["services"].table()
    if not services:
        raise CannotImport(f"{path.name}: services is missing or empty")
    databases = {name: each for name, each in services.items() if kind_of(each) in DATABASES.values()}
    chosen = choose(path.name, {name: each for name, each in services.items() if name not in databases}, service)
    result = Result.named(service or document["name"].text(), folder)
    for name, each in databases.items():
        _database(result, name, each)
    if chosen is not None:
        _app(result, services[chosen], set(databases))
    for name, each in services.items():
        if name != chosen and name not in databases:
            _other(result, name, each)
    for key in ("configs", "secrets"):
        for name in document[key].table():
            result.leave(f"{key[:-1]} {name}", "files beside the app do not exist", "store the content as a secret")
    return result


def image_of(service: Node) -> tuple[str, str]:
    """Return the name of an image without registry, and its tag."""
    name, _, tag = service["image"].text().partition("@")[0].rpartition("/")[2].partition(":")
    return name, _interpolated(tag)[0]


def kind_of(service: Node) -> str | None:
    return DATABASES.get(image_of(service)[0]) if not service["build"] else None


def choose(file: str, services: dict[str, Node], wanted: str | None) -> str | None:
    """Return the service that becomes the project: the wanted one, else the first that is built, with ports first."""
    if wanted is not None:
        if wanted not in services:
            raise CannotImport(f"{file} has no service {wanted}; there is {', '.join(services) or 'none'}")
        return wanted
    built = [name for name, each in services.items() if each["build"]]
    return next((name for name in built if services[name]["ports"]), built[0] if built else None)


def _database(result: Result, name: str, service: Node) -> None:
    image, tag = image_of(service)
    env = dict(_variables(service["environment"]))
    user = env.get("POSTGRES_USER") or env.get("MYSQL_USER") or env.get("MARIADB_USER") or ""
    database = env.get("POSTGRES_DB") or env.get("MYSQL_DATABASE") or env.get("MARIADB_DATABASE") or ""
    version = tag if image != "mariadb" else ""
    unfit = any("$" in each for each in (user, database))
    values = {} if unfit else {"username": user, "db_name": database}
    result.database(f"{result.project['name']}-{name}", DATABASES[image], version, **values)
    if image == "mariadb":
        result.leave(f"MariaDB of {name}", "the platform has MySQL", "test the app with MySQL 8.4")
    if image in ("postgis", "pgvector"):
        result.leave(
            f"extension {image} of {name}", "extensions depend on the machine", "look at its list of extensions"
        )
    if service["volumes"]:
        step = "dump it on the old platform and load it into the new database"
        result.leave(f"data of database {name}", "an import carries settings only", step)


def _app(result: Result, service: Node, databases: set[str]) -> None:
    build = service["build"]
    context = build["context"].text(".") if build.is_table else build.text(".")
    if context.strip("./"):
        result.set(base_dir=context.removeprefix("./").rstrip("/"))
    if build:
        _build(result, build)
    command = service["command"].words() or service["entrypoint"].words()
    result.set(start_cmd=command, health_check_path=_health_path(service["healthcheck"]))
    memory = service["deploy"]["resources"]["limits"]["memory"].text() or service["mem_limit"].text()
    result.set(tier=tier_for(gigabytes(memory) if memory[-1:].isalpha() else None))
    result.replicas(service["deploy"]["replicas"].number() or service["scale"].number())
    _environment(result, service, databases)
    _volumes(result, service)
    for key in service.table_value().keys() - NOT_NEEDED:
        if not key.startswith("x-"):
            result.leave(
                f"{key} of the service", "apps run in a sandbox without it", "remove it, or run this part elsewhere"
            )


def _build(result: Result, build: Node) -> None:
    if not build.is_table:
        result.dockerfile("")
        return
    args = {}
    for name, value in _variables(build["args"]):
        args[name], is_missing = _interpolated(value)
        if is_missing:
            del args[name]
            step = "add its value to docker-build-args"
            result.leave(f"build argument {name}", "its value is a variable of the shell", step)
    result.dockerfile(build["dockerfile"].text(), target=build["target"].text(), args=args)
    if build["dockerfile_inline"]:
        result.leave("build.dockerfile_inline", "a Dockerfile is a file of the repository", "write it to a Dockerfile")
    for key in ("ssh", "secrets", "additional_contexts"):
        if build[key]:
            why = "secrets of the project are available to RUN --mount=type=secret, and nothing else"
            result.leave(f"build.{key}", why, "store it as a secret, or copy it in a stage")


def _environment(result: Result, service: Node, databases: set[str]) -> None:
    for name, value in _variables(service["environment"]):
        text, missing = _interpolated(value)
        host = next((each for each in databases if re.search(rf"(^|@|//){re.escape(each)}(:|/|$)", text)), None)
        if host is not None:
            if name != DATABASE_URL:
                step = f"read the address from the secret {DATABASE_URL}, which the link makes"
                result.leave(f"variable {name}", f"its value is the address of {host} in the old network", step)
        elif missing and text == "":
            result.secret(name)
        else:
            result.env(name, text)
    files = service["env_file"]
    names = (
        [each["path"].text() if each.is_table else each.text() for each in files.items()]
        if files.is_list
        else [files.text()]
    )
    for name in filter(None, names):
        result.leave(
            f"env_file {name}", "its values may be secrets", "add its variables to [project.env] or as secrets"
        )


def _variables(node: Node) -> list[tuple[str, str]]:
    """Return variables of a table or a list; a name without a value gets the value of the shell."""
    if node.is_list:
        pairs = [each.text().partition("=") for each in node.items()]
        return [(name, value if sign else f"${{{name}}}") for name, sign, value in pairs]
    return [(name, each.text(f"${{{name}}}")) for name, each in node.table().items()]


def _interpolated(text: str) -> tuple[str, bool]:
    """Return a text with the defaults of its variables, and whether one has none."""
    missing = False

    def value(match: re.Match[str]) -> str:
        nonlocal missing
        if match[2] == "-":
            return match[3]
        missing = True
        return ""

    return _VARIABLE.sub(value, text.replace("$$", "\0")).replace("\0", "$"), missing


def _health_path(node: Node) -> str | None:
    match = _HEALTH.search(node["test"].words()) if node["test"] else None
    return match[1] if match else None


def _volumes(result: Result, service: Node) -> None:
    for each in service["volumes"].items():
        text = f"{each['source'].text()}:{each['target'].text()}" if each.is_table else each.text()
        is_file = text.startswith((".", "/", "~")) and ":" in text
        if not is_file:
            result.set(disk=1)
            step = "change the folder to /data, and set disk in GB"
            result.leave(f"volume {text}", "the disk of an app is at /data", step)
        elif not text.startswith((".:", "./:")):
            step = "add the files to the repository, or use the disk at /data"
            result.leave(f"volume {text}", "files of the machine are not mounted", step)


def _other(result: Result, name: str, service: Node) -> None:
    image = image_of(service)[0]
    if service["build"]:
        result.leave(
            f"service {name}",
            "a moorage.toml has one project",
            f"run `moorage import --service {name}` in another folder",
        )
    elif image in OTHER_STORES:
        result.leave(
            f"service {name}", f"{image} is not offered", "use a service elsewhere and store its address as a secret"
        )
    else:
        image_name = service["image"].text()
        step = f"`moorage projects create {name} --image {image_name}`"
        result.leave(f"service {name} ({image_name})", "a moorage.toml has one project", step)
