"""Dockerfiles as public repositories have them, with real package managers, on a whole platform."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.e2e.apps_support import Apps, started_apps
from tests.e2e.debian_images import serving_debian
from tests.products.repositories.support import Checkout
from tests.runtime.images.building.image_builds import write
from tests.runtime.images.registry_support import RegistryServer

pytestmark = [pytest.mark.deep, pytest.mark.group("dockerfiles-real")]

NODE = """
FROM node AS deps
WORKDIR /app
COPY package.json package-lock.json ./
RUN --mount=type=cache,target=/root/.npm npm ci --omit=dev

FROM node
ENV NODE_ENV=production
RUN mkdir -p /home/node/app && chown -R node:node /home/node/app
WORKDIR /home/node/app
USER node
COPY --chown=node:node --from=deps /app/node_modules ./node_modules
COPY --chown=node:node . .
RUN node -e "require('fs').writeFileSync('made.txt', require('ms')('2 days') + ' ' + require('os').userInfo().username)"
EXPOSE 3000
HEALTHCHECK --interval=5s CMD node -e "fetch('http://127.0.0.1:3000/').then(r => process.exit(r.ok ? 0 : 1))"
CMD ["server.js"]
"""
NODE_SERVER = """
const fs = require('fs')
const answer = () => `${fs.readFileSync('made.txt')} ${process.getuid()} ${process.env.NODE_ENV}`
require('http').createServer((_, response) => response.end(answer())).listen(3000)
"""
PNPM = """
FROM node
ENV PNPM_HOME=/pnpm PATH=/pnpm:$PATH COREPACK_INTEGRITY_KEYS=0
RUN corepack enable && corepack prepare pnpm@9.15.0 --activate
WORKDIR /app
COPY package.json ./
RUN --mount=type=cache,id=pnpm,target=/pnpm/store pnpm install --prod
RUN npm install --global semver && semver 1.2.3 > semver.txt
COPY . .
RUN echo "pnpm $(pnpm --version)" > made.txt && cat semver.txt >> made.txt
USER 1000:1000
CMD node server.js
"""
PYTHON = """
# syntax=docker/dockerfile:1
FROM python
ENV PYTHONDONTWRITEBYTECODE=1 \\
    PYTHONUNBUFFERED=1 \\
    PIP_NO_CACHE_DIR=1
