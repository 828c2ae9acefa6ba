"""Variables of a function on this machine: the .env file of its folder."""

from __future__ import annotations

from pathlib import Path

from moorage.cli.resources.projects.dotenv import BadFile, parse

RESERVED = "__OW_"


class BadEnvFile(Exception):
    """The file cannot be used; the message names the line or the variable, never a value."""


def read(path: Path) -> dict[str, str]:
    """Return the variables of a file, or none if it does not exist; raises BadEnvFile."""
    try:
        variables = parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except BadFile as error:
        raise BadEnvFile(f"{path.name}, {error}") from error
    except UnicodeDecodeError as error:
        raise BadEnvFile(f"{path.name} is not text in UTF-8") from error
    except OSError as error:
        raise BadEnvFile(f"cannot read {path}: {error.strerror}") from error
    if reserved := [name for name in variables if name.upper().startswith(RESERVED)]:
        raise BadEnvFile(f"{path.name} sets {reserved[0]}: names that start with {RESERVED} are set by the platform")
    return variables
