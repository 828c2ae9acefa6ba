"""Script of package.json that builds a site, where it has another name than `build`."""

from __future__ import annotations

import re

from moorage.runtime.builds.detection.reading import Folder

_NAMES = ("build:prod", "build:production", "build-prod", "production", "prod", "build:all", "build:site")
_RUN = r"(?:npm run|yarn(?: run)?|pnpm(?: run)?|bun run) ([\w:.-]+)"
# Files of other hosts with the build command.
_HOSTS = (
    ("netlify.toml", re.compile(rf"^[ \t]*command[ \t]*=[ \t]*['\"]{_RUN}['\"]", re.MULTILINE)),
    ("vercel.json", re.compile(rf"\"buildCommand\"\s*:\s*\"{_RUN}\"")),
)
_WATCHES = re.compile(r"--(?:serve|watch)\b|(?:^|\s)(?:serve|watch|dev)\b")
MAX_CHARS = 2000  # of a script


def find(folder: Folder, command: str) -> str:
    """Return the script that another host runs, else one of a usual name that runs the program of a command; or ""."""
    for name, pattern in _HOSTS:
        if (match := pattern.search(folder.find_text(name) or "")) and folder.scripts.get(match[1], "").strip():
            return match[1]
    program = re.compile(rf"\b{re.escape(next(iter(command.split()), ''))}\b")
    texts = {name: folder.scripts.get(name, "")[:MAX_CHARS] for name in _NAMES} if command else {}
    return next((name for name, text in texts.items() if program.search(text) and not _WATCHES.search(text)), "")
