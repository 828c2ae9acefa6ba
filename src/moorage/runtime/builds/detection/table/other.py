"""Rows for languages that cannot be built."""

from __future__ import annotations

import re

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.table.row import Row, Sign, contains, file

SUPPORTED = "Node.js, Python, Go and static sites are"
_COMPILED = " A program that is compiled for Linux can be pushed, and started with startCmd."


def refused(name: str, language: str, sign: Sign, *, is_compiled: bool = False) -> Row:
    def refusal(folder: Folder) -> str:
        return (
            f"this is a {name} app ({sign.find(folder)}), and {language} is not supported: {SUPPORTED}. Others need a "
            f"Dockerfile, which is built then.{_COMPILED if is_compiled else ''}"
        )

    return Row(name, "container", "", sign, refusal=refusal)


# Frameworks that have a package.json for their assets come before Node.js.
REFUSED_FIRST = (
    refused("Ruby on Rails", "Ruby", file("config/application.rb", "bin/rails")),
    refused("Laravel", "PHP", file("artisan")),
    refused("WordPress", "PHP", file("wp-config.php", "wp-config-sample.php", "wp-load.php")),
    refused("PHP", "PHP", file("index.php", "public/index.php", "web/index.php")),
    refused("Phoenix", "Elixir", file("mix.exs")),
    refused("Java", "Java", file("pom.xml", "build.gradle", "build.gradle.kts", "build.sbt")),
    refused(".NET", ".NET", file("*.csproj", "*.fsproj", "*.sln", "*.vbproj"), is_compiled=True),
    refused("Meteor", "Meteor", file(".meteor/release")),
)
_INDEX = file("index.html")
REFUSED = (
    refused("PHP", "PHP", file("composer.json") | (file("*.php") & ~_INDEX)),
    refused("Ruby", "Ruby", file("config.ru") | (file("Gemfile", "*.rb") & ~_INDEX)),
    refused("Rust", "Rust", file("Cargo.toml"), is_compiled=True),
    refused("Elixir", "Elixir", file("rebar.config")),
    refused("Swift", "Swift", file("Package.swift"), is_compiled=True),
    refused("Dart", "Dart", file("pubspec.yaml"), is_compiled=True),
    refused("Crystal", "Crystal", file("shard.yml"), is_compiled=True),
    refused("C or C++", "a C build", file("CMakeLists.txt"), is_compiled=True),
    refused("R", "R", contains(r"\bshiny\b", "app.R", "server.R", words="shiny") | file("renv.lock")),
)  # fmt: skip
DOCKERFILES = ("Dockerfile", "Containerfile")
SETTINGS = ("docker-compose.yml", "docker-compose.yaml", "compose.yaml", "compose.yml", "main.tf")


# Outside of strings, where it would be valid Python.
_TEMPLATE = re.compile(
    r"^[^'\"#\n]*\{\{-?[ \t]*cookiecutter\.|^[ \t]*\{%-?[ \t]*(?:el)?if cookiecutter\.", re.MULTILINE
)


def template(folder: Folder) -> str:
    """Return the sentence about Python files with the syntax of Cookiecutter; "" for other files."""
    if not Folder(folder.root, "").has("cookiecutter.json"):
        return ""
    name = next((name for name, text in folder.python_files.items() if _TEMPLATE.search(text)), "")
    return name and (
        f"cookiecutter.json is of a template for new projects, and {name} is no Python yet: run `cookiecutter` with "
        "the repository, and push the project that it makes"
    )


def refused_below(folder: Folder) -> str:
    """Return the sentence about an app one or two folders below, in a language that cannot be built; "" without one."""
    places = folder.folders()
    for place in (*places, *(inner for each in places for inner in folder.folders(each))):
        below = _below(folder, place)
        row = next((row for row in (*REFUSED_FIRST, *REFUSED) if row.sign.find(below) is not None), None)
        if row is not None and not below.has(*DOCKERFILES):
            return f"the folder {place} has an app that cannot be built: {row.text(row.refusal, below)}"
    return ""


def composed(folder: Folder) -> list[str]:
    """Return the folders with a Dockerfile, one or two below, that a Compose file builds."""
    text = "\n".join(folder.find_text(name) or "" for name in SETTINGS if folder.has(name))
    named = set(
        re.findall(r"^[ \t]*(?:build|context):[ \t]*['\"]?(?:\./)?([\w./-]+?)/?['\"]?[ \t]*$", text, re.MULTILINE)
    )
    places = folder.folders()
    places = [*places, *(inner for each in places for inner in folder.folders(each))]
    return [place for place in places if place in named and _below(folder, place).has(*DOCKERFILES)]


def _below(folder: Folder, place: str) -> Folder:
    return Folder(folder.root, "/".join(filter(None, (folder.base, place))))


def _no_sources(folder: Folder) -> str:
    name = next((each for each in SETTINGS if folder.has(each)), SETTINGS[0])
    if places := composed(folder):
        return (
            f"{name} names several containers, and a project is one: set baseDir to the folder of one of them, which "
            f"has a Dockerfile: {', '.join(places[:10])}"
        )
    if sentence := refused_below(folder):
        return sentence
    return (
        f"{name} names images and the repository has no sources: make a project of a ready image (publicImage), or set "
        "baseDir to the app's folder"
    )


DOCKERFILE = Row("Dockerfile", "container", "docker", file(*DOCKERFILES))
DOCKER = (
    DOCKERFILE,
    Row("Compose or Terraform", "container", "",
        file(*SETTINGS),
        refusal=_no_sources),
)  # fmt: skip
