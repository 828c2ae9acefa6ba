"""Manifests of the Kubernetes engine: golden files, schemas of each supported release, and the rules they keep."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.runtime.engines.kubernetes.manifest_cases import FILES, GOLDEN, PLACE, app, cases, run

from moorage.runtime.engines.kubernetes import manifests, names, tenancy
from moorage.runtime.engines.kubernetes.manifests import Manifest, Placement
from moorage.runtime.engines.ports import CannotStart
from moorage.runtime.sandbox.network.policy import NetworkPolicy

OF_DOCKERFILES = {"build-privileged"}
RELEASES = ("1.33", "1.34", "1.35", "1.36", "1.37")


def pods() -> dict[str, Manifest]:
    """Return the pod templates of all manifests that have one."""
    found = {name: case["spec"]["template"]["spec"] for name, case in cases().items() if "template" in _spec(case)}
    return {**found, "command": cases()["command"]["spec"]}


def _spec(case: Manifest) -> Any:
    return case.get("spec", {})


def test_manifests_are_those_of_the_golden_files(subtests: pytest.Subtests) -> None:
    for name, manifest in cases().items():
        with subtests.test(name):
            assert manifest == yaml.safe_load((GOLDEN / f"{name}.yaml").read_text())

    assert {path.stem for path in GOLDEN.iterdir()} == set(cases())


@pytest.mark.parametrize("release", RELEASES)
def test_manifests_are_valid_in_each_supported_release(release: str, subtests: pytest.Subtests) -> None:
    for name, manifest in cases().items():
        with subtests.test(name):
            assert kubernetes_validate.validate(manifest, release, strict=True) == release


def test_a_field_that_does_not_exist_fails_the_validation() -> None:
    wrong = cases()["app"]
    wrong["spec"]["template"]["spec"]["containers"][0]["memory"] = "1Gi"

    with pytest.raises(kubernetes_validate.ValidationError, match="memory"):
        kubernetes_validate.validate(wrong, RELEASES[-1], strict=True)


def test_every_pod_passes_pod_security_restricted(subtests: pytest.Subtests) -> None:
    for name, pod in pods().items():
        if name in OF_DOCKERFILES:
            continue
        with subtests.test(name):
            own, (container,) = pod["securityContext"], pod["containers"]
            assert (own["runAsNonRoot"], own["seccompProfile"]["type"]) == (True, "RuntimeDefault")
            assert own["runAsUser"] > 0
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"hostNetwork", "hostPID", "hostIPC"} & pod.keys() == set()
            assert all({"persistentVolumeClaim", "emptyDir"} & volume.keys() for volume in pod.get("volumes", []))
            assert pod["automountServiceAccountToken"] is False


def test_pods_of_dockerfiles_alone_are_privileged_and_in_a_namespace_of_their_own() -> None:
    found = {name: pod["containers"][0]["securityContext"].get("privileged", False) for name, pod in pods().items()}

    assert {name for name, is_privileged in found.items() if is_privileged} == OF_DOCKERFILES
    assert {cases()[name]["metadata"]["namespace"] for name in OF_DOCKERFILES} == {"moorage-build-org-7"}
    assert all(pods()[name]["automountServiceAccountToken"] is False for name in OF_DOCKERFILES)


def test_a_build_has_limits_of_memory_time_and_disk_and_is_deleted_after_its_end() -> None:
    job, pod = cases()["build"], pods()["build"]

    assert pod["containers"][0]["resources"]["limits"] == {
        "cpu": "1000m",
        "memory": "2304Mi",
        "ephemeral-storage": "20Gi",
    }
    assert pod["activeDeadlineSeconds"] == 1200
    assert [volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"]] == ["10Gi", "10Gi"]
    assert (job["spec"]["ttlSecondsAfterFinished"], job["spec"]["backoffLimit"]) == (300, 0)


@pytest.mark.parametrize(
    ("user", "expected"), [("", 1000), ("0", 1000), ("root", 1000), ("node", 1000), ("999", 999), ("999:0", 999)]
)
def test_a_pod_never_runs_as_root(user: str, expected: int) -> None:
    pod = manifests.pod_spec(app(files=replace(FILES, user=user)), PLACE)

    assert pod["securityContext"]["runAsUser"] == expected


def test_values_of_variables_stand_only_in_an_immutable_secret() -> None:
    secret, deployment = manifests.secret(app(), PLACE), manifests.deployment(app(), PLACE)

    assert secret["immutable"] is True
    assert b64decode(secret["data"]["TOKEN"]) == b"hunter2-hunter2"
    assert "hunter2" not in str(deployment)
    assert "token-of-r17" not in str(deployment)
    assert secret["metadata"]["name"] in str(deployment)


def test_values_that_the_log_masks_are_no_variables() -> None:
    (container,) = manifests.pod_spec(app(), PLACE)["containers"]

    assert [item["name"] for item in container["env"]] == ["PORT", "HOST", "GREETING", "TOKEN"]


def test_the_secret_has_another_name_for_other_content() -> None:
    specs = [app(), app(env={"GREETING": "ahoy"}), app(token="another"), app(hidden=[])]

    found = {manifests.secret(spec, PLACE)["metadata"]["name"] for spec in specs}

    assert len(found) == 4


def test_the_port_of_a_workload_replaces_a_variable_of_that_name() -> None:
    (container,) = manifests.pod_spec(app(env={"PORT": "1"}, inside_port=3000), PLACE)["containers"]

    assert container["env"] == [{"name": "PORT", "value": "3000"}, {"name": "HOST", "value": "0.0.0.0"}]


def test_the_kubelet_expands_nothing_in_a_command() -> None:
    assert manifests.escape(["$(NAME)", "a$$b", "$HOME"]) == ["$$(NAME)", "a$$$$b", "$$HOME"]


def test_a_run_is_never_tried_again_and_its_deadline_keeps_the_pod() -> None:
    job = manifests.job(run(timeout_s=90), PLACE)

    assert (job["spec"]["backoffLimit"], "activeDeadlineSeconds" in job["spec"]) == (0, False)
    assert job["spec"]["template"]["spec"]["activeDeadlineSeconds"] == 90
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_without_a_drain_time_there_is_no_hook_before_the_stop() -> None:
    with_hook, without = (
        manifests.pod_spec(app(), Placement(namespace="a", drain_s=drain_s))["containers"][0] for drain_s in (7, 0)
    )

    assert with_hook["lifecycle"] == {"preStop": {"sleep": {"seconds": 7}}}
    assert "lifecycle" not in without


def test_a_pod_leaves_a_lost_node_soon_unless_its_volume_binds_it_there() -> None:
    free, bound = (manifests.pod_spec(app(), Placement(namespace="a", claim=claim)) for claim in (None, "volume-17"))

    assert {(each["key"], each["effect"], each["tolerationSeconds"]) for each in free["tolerations"]} == {
        ("node.kubernetes.io/not-ready", "NoExecute", 5),
        ("node.kubernetes.io/unreachable", "NoExecute", 5),
    }
    assert "tolerations" not in bound


@pytest.mark.parametrize("cpu", [0.001, 0.25, 4])
def test_requests_never_exceed_limits(cpu: float) -> None:
    found = manifests.resources(cpu, 128)

    limit, request = (int(found[kind]["cpu"].removesuffix("m")) for kind in ("limits", "requests"))
    assert 0 < request <= limit


@pytest.mark.parametrize("key", ["", "R1", "r_1", "-r1", "r" * 64])
def test_a_key_that_is_no_name_in_kubernetes_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="not a valid name"):
        manifests.deployment(app(key=key), PLACE)


def test_the_namespace_of_an_organization_is_derived_from_its_id() -> None:
    assert names.namespace_of("moorage", 7) == "moorage-org-7"


# Network policies.

ADDRESSES = (
    *("1.1.1.1", "8.8.8.8", "10.0.0.1", "10.20.1.1", "10.20.30.1", "172.16.0.9", "192.168.1.1", "100.64.0.1"),
    *("127.0.0.1", "169.254.169.254", "168.63.129.16", "224.0.0.1", "240.0.0.1", "0.0.0.0", "203.0.113.9"),
    *("2606:4700::1111", "::1", "fe80::1", "fd00:ec2::254", "fd12::1", "2001::1", "ff02::1", "4000::1"),
)


def _reaches(policy: Manifest, address: str) -> bool:
    blocks = [to["ipBlock"] for rule in policy["spec"]["egress"] for to in rule["to"] if "ipBlock" in to]
    ip = ip_address(address)
    return any(
        ip in ip_network(block["cidr"]) and not any(ip in ip_network(text) for text in block.get("except", ()))
        for block in blocks
    )


@pytest.mark.parametrize(
    "rules",
    [
        tenancy.NetworkRules(),
        tenancy.NetworkRules(allow=("10.20.0.0/16", "fd12::/48")),
        tenancy.NetworkRules(allow=("10.20.0.0/16",), block=("10.20.30.0/24", "203.0.113.0/24", "2606:4700::/32")),
        tenancy.NetworkRules(allow=("10.20.0.0/16",), block=("10.0.0.0/8",)),
    ],
)
def test_pods_reach_the_addresses_that_the_local_sandbox_reaches(rules: tenancy.NetworkRules) -> None:
    local = NetworkPolicy(allow=rules.allow, block=rules.block)
    policy = tenancy.allow_public("a", rules)

    found = {address: _reaches(policy, address) for address in ADDRESSES}

    assert found == {address: local.refusal(address, ()) is None for address in ADDRESSES}


def test_addresses_of_tunnels_are_closed() -> None:
    policy = tenancy.allow_public("a", tenancy.NetworkRules())

    assert [_reaches(policy, address) for address in ("2002:0a00:1::1", "64:ff9b::1.1.1.1")] == [False, False]


def test_every_exception_is_inside_its_network(subtests: pytest.Subtests) -> None:
    for rule in cases()["allow-public"]["spec"]["egress"]:
        for block in (to["ipBlock"] for to in rule["to"] if "ipBlock" in to):
            with subtests.test(block["cidr"]):
                outer = ip_network(block["cidr"])
                assert all(ip_network(text) != outer for text in block.get("except", ()))
                assert all(ip_network(text)[0] in outer for text in block.get("except", ()))


def test_every_pod_is_closed_unless_a_policy_opens_it() -> None:
    policy = tenancy.deny_all("a")["spec"]

    assert policy == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def test_a_workload_without_egress_rules_has_no_policy_of_its_own() -> None:
    assert (tenancy.workload_egress(app(), "a"), tenancy.workload_ingress(app(), "a")) == (None, None)


def test_a_program_that_is_no_image_cannot_be_started() -> None:
    with pytest.raises(CannotStart, match="runs images only"):
        manifests.deployment(app(files=None), PLACE)


@pytest.mark.parametrize(("quantity", "expected"), [("64Mi", 64), ("1Gi", 1024), ("2Ti", 2_097_152), ("2048Ki", 2)])
def test_quantities_of_the_api_are_read_with_each_unit(quantity: str, expected: int) -> None:
    assert manifests.megabytes(quantity) == expected


def test_a_quantity_without_a_unit_is_in_bytes() -> None:
    assert manifests.megabytes("1073741824") == 1024
