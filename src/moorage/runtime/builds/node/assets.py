"""Build the assets of an app in another language, before the app itself.

Without them the app may still be of use, so a failure is a line in the log.
"""

from __future__ import annotations

import re
from dataclasses import replace

from moorage.core.kit import folders
from moorage.runtime.builds import install
from moorage.runtime.builds.detection import managers
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.table import go
from moorage.runtime.builds.environment import Layout, Step
from moorage.runtime.builds.node import fonts, openssl, warnings
from moorage.runtime.builds.ports import Assets, Plan


def place_of(plan: Plan, folder: Folder) -> Folder | None:
    """Return the folder with the package.json of a plan; None without one."""
    if plan.assets is not None:
        return Folder(folder.root, plan.assets.folder)
    return folder if plan.language == "nodejs" else None


def steps(assets: Assets, folder: Folder, layout: Layout) -> list[Step]:
    """Return the commands; one that fails makes the others pointless."""
    place = Folder(folder.root, assets.folder)
    manager = managers.node_manager(place)
    installing = install.node_step(manager, layout, place.base)
    commands = [replace(installing, is_cached=False, is_optional=True)]
    if assets.build:
        retries = (openssl.RETRY, warnings.RETRY, warnings.VUE_RETRY, fonts.any_retry(layout))
        argv = ["/usr/bin/env", "sh", "-c", assets.build]
        commands.append(Step(assets.build, argv, is_optional=True, folder=place.base, retries=retries))
    return commands


def clear(assets: Assets, folder: Folder) -> None:
    """Delete the packages, which only the build needed, unless the code of the app names their folder."""
    place = Folder(folder.root, assets.folder).path
    if not folders.is_real(folder.root, place):
        return  # A command has replaced the folder by a link.
    texts = (*folder.python_files.values(), *go.texts(folder).values())
    if not any(re.search(rf"\b{install.NODE_MODULES}\b", text) for text in texts):
        folders.remove(place / install.NODE_MODULES)
