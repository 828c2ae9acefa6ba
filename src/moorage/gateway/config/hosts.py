"""Caddy's configuration of hosts that the routing table on disk cannot describe.

These are the hosts that moved, have rules, are logged, or have an app with several replicas. Requests to all other
hosts pay for one host matcher. Between these hosts, a tree of matchers selects a host in a few steps.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, field, replace
from itertools import chain
from types import MappingProxyType
from typing import Any

from moorage.core.kit.records import dataclass
from moorage.gateway.config.app_proxy import direct_routes, replicas_route
from moorage.gateway.config.names import host_is
from moorage.gateway.config.pages import Route, subroute
from moorage.gateway.config.rules import all_rule_routes, hosts_by_rules
from moorage.gateway.config.static import PLAIN_HOST, REDIRECTED
from moorage.gateway.sites import is_host
from moorage.gateway.wanted import Wanted
from moorage.products.rules.patterns import HeaderRule, HostRules, RedirectRule
from moorage.settings import Settings

BRANCHES = 12
LEAF = 24  # groups of hosts in a leaf of the tree, matched one by one
# Hosts in one map of addresses, which Caddy searches linearly, 50 ns per host. A tree would cost as much as a full map.
MAX_DIRECT_HOSTS = 256

_NEW_HOST = "{moorage.new_host}"


@dataclass(frozen=True)
class HostConfig:
    moved: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, HostRules] = field(default_factory=dict)
    logged: frozenset[str] = frozenset()
    apps: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # addresses, for apps with several replicas
    # Hosts with an app, which serve no files: the file name of the app's route, or "" without one.
    direct: Mapping[str, str] = field(default_factory=dict)
    certificate: str = ""  # fingerprint of the operator's own certificate

    def hosts(self) -> list[str]:
        return sorted({*self.moved, *self.rules, *self.logged, *self.apps, *self.direct})

    def without(self, hosts: frozenset[str]) -> HostConfig:
        """Return the rest, without hosts that are only logged or have only an app."""
        direct = {host: name for host, name in self.direct.items() if host not in hosts}
        return replace(self, logged=self.logged - hosts, direct=direct)

    def serves_same_as(self, other: HostConfig) -> bool:
        """Return whether both serve the same: outdated route names only cost a lookup."""
        return replace(self, direct=other.direct) == other and self.direct.keys() == other.direct.keys()


def of(wanted: Wanted, names: Mapping[str, str] = MappingProxyType({})) -> HostConfig:
    """Return the part of the wanted state that needs Caddy's configuration.

    A disabled host has neither redirects nor headers. `names` are the file names of the routes to apps, by host.
    """
    rules = {
        host: host_rules
        for host, host_rules in wanted.rules.items()
        if is_host(host) and host not in wanted.disabled and (host_rules.redirects or host_rules.headers)
    }
    served = {*wanted.sites, *wanted.apps}
    moved = {old: new for old, new in wanted.moved.items() if is_host(old) and is_host(new) and old not in served}
    apps = {
        host: route.addresses
        for host, route in wanted.apps.items()
        if len(route.addresses) > 1 and is_host(host) and host not in wanted.disabled and not route.bad_address
    }
    logged = frozenset(host for host in wanted.logged if is_host(host))
    # An app that needs no other configuration is not worth a load: its route on disk works, only more slowly.
    direct = frozenset(wanted.apps) & {*rules, *logged, *apps} - wanted.disabled
    return HostConfig(moved, rules, logged, apps, {host: names.get(host, "") for host in direct})


def host_routes(settings: Settings, config: HostConfig) -> list[Route]:
    """Return the routes of these hosts; unanswered requests go on to apps and files."""
    direct_only = _direct_only_hosts(config)
    logged, unlogged = direct_only & config.logged, direct_only - config.logged
    direct = config.direct
    return [
        *direct_routes(settings, {host: direct[host] for host in logged}, before=LOGGED),
        *direct_routes(settings, {host: direct[host] for host in unlogged}),
        *_other_routes(settings, config.without(direct_only)),
    ]


def _direct_only_hosts(config: HostConfig) -> frozenset[str]:
    """Return the hosts with only an app of one replica; none if too many for a map."""
    plain = frozenset(config.direct) - {*config.rules, *config.apps, *config.moved}
    return plain if len(plain) <= MAX_DIRECT_HOSTS else frozenset()


def _other_routes(settings: Settings, config: HostConfig) -> list[Route]:
    hosts = config.hosts()
    if not hosts:
        return []
    logged = [{"match": [host_is(config.logged)], "handle": LOGGED}] if config.logged else []
    direct = config.direct
    routes = [
        *logged,
        *_moved_routes(settings, config.moved),
        # The hosts of a project stay together: their rules are in the configuration once.
        *_tree(hosts_by_rules(config.rules), lambda part: all_rule_routes({host: config.rules[host] for host in part})),
        *_tree(_alone(config.apps), lambda part: [replicas_route(host, config.apps[host]) for host in part]),
        *_tree(_alone(direct), lambda part: direct_routes(settings, {host: direct[host] for host in part})),
    ]
    return [{"match": [host_is(hosts)], "handle": [subroute(routes)]}]


def _moved_routes(settings: Settings, moved: Mapping[str, str]) -> list[Route]:
    """Redirect to the new hosts on the same port; a map loads faster than routes."""
    if not moved:
        return []
    lines = [{"input": old, "outputs": [new]} for old, new in sorted(moved.items())]
    table = {"handler": "map", "source": "{http.request.host}", "destinations": [_NEW_HOST], "mappings": lines}
    # In production without an https port, a proxy in front terminates TLS.
    is_behind_tls = settings.is_production and not settings.https_port
    scheme = "https" if is_behind_tls else "{http.request.scheme}"
    no_port = {"vars": {"{http.request.port}": [""]}}

    def redirect(port: str) -> list[dict[str, Any]]:
        location = f"{scheme}://{_NEW_HOST}{port}{{http.request.uri}}"
        return [REDIRECTED, {"handler": "static_response", "status_code": 308, "headers": {"Location": [location]}}]

    answers: list[Route] = [{"match": [no_port], "handle": redirect("")}, {"handle": redirect(":{http.request.port}")}]
    return [{"match": [{"host": sorted(moved)}], "handle": [PLAIN_HOST, table, subroute(answers)], "terminal": True}]


def _alone(hosts: Iterable[str]) -> list[list[str]]:
    """Return a group for each host."""
    return [[host] for host in sorted(hosts)]


def _tree(groups: Sequence[Sequence[str]], leaf: Callable[[Sequence[str]], list[Route]]) -> list[Route]:
    """Return routes that select a leaf by its hosts; a group of hosts is never divided."""
    leaves = -(-len(groups) // LEAF)
    if leaves <= 1:
        return leaf(list(chain.from_iterable(groups)))
    # As few levels as possible, of equal width: Caddy parses a configuration once more for each level.
    levels = math.ceil(math.log(leaves, BRANCHES))
    size = -(-len(groups) // math.ceil(leaves ** (1 / levels)))
    parts = [groups[start : start + size] for start in range(0, len(groups), size)]
    # Not a Caddy group: of a group Caddy takes only one branch, and its name applies to the whole request, on every
    # level.
    return [{"match": [host_is(chain.from_iterable(part))], "handle": [subroute(_tree(part, leaf))]} for part in parts]


# The only two request headers in the access log; see `access_log.py`.
LOGGED = [
    {"handler": "log_append", "key": "referer", "value": "{http.request.header.Referer}"},
    {"handler": "log_append", "key": "user_agent", "value": "{http.request.header.User-Agent}"},
]


def to_text(config: HostConfig) -> str:
    """Serialise the configuration; `from_text` of this or a later version reads it."""
    groups = hosts_by_rules(config.rules)
    rule_sets = [_rules_as_json(config.rules[group[0]]) for group in groups]
    rules = {host: place for place, group in enumerate(groups) for host in group}
    apps = {host: list(addresses) for host, addresses in config.apps.items()}
    plain = {"moved": dict(config.moved), "logged": sorted(config.logged), "direct": dict(config.direct)}
    plain["certificate"] = config.certificate
    return json.dumps({**plain, "rules": rules, "ruleSets": rule_sets, "apps": apps})


def _rules_as_json(rules: HostRules) -> dict[str, Any]:
    return {
        "redirects": [astuple(rule) for rule in rules.redirects],
        "headers": [astuple(rule) for rule in rules.headers],
    }


def _rules_from_json(rules: Mapping[str, Any]) -> HostRules:
    return HostRules(
        tuple(RedirectRule(*fields) for fields in rules["redirects"]),
        tuple(HeaderRule(*fields) for fields in rules["headers"]),
    )


def from_text(text: str) -> HostConfig:
    """Parse the output of `to_text`; raises ValueError for anything else."""
    try:
        document = json.loads(text)
        rule_sets = [_rules_from_json(each) for each in document.get("ruleSets", ())]
        # Earlier versions wrote the rules of each host instead of a place in the rule sets.
        rules = {
            host: rule_sets[each] if isinstance(each, int) else _rules_from_json(each)
            for host, each in document["rules"].items()
        }
        apps = {host: tuple(addresses) for host, addresses in document.get("apps", {}).items()}
        logged, direct = frozenset(document["logged"]), dict(document.get("direct", {}))
        return HostConfig(dict(document["moved"]), rules, logged, apps, direct, str(document.get("certificate", "")))
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError("not a configuration of hosts") from error