WORKDIR /usr/src/app
RUN apt-get update \\
    && apt-get install -y --no-install-recommends tini procps \\
    && rm -rf /var/lib/apt/lists/*
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
RUN addgroup --system app && adduser --system --ingroup app --home /usr/src/app app
COPY . .
RUN chown -R app:app /usr/src/app
USER app
EXPOSE 8000
ENTRYPOINT ["tini", "--"]
CMD gunicorn --workers 2 --bind 0.0.0.0:${PORT:-8000} main:app
"""
PYTHON_APP = """
import getpass, os
from flask import Flask
app = Flask(__name__)

@app.get("/")
def home():
    owner = os.stat("main.py").st_uid == os.getuid()
    return f"flask {getpass.getuser()} {owner}"
"""
VENV = """
FROM python AS build
RUN python -m venv /opt/venv
ENV PATH="/opt/venv/bin:$PATH"
RUN pip install --upgrade pip && pip install uv
COPY requirements.txt /
RUN uv pip install --python /opt/venv/bin/python -r /requirements.txt

FROM python
RUN useradd --create-home --uid 1001 --shell /bin/bash app
COPY --from=build --chown=app:app /opt/venv /opt/venv
ENV PATH="/opt/venv/bin:$PATH"
WORKDIR /home/app
COPY --chown=app . .
USER app
CMD ["sh", "-c", "exec uvicorn main:app --host 0.0.0.0 --port $PORT"]
"""
ASGI_APP = """
import getpass

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": f"asgi {getpass.getuser()}".encode()})
"""
GO = """
FROM golang AS build
WORKDIR /src
COPY go.mod ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
RUN --mount=type=cache,target=/root/.cache/go-build CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /out/server .

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build --chmod=0755 /out/server /server
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/server"]
"""
GO_SERVER = """
package main

import (
	"fmt"
	"net/http"
	"os"
)

func main() {
	http.HandleFunc("/", func(answer http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(answer, "go %d", os.Getuid())
	})
	http.ListenAndServe(":"+os.Getenv("PORT"), nil)
}
"""
NGINX = """
FROM node AS build
WORKDIR /site
RUN npm init -y && npm install mustache
RUN <<EOF
#!/usr/bin/env node
const text = require('/site/node_modules/mustache').render('from {{name}}\\n', {name: 'nginx'})
require('fs').writeFileSync('index.html', text)
EOF

FROM debian
RUN set -x \\
    && apt-get update \\
    && DEBIAN_FRONTEND=noninteractive apt-get install --no-install-recommends -y nginx-light \\
    && rm -rf /var/lib/apt/lists/* \\
    && ln -sf /dev/stdout /var/log/nginx/access.log \\
    && ln -sf /dev/stderr /var/log/nginx/error.log
COPY --from=build /site/index.html /var/www/html/
COPY <<EOF /etc/nginx/sites-enabled/default
server {
  listen 80 default_server;
  root /var/www/html;
}
EOF
EXPOSE 80
STOPSIGNAL SIGQUIT
CMD ["nginx", "-g", "daemon off;"]
"""
HELPER = """
FROM debian
RUN apt-get update && apt-get install -y gosu gcc libc6-dev && rm -rf /var/lib/apt/lists/* && gosu nobody true
RUN groupadd -r -g 999 store && useradd -r -g store -u 999 store \\
    && mkdir -p /var/lib/store && chown store:store /var/lib/store && chmod 0700 /var/lib/store
COPY server.c /tmp/
RUN gcc -O1 -o /usr/local/bin/server /tmp/server.c && rm /tmp/server.c && chmod 4755 /usr/local/bin/server
COPY --chmod=755 entrypoint.sh /usr/local/bin/
VOLUME /var/lib/store
ENTRYPOINT ["entrypoint.sh"]
CMD ["server"]
"""
HELPER_ENTRYPOINT = """#!/bin/sh
set -e
if [ "$1" = server ] && [ "$(id -u)" = 0 ]; then
  find /var/lib/store \\! -user store -exec chown store '{}' +
  exec gosu store "$0" "$@"
fi
exec "$@"
"""
C_SERVER = """
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
int main(void) {
  int one = 1, s = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(getenv("PORT")))};
  setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(s, (void *)&a, sizeof a) || listen(s, 9)) return 1;
  FILE *f = fopen("/var/lib/store/mine", "w");
  char text[64], head[128], in[4096];
  sprintf(text, "c %d %d %s", (int)getuid(), (int)geteuid(), f ? "written" : "refused");
  sprintf(head, "HTTP/1.1 200 OK\\r\\nContent-Length: %zu\\r\\nConnection: close\\r\\n\\r\\n%s", strlen(text), text);
  for (;;) {
    int c = accept(s, 0, 0);
    read(c, in, sizeof in);
    write(c, head, strlen(head));
    close(c);
  }
}
"""


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with serving_debian("node", "python", "golang") as running:
        yield running


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apps]:
    with started_apps(tmp_path_factory.mktemp("platform") / "data") as started:
        yield started


def repository(registry: RegistryServer, folder: Path, dockerfile: str, files: Mapping[str, str]) -> Checkout:
    """Make a repository, in whose Dockerfile base images have the names of the public ones."""
    work = Checkout.init(folder)
    text = re.sub(r"^FROM (debian|node|python|golang)\b", rf"FROM 127.0.0.1:{registry.port}/\1", dockerfile, flags=re.M)
    for name, content in {"Dockerfile": text, **files}.items():
        write(work.folder / name, content)
    return work


def lock(work: Checkout) -> None:
    argv = ["npm", "install", "--package-lock-only", "--no-audit", "--no-fund"]
    subprocess.run(argv, cwd=work.folder, check=True, capture_output=True)


def package(**dependencies: str) -> str:
    return json.dumps({"name": "app", "version": "1.0.0", "private": True, "dependencies": dependencies})


def served(apps: Apps, name: str, work: Checkout) -> str:
    """Deploy a repository and return the answer of its app."""
    work.commit()
    apps.live(apps.launch(name, work, language="docker"))
    return apps.text(name)


def test_npm_ci_with_a_cache_and_the_user_node(apps: Apps, registry: RegistryServer, tmp_path: Path) -> None:
    files = {"package.json": package(ms="^2.1.3"), "server.js": NODE_SERVER}
    work = repository(registry, tmp_path / "node", NODE, files)
    lock(work)

    answer = served(apps, "node", work)

    assert answer == "172800000 node 1000 production"


def test_corepack_pnpm_and_a_global_npm_install(apps: Apps, registry: RegistryServer, tmp_path: Path) -> None:
    server = NODE_SERVER.replace("3000", "process.env.PORT")
    files = {"package.json": package(ms="^2.1.3"), "server.js": server}

    answer = served(apps, "pnpm", repository(registry, tmp_path / "pnpm", PNPM, files))

    assert answer == "pnpm 9.15.0\n1.2.3\n 1000 undefined"


def test_apt_pip_and_a_system_user(apps: Apps, registry: RegistryServer, tmp_path: Path) -> None:
    files = {"requirements.txt": "flask==3.0.3\ngunicorn==23.0.0\n", "main.py": PYTHON_APP}

    answer = served(apps, "flask", repository(registry, tmp_path / "flask", PYTHON, files))

    assert answer == "flask app True"


def test_a_virtual_environment_of_another_stage(apps: Apps, registry: RegistryServer, tmp_path: Path) -> None:
    files = {"requirements.txt": "uvicorn==0.32.0\n", "main.py": ASGI_APP}

    answer = served(apps, "asgi", repository(registry, tmp_path / "asgi", VENV, files))

    assert answer == "asgi app"


def test_a_static_go_program_on_scratch(apps: Apps, registry: RegistryServer, tmp_path: Path) -> None:
    files = {"go.mod": "module example.com/app\n\ngo 1.21\n", "main.go": GO_SERVER}

    answer = served(apps, "golang", repository(registry, tmp_path / "go", GO, files))

    assert answer == "go 65532"


def test_nginx_starts_as_root_and_serves_a_site(apps: Apps, registry: RegistryServer, tmp_path: Path) -> None:
    answer = served(apps, "nginx", repository(registry, tmp_path / "nginx", NGINX, {}))

    assert answer == "from nginx\n"
    assert any('"GET / HTTP/1.1" 200' in line for line in apps.printed_by("nginx"))


def test_an_entry_point_changes_owners_and_then_the_user(apps: Apps, registry: RegistryServer, tmp_path: Path) -> None:
    files = {"server.c": C_SERVER, "entrypoint.sh": HELPER_ENTRYPOINT}

    answer = served(apps, "helper", repository(registry, tmp_path / "helper", HELPER, files))

    assert answer == "c 999 999 written"
