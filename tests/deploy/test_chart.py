"""The Helm chart: rendered with several values, valid in each supported release, with a schema of its values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from tests.deploy.rendering import CHART, Renderer, default_values, merged, permissions, rendering

import moorage
from moorage.runtime.engines.kubernetes import names
from moorage.runtime.images.dockerfile import stages
from moorage.settings import Settings

RELEASES = ("1.33", "1.34", "1.35", "1.36", "1.37")
ALL: dict[str, Any] = {
    "serve": {"replicas": 2},
    "work": {"replicas": 3},
    "functions": {"replicas": 2, "nodeSelector": {"moorage": "functions"}},
    "platform": {"nodeSelector": {"moorage": "platform"}, "storageClass": "fast"},
    "image": {"tag": "1.2.3", "pullSecrets": ["one", "two"]},
    "registry": {
        "secret": "registry-account",
        "bundled": {"enabled": True, "replicas": 2, "tlsSecret": "registry-tls"},
    },
    "database": {"bundled": {"enabled": True, "password": "a-long-password-of-the-test"}},
    "artifacts": {"bundled": {"enabled": True}},
    "env": {"MOORAGE_SIGNUP": 'closed "for now"'},
}
PLATFORM = {"TARGETPLATFORM": "linux/amd64", "BUILDPLATFORM": "linux/amd64", "TARGETARCH": "amd64"}
LEAST: dict[str, Any] = {
    "networkPolicy": False,
    "metrics": False,
    "gateway": {"replicas": 0},
    "builds": {"jobs": False},
}
CASES = {"default": {}, "all": ALL, "least": LEAST}


@pytest.fixture(scope="module")
def renderer() -> Iterator[Renderer]:
    with rendering() as started:
        yield started


@pytest.fixture(scope="module")
def everything(renderer: Renderer) -> list[dict[str, Any]]:
    return renderer.render(ALL)


def find(items: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = [item for item in items if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    return found


def variables(pod: dict[str, Any]) -> dict[str, Any]:
    return {item["name"]: item for item in pod["containers"][0].get("env", [])}


def test_each_object_is_valid_in_each_supported_release(renderer: Renderer, subtests: pytest.Subtests) -> None:
    for case, changes in CASES.items():
        items = renderer.render(changes)
        for release in RELEASES:
            for item in items:
                with subtests.test(f"{case} {item['kind']} {item['metadata']['name']} {release}"):
                    assert kubernetes_validate.validate(item, release, strict=True) == release


def test_values_have_a_schema(subtests: pytest.Subtests) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    for case, changes in CASES.items():
        with subtests.test(case):
            jsonschema.validate(merged(default_values(), changes), schema)
    wrong: dict[str, dict[str, Any]] = {
        "unknown": {"replicas": 2},
        "short password": {"database": {"bundled": {"enabled": True, "password": "short"}}},
        "no scheme": {"registry": {"url": "registry.example.com"}},
        "registry without an account": {"registry": {"bundled": {"enabled": True}}},
        "not a bucket": {"artifacts": {"url": "https://bucket"}},
        "not a setting": {"env": {"HOME": "/root"}},
        "unknown rights": {"builds": {"dockerfiles": "root"}},
        "two platforms": {"platform": {"replicas": 2}},
        "an API that can call no functions": {"serve": {"replicas": 1}, "functions": {"replicas": 0}},
    }
    for case, changes in wrong.items():
        with subtests.test(case), pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(merged(default_values(), changes), schema)


def test_every_variable_is_a_setting(everything: list[dict[str, Any]]) -> None:
    pods = [item["spec"]["template"]["spec"] for item in everything if "template" in item.get("spec", {})]
    given = {name for pod in pods for name in variables(pod) if name.startswith("MOORAGE_")}

    assert {name.removeprefix("MOORAGE_").lower() for name in given} <= Settings.model_fields.keys()
    assert (
        variables(find(everything, "StatefulSet", "harbor")["spec"]["template"]["spec"])["MOORAGE_SIGNUP"]["value"]
        == ALL["env"]["MOORAGE_SIGNUP"]
    )


def test_builds_are_jobs_in_the_image_of_the_platform_unless_they_are_not(renderer: Renderer) -> None:
    found = {}
    for case, changes in (("jobs", {"builds": {"dockerfiles": "off"}}), ("none", LEAST)):
        pod = find(renderer.render(changes), "StatefulSet", "harbor")["spec"]["template"]["spec"]
        image = variables(pod).get("MOORAGE_KUBERNETES_BUILD_IMAGE", {}).get("value", "")
        found[case] = image, variables(pod).get("MOORAGE_KUBERNETES_DOCKERFILES", {}).get("value", "")
        own = pod["containers"][0]["image"]

    assert found == {"jobs": (own, "off"), "none": ("", "")}


def test_pods_of_the_platform_may_connect_to_apps_and_bundled_servers_may_not(everything: list[dict[str, Any]]) -> None:
    labels = {
        item["metadata"]["name"]: item["spec"]["template"]["metadata"]["labels"]
        for item in everything
        if "template" in item.get("spec", {})
    }

    own = {name for name, found in labels.items() if names.PART in found}
    assert own == {"harbor", "harbor-serve", "harbor-work", "harbor-gateway", "harbor-functions"}
    assert labels.keys() - own == {"harbor-postgres", "harbor-registry", "harbor-s3"}


def test_processes_of_the_api_reach_what_only_the_pod_of_the_platform_has(everything: list[dict[str, Any]]) -> None:
    pod = find(everything, "StatefulSet", "harbor")["spec"]["template"]["spec"]
    given = variables(pod)

    assert given["POD_ADDRESS"]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
    assert given["MOORAGE_MACHINE_ADDRESS"]["value"] == "$(POD_ADDRESS):8085"
    names = list(given)
    assert names.index("POD_ADDRESS") < names.index("MOORAGE_MACHINE_ADDRESS")  # Kubernetes expands earlier ones only.


def test_services_select_pods(everything: list[dict[str, Any]]) -> None:
    templates = [item["spec"]["template"] for item in everything if "template" in item.get("spec", {})]
    pods = [template["metadata"]["labels"].items() for template in templates]
    counts = {
        item["metadata"]["name"]: sum(item["spec"]["selector"].items() <= pod for pod in pods)
        for item in everything
        if item["kind"] == "Service"
    }

    assert counts == {
        "harbor": 1,
        "harbor-api": 2,
        "harbor-functions": 1,
        "harbor-functions-pods": 1,
        "harbor-gateway": 1,
        "harbor-postgres": 1,
        "harbor-registry": 1,
        "harbor-s3": 1,
    }


def test_the_service_of_the_gateway_selects_gateways_or_else_the_platform(renderer: Renderer) -> None:
    parts = {}
    for case, changes in (("several", {}), ("none", LEAST)):
        items = renderer.render(changes)
        selector = find(items, "Service", "harbor-gateway")["spec"]["selector"]
        parts[case] = selector["app.kubernetes.io/component"]
        api = find(items, "Service", "harbor-api")["spec"]["selector"].items()
        pods = [item["spec"]["template"]["metadata"]["labels"] for item in items if "template" in item.get("spec", {})]
        assert [pod["moorage.dev/part"] for pod in pods if api <= pod.items()] == ["platform"]

    assert parts == {"several": "gateway", "none": "platform"}


def test_the_service_of_functions_selects_pods_with_a_volume_for_their_spool(
    renderer: Renderer, everything: list[dict[str, Any]]
) -> None:
    parts = [
        find(items, "Service", "harbor-functions")["spec"]["selector"]["app.kubernetes.io/component"]
        for items in (everything, renderer.render())
    ]
    edge = find(everything, "StatefulSet", "harbor-functions")["spec"]
    container = edge["template"]["spec"]["containers"][0]

    assert parts == ["functions", "platform"]
    assert (container["args"], container["volumeMounts"][0]["mountPath"]) == (["edge"], "/var/lib/moorage")
    assert edge["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] == "5Gi"


def test_processes_that_call_functions_know_the_pods_that_run_them(
    renderer: Renderer, everything: list[dict[str, Any]]
) -> None:
    hosts = "harbor-functions-0.harbor-functions-pods:8084,harbor-functions-1.harbor-functions-pods:8084"
    found = {}
    for item in everything:
        if "template" in item.get("spec", {}):
            given = variables(item["spec"]["template"]["spec"])
            names_of_edges = ("MOORAGE_EDGE_HOSTS", "MOORAGE_EDGE_ADDRESS", "MOORAGE_EDGE_LINK_PORT")
            found[item["metadata"]["name"]] = [given.get(name, {}).get("value") for name in names_of_edges]
    service = find(everything, "Service", "harbor-functions-pods")["spec"]
    edge = find(everything, "StatefulSet", "harbor-functions")["spec"]
    alone = variables(find(renderer.render(), "StatefulSet", "harbor")["spec"]["template"]["spec"])

    assert found["harbor"] == found["harbor-serve"] == [hosts, "harbor-functions:80", None]
    assert found["harbor-functions"] == [None, None, "8084"]
    assert found["harbor-gateway"] == [None, "harbor-functions:80", None]
    assert found["harbor-work"] == [None, None, None]
    assert (service["clusterIP"], edge["serviceName"]) == ("None", "harbor-functions-pods")
    assert not alone.keys() & {"MOORAGE_EDGE_HOSTS", "MOORAGE_EDGE_ADDRESS"}


def test_each_pod_requests_resources_and_the_platform_runs_once(everything: list[dict[str, Any]]) -> None:
    for item in everything:
        if "template" in item.get("spec", {}):
            for container in item["spec"]["template"]["spec"]["containers"]:
                assert container["resources"]["requests"].keys() == {"cpu", "memory"}

    assert find(everything, "StatefulSet", "harbor")["spec"]["replicas"] == 1


def test_each_rule_has_its_reason_and_none_is_for_everything(renderer: Renderer) -> None:
    text = (CHART / "templates" / "rbac.yaml").read_text()
    rules = find(renderer.render(), "ClusterRole", "platform-harbor")["rules"]

    assert not [rule for rule in rules if "*" in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])]
    assert "impersonate" not in text
    assert len(re.findall(r"^  # .*\n  - apiGroups|^  # .*\n(?:  - .*\n(?:    .*\n)+){2}", text, re.MULTILINE)) >= 9


def test_gateways_have_an_account_that_only_reads_pods(everything: list[dict[str, Any]]) -> None:
    accounts = {
        item["metadata"]["name"]: item["spec"]["template"]["spec"].get("serviceAccountName")
        for item in everything
        if item["kind"] == "Deployment"
    }
    binding = find(everything, "ClusterRoleBinding", "platform-harbor-gateway")

    assert accounts["harbor-gateway"] == find(everything, "ServiceAccount", "harbor-gateway")["metadata"]["name"]
    assert accounts["harbor-serve"] == accounts["harbor-work"] == "harbor"
    assert [subject["name"] for subject in binding["subjects"]] == ["harbor-gateway"]
    assert permissions("gateway") == {("get", "pods"), ("list", "pods"), ("watch", "pods")}


def test_the_least_values_need_no_permission_for_nodes(renderer: Renderer) -> None:
    rules = find(renderer.render(LEAST), "ClusterRole", "platform-harbor")["rules"]

    assert "nodes/proxy" not in [resource for rule in rules for resource in rule["resources"]]


def test_the_image_of_the_platform_is_a_dockerfile_that_the_platform_can_build() -> None:
    dockerfile = stages.load((CHART.parents[1] / "Dockerfile").read_text(), {}, PLATFORM)

    assert [stage.name for stage in dockerfile.stages][:2] == ["base", "build"]


def test_the_chart_has_the_version_of_the_platform() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert (chart["version"], chart["appVersion"]) == (moorage.__version__, moorage.__version__)
    assert chart["kubeVersion"] == f">={RELEASES[0]}.0-0"
