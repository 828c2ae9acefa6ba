"""Find the variables with secrets that an app alone uses, such as the key of its sessions, in its sources.

A repository must not contain them, and many apps do not start without them; a random value serves as well as any other.
"""

from __future__ import annotations

import re

from moorage.runtime.builds.detection.reading import Folder

NAMES = (
    *("SECRET_KEY", "DJANGO_SECRET_KEY", "FLASK_SECRET_KEY", "APP_SECRET", "APP_SECRET_KEY", "SESSION_SECRET"),
    *("SESSION_SECRET_KEY", "COOKIE_SECRET", "COOKIE_KEY", "CSRF_SECRET", "JWT_SECRET", "JWT_SECRET_KEY", "JWT_KEY"),
    *("TOKEN_SECRET", "ACCESS_TOKEN_SECRET", "REFRESH_TOKEN_SECRET", "AUTH_SECRET", "NEXTAUTH_SECRET"),
    *("BETTER_AUTH_SECRET", "PAYLOAD_SECRET"),
)
# npm packages that read their variable themselves.
OF_PACKAGES = {"next-auth": ("AUTH_SECRET", "NEXTAUTH_SECRET"), "nuxt-auth-utils": ("NUXT_SESSION_PASSWORD",)}
SCRIPTS = (".js", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".tsx", ".jsx")
DEPTH = 4  # folders below the base folder in which scripts are searched
MAX_SCRIPTS = 600
MAX_SCRIPT_BYTES = 2**16
_ANY = "|".join(sorted(NAMES, key=len, reverse=True))
# Reads without a default: another argument, `or`, `||` or `??` would follow.
_PYTHON = re.compile(
    rf"(?:\benviron(?:\.get)?\s*[\[(]|\bgetenv\(|\bconfig\(|\benv(?:\.str)?\()\s*['\"]({_ANY})['\"]\s*"
    r"(?:,\s*cast\s*=\s*[\w.]+(?:\(\))?\s*)?[\])](?!\s*or\b)"
)
_PYDANTIC = re.compile(rf"^[ \t]+({_ANY})\s*:\s*(?:str|SecretStr)\s*(?:#.*)?$", re.MULTILINE | re.IGNORECASE)
_NODE = re.compile(rf"\bprocess\.env(?:\.({_ANY})\b|\[['\"]({_ANY})['\"]\])(?!\s*(?:\|\||\?\?|\?|=[^=]))")
# Schemas of variables, as Zod, Joi and envalid have them.
_SCHEMA = re.compile(
    rf"\b({_ANY})\s*:\s*(?:z|[jJ]oi|yup)\.string\((?![^\n]{{0,500}}(?:default|optional))|\b({_ANY})\s*:\s*str\(\)"
)


def find(folder: Folder, language: str) -> tuple[str, ...]:
    """Return the names that the sources read without a default, and that no `.env` of the repository sets."""
    variables = _in_python(folder) if language == "python" else _in_node(folder) if language == "nodejs" else set()
    given = re.findall(r"^[ \t]*(?:export[ \t]+)?(\w+)[ \t]*=", folder.find_text(".env") or "", re.MULTILINE)
    return tuple(sorted(variables - set(given)))


def _in_python(folder: Folder) -> set[str]:
    variables: set[str] = set()
    for text in folder.python_files.values():
        variables.update(_PYTHON.findall(text))
        if "BaseSettings" in text:
            variables.update(name.upper() for name in _PYDANTIC.findall(text))
    return variables


def _in_node(folder: Folder) -> set[str]:
    packages = folder.node_packages
    variables = {name for package, names in OF_PACKAGES.items() if package in packages for name in names}
    for text in scripts(folder):
        variables.update(
            name for pattern in (_NODE, _SCHEMA) for match in pattern.findall(text) for name in match if name
        )
    return variables


def scripts(folder: Folder) -> list[str]:
    """Return the texts of the scripts, those of upper folders first."""
    return list(scripts_by_name(folder).values())


def scripts_by_name(folder: Folder) -> dict[str, str]:
    texts: dict[str, str] = {name: folder.find_text(name, MAX_SCRIPT_BYTES) or "" for name in folder.glob("bin/www")}
    level = [""]
    for _ in range(DEPTH + 1):
        for place in level:
            names = folder.glob(f"{place}/*".lstrip("/"))
            names = [name for name in names if name.endswith(SCRIPTS) and not name.endswith(".d.ts")]
            names = names[: MAX_SCRIPTS - len(texts)]
            texts |= {name: folder.find_text(name, MAX_SCRIPT_BYTES) or "" for name in names}
        level = [each for place in level for each in folder.folders(place)][:MAX_SCRIPTS]
    return texts
