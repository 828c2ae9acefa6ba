"""Every manifest that the engine can produce, by the name of its golden file.

`python -m tests.runtime.engines.kubernetes.manifest_cases` writes the golden files again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from moorage.runtime.builds.pods import manifests as pods_manifests
from moorage.runtime.builds.pods.builds import AGENT
from moorage.runtime.engines.kubernetes import manifests, objects, options, tenancy
from moorage.runtime.engines.kubernetes.manifests import BuildSpec, Manifest, Placement, PodFiles
from moorage.runtime.engines.ports import Address, AppSpec, Egress, RunSpec, ServerSpec

GOLDEN = Path(__file__).with_name("golden")
PLACE = Placement(namespace="moorage-org-7")
IMAGE = "registry.example/org-7/harbor@sha256:" + "0" * 64
FILES = PodFiles(org_id=7, image=IMAGE)
VARIABLES = {"GREETING": "ahoy $(HOME)", "TOKEN": "hunter2-hunter2"}


def app(**changed: Any) -> AppSpec:
    usual = {"key": "r17", "token": "token-of-r17", "argv": ["/bin/serve", "--name", "$(NAME)"], "env": VARIABLES}
    given = {"hidden": ["hunter2-hunter2"], "log": "apps/3", "files": FILES, "cpu": 0.5, "memory_mb": 256}
    return AppSpec(**{**usual, **given, **changed})


def run(**changed: Any) -> RunSpec:
    usual = {"key": "c5", "token": "token-of-c5", "argv": ["/bin/report"], "env": VARIABLES, "timeout_s": 600}
    return RunSpec(**{**usual, "log": "cronjobs/4/5", "files": FILES, **changed})


def build(**changed: Any) -> BuildSpec:
    usual = {"key": "build-deployment-17-1a2b", "token": "token", "argv": AGENT, "env": VARIABLES, "timeout_s": 1200}
    given = {"log": "builds", "files": FILES, "memory_mb": 2304, "owner": "deployment-17", "machine": "moorage-0"}
    return BuildSpec(**{**usual, **given, **changed})


def cases() -> dict[str, Manifest]:
    full = Placement(namespace="moorage-org-7", claim="volume-3-1a2b", pull_secret="registry")
    of_dockerfiles = Placement(namespace="moorage-build-org-7", pull_secret="registry")
    rules = tenancy.NetworkRules(allow=("10.20.0.0/16", "fd12::/48"), block=("10.20.30.0/24", "203.0.113.0/24"))
    names = ("namespace", "quota", "limit-range", "deny-all", "allow-public", "allow-platform")
    of_organization = tenancy.organization(7, "moorage-org-7", "moorage", tenancy.NamespaceLimits(), rules)
    egress = tenancy.workload_egress(app(egress=[Egress("database-9", Address(5432, "10.1.2.3"))]), "moorage-org-7")
    server = ServerSpec(
        key="d9",
        token="t",
        name="database-9",
        argv=["/bin/agent"],
        env={"AGENT": "{}"},
        log="databases/9",
        files=FILES,
        volume="database-9",
        port=5432,
        agent_port=9443,
    )
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "volume-9", "uid": "0-1-2-3"}}
    ingress = tenancy.workload_ingress(server, "moorage-org-7")
    assert egress is not None
    assert ingress is not None
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "r17", "uid": "0-1-2-3"}}
    secret = manifests.secret(app(), PLACE)
    of_user = replace(FILES, user="999:999", workdir="/srv", architecture="arm64")
    account = options.registry_config("registry.example", "platform", "hunter2")
    return {
        "app": manifests.deployment(app(), PLACE),
        "app-with-volume-and-user": manifests.deployment(
            app(files=of_user, name="app-3", inside_port=3000, volume="3"), full
        ),
        "app-without-variables": manifests.deployment(app(env={}, hidden=[]), PLACE),
        "run": manifests.job(run(), PLACE),
        "run-without-timeout": manifests.job(run(timeout_s=0), full),
        "server": manifests.stateful_set(server, full),
        "server-service": objects.owned(manifests.service(server, full), claim),
        "command": manifests.command_pod(app(), PLACE, "r17-command-1", ["/bin/sh", "-c", "echo $HOME"], 60),
        "build": pods_manifests.job(build(), PLACE),
        "build-privileged": pods_manifests.job(build(security="privileged"), of_dockerfiles),
        "namespace-of-dockerfiles": tenancy.organization(
            7, "moorage-build-org-7", "moorage", tenancy.NamespaceLimits(), rules, pod_security="privileged"
        )[0],
        "secret": secret,
        "secret-with-owner": {
            **secret,
            "metadata": {**secret["metadata"], "ownerReferences": [manifests.owner_reference(owner)]},
        },
        "claim": manifests.claim("3", "volume-3-1a2b", "moorage-org-7", 500),
        "claim-of-class": manifests.claim("3-pr-4", "volume-3-pr-4-1a2b", "moorage-org-7", 0, "fast"),
        "registry-secret": tenancy.registry_secret("moorage-org-7", "moorage-registry", account),
        "workload-egress": egress,
        "workload-ingress": ingress,
        **dict(zip(names, of_organization, strict=True)),
    }


def write() -> None:
    for name, manifest in cases().items():
        (GOLDEN / f"{name}.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False, width=120))


if __name__ == "__main__":
    write()
