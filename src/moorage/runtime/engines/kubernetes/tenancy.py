"""Manifests that separate organizations: namespace, quota, limits and network policies."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network

from moorage.core.kit.records import dataclass
from moorage.core.net.targets import special_networks
from moorage.runtime.engines.kubernetes import names
from moorage.runtime.engines.kubernetes.manifests import Manifest, labels_of, port_of
from moorage.runtime.engines.ports import ReplicaSpec

Network = IPv4Network | IPv6Network

PUBLIC = (ip_network("0.0.0.0/0"), ip_network("2000::/3"))  # 2000::/3 is all global unicast of IPv6.
# Tunnels to IPv4: a policy cannot check the embedded address, so both are closed.
TUNNELS = (ip_network("2002::/16"), ip_network("64:ff9b::/96"))
DNS_PORT = 53


@dataclass(frozen=True, slots=True)
class NamespaceLimits:
    """Sum of all workloads of an organization. The platform's plans are stricter; this is the second line."""

    pods: int = 100
    cpu: int = 64
    memory_gb: int = 128
    volumes: int = 50
    storage_gb: int = 1000
    databases: int = 50


@dataclass(frozen=True, slots=True)
class NetworkRules:
    """Networks from the operator's settings, as in the local sandbox."""

    allow: tuple[str, ...] = ()  # reachable although they are private
    block: tuple[str, ...] = ()  # never reachable


def organization(
    org_id: int,
    namespace: str,
    platform_namespace: str,
    limits: NamespaceLimits,
    rules: NetworkRules,
    *,
    pod_security: str = "restricted",
) -> list[Manifest]:
    """Return all manifests of an organization, in the order in which to apply them."""
    return [
        _namespace(org_id, namespace, pod_security),
        _quota(namespace, limits),
        _limit_range(namespace),
        deny_all(namespace),
        allow_public(namespace, rules),
        allow_platform(namespace, platform_namespace),
    ]


def _namespace(org_id: int, namespace: str, pod_security: str) -> Manifest:
    labels = {
        names.MANAGED_BY: names.MANAGER,
        names.ORGANIZATION: str(org_id),
        "pod-security.kubernetes.io/enforce": pod_security,
        "pod-security.kubernetes.io/enforce-version": "latest",
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}


def registry_secret(namespace: str, name: str, config: str) -> Manifest:
    """Return the Secret with which the nodes pull from the registry; pods cannot read it."""
    head = _head("v1", "Secret", name, namespace)
    data = {".dockerconfigjson": b64encode(config.encode()).decode()}
    return {**head, "type": "kubernetes.io/dockerconfigjson", "data": data}


def _quota(namespace: str, limits: NamespaceLimits) -> Manifest:
    hard = {
        "pods": str(limits.pods),
        "limits.cpu": str(limits.cpu),
        "limits.memory": f"{limits.memory_gb}Gi",
        "persistentvolumeclaims": str(limits.volumes),
        "requests.storage": f"{limits.storage_gb}Gi",
        # Headless Services of databases. A Service that opens a port to the outside is none of them.
        "services": str(limits.databases),
        "services.nodeports": "0",
        "services.loadbalancers": "0",
    }
    return {**_head("v1", "ResourceQuota", "organization", namespace), "spec": {"hard": hard}}


def _limit_range(namespace: str) -> Manifest:
    container = {
        "type": "Container",
        "default": {"cpu": "1", "memory": "512Mi", "ephemeral-storage": "2Gi"},
        "defaultRequest": {"cpu": "10m", "memory": "64Mi", "ephemeral-storage": "64Mi"},
    }
    return {**_head("v1", "LimitRange", "organization", namespace), "spec": {"limits": [container]}}


def deny_all(namespace: str) -> Manifest:
    """Return the policy that closes each pod in both directions; the other policies open some of it again."""
    return _policy("deny-all", namespace, {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})


