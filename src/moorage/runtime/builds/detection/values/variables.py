"""Variables that a repository names in an example such as `.env.example`, and variables that its code requires.

The instructions for a clone say to copy the example to `.env`, which `.gitignore` keeps out. A variable that the code
does not start without gets the value of the example; a variable that the code may do without stays unset, because
the example often has a placeholder that turns a feature on.
"""

from __future__ import annotations

import re
from itertools import islice

from moorage.runtime.builds.detection import secret_names
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.values import prisma

EXAMPLES = (
    *(".env.example", ".env.sample", ".env.template", ".env.dist", ".env.local.example", ".env.example.local"),
    *(".env.local.sample", ".env.development.example", ".env.production.example", ".env-example", ".env.default"),
    *(".env.dev.example", ".env.dev.sample", ".env.dev-sample", ".env.prod-sample", ".env-sample", ".env_example"),
    *("env.example", "env.sample", "example.env", "sample.env", ".env.docker.example", ".example.env", ".example-env"),
)
_OTHER_EXAMPLES = ("env-example-*", ".env.example.*", ".env.*.example", ".env.*.sample")
COMPOSE = tuple(
    f"{name}{part}.{ending}"
    for part in ("", "-dev", ".dev", "-prod", ".prod")
    for name in ("docker-compose", "compose")
    for ending in ("yml", "yaml")
)
_COMPOSED = re.compile(
    r"^[ \t]+(?:-[ \t]*)?['\"]?([A-Z][A-Z0-9_]{1,127})['\"]?[ \t]*(?:=|:[ \t])[ \t]*['\"]?([^\s'\"$]+)['\"]?[ \t]*$",
    re.MULTILINE,
)
OWN = (".env", ".env.local", ".env.production", ".env.production.local")
# The platform sets them.
_PLATFORM = frozenset({"PORT", "HOST", "HOME", "NODE_ENV", "TMPDIR", "LANG", "PATH"})
_LINE = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]{0,127})[ \t]*=[ \t]*(.*)$", re.MULTILINE)
# An example of these would be a password that everybody knows. The first ones serve with any value, which is random;
# the others belong to services elsewhere.
_OWN_SECRET = re.compile(
    r"(?:PASSWORD|PASSWD|PASSPHRASE|SALT|(?:^|_)(?:APP|SESSION|COOKIE|JWT|AUTH|CSRF|TOKEN|ENCRYPTION|SIGNING|HASH)"
    r"(?:_\w{1,60})?_(?:SECRET|KEY)|^SECRET(?:_KEY)?)$"
)
_OTHER_SECRET = re.compile(r"SECRET|TOKEN|PRIVATE|CREDENTIAL|DSN$|(?:^|_)KEYS?$")
_TIME = re.compile(
    r"(?:EXPIR\w{0,60}|TTL|LIFETIME|MAX_AGE|MINUTES|HOURS|DAYS|SECONDS|MS)(?:_IN)?$"
)  # such as TOKEN_EXPIRES_IN
_PLACEHOLDER = re.compile(
    r"(?i)^[*x.<\[{]|\byour\b|your[-_]|\bxxx|change[-_ ]?me|\.\.\.$|<[\w -]+>|(?<!@)example\.(?:com|org)"
)
_VALIDATORS = re.compile(
    r"['\"](?:zod|joi|@hapi/joi|envalid|yup|valibot|env-schema|@fastify/env|env-var|znv|@t3-oss/env-\w+)['\"]"
)
_ADDRESS = re.compile(
    r"(?:\bprocess\.env(?:\.|\[['\"])|\benviron(?:\.get)?\s*[\[(]\s*['\"]|\b(?:getenv|config)\(\s*['\"])"
    r"((?:[A-Z0-9]+_)*(?:MONGO|REDIS)[A-Z0-9_]*|ATLAS_URI|DB_UR[IL]|DB_CONNECT\w*|DATABASE(?:_UR[IL])?|DB)\b"
)
_FIXED = re.compile(r"(?:mongodb(?:\+srv)?|rediss?)://[\w.:@-]")
_SETTINGS = re.compile(r"^class\s+\w+\(\s*\w*Settings\b", re.MULTILINE)  # of Pydantic
_DECORATOR = re.compile(r"\n[ \t]*@")
_MAX_DECORATORS_CHARS = 2000  # before a field of a class
_MAX_VALUE_CHARS = 500
MAX_NAMES = 300  # of an example; the sources are searched for each


def named(folder: Folder) -> dict[str, str]:
    """Return the variables of the example with their values, except variables that the repository sets."""
    own = {name for file in OWN for name in _read(folder.find_text(file) or "")}
    return {name: value for name, value in _example(folder).items() if name not in own | _PLATFORM}


def examples(folder: Folder) -> dict[str, str]:
    """Return the variables of the example, and of a committed file of variables."""
    own = {name: value for file in OWN for name, value in _read(folder.find_text(file) or "").items()}
    return {**_example(folder), **own}


def _example(folder: Folder) -> dict[str, str]:
    """Return the variables of the example file; without such a file, the variables of a Compose file."""
    places = [folder, *([Folder(folder.root, "")] if folder.base else [])]
    texts = (text for place in places for name in EXAMPLES if (text := place.find_text(name)) is not None)
    text = next(texts, None) or _other_example(folder)
    return composed(folder) if text is None else _read(text)


def _other_example(folder: Folder) -> str | None:
    """Return an example of several, such as `env-example-relational`: the first that names no MongoDB."""
    names = [name for pattern in _OTHER_EXAMPLES for name in folder.glob(pattern)]
    texts = [folder.find_text(name) or "" for name in names]
    return next((text for text in texts if "mongodb" not in text), texts[0] if texts else None)


