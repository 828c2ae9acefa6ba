"""Variables that hold the app's own address, such as NEXTAUTH_URL.

Examples have the address of a development server there, and logins and links would lead visitors to it. The platform
knows the address of the project and sets it instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.values import variables

URL, HOST, HOSTNAME = "{url}", "{host}", "{hostname}"  # HOST has the port
_PREFIX = r"(?:NEXT_PUBLIC_|NUXT_PUBLIC_|PUBLIC_|VITE_|GATSBY_)?"
_OWN = r"(?:APP|APPLICATION|SITE|WEBSITE|BASE|PUBLIC|ROOT|WEB|HOST|NEXTAUTH|AUTH|BETTER_AUTH|PAYLOAD_PUBLIC_SERVER)"
_URL_NAME = re.compile(rf"^{_PREFIX}(?:{_OWN}_)?(?:{_OWN}|SERVER)_(?:URL|URI|ORIGIN)$|^{_PREFIX}(?:URL|ORIGIN)$")
_HOST_NAME = re.compile(rf"^{_PREFIX}(?:SERVER_NAME|(?:APP|SITE|WEB|PUBLIC)_(?:HOST|HOSTNAME|DOMAIN))$")
# Settings of Django that often have no default: `config("ALLOWED_HOSTS", cast=Csv())`.
_OF_DJANGO = ("ALLOWED_HOSTS", "DJANGO_ALLOWED_HOSTS")
_LOCAL_URL = re.compile(r"^https?://(?:localhost|127\.0\.0\.1|0\.0\.0\.0)(?::\d+)?/?$")
_LOCAL_HOST = re.compile(r"^(?:localhost|127\.0\.0\.1)(?::\d+)?$")
# A read that fails without the variable.
_PYTHON_READ = re.compile(r"\benviron\s*\[\s*['\"]([A-Z_]+)['\"]\s*\](?!\s*=[^=])")


def templates(folder: Folder, language: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return a template for the value of each variable; `values` are the values of the repository's example."""
    example_templates = {name: template for name, value in values.items() if (template := _of_example(name, value))}
    return {**_read_without_example(folder, language, values), **example_templates}


def fill(addresses: Iterable[tuple[str, str]], url: str) -> dict[str, str]:
    """Return the variables with the address of a project."""
    host = url.partition("://")[2]
    return {name: each.format(url=url, host=host, hostname=host.partition(":")[0]) for name, each in addresses}


def _of_example(name: str, value: str) -> str:
    if _URL_NAME.match(name) and _LOCAL_URL.match(value):
        return URL
    return HOST if _HOST_NAME.match(name) and _LOCAL_HOST.match(value) else ""


def _read_without_example(folder: Folder, language: str, values: Mapping[str, str]) -> dict[str, str]:
    if language != "python":
        return {}
    names = {name for text in folder.python_files.values() for name in _PYTHON_READ.findall(text)} - set(values)
    urls = {name: URL for name in sorted(names) if _URL_NAME.match(name)}
    hosts = {name: HOST for name in sorted(names) if _HOST_NAME.match(name)}
    texts = list(folder.python_files.values())
    own = {name: HOSTNAME for name in _OF_DJANGO if name not in values and variables.needed_by_python(texts, name)}
    return urls | hosts | own