def allow_public(namespace: str, rules: NetworkRules) -> Manifest:
    """Return the policy for public addresses, networks that the operator opened, and the DNS of the cluster."""
    blocked = [ip_network(text, strict=False) for text in rules.block]
    closed = [*special_networks(), *TUNNELS, *blocked]
    targets = [_ip_block(network, closed) for network in PUBLIC]
    opened = [ip_network(text, strict=False) for text in rules.allow]
    targets += [_ip_block(network, blocked) for network in opened if not _is_inside(network, blocked)]
    dns = {
        "to": [
            {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
                "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
            }
        ],
        "ports": [{"protocol": protocol, "port": DNS_PORT} for protocol in ("UDP", "TCP")],
    }
    egress = [{"to": [target]} for target in targets]
    # A database server connects to nothing, as on one machine.
    selector = {"matchExpressions": [{"key": names.KIND, "operator": "NotIn", "values": ["server"]}]}
    spec = {"podSelector": selector, "policyTypes": ["Egress"], "egress": [*egress, dns]}
    return _policy("allow-public", namespace, spec)


def allow_platform(namespace: str, platform_namespace: str) -> Manifest:
    """Return the policy that lets the platform's own pods connect: its gateways, probes and database clients."""
    source = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": platform_namespace}},
        "podSelector": {"matchExpressions": [{"key": names.PART, "operator": "Exists"}]},
    }
    return _policy(
        "allow-platform",
        namespace,
        {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": [source]}]},
    )


def workload_egress(spec: ReplicaSpec, namespace: str) -> Manifest | None:
    """Return the policy for the egress rules of one workload, or None if it has none.

    A rule names the other workload by its label, so it holds also after that one moved to another address.
    """
    rules = [
        {
            "to": [{"podSelector": {"matchLabels": {names.NAME: rule.workload}}}],
            "ports": [{"protocol": "TCP", "port": rule.address.port}],
        }
        for rule in spec.egress
    ]
    if not rules:
        return None
    selector = {"matchLabels": {names.KEY: spec.key}}
    policy = _policy(spec.key, namespace, {"podSelector": selector, "policyTypes": ["Egress"], "egress": rules})
    policy["metadata"]["labels"] = labels_of(spec)
    return policy


def workload_ingress(spec: ReplicaSpec, namespace: str) -> Manifest | None:
    """Return the policy that lets the pods of its organization connect to a named workload, such as a database.

    Egress rules decide which of them do: both sides have to allow a connection.
    """
    if not spec.name:
        return None
    rules = [{"from": [{"podSelector": {}}], "ports": [{"protocol": "TCP", "port": port_of(spec)}]}]
    selector = {"matchLabels": {names.NAME: spec.name}}
    policy = _policy(
        f"{spec.key}-in", namespace, {"podSelector": selector, "policyTypes": ["Ingress"], "ingress": rules}
    )
    policy["metadata"]["labels"] = labels_of(spec)
    return policy


def _ip_block(network: Network, closed: Iterable[Network]) -> Manifest:
    inside = [other for other in closed if other != network and _is_inside(other, [network])]
    v4 = collapse_addresses(other for other in inside if isinstance(other, IPv4Network))
    v6 = collapse_addresses(other for other in inside if isinstance(other, IPv6Network))
    block: Manifest = {"cidr": str(network)}
    if excepted := [str(other) for other in (*v4, *v6)]:
        block["except"] = excepted
    return {"ipBlock": block}


def _is_inside(network: Network, others: Iterable[Network]) -> bool:
    if isinstance(network, IPv4Network):
        return any(isinstance(other, IPv4Network) and network.subnet_of(other) for other in others)
    return any(isinstance(other, IPv6Network) and network.subnet_of(other) for other in others)


def _policy(name: str, namespace: str, spec: Manifest) -> Manifest:
    return {**_head("networking.k8s.io/v1", "NetworkPolicy", name, namespace), "spec": spec}


def _head(version: str, kind: str, name: str, namespace: str) -> Manifest:
    labels = {names.MANAGED_BY: names.MANAGER}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace, "labels": labels}}
