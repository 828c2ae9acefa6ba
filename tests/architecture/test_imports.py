"""Imports point down. A package may use those of the layers below it, and of its own layer only what stands here."""

from __future__ import annotations

import pytest
from tests.architecture.source import SRC, imports, modules, name_of

pytestmark = pytest.mark.group("architecture")  # one process reads the source, and not each of them

# From the bottom up. Packages on one line do not import each other, unless BESIDE says so.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__init__",),
    ("core.kit", "core.hooks", "core.validated", "errors"),
    ("client", "core.edges"),
    ("core.net", "core.cluster"),
    ("core.disk", "core.certificates", "runtime.sandbox"),
    ("runtime.workers", "runtime.engines", "runtime.logs", "runtime.shim"),
    ("settings",),
    ("core.env", "core.telemetry", "runtime.packages", "runtime.scan"),
    ("runtime.database_servers",),
    ("core.db",),
    ("core.machines",),
    ("core.gateways",),
    ("core.jobs", "core.http", "core.vault", "core.mail"),
    ("core.worker", "core.reconciler", "core.audit", "core.artifacts", "accounts.plans"),
    ("core.product",),
    ("core.maintenance", "runtime.edge", "runtime.builds", "runtime.images", "runtime.machines"),
    ("accounts.identity",),
    ("accounts.operator",),
    ("products.functions", "products.registries"),
    ("products.schedules",),
    ("accounts.webhooks",),
    ("products.repositories",),
    ("products.projects",),
    ("products.domains", "products.rules", "products.analytics", "products.images"),
    ("products.apps",),
    ("products.databases",),
    ("products.cronjobs",),
    ("products.monitors",),
    ("gateway", "console"),
    ("engines",),
    ("wiring",),
    ("app",),
    ("platform",),
    ("cli", "docs"),
)
# `one > other` within a layer.
BESIDE = {
    ("runtime.logs", "runtime.engines"),  # the log files of this machine implement a port
    ("runtime.engines", "runtime.logs"),  # the engine of a cluster keeps the lines of pods in log files
    ("runtime.shim", "runtime.engines"),  # a shim runs the replica that an engine describes
    ("runtime.builds", "runtime.images"),  # a Dockerfile is built into an image
    ("runtime.shim", "runtime.logs"),
    ("docs", "cli"),  # the reference is generated from the commands
}
GROUPS = ("core", "runtime", "accounts", "products")


def layer_of(package: str) -> int:
    for number, packages in enumerate(LAYERS):
        if package in packages:
            return number
    raise AssertionError(f"moorage.{package} is in no layer: add it to {__file__}")


def package_of(module: str) -> str:
    """Return `core.http` for `moorage.core.http.route`, and `__init__` for a name that the root package defines."""
    names = module.split(".")[1:]
    if not names or not ((SRC / names[0]).is_dir() or (SRC / f"{names[0]}.py").exists()):
        return "__init__"
    if names[0] not in GROUPS:
        return names[0]
    return ".".join(names[:2]) if len(names) > 1 else "__init__"


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
    wrong = [f"{path.name}:{line}" for path in (SRC / "core" / "kit").rglob("*.py") for line, imported in imports(path)
             if not imported.startswith("moorage.core.kit")]  # fmt: skip

    assert wrong == []


def test_only_the_platform_names_a_concrete_store() -> None:
    """Features speak to the protocol; which database it is, is decided where the store is opened."""
    allowed = {"platform", "docs", "core.db"}
    wrong = []
    for path in modules():
        for line, imported in imports(path):
            concrete = imported.startswith(("moorage.core.db.sqlite", "moorage.core.db.postgres"))
            if concrete and package_of(name_of(path)) not in allowed:
                wrong.append(f"{path.relative_to(SRC)}:{line}")

    assert wrong == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for type checkers count as well: a module that needs a type of its user declares a protocol."""
    names = {name_of(path) for path in modules()}
    graph = {name_of(path): {_module_of(name, names) for _, name in imports(path)} for path in modules()}

    remaining = {name: targets - {name, "moorage"} for name, targets in graph.items()}
    # Modules without imports of remaining ones are removed until only circles, and their users, are left.
    while free := [name for name, targets in remaining.items() if not targets & remaining.keys()]:
        for name in free:
            del remaining[name]
    assert sorted(remaining) == []


def _module_of(name: str, names: set[str]) -> str:
    while name not in names:
        name = name.rpartition(".")[0]
    return name


# Modules that speak HTTP under another name than routes, schemas or wiring.
SPEAKS_HTTP = {
    "accounts/identity/gate.py": "authenticates and authorizes each request for the dispatcher",
    "products/images/blob_http.py": "blobs of the OCI distribution API, outside of the API",
    "products/images/http.py": "the OCI distribution API, outside of the API",
    "products/images/manifest_http.py": "manifests of the OCI distribution API, outside of the API",
    "products/images/target.py": "requests of the OCI distribution API, outside of the API",
    "products/monitors/status_page/page.py": "the public status page, outside of the API",
    "products/projects/uploads.py": "the streamed upload routes of sites",
    "products/repositories/server/bodies.py": "request bodies of Git",
    "products/repositories/server/http.py": "Git over HTTP, outside of the API",
}


def test_only_routes_schemas_and_wiring_of_products_know_http() -> None:
    wrong = []
    for path in modules():
        inside = path.relative_to(SRC).as_posix()
        is_feature = inside.startswith(("products/", "accounts/", "runtime/", "gateway/"))
        if not is_feature or path.stem.endswith(("routes", "schemas")) or path.stem == "wiring":
            continue
        if any(imported.startswith("moorage.core.http") for _, imported in imports(path)):
            wrong.append(inside)

    assert sorted(wrong) == sorted(SPEAKS_HTTP)
