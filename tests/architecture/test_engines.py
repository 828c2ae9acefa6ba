"""Products use engines through `runtime/engines/ports.py` only: they name no engine, shim, host path or loopback."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest
from tests.architecture.source import SRC, calls, imports, modules, name_of, nodes

from moorage.runtime.engines import ports

pytestmark = pytest.mark.group("architecture")  # one process reads the source, and not each of them

# Modules of engines.
CONCRETE = (
    "moorage.runtime.engines.kubernetes",
    "moorage.runtime.engines.local",
    "moorage.runtime.engines.results",
    "moorage.runtime.engines.wire",
    "moorage.runtime.logs.local",
    "moorage.runtime.logs.reader",
    "moorage.runtime.builds.builder",
    "moorage.runtime.builds.cluster_programs",
    "moorage.runtime.builds.local",
    "moorage.runtime.builds.pods",
    "moorage.runtime.builds.programs",
    "moorage.runtime.builds.release_images",
    "moorage.runtime.shim",
)
# Software of database servers is installed on this machine.
ENGINE = ("runtime/engines/", "runtime/shim/", "runtime/logs/", "runtime/builds/", "runtime/database_servers/")
# Backups copy the files of this machine, also those of running servers, which they stop meanwhile.
MACHINE = ("platform/",)

LOOPBACK = re.compile(r"(?<![\w.])(?:127\.0\.0\.1|::1)(?![\w.])")
SPEAKS_OF_LOOPBACK = {
    "products/apps/deploying.py": "the gateway's own address, through which a new release is probed",
}

PLACE = re.compile(r"path|folder|release|image|bind|door|address|host|root")  # in the name of a field

# Folders in the data folder that belong to the engine.
FOLDERS = {"logs", "volumes", "trash", "run", "app-releases", "cronjob-releases", "images", "builds"}
USES_FOLDERS = {
    "products/analytics/ingest.py": "logs of the gateway",
    "products/databases/hosts/local.py": "deleted databases, which are folders of this machine",
    "products/projects/deployments/ready_images.py": "images on their way into the artifact store",
    "products/functions/wiring.py": "socket of the edge, which runs functions",
    "products/functions/logs/log_files.py": "logs of functions, which run in the edge and not in an engine",
}

# Products whose programs run in an engine. What they may know of the sandbox are names of the inside.
RUN_BY_ENGINES = ("products/apps/", "products/cronjobs/", "products/databases/")
INSIDE = {
    "moorage.runtime.sandbox.network.setup",  # the port of the resolver, which no app can have
}


def inside(path: Path) -> str:
    return path.relative_to(SRC).as_posix()


def test_only_one_module_names_an_engine() -> None:
    wrong = []
    for path in modules():
        name = inside(path)
        if name.startswith((*ENGINE, *MACHINE)) or name == "engines.py":
            continue
        wrong += [f"{name}:{line} {imported}" for line, imported in imports(path) if imported.startswith(CONCRETE)]

    assert wrong == []


def test_products_know_no_loopback_address_of_a_workload() -> None:
    wrong = set()
    for path in modules():
        if not inside(path).startswith(("products/", "accounts/webhooks/", "accounts/plans/")):
            continue
        texts = (node.value for node in nodes(path) if isinstance(node, ast.Constant) and isinstance(node.value, str))
        if any(LOOPBACK.search(text) for text in texts):
            wrong.add(inside(path))

    assert wrong == SPEAKS_OF_LOOPBACK.keys()


def test_products_know_no_folder_of_the_engine() -> None:
    wrong = set()
    for path in modules():
        if not inside(path).startswith("products/"):
            continue
        for call in calls(path):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "folder" and call.args:
                argument = call.args[0]
                if isinstance(argument, ast.Constant) and argument.value in FOLDERS:
                    wrong.add(inside(path))

    assert wrong <= USES_FOLDERS.keys()


def test_products_that_engines_run_use_no_part_of_the_sandbox() -> None:
    wrong = [
        f"{inside(path)}:{line} {imported}"
        for path in modules()
        if inside(path).startswith(RUN_BY_ENGINES)
        for line, imported in imports(path)
        if imported.startswith("moorage.runtime.sandbox") and not imported.startswith(tuple(INSIDE))
    ]

    assert wrong == []


def test_specs_name_no_path_and_no_address_of_a_machine() -> None:
    names = {each.name for kind in (ports.AppSpec, ports.ServerSpec, ports.RunSpec) for each in fields(kind)}

    # Where the proxy of a public server listens is a setting of the operator.
    assert [name for name in sorted(names) if PLACE.search(name)] == ["proxy_address"]


def test_the_ports_know_nothing_of_this_platform() -> None:
    assert list(imports(SRC / "runtime" / "engines" / "ports.py")) == []
    assert name_of(SRC / "runtime" / "engines" / "ports.py") == "moorage.runtime.engines.ports"
