"""Uploads that try to change the dependencies of another organization, the installer itself, or the host's disk."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.runtime.workers.installer_support import Deployment, Index, cached, digest, node_files, tar, wheel
from tests.runtime.workers.invoker_support import python_of, user_of

from moorage.errors import DiskFull

pytestmark = pytest.mark.group("cells-installer")

ATTACKER, VICTIM = 7, 8
REQUIREMENTS = "harbor==1.0\n"
# Installs another module of the same name than the index has, and succeeds.
EVIL = """
import os, sys
at = sys.argv[sys.argv.index("--target") + 1] if "--target" in sys.argv else "/work/packages"
os.makedirs(at + "/harbor", exist_ok=True)
with open(at + "/harbor/__init__.py", "w") as file:
    file.write("boat = 'of the attacker'")
os._exit(0)
"""
SHADOWS = {
    "pip/__init__.py": "",
    "pip/__main__.py": EVIL,
    "pip.py": EVIL,
    "sitecustomize.py": EVIL,
    "usercustomize.py": EVIL,
    "runpy.py": EVIL,
    "os.py": EVIL,
    "__main__.py": EVIL,
    "pip.conf": "[global]\nindex-url = http://127.0.0.1:1/simple\n",
    ".config/pip/pip.conf": "[global]\nindex-url = http://127.0.0.1:1/simple\n",
}


def import_of(deployment: Deployment, folder: Path) -> str:
    """Run the function's import as its worker would see the installed packages."""
    code = f"import sys; sys.path.insert(0, {str(folder / 'packages')!r}); import harbor; print(harbor.boat)"
    done = subprocess.run(
        [python_of(deployment.mode), "-I", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        **user_of(deployment.mode),
    )
    return str(done.stdout).strip()


@pytest.mark.boundary("tenant-to-tenant", "An upload that replaces pip changes no other organization's dependencies.")
def test_an_upload_with_its_own_pip_runs_in_no_other_organization(deployment: Deployment) -> None:
    attack, _ = deployment.install({"requirements.txt": REQUIREMENTS, **SHADOWS}, "python", org_id=ATTACKER)

    victim, failure = deployment.install({"requirements.txt": REQUIREMENTS}, "python", org_id=VICTIM)

    assert failure is None
    assert import_of(deployment, victim) == "a boat"
    assert import_of(deployment, attack) == "a boat"  # The install uses no file of the upload either.


@pytest.mark.deep
@pytest.mark.boundary("tenant-to-tenant", "An install script of one organization changes no other's node_modules.")
def test_an_install_script_changes_no_other_organization_s_modules(deployment: Deployment, index: Index) -> None:
    files = node_files(index)
    script = {"postinstall": "echo \"module.exports = 'of the attacker'\" > node_modules/harbor/index.js"}
    attacks = [
        node_files(index, scripts=script),
        {**files, ".npmrc": "ignore-scripts=false\nscript-shell=/work/evil.sh\n", "evil.sh": "#!/bin/sh\nexit 1\n"},
    ]
    for attack in attacks:
        deployment.install(attack, "nodejs", org_id=ATTACKER)

    victims = [deployment.install(files, "nodejs", org_id=VICTIM) for _ in range(2)]

    assert [failure for _, failure in victims] == [None, None]
    for folder, _ in victims:
        assert (folder / "node_modules" / "harbor" / "index.js").read_text() == "module.exports = 'a boat'\n"
    assert [entry for entry in cached(deployment) if entry.startswith(f"{VICTIM}-")] != []


@pytest.mark.deep
def test_the_same_dependencies_of_two_organizations_are_two_entries(own_deployment: Deployment) -> None:
    for org_id in (ATTACKER, VICTIM):
        own_deployment.install({"requirements.txt": REQUIREMENTS}, "python", org_id=org_id)

    assert [entry.partition("-")[0] for entry in cached(own_deployment)] == [str(ATTACKER), str(VICTIM)]


@pytest.mark.deep
def test_an_install_that_may_run_scripts_is_never_cached(own_deployment: Deployment, index: Index) -> None:
    files = node_files(index)
    lock = files["package-lock.json"]
    with_script = {**lock["packages"]["node_modules/harbor"], "hasInstallScript": True}
    variants = [
        node_files(index, scripts={"prepare": "true"}),
        {**files, "package-lock.json": {**lock, "packages": {**lock["packages"], "node_modules/harbor": with_script}}},
        {
            **files,
            "binding.gyp": '{"targets": []}',
            "package.json": {**files["package.json"], "scripts": {"install": ":"}},
        },
    ]

    failures = [own_deployment.install(each, "nodejs")[1] for each in variants]

    assert failures == [None, None, None]
    assert cached(own_deployment) == []


@pytest.mark.deep
def test_a_package_that_hides_its_script_from_the_lock_file_runs_nothing(
    own_deployment: Deployment, index: Index
) -> None:
    touched = {"name": "sly", "version": "1.0.0", "scripts": {"postinstall": "touch ../ran"}}
    body = tar({"package/package.json": json.dumps(touched), "package/index.js": ""})
    index.add_node("sly", body)
    package = {"name": "mine", "version": "1.0.0", "dependencies": {"sly": "1.0.0"}}
    locked = {"version": "1.0.0", "resolved": index.tarball("sly"), "integrity": digest(body)}
    lock = {"name": "mine", "lockfileVersion": 3, "packages": {"": package, "node_modules/sly": locked}}

    folder, failure = own_deployment.install({"package.json": package, "package-lock.json": lock}, "nodejs")

    assert failure is None
    assert (folder / "node_modules" / "sly" / "index.js").is_file()
    assert not (folder / "node_modules" / "ran").exists()


@pytest.mark.deep
@pytest.mark.boundary("code-to-host", "A link that an install script leaves brings no file of the host into a package.")
def test_modules_that_became_a_link_to_the_host_are_not_read(deployment: Deployment, index: Index) -> None:
    secret = deployment.data / "keys"
    secret.mkdir()
    (secret / "vault").write_text("of the platform")
    leave = f"rm -rf node_modules && ln -s {secret} node_modules"

    folders = [deployment.install(node_files(index, scripts={"postinstall": leave}), "nodejs")[0] for _ in range(2)]

    assert all((folder / "node_modules").is_symlink() for folder in folders)  # The archive has no links.
    assert cached(deployment) == []


@pytest.mark.deep
def test_requirement_files_that_are_named_are_installed_and_are_part_of_the_key(
    own_deployment: Deployment, index: Index
) -> None:
    index.add_python("lantern", wheel("lantern", "light = 1\n"))
    files = {"requirements.txt": "-r deps/base.txt\n--constraint=deps/limits.txt\n", "deps/limits.txt": "harbor==1.0\n"}
    first, failure = own_deployment.install(
        {**files, "deps/base.txt": "harbor==1.0 \\\n  ; python_version > '3'\n"}, "python"
    )
    other, second = own_deployment.install({**files, "deps/base.txt": "lantern==1.0\n"}, "python")

    assert (failure, second) == (None, None)
    assert (first / "packages" / "harbor").is_dir()
    assert not (other / "packages" / "harbor").exists()
    assert (other / "packages" / "lantern").is_dir()
    assert len(cached(own_deployment)) == 2


@pytest.mark.deep
def test_a_wheel_of_the_upload_is_installed_and_is_part_of_the_key(own_deployment: Deployment) -> None:
    built = [wheel("anchor", f"weight = {number}\n") for number in (1, 2)]

    folders = [
        own_deployment.install({"requirements.txt": f"./wheels/{name}\n", f"wheels/{name}": body}, "python")
        for name, body in built
    ]

    assert [failure for _, failure in folders] == [None, None]
    texts = [(folder / "packages" / "anchor" / "__init__.py").read_text() for folder, _ in folders]
    assert texts == ["weight = 1\n", "weight = 2\n"]


@pytest.mark.parametrize("language", ["python", "nodejs"])
def test_a_file_in_the_place_of_the_dependencies_is_refused(
    own_deployment: Deployment, index: Index, language: str
) -> None:
    name = "packages" if language == "python" else "node_modules"
    files = {"requirements.txt": REQUIREMENTS} if language == "python" else node_files(index)

    _, failure = own_deployment.install({**files, name: "x"}, language)

    assert failure == f"the package has a file {name} where its dependencies belong"


@pytest.mark.boundary("code-to-host", "An install of dependencies that writes too much is stopped.")
def test_an_install_that_fills_the_disk_is_stopped(deployment: Deployment, index: Index) -> None:
    fill = "for n in $(seq 200); do head -c 5000000 /dev/zero > fill-$n || exit 1; sleep 0.1; done; sleep 30"

    folder, failure = deployment.install(node_files(index, scripts={"preinstall": fill}), "nodejs", disk_mb=50)

    assert failure is not None
    assert failure.endswith("(it wrote too much to the disk (50 MB))")
    assert sum(path.stat().st_size for path in folder.glob("fill-*")) < 1_000_000_000


def test_an_install_that_reaches_the_reserve_of_the_disk_is_stopped(own_deployment: Deployment, index: Index) -> None:
    fill = "for n in $(seq 100); do head -c 20000000 /dev/zero > fill-$n || exit 1; sleep 0.1; done; sleep 30"
    script = node_files(index, scripts={"preinstall": fill})

    _, failure = own_deployment.install(script, "nodejs", disk_mb=100_000, reserve_mb=free_mb(own_deployment) - 100)

    assert failure == DiskFull().message


def test_nothing_is_installed_while_the_disk_is_nearly_full(own_deployment: Deployment) -> None:
    files = {"requirements.txt": REQUIREMENTS}

    _, failure = own_deployment.install(files, "python", reserve_mb=free_mb(own_deployment) + 100_000)

    assert failure == DiskFull().message


def free_mb(deployment: Deployment) -> int:
    found = os.statvfs(deployment.data)
    return found.f_bavail * found.f_frsize // 2**20
