"""Imports point down. A package may use those of the layers below it, and of its own layer only what stands here."""

from __future__ import annotations

from tests.architecture.source import SRC, imports, modules, name_of

# From the bottom up. Packages on one line do not know each other, unless BESIDE says so.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__init__",),
    ("kit", "errors"),
    ("settings",),
    ("env", "telemetry"),
    ("db",),
    ("jobs", "http", "vault", "mail"),
    ("worker", "reconciler", "audit", "plans", "artifacts"),
    ("identity",),
    ("webhooks",),
    ("edge", "gateway"),
    ("platform", "app"),
    ("cli", "docs"),
)
# `one > other` within a layer.
BESIDE = {
    ("app", "platform"),  # the chores are registered with the features' jobs
    ("platform", "app"),  # the control process builds the application
    ("docs", "cli"),  # the reference is generated from the commands
}


def layer_of(package: str) -> int:
    for number, packages in enumerate(LAYERS):
        if package in packages:
            return number
    raise AssertionError(f"moorage.{package} stands in no layer: give it a place in {__file__}")


def package_of(module: str) -> str:
    parts = module.split(".")
    return (
        parts[1]
        if len(parts) > 1 and (SRC / parts[1]).is_dir() or len(parts) > 1 and _is_file(parts[1])
        else "__init__"
    )


def _is_file(name: str) -> bool:
    return (SRC / f"{name}.py").exists()


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
