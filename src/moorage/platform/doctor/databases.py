"""Check which database software serves each version that tenants can choose."""

from __future__ import annotations

from moorage.platform.doctor.findings import Check, State
from moorage.runtime.database_servers.ports import NotInstalled
from moorage.runtime.database_servers.software.catalog import HINTS, SoftwareCatalog, shared_folder
from moorage.runtime.database_servers.software.releases import PRODUCTS, VERSIONS, short
from moorage.settings import Settings


def check_databases(settings: Settings) -> list[Check]:
    own = settings.folder("engines")
    catalog = SoftwareCatalog([own, shared_folder()], own)
    return [check_engine(catalog, engine, settings.substitution) for engine in VERSIONS]


def check_engine(catalog: SoftwareCatalog, engine: str, substitution: str) -> Check:
    """Return the software of each version; a warning if an engine has none."""
    name, served, refused = f"databases: {engine}", [], []
    for version in VERSIONS[engine]:
        try:
            choice = catalog.choose(engine, version, substitution)
        except NotInstalled as error:
            refused.append(str(error))
            continue
        runs = f"{choice.release.product} {choice.release.version}"
        runs += "" if choice.is_exact else f" for {short(version)}"
        served.append(runs if choice.software is not None else f"{runs}, fetched when it is first needed")
    lacks = [f"install {each.lacks}" for each in catalog.incomplete() if each.software.type == engine]
    lacks += [why for release, why in catalog.unusable() if release.type == engine]
    lacks += [
        f"run `moorage engines install {release.name}`: it has fixes that {software.name} lacks"
        for software, release in catalog.replaceable()
        if release.type == engine
    ]
    if served and not lacks:
        return Check(name, State.OK, "; ".join(served))
    if served:
        return Check(name, State.WARN, "; ".join(served), "; ".join(lacks))
    if lacks:
        return Check(name, State.WARN, f"none: {PRODUCTS[engine]} databases are refused", "; ".join(lacks))
    others = any(each.type == engine for each in catalog.installed())
    fix = refused[0].rpartition("; ")[2] if others else HINTS[engine]
    return Check(name, State.WARN, f"none: {PRODUCTS[engine]} databases are refused", fix)
