"""Hostile texts, each in the function that gets it: a process that prints the CPU times of all as JSON.

With the former patterns, each search took from ten seconds to years.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tests.cpu_limits import cpu_time, limit_process
from tests.runtime.builds.build_support import write_files

from moorage.core.net.calls import Answer
from moorage.runtime.builds import diagnosis, install
from moorage.runtime.builds.detection import managers, node_versions, scripts, workspaces
from moorage.runtime.builds.detection.preview import preview
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.values import variables
from moorage.runtime.builds.environment import Layout
from moorage.runtime.builds.node import fonts, openssl, sharp, warnings
from moorage.runtime.builds.python import hugo
from moorage.runtime.images.references import PullFailed
from moorage.runtime.images.sign_in import read_challenge

LIMIT_S = 5.0
MAX_BYTES = 2 * 2**30
TAIL = 256 * 1024  # four times as much as is searched of the output of a build
MANY = 200_000
LAYOUT = Layout(base="/work", cache="/cache", tmp="/tmp", bin="/bin", node="node", python="python", pip="")
GO = {"go.mod": "module a\ngo 1.22\n", "cmd/one/main.go": "package main\n", "cmd/two/main.go": "package main\n"}
DJANGO = {
    "requirements.txt": "django\ndaphne\n",
    "manage.py": "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')\nimport django\n",
    "shop/settings.py": "ENGINE = 'django.db.backends.sqlite3'\n",
    "shop/asgi.py": "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')\n",
    "shop/wsgi.py": "",
}
FLASK = {
    "requirements.txt": "flask\npsycopg2\nsqlalchemy\n",
    "app.py": "from flask import Flask\napp = Flask(__name__)\n",
}
NODE = {"package.json": {"scripts": {"start": "node a.js"}, "dependencies": {"express": "4"}}, "a.js": ".listen("}
FOLDERS: Mapping[str, Mapping[str, object]] = {
    "a Makefile of a Go program": {**GO, "Makefile": f"go build ./{'a' * MANY}!\n"},
    "imports of asgi.py": {**DJANGO, "shop/asgi.py": f"{DJANGO['shop/asgi.py']}from {'a' * MANY}\n"},
    "models of Django": {**DJANGO, "shop/models.py": "class a(\n" * 25_000},
    "databases of Django": {**DJANGO, "shop/settings.py": "'ENGINE': 'django.db.backends.mysql'," * 6000},
    "line ends in the specification of a host": {**FLASK, ".do/app.yaml": f"{chr(10) * 99}a" * 9000},
    "options of Gunicorn": {**FLASK, "Procfile": f"web: gunicorn {'--a=b --c d ' * 40}!\n"},
    "a path in requirements": {**FLASK, "requirements.txt": f"flask\n-c {'=' * MANY}!\n"},
    "a name in an example": {**NODE, ".env.example": f"APP_{'JWT_' * MANY}=\n"},
    "names in an example": {**NODE, ".env.example": "".join(f"A{n}=1\n" for n in range(20_000)), "b.js": "a " * 30_000},
}  # fmt: skip
DECORATED = f"'class-validator'; process.env\n{'@a()' + chr(10)}" + "@a()\n" * 500 + "}"
OUTPUTS = {
    "words": "a-" * (TAIL // 2),
    "digits": "1" * TAIL,
    "a place in a Go file": f"a.go:{'1' * TAIL}",
    "places in a Go file": "a.go:1" * (TAIL // 6),
    "blanks after an error of Pydantic": f"ValidationError: 1 validation error for A\na\n a{' ' * (TAIL - 99)}b",
    "blanks after an error of uv": f"Couldn't parse requirement in `a`\n\n{' ' * TAIL}",
    "line ends after an error of Gatsby": f'Invalid plugin options for "a":{chr(10) * TAIL}',
    "ports": "EADDRINUSE " * (TAIL // 11),
    "addresses": "localhost " * (TAIL // 10),
    "requests": f"request to https://{'a' * TAIL}",
    "requests for archives": f"request to https://codeload.a/{'a' * (TAIL // 2)}/{'a' * (TAIL // 2)}",
    "lines of a traceback": f'File "/work/a.py", line {"1" * TAIL}',
    "failures of pnpm": "ELIFECYCLE\n" * (TAIL // 11),
    "failures of npm": "npm error command failed\n" * (TAIL // 25),
    "failures of Yarn": "Exit code: 1\nCommand: a\n" * (TAIL // 24),
    "problems of a linter": "1 problem (1 error, " * (TAIL // 20),
    "archives": "https://" * (TAIL // 8),
    "old modules": "invalid mode: 'rU' while trying" * (TAIL // 31),
}


def search_output(folder: Folder, output: str) -> None:
    """Search the output of a failed build as the builder does."""
    diagnosis.explain(output)
    diagnosis.needed_python(output)
    diagnosis.refused_visitors(output)
    node_versions.older(folder, (20, 0, 0), output)
    retries = [warnings.RETRY, warnings.VUE_RETRY, openssl.RETRY, hugo.RETRY, sharp.retry(LAYOUT)]
    retries += [fonts.retry(LAYOUT), fonts.any_retry(LAYOUT), fonts.angular_retry()]
    for name in ("npm", "pnpm", "yarn", "bun"):
        retries += install.node_step(managers.NodeManager(name, "", ()), LAYOUT, "").retries
    for retry in retries:
        retry.pattern.search(output)


def sign_in(header: str) -> None:
    try:
        read_challenge(Answer(401, {"WWW-Authenticate": header}, b"", False, "", 0.0, None))
    except PullFailed:
        return


def cases(place: Path) -> dict[str, Callable[[], object]]:
    found: dict[str, Callable[[], object]] = {}
    for number, (name, files) in enumerate(FOLDERS.items()):
        found[name] = partial(preview, str(write_files(place / str(number), files)), "auto", "", "")
    folder = Folder(write_files(place / "decorated", {"a.ts": DECORATED, **NODE, ".env.example": "NAME=1\n"}), "")
    found["decorators of a class"] = partial(variables.required, folder, "nodejs")
    parts = {"package.json": {"scripts": {"start": "&&".join(["npm run a"] * 20_000)}}}
    resolve = partial(scripts.resolve, "npm start", Folder(write_files(place / "parts", parts), ""), "/work")
    found["parts of a start command"] = partial(resolve, "npm run build")
    alternatives = {"package.json": {"workspaces": [f"{{{',' * 60_000}}}{'x' * 60_000}"]}, "web/package.json": {}}
    web = Folder(write_files(place / "alternatives", alternatives), "web")
    found["alternatives of a workspace"] = partial(workspaces.find_workspace, web)
    for name, output in OUTPUTS.items():
        found[f"output: {name}"] = partial(search_output, folder, output[:TAIL])
    found["a challenge"] = partial(sign_in, f"Bearer {'a' * 10**6}")
    return found


if __name__ == "__main__":
    limit_process(120)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    for name, work in cases(Path(sys.argv[1])).items():
        print(json.dumps([name, cpu_time(work, LIMIT_S)]), flush=True)