def composed(folder: Folder) -> dict[str, str]:
    """Return the variables of Compose files whose values are no variables themselves."""
    texts = (folder.find_text(name) or "" for name in COMPOSE)
    return {match[1]: match[2] for text in texts for match in islice(_COMPOSED.finditer(text), MAX_NAMES)}


def unread(folder: Folder) -> dict[str, str]:
    """Return the variables of a committed `.env` that no server of a Python app reads; "" for a random value.

    The development server reads the file, and so does `manage.py`; Gunicorn does not.
    """
    values = _read(folder.find_text(".env") or "")
    texts = [text for name, text in folder.python_files.items() if not name.endswith("manage.py")]
    if not values or any(re.search(r"dotenv|read_env|env_file|decouple|starlette\.config", text) for text in texts):
        return {}
    kept = {name: value for name, value in values.items() if value and name not in _PLATFORM and "DEBUG" not in name}
    return {name: "" if _OWN_SECRET.search(name.upper()) else value for name, value in kept.items()}


def _read(text: str) -> dict[str, str]:
    return {match[1]: _value(match[2]) for match in islice(_LINE.finditer(text), MAX_NAMES)}


def required(folder: Folder, language: str) -> dict[str, str]:
    """Return the variables of the example that the code does not start without; "" for one that needs a random value.

    Those whose value nobody but the user knows are left out.
    """
    examples = named(folder)
    if not examples or language not in ("python", "nodejs"):
        return {}
    texts = list(folder.python_files.values()) if language == "python" else secret_names.scripts(folder)
    needs = needed_by_python if language == "python" else _needed_by_node
    schema = prisma.text(folder)
    values = {}
    for name, value in examples.items():
        if not needs(texts, name) and not re.search(rf"\benv\(\s*['\"]{name}['\"]", schema):
            continue
        is_number = value.isdigit() or value.lower() in ("true", "false") or _TIME.search(name.upper()) is not None
        if _OWN_SECRET.search(name.upper()) and not is_number:
            values[name] = ""
        elif value and (is_number or not (_OTHER_SECRET.search(name.upper()) or _PLACEHOLDER.search(value))):
            values[name] = value
    return values


def addresses(folder: Folder, language: str) -> tuple[str, ...]:
    """Return the variables from which the code reads the address of a MongoDB or Redis.

    Without any, the file that has such an address.
    """
    if language not in ("python", "nodejs"):
        return ()
    texts = folder.python_files if language == "python" else secret_names.scripts_by_name(folder)
    names = tuple(dict.fromkeys(match[1] for text in texts.values() for match in _ADDRESS.finditer(text)))
    return names or tuple(name for name, text in texts.items() if _FIXED.search(text))[:1]


def needed_by_python(texts: list[str], name: str) -> bool:
    reads = re.compile(
        rf"\benviron\s*\[\s*['\"]{name}['\"]\s*\]"
        rf"|\b(?:environ\.get|getenv)\(\s*['\"]{name}['\"]\s*\)\s*[.\[]|\b(?:int|float)\(\s*os\.(?:environ\.get|getenv)\("
        rf"\s*['\"]{name}['\"]\s*\)"
        rf"|\b(?:config|env(?:\.(?:str|int|bool|float|list|url|db|dj_db_url))?)\(\s*['\"]{name}['\"]\s*"
        r"(?:,\s*cast\s*=\s*\w+(?:\(\))?\s*)?\)"
    )
    field = re.compile(rf"^[ \t]+{name}[ \t]*:[ \t]*+[\w.\[\], |]+(?:#.*)?$", re.MULTILINE | re.IGNORECASE)
    return any(reads.search(text) or (_SETTINGS.search(text) and field.search(text)) for text in texts)


def _needed_by_node(texts: list[str], name: str) -> bool:
    checks = re.compile(
        rf"^if\s*\(\s*!\s*process\.env\.{name}\s*\)[\s\S]{{0,200}}?(?:throw\b|process\.exit)"
        rf"|\b(?:invariant|assert(?:\.ok)?)\(\s*process\.env\.{name}\b|\bprocess\.env\.{name}!"
        rf"|\b(?:requireEnv|requiredEnv|getOrThrow|getEnvOrThrow|mustGetEnv|required)(?:<\w+>)?\(\s*['\"]{name}['\"]",
        re.MULTILINE,
    )
    # A schema has a line for each variable; one with a default is not required.
    line = re.compile(rf"^(?![^\n]*(?:default|optional|fallback))[^\n]*\b{name}\b['\"]?\s*[:,]", re.MULTILINE)
    return any(
        checks.search(text)
        or ("process.env" in text and _VALIDATORS.search(text) and line.search(text))
        or ("class-validator" in text and "process.env" in text and _is_checked_field(text, name))
        for text in texts
    )


def _is_checked_field(text: str, name: str) -> bool:
    """Return whether class-validator checks a field of a class, by the first one that has decorators."""
    fields = rf"^[ \t]*(?:readonly[ \t]+|public[ \t]+)?{re.escape(name)}!?[ \t]*:[^;=\n]*;"
    for field in re.finditer(fields, text, re.MULTILINE):
        before = re.split("[;{}]", text[max(0, field.start() - _MAX_DECORATORS_CHARS) : field.start()])[-1]
        if decorators := _DECORATOR.search(before):
            return "@IsOptional" not in before[decorators.start() :]
    return False


def _value(text: str) -> str:
    """Return a value without its quotes or comment."""
    if match := re.match(r"(['\"`])(.*?)\1", text):
        return match[2][:_MAX_VALUE_CHARS]
    return re.sub(r"(?:^|\s)#.*", "", text).strip()[:_MAX_VALUE_CHARS]
