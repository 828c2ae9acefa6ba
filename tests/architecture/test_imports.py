"""Imports point down. A package may use those of the layers below it, and of its own layer only what stands here."""

from __future__ import annotations

import pytest
from tests.architecture.source import SRC, imports, modules, name_of

pytestmark = pytest.mark.xdist_group("architecture")  # one process reads the source, and not each of them

# From the bottom up. Packages on one line do not know each other, unless BESIDE says so.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__init__",),
    ("kit", "errors"),
    ("sandbox", "disk"),
    ("cells", "engines", "shim"),
    ("settings",),
    ("env", "telemetry", "servers", "scan"),
    ("db",),
    ("jobs", "http", "vault", "mail"),
    ("worker", "reconciler", "audit", "plans", "artifacts"),
    ("identity",),
    ("functions",),
    ("schedules",),
    ("webhooks",),
    ("repositories", "builds", "images"),
    ("projects",),
    ("domains", "rules", "analytics"),
    ("apps",),
    ("databases",),
    ("cronjobs",),
    ("monitors",),
    ("edge", "gateway"),
    ("platform", "app"),
    ("cli", "docs"),
)
# `one > other` within a layer.
BESIDE = {
    ("app", "platform"),  # the chores are registered with the features' jobs
    ("platform", "app"),  # the control process builds the application
    ("shim", "engines"),  # a shim runs what an engine describes
    ("docs", "cli"),  # the reference is generated from the commands
}


def layer_of(package: str) -> int:
    for number, packages in enumerate(LAYERS):
        if package in packages:
            return number
    raise AssertionError(f"moorage.{package} stands in no layer: give it a place in {__file__}")


def package_of(module: str) -> str:
    """Return `http` for `moorage.http.route`, and `__init__` for a name that the package itself holds."""
    first = module.split(".")[1:2]
    is_module = bool(first) and ((SRC / first[0]).is_dir() or (SRC / f"{first[0]}.py").exists())
    return first[0] if is_module else "__init__"


def test_every_package_stands_in_a_layer_and_imports_point_down() -> None:
    wrong = []
    for path in modules():
        mine = package_of(name_of(path))
        for line, imported in imports(path):
            other = package_of(imported)
            if mine == other or (mine, other) in BESIDE:
                continue
            if layer_of(other) >= layer_of(mine):
                wrong.append(f"{path.relative_to(SRC)}:{line} {mine} imports {other}")

    assert wrong == []


def test_the_kit_is_pure() -> None:
    wrong = [f"{path.name}:{line}" for path in (SRC / "kit").glob("*.py") for line, imported in imports(path)
             if not imported.startswith("moorage.kit")]  # fmt: skip

    assert wrong == []


def test_only_the_platform_names_a_concrete_store() -> None:
    """Features speak to the protocol; which database it is, is decided where the store is opened."""
    allowed = {"platform", "docs", "db"}
    wrong = []
    for path in modules():
        for line, imported in imports(path):
            concrete = imported.startswith(("moorage.db.sqlite", "moorage.db.postgres"))
            if concrete and package_of(name_of(path)) not in allowed:
                wrong.append(f"{path.relative_to(SRC)}:{line}")

    assert wrong == []
