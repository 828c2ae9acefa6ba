"""Configuration of the few hosts that the file system cannot describe: those that moved, have rules or are counted.

All other hosts pay for one look-up among these names. Among them, a tree of names leads to a host in a few steps.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

from moorage.gateway.pages import Route, subroute
from moorage.gateway.rules import all_rule_routes
from moorage.gateway.sites import is_host
from moorage.gateway.wanted import Wanted
from moorage.rules.patterns import HeaderRule, HostRules, RedirectRule
from moorage.settings import Settings

BRANCHES = 12
LEAF = 24  # hosts that are compared one by one

_NO_SERVER_NAME = {"handler": "headers", "response": {"delete": ["Server"]}}


@dataclass(frozen=True)
class HostConfig:
    moved: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, HostRules] = field(default_factory=dict)
    logged: frozenset[str] = frozenset()

    def hosts(self) -> list[str]:
        return sorted({*self.moved, *self.rules, *self.logged})

    def among(self, hosts: Sequence[str]) -> HostConfig:
        names = frozenset(hosts)
        return HostConfig(
            {host: self.moved[host] for host in hosts if host in self.moved},
            {host: self.rules[host] for host in hosts if host in self.rules},
            self.logged & names,
        )


def of(wanted: Wanted) -> HostConfig:
    """Return what of the wanted has to be configured. What is switched off neither redirects nor sets headers."""
    rules = {
        host: its
        for host, its in wanted.rules.items()
        if is_host(host) and host not in wanted.disabled and (its.redirects or its.headers)
    }
    moved = {old: new for old, new in wanted.moved.items() if is_host(old) and is_host(new) and old not in wanted.sites}
    return HostConfig(moved, rules, frozenset(host for host in wanted.logged if is_host(host)))


def host_routes(settings: Settings, config: HostConfig) -> list[Route]:
    """Return the routes of these hosts; what they do not answer goes on to the files."""
    hosts = config.hosts()
    if not hosts:
        return []
    handle = [_NO_SERVER_NAME, subroute(_tree(settings, config, hosts))]
    return [{"match": [{"host": hosts}], "handle": handle}]


def _tree(settings: Settings, config: HostConfig, hosts: Sequence[str]) -> list[Route]:
    leaves = -(-len(hosts) // LEAF)
    if leaves <= 1:
        return list(_leaf(settings, config.among(hosts)))
    # As few levels as can be, of equal width: Caddy reads a configuration once more for each level that is in it.
    levels = math.ceil(math.log(leaves, BRANCHES))
    size = -(-len(hosts) // math.ceil(leaves ** (1 / levels)))
    parts = [hosts[start : start + size] for start in range(0, len(hosts), size)]
    return [
        {"match": [{"host": list(part)}], "handle": [subroute(_tree(settings, config, part))], "group": "branch"}
        for part in parts
    ]


def _leaf(settings: Settings, config: HostConfig) -> Iterator[Route]:
    if config.logged:
        yield {"match": [{"host": sorted(config.logged)}], "handle": _LOGGED}
    for old, new in config.moved.items():
        yield {"match": [{"host": [old]}], "handle": [subroute(_moved(settings, new))], "terminal": True}
    yield from all_rule_routes(config.rules)


# Of a visitor's headers only these two are written down; see `access_log.py`.
_LOGGED = [
    {"handler": "log_append", "key": "referer", "value": "{http.request.header.Referer}"},
    {"handler": "log_append", "key": "user_agent", "value": "{http.request.header.User-Agent}"},
]


def _moved(settings: Settings, new: str) -> list[Route]:
    """Send visitors to the new host, under the port they came to."""
    # Where there is no TLS in production, a proxy in front ends it.
    is_behind_tls = settings.is_production and not settings.https_port
    scheme = "https" if is_behind_tls else "{http.request.scheme}"
    no_port = {"vars": {"{http.request.port}": [""]}}

    def there(port: str) -> list[dict[str, Any]]:
        location = f"{scheme}://{new}{port}{{http.request.uri}}"
        return [{"handler": "static_response", "status_code": 308, "headers": {"Location": [location]}}]

    return [
        {"match": [no_port], "handle": there(""), "terminal": True},
        {"handle": there(":{http.request.port}")},
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
    return json.dumps({"moved": dict(config.moved), "rules": rules, "logged": sorted(config.logged)})


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
        return HostConfig(dict(read["moved"]), rules, frozenset(read["logged"]))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError("not a configuration of hosts") from error
