"""Result of an import: settings for moorage.toml, and a list of settings that were not carried over."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moorage.cli.importing import patterns
from moorage.cli.importing.patterns import NoPattern
from moorage.cli.manifest.changes import is_secret_name
from moorage.cli.manifest.reading import Entry
from moorage.cli.manifest.writing import Draft, project_name

TIERS = ((0.25, "free"), (0.5, "micro"), (1, "mini"), (2, "small"), (4, "medium"), (8, "large"), (16, "xlarge"))
DATABASE_TIER = "free"
VERSIONS = {"postgresql": {16: "16.4.0", 14: "14.8.0"}, "mysql": {8: "8.4.2", 5: "5.7.44"}}
REDIRECT_STATUSES = (301, 302, 303, 307, 308)
RESERVED_USERS = frozenset(("postgres", "root", "mysql"))
LOOKS_RANDOM = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9+/_=-]{24,}")
HAS_PASSWORD = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@", re.IGNORECASE)
DATABASE_URL = "DATABASE_URL"
PAGES_OF_SINGLE_PAGE_APPS = ("/index.html", "/", "/index")
EVERY_PATH = re.compile(r"/?(\*|\(\.\*\)|:\w+\*|\(\.\+\))")


@dataclass(frozen=True, slots=True)
class Left:
    """A setting that was not carried over, the reason, and the remedy."""

    what: str
    why: str
    step: str


@dataclass(slots=True)
class Result:
    draft: Draft = field(default_factory=Draft)
    left: list[Left] = field(default_factory=list)

    @classmethod
    def named(cls, text: str, folder: Path) -> Result:
        """Return an empty result for a project, named after a text or else the folder."""
        return cls(Draft({"name": project_name(text or folder.resolve().name)}))

    @property
    def project(self) -> Entry:
        return self.draft.project

    def leave(self, what: str, why: str, step: str) -> None:
        self.left.append(Left(what, why, step))

    def set(self, **values: Any) -> None:
        """Set keys of the project that have a value; the API's names in snake_case."""
        for name, value in values.items():
            if value not in (None, "", {}, []):
                self.project[name.replace("_", "-")] = value

    def dockerfile(self, path: str, context: str = "", target: str = "", args: Mapping[str, str] | None = None) -> None:
        """Build the project from its Dockerfile; paths are below its base folder."""
        self.set(kind="container", language="docker")
        docker_file_path = path.removeprefix("./").strip()
        if docker_file_path.startswith(("/", "..")):
            self.leave(
                f"Dockerfile {path}", "it is outside of the folder of the project", "set base-dir to a folder of both"
            )
        elif docker_file_path not in ("", "Dockerfile"):
            self.set(docker_file_path=docker_file_path)
        if context.strip("./"):
            self.set(docker_build_context_dir=context.removeprefix("./").rstrip("/"))
        kept = {name: value for name, value in (args or {}).items() if not is_secret(name, value)}
        for name in (args or {}).keys() - kept.keys():
            step = "store it as a secret, and read it with RUN --mount=type=secret"
            self.leave(f"build argument {name}", "arguments are visible in the image", step)
        self.set(docker_build_target=target, docker_build_args=kept)

    def secret(self, name: str) -> None:
        names: list[str] = self.project.setdefault("secrets", [])
        if name not in names:
            names.append(name)

    def env(self, name: str, value: str, target: Entry | None = None) -> None:
        """Add a variable; a value that looks like a secret becomes the name of a secret of the project."""
        if name == DATABASE_URL and self.draft.sections.get("databases"):
            return  # comes from the linked database
        if is_secret(name, value):
            self.secret(name)
        else:
            entry = self.project if target is None else target
            entry.setdefault("env", {})[name] = value

    def database(self, name: str, kind: str, version: str = "", **values: str) -> None:
        """Add a database with the closest version that exists."""
        known = VERSIONS[kind]
        major = int(match[0]) if (match := re.match(r"\d+", version)) else max(known)
        nearest = min(known, key=lambda each: (abs(each - major), -each))
        if major != nearest:
            step = f"test with {known[nearest]}, then dump the old database and load it into the new one"
            self.leave(f"version {version} of database {name}", "the platform has no such version", step)
        entry = {"name": project_name(name), "type": kind, "version": known[nearest], "instance-type": DATABASE_TIER}
        if values.get("username") and values["username"] not in RESERVED_USERS:
            entry["username"] = values["username"]
        if values.get("db_name") and values["db_name"] not in RESERVED_USERS:
            entry["db-name"] = values["db_name"]
        if values.get("instance_type"):
            entry["instance-type"] = values["instance_type"]
        self.draft.add("databases", entry)

    def redirect(self, source: str, destination: str, status: int) -> None:
        entry = {"source": source, "destination": destination, "status": status}
        if all(each["source"] != source for each in self.draft.sections.get("redirects", [])):
            self.draft.add("redirects", entry)

    def header(self, source: str, name: str, value: str) -> None:
        known = self.draft.sections.get("headers", [])
        if all((each["source"], each["name"]) != (source, name) for each in known):
            self.draft.add("headers", {"source": source, "name": name, "value": value})

    def redirect_pattern(self, source: str, destination: str, status: int) -> None:
        """Add a redirect with patterns of another platform, or list it with the reason."""
        what = f"redirect {source} → {destination} ({status})"
        if status not in REDIRECT_STATUSES:
            self.leave(what, "a redirect has 301, 302, 303, 307 or 308", "add a 404.html to the site")
            return
        try:
            self.redirect(*patterns.convert(source, destination), status)
        except NoPattern as error:
            self.leave(what, str(error), "write redirects with :name and * in its place")

    def header_pattern(self, source: str, name: str, value: str) -> None:
        """Add a header rule with a pattern of another platform, or list it with the reason."""
        try:
            self.header(patterns.source(source)[0], name, " ".join(value.split()))
        except NoPattern as error:
            self.leave(f"header {name} of {source}", str(error), "write header rules with :name and * in its place")

    def rewrite(self, source: str, destination: str) -> None:
        """List a rewrite, unless it is the one of a single-page app, which sites have anyway."""
        what = f"rewrite {source} → {destination}"
        if "://" in destination:
            self.leave(what, "the gateway does not forward to other hosts", "forward in the app, or use a redirect")
        elif destination not in PAGES_OF_SINGLE_PAGE_APPS or not EVERY_PATH.fullmatch(source):
            self.leave(what, "there are no rewrites", "use a redirect, or route in the app")

    def leave_process(self, what: str) -> None:
        step = "make it a cronjob or a scheduled function, or start it from the web process"
        self.leave(what, "a project has one process, which serves HTTP", step)

    def leave_release_command(self, what: str, command: str) -> None:
        start = self.project.get("start-cmd", "…")
        step = f'run it at the start: start-cmd = "{command} && {start}"'
        self.leave(what, "there is no phase between build and start", step)

    def leave_keys(self, keys: Iterable[str], reasons: Mapping[str, tuple[str, str]], prefix: str = "") -> None:
        """List keys of a file that have no counterpart; `reasons` has a reason and a next step by key."""
        for key in sorted(keys):
            self.leave(
                f"{prefix}{key}", *reasons.get(key, ("there is no such setting", "see the settings of a project"))
            )

    def domain(self, name: str) -> None:
        if "*" in name:
            self.leave(f"domain {name}", "wildcard domains are not supported", "add each host as a domain")
        elif all(each["domain"] != name for each in self.draft.sections.get("domains", [])):
            self.draft.add("domains", {"domain": name.lower()})

    def replicas(self, least: float | None, most: float | None = None, cpu: float | None = None) -> None:
        low, high = max(int(least or 1), 1), max(int(most or least or 1), int(least or 1), 1)
        if high > 1:
            scaling: Entry = {"enabled": True, "min-replicas": low, "max-replicas": high}
            self.project["auto-scaling"] = scaling | ({"target-cpu-percent": int(cpu)} if cpu else {})


def is_secret(name: str, value: str) -> bool:
    return bool(is_secret_name(name) or HAS_PASSWORD.search(value) or LOOKS_RANDOM.fullmatch(value))


def tier_for(memory_gb: float | None) -> str | None:
    """Return the smallest tier with that memory."""
    if not memory_gb:
        return None
    return next((key for size, key in TIERS if memory_gb <= size), TIERS[-1][1])


def gigabytes(text: str) -> float | None:
    """Return a size such as `512mb`, `1g` or `2048` (MB) in GB; None where it cannot be read."""
    match = re.fullmatch(r"([0-9.]+)\s*([kmg]?)i?b?", text.strip().lower())
    if match is None:
        return None
    return float(match[1]) * {"k": 1 / 1024**2, "m": 1 / 1024, "": 1 / 1024, "g": 1}[match[2]]
