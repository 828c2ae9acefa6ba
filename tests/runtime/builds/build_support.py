"""Repositories, requests and a log for tests of builds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moorage.runtime.builds.ports import BuildRequest, Stream


class Log:
    """Keeps the log of a build."""

    def __init__(self) -> None:
        self.said: list[tuple[Stream, str]] = []

    def write(self, stream: Stream, text: str) -> None:
        self.said.append((stream, text))

    def text(self, *streams: Stream) -> str:
        return "".join(text for stream, text in self.said if not streams or stream in streams)

    @property
    def system(self) -> list[str]:
        return self.text("system").splitlines()


def write_files(folder: Path, files: Mapping[str, Any]) -> Path:
    """Write files by name; a value that is not text is written as JSON."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def make_request(source: Path, **changed: Any) -> BuildRequest:
    """Ask for a build as a static project with all its defaults does."""
    given: dict[str, Any] = {
        "cache": "project-1",
        "source": source,
        "wanted": "static",
        "language": "auto",
        "base_dir": "./",
        "build_dir": "dist",
        "build_cmd": "npm run build",
        "start_cmd": "",
        "entry_point": "",
        "is_default_build": "build_cmd" not in changed and "build_dir" not in changed,
        "env": {},
        "use_caches": True,
    }
    return BuildRequest(**{**given, **changed})


def make_app_request(source: Path, **changed: Any) -> BuildRequest:
    """Ask for a build as a container project does."""
    return make_request(source, **{"wanted": "container", "build_cmd": "", "build_dir": "", **changed})
