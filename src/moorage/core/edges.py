"""Settings of the edge: where processes of the platform reach it."""

from __future__ import annotations

import re
from typing import Any

from moorage.core.validated import Field, Validated, field_validator

_HOST = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")


class EdgePlaces(Validated):
    """Part of the settings."""

    edge_socket: str = Field(
        "",
        description="Control socket of the edge on this machine, for an API or worker process with its own data "
        "folder. Default: `run/edge.sock` in the data folder.",
    )
    edge_hosts: tuple[str, ...] = Field(
        (),
        description="`host:port` of each `moorage edge` that runs functions for this platform, comma-separated, with "
        "its MOORAGE_EDGE_LINK_PORT. Calls of the API and schedules go there, and `moorage up` starts no edge.",
    )
    edge_link_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="Port at which an edge accepts calls of the platform's other processes, over mutual TLS; 0 for "
        "none. Both sides need the same master key.",
    )

    @field_validator("edge_hosts", mode="before")
    @classmethod
    def _split_hosts(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("edge_hosts")
    @classmethod
    def _hosts_have_ports(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            match = _HOST.fullmatch(host)
            if match is None or not 0 < int(match[2]) < 2**16:
                raise ValueError(f"{host} should be host:port")
        if len(set(hosts)) < len(hosts):
            raise ValueError("should name each host once")
        return hosts
