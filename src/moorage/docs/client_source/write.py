"""Writes the generated part of `moorage.client`, formatted as the rest of the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from moorage.docs.client_source import groups, models

PACKAGES = ("models", "api", "api_async")
RULES = "I,F401,UP,RUF036"  # sorted imports, no unused ones, None last


def sources(document: dict[str, Any]) -> dict[str, str]:
    """Return all generated files by path below `moorage/client`; deterministic for the same document."""
    texts = {f"models/{name}": text for name, text in models.modules(document).items()}
    for flavour in (groups.BLOCKING, groups.ASYNC):
        texts |= {f"{flavour.package}/{name}": text for name, text in groups.modules(document, flavour).items()}
    return texts


def write(document: dict[str, Any], folder: Path) -> list[Path]:
    """Write the files into a client's folder, and delete generated ones that are no longer made."""
    texts = sources(document)
    for package in PACKAGES:
        (folder / package).mkdir(parents=True, exist_ok=True)
        for stale in (folder / package).glob("*.py"):
            if f"{package}/{stale.name}" not in texts:
                stale.unlink()
    paths = []
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
        paths.append(folder / name)
    packages = [str(folder / package) for package in PACKAGES]
    for arguments in (["check", "--fix", "--quiet", "--select", RULES, "--ignore", "RUF022"], ["format", "--quiet"]):
        subprocess.run([sys.executable, "-m", "ruff", *arguments, *packages], check=True)
    return paths
