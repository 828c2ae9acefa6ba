"""Contexts: platforms and organizations that the user signed in to, in a file that only the user can read."""

from __future__ import annotations

import os
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from moorage.client.defaults import DEFAULT_URL

FILE_MODE = 0o600


@dataclass(slots=True)
class Context:
    """One platform with a credential. A session token needs the organization; an API token carries its own."""

    url: str
    token: str = ""
    organization: str = ""


@dataclass(slots=True)
class Contexts:
    current: str = ""
    by_name: dict[str, Context] = field(default_factory=dict)


class BadContextFile(Exception):
    """The file with the contexts cannot be read."""


def file_path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "moorage" / "contexts.toml"


def load() -> Contexts:
    path = file_path()
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Contexts()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadContextFile(f"cannot read {path}: {error}; correct or delete it") from error
    try:
        by_name = {name: Context(**values) for name, values in document.get("contexts", {}).items()}
        return Contexts(str(document.get("current", "")), by_name)
    except TypeError as error:
        raise BadContextFile(f"{path} has an unknown entry ({error}); correct or delete it") from error


def save(contexts: Contexts) -> Path:
    """Replace the file at once, readable for its owner only."""
    import tomlkit

    document = tomlkit.document()
    document["current"] = contexts.current
    document["contexts"] = {
        name: {"url": each.url, "token": each.token, "organization": each.organization}
        for name, each in contexts.by_name.items()
    }
    path = file_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".contexts-")  # made with mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(tomlkit.dumps(document))
        os.chmod(temporary, FILE_MODE)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path


def selected(name: str | None = None, organization: str | None = None) -> tuple[str, Context]:
    """Return the context to use and its name: a flag, then the environment, then the current one.

    MOORAGE_URL, MOORAGE_TOKEN and MOORAGE_ORG override single values. A token of the file is only sent to the platform
    that it belongs to.
    """
    contexts = load()
    name = name or os.environ.get("MOORAGE_CONTEXT") or contexts.current
    if name and name not in contexts.by_name:
        raise BadContextFile(f"there is no context {name}; `moorage context list` shows those that exist")
    stored = contexts.by_name.get(name, Context(DEFAULT_URL)) if name else Context(DEFAULT_URL)
    url = (os.environ.get("MOORAGE_URL") or stored.url).rstrip("/")
    is_same = url == stored.url.rstrip("/")
    token = os.environ.get("MOORAGE_TOKEN")
    chosen = organization or os.environ.get("MOORAGE_ORG") or (stored.organization if is_same and not token else "")
    return name, Context(url, token or (stored.token if is_same else ""), chosen)
