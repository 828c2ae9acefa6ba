"""Rules that name mirrors of image registries, as in the setting `MOORAGE_REGISTRY_MIRRORS`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_RULE = re.compile(r"([a-z0-9.:\[\]-]+)=(?:(https?)://)?([A-Za-z0-9.:\[\]-]+)((?:/[a-z0-9._-]+)*)/?")


class MirrorAddress(NamedTuple):
    base: str  # URL of the mirror's origin
    prefix: str = ""  # precedes the names of its repositories


def parse(rules: Sequence[str]) -> Mapping[str, tuple[MirrorAddress, ...]]:
    """Parse rules such as `docker.io=mirror.example.com` or `ghcr.io=http://10.0.0.5:5000/ghcr`.

    Several mirrors of a registry are tried in their order. Raises ValueError.
    """
    mirrors: dict[str, tuple[MirrorAddress, ...]] = {}
    for rule in rules:
        match = _RULE.fullmatch(rule)
        if match is None:
            raise ValueError(f"{rule!r} should be like docker.io=mirror.example.com")
        registry, scheme, host, path = match.groups()
        address = MirrorAddress(f"{scheme or 'https'}://{host}", f"{path[1:]}/" if path else "")
        mirrors[registry] = (*mirrors.get(registry, ()), address)
    return mirrors
