"""Configuration of the few hosts that the file system cannot describe.

These are the hosts that moved, have rules, are counted, or have several replicas of an app.

All other hosts pay for one look-up among these names. Among them, a tree of names leads to a host in a few steps.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from moorage.gateway.config.app_proxy import direct_routes, replicas_route
from moorage.gateway.config.names import host_is
from moorage.gateway.config.pages import Route, subroute
from moorage.gateway.config.rules import all_rule_routes
from moorage.gateway.config.static import PLAIN_HOST, REDIRECTED
from moorage.gateway.sites import is_host
from moorage.gateway.wanted import Wanted
from moorage.products.rules.patterns import HeaderRule, HostRules, RedirectRule
from moorage.settings import Settings

BRANCHES = 12
LEAF = 24  # hosts that are compared one by one
# Hosts in one table of addresses, which Caddy goes through from its start, in 50 ns for each. To divide them by a tree
# costs as much as the whole table.
QUICK = 256

_NEW_HOST = "{moorage.new_host}"


@dataclass(frozen=True)
class HostConfig:
    moved: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, HostRules] = field(default_factory=dict)
    logged: frozenset[str] = frozenset()
    apps: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # where the replicas listen, if there are several
    # Those with an app: none of their requests is for a file. With the name that said where it is, "" if none did.
    direct: Mapping[str, str] = field(default_factory=dict)
    certificate: str = ""  # fingerprint of the operator's own certificate

    def hosts(self) -> list[str]:
        return sorted({*self.moved, *self.rules, *self.logged, *self.apps, *self.direct})

    def without(self, hosts: frozenset[str]) -> HostConfig:
        """Return the rest, where these hosts are counted or have an app, and nothing else."""
        direct = {host: name for host, name in self.direct.items() if host not in hosts}
        return replace(self, logged=self.logged - hosts, direct=direct)

    def is_as_good_as(self, other: HostConfig) -> bool:
        """Tell whether it serves the same: names that are outdated are found out."""
        return replace(self, direct=other.direct) == other and self.direct.keys() == other.direct.keys()


def of(wanted: Wanted, names: Mapping[str, str] = MappingProxyType({})) -> HostConfig:
    """Return what of the wanted has to be configured. What is switched off neither redirects nor sets headers.

    `names` say where apps are, by host.
    """
    rules = {
        host: its
        for host, its in wanted.rules.items()
        if is_host(host) and host not in wanted.disabled and (its.redirects or its.headers)
    }
    taken = {*wanted.sites, *wanted.apps}
    moved = {old: new for old, new in wanted.moved.items() if is_host(old) and is_host(new) and old not in taken}
    apps = {
        host: route.addresses
        for host, route in wanted.apps.items()
        if len(route.addresses) > 1 and is_host(host) and host not in wanted.disabled and not route.bad_address
    }
    logged = frozenset(host for host in wanted.logged if is_host(host))
    # An app that needs no configuration otherwise is not worth a load: it is found on disk, only later.
    direct = frozenset(wanted.apps) & {*rules, *logged, *apps} - wanted.disabled
    return HostConfig(moved, rules, logged, apps, {host: names.get(host, "") for host in direct})


def host_routes(settings: Settings, config: HostConfig) -> list[Route]:
    """Return the routes of these hosts; what they do not answer goes on to apps and files."""
    quick = _quick_hosts(config)
    counted, uncounted = quick & config.logged, quick - config.logged
    direct = config.direct
    return [
        *direct_routes(settings, {host: direct[host] for host in counted}, before=LOGGED),
        *direct_routes(settings, {host: direct[host] for host in uncounted}),
        *_other_routes(settings, config.without(quick)),
    ]


def _quick_hosts(config: HostConfig) -> frozenset[str]:
    """Return the hosts with nothing but an app in one replica: they are served before all else, while they are few."""
    plain = frozenset(config.direct) - {*config.rules, *config.apps, *config.moved}
    return plain if len(plain) <= QUICK else frozenset()


def _other_routes(settings: Settings, config: HostConfig) -> list[Route]:
    hosts = config.hosts()
    if not hosts:
        return []
    counted = [{"match": [host_is(config.logged)], "handle": LOGGED}] if config.logged else []
    direct = config.direct
    routes = [
        *counted,
        *_moved_routes(settings, config.moved),
        *_tree(sorted(config.rules), lambda part: all_rule_routes({host: config.rules[host] for host in part})),
        *_tree(sorted(config.apps), lambda part: [replicas_route(host, config.apps[host]) for host in part]),
        *_tree(sorted(direct), lambda part: direct_routes(settings, {host: direct[host] for host in part})),
    ]
    return [{"match": [host_is(hosts)], "handle": [subroute(routes)]}]


def _moved_routes(settings: Settings, moved: Mapping[str, str]) -> list[Route]:
    """Send visitors to the new hosts, under the port they came to. One table is much less to load than many routes."""
    if not moved:
        return []
    lines = [{"input": old, "outputs": [new]} for old, new in sorted(moved.items())]
    table = {"handler": "map", "source": "{http.request.host}", "destinations": [_NEW_HOST], "mappings": lines}
    # Where there is no TLS in production, a proxy in front ends it.
    is_behind_tls = settings.is_production and not settings.https_port
    scheme = "https" if is_behind_tls else "{http.request.scheme}"
    no_port = {"vars": {"{http.request.port}": [""]}}

    def there(port: str) -> list[dict[str, Any]]:
        location = f"{scheme}://{_NEW_HOST}{port}{{http.request.uri}}"
        return [REDIRECTED, {"handler": "static_response", "status_code": 308, "headers": {"Location": [location]}}]

    answers: list[Route] = [{"match": [no_port], "handle": there("")}, {"handle": there(":{http.request.port}")}]
    return [{"match": [{"host": sorted(moved)}], "handle": [PLAIN_HOST, table, subroute(answers)], "terminal": True}]


def _tree(hosts: Sequence[str], leaf: Callable[[Sequence[str]], list[Route]]) -> list[Route]:
    leaves = -(-len(hosts) // LEAF)
    if leaves <= 1:
        return leaf(hosts)
    # As few levels as can be, of equal width: Caddy reads a configuration once more for each level that is in it.
    levels = math.ceil(math.log(leaves, BRANCHES))
    size = -(-len(hosts) // math.ceil(leaves ** (1 / levels)))
    parts = [hosts[start : start + size] for start in range(0, len(hosts), size)]
    # Without a group: Caddy takes no second branch of one, and its names hold for the whole request, on every level.
    return [{"match": [host_is(part)], "handle": [subroute(_tree(part, leaf))]} for part in parts]


# Of a visitor's headers only these two are written down; see `access_log.py`.
LOGGED = [
    {"handler": "log_append", "key": "referer", "value": "{http.request.header.Referer}"},
    {"handler": "log_append", "key": "user_agent", "value": "{http.request.header.User-Agent}"},
]


def to_text(config: HostConfig) -> str:
    """Write the configuration down; `from_text` reads it, in this version of the product or the next."""
    rules = {
        host: {
            "redirects": [astuple(rule) for rule in its.redirects],
            "headers": [astuple(rule) for rule in its.headers],
        }
        for host, its in config.rules.items()
    }
    apps = {host: list(addresses) for host, addresses in config.apps.items()}
    plain = {"moved": dict(config.moved), "logged": sorted(config.logged), "direct": dict(config.direct)}
    plain["certificate"] = config.certificate
    return json.dumps({**plain, "rules": rules, "apps": apps})


def from_text(text: str) -> HostConfig:
    """Read what `to_text` wrote; raises ValueError for anything else."""
    try:
        read = json.loads(text)
        rules = {
            host: HostRules(
                tuple(RedirectRule(*fields) for fields in its["redirects"]),
                tuple(HeaderRule(*fields) for fields in its["headers"]),
            )
            for host, its in read["rules"].items()
        }
        apps = {host: tuple(addresses) for host, addresses in read.get("apps", {}).items()}
        logged, direct = frozenset(read["logged"]), dict(read.get("direct", {}))
        return HostConfig(dict(read["moved"]), rules, logged, apps, direct, str(read.get("certificate", "")))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError("not a configuration of hosts") from error
