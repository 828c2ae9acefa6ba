"""Dockerfiles after the patterns of public ones, each built here and by Docker.

`BASE` is an image with a shell and the usual programs, `PYTHON` has Python too, and `NODE` has Node.js.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Case:
    dockerfile: str
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    args: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    docker: str = ""  # for Docker 20.10, where it does not know the syntax: the same image with other words


def archive(**contents: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as opened:
        for number, (name, text) in enumerate(contents.items()):
            header = tarfile.TarInfo(name.replace("__", "/"))
            header.size, header.mode, header.uid, header.gid = len(text), 0o640, 1000 + number, 50
            header.mtime = 1_700_000_000
            opened.addfile(header, io.BytesIO(text.encode()))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "a/b"
        opened.addfile(link)
    return packed.getvalue()


APP = {
    "package.json": '{"name": "app", "version": "1.0.0", "dependencies": {}}',
    "package-lock.json": '{"name": "app", "version": "1.0.0", "lockfileVersion": 3, "packages": {}}',
    "server.js": "console.log('up')\n",
    "public/index.html": "<p>hi",
    "public/css/a.css": "a{}",
    "README.md": "x",
    ".gitignore": "x",
}
PYTHON_APP = {
    "requirements.txt": "",
    "pyproject.toml": "[project]\nname='app'\nversion='1'\n",
    "uv.lock": "",
    "app/__init__.py": "",
    "app/main.py": "print('hi')\n",
    "tests/test_a.py": "",
}
CORPUS: dict[str, Case] = {
    "smallest": Case("FROM BASE"),
    "scratch with a static program": Case(
        'FROM BASE AS build\nRUN echo "#!static" > /server && chmod 755 /server\nFROM scratch\n'
        'COPY --from=build /server /server\nEXPOSE 8080\nENTRYPOINT ["/server"]'
    ),
    "node in one stage": Case(
        "FROM BASE\nWORKDIR /usr/src/app\nCOPY package*.json ./\nRUN echo deps > node_modules\nCOPY . .\n"
        'ENV NODE_ENV=production\nEXPOSE 3000\nUSER 1000:1001\nCMD ["node", "server.js"]',
        APP,
    ),
    "node with dependencies in a stage": Case(
        """
        FROM BASE AS base
        WORKDIR /app
        FROM base AS deps
        COPY package.json package-lock.json ./
        RUN --mount=type=cache,target=/root/.npm mkdir node_modules && echo 1 > node_modules/dep.js
        FROM base AS builder
        COPY --from=deps /app/node_modules ./node_modules
        COPY . .
        RUN mkdir -p .next/standalone .next/static && cp server.js .next/standalone && echo s > .next/static/s.js
        FROM base AS runner
        ENV NODE_ENV production
        ENV PORT=3000 HOSTNAME="0.0.0.0"
        RUN echo "nodejs:x:1001:" >> /etc/group && echo "nextjs:x:1001:1001::/:/bin/sh" >> /etc/passwd
        COPY --from=builder /app/public ./public
        RUN mkdir .next && chown nextjs:nodejs .next
        COPY --from=builder --chown=nextjs:nodejs /app/.next/standalone ./
        COPY --from=builder --chown=nextjs:nodejs /app/.next/static ./.next/static
        USER nextjs
        EXPOSE 3000
        CMD ["node", "server.js"]
        """,
        APP,
    ),
    "node with an ignore file": Case(
        "FROM BASE\nWORKDIR /app\nCOPY . .\nRUN ls -a > /listed\nCMD node server.js",
        {**APP, ".dockerignore": "node_modules\n*.md\n.git*\n!README.md\npublic/css\n", "node_modules/x": "1"},
    ),
    "static site behind a web server": Case(
        """
        FROM BASE AS build
        WORKDIR /site
        COPY public public
        RUN mkdir dist && cp -r public/. dist/ && chmod -R a+rX dist
        FROM BASE
        RUN mkdir -p /usr/share/nginx/html /etc/nginx
        COPY nginx.conf /etc/nginx/conf.d/default.conf
        COPY --from=build /site/dist /usr/share/nginx/html
        EXPOSE 80 443
        STOPSIGNAL SIGQUIT
        CMD ["nginx", "-g", "daemon off;"]
        """,
        {**APP, "nginx.conf": "server {}"},
    ),
    "python with pip and a virtual environment": Case(
        """
        FROM PYTHON AS builder
        ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
        WORKDIR /app
        RUN python3 -c "import os; os.makedirs('/opt/venv/bin'); os.symlink('/usr/bin/python3', '/opt/venv/bin/python')"
        ENV PATH="/opt/venv/bin:$PATH"
        COPY requirements.txt .
        RUN python -c "open('/opt/venv/installed', 'w').write('x')"
        FROM PYTHON
        COPY --from=builder /opt/venv /opt/venv
        ENV PATH="/opt/venv/bin:${PATH}" VIRTUAL_ENV=/opt/venv
        WORKDIR /app
        COPY app ./app
        CMD ["python", "-m", "app.main"]
        """,
        PYTHON_APP,
    ),
    "python with uv": Case(
        """
        FROM PYTHON
        RUN mkdir -p /root/.cache/uv
        WORKDIR /app
        ENV UV_COMPILE_BYTECODE=1
        ENV UV_LINK_MODE=copy
        RUN --mount=type=cache,target=/root/.cache/uv \
            --mount=type=bind,source=uv.lock,target=uv.lock \
            --mount=type=bind,source=pyproject.toml,target=pyproject.toml \
            mkdir .venv && cat pyproject.toml > .venv/project && echo c > /root/.cache/uv/x
        COPY . /app
        ENV PATH="/app/.venv/bin:$PATH"
        ENTRYPOINT []
        CMD ["python3", "app/main.py"]
        """,
        PYTHON_APP,
    ),
    "python with poetry": Case(
        """
        ARG PYTHON_VERSION=3.11
        FROM PYTHON AS base
        ENV POETRY_VERSION=1.8 \
            POETRY_HOME=/opt/poetry \
            POETRY_NO_INTERACTION=1 \
            PYTHONDONTWRITEBYTECODE=1
        ENV PATH="$POETRY_HOME/bin:$PATH"
        ARG PYTHON_VERSION
        RUN mkdir -p $POETRY_HOME/bin && echo "$POETRY_VERSION $PYTHON_VERSION" > $POETRY_HOME/version
        WORKDIR /srv
        COPY pyproject.toml ./
        COPY app/ app/
        FROM base AS production
        RUN python3 -c "import app.main"
        HEALTHCHECK --interval=30s --timeout=3s --start-period=5s --retries=2 CMD python3 -c "1"
        CMD python3 -m app.main
        """,
        PYTHON_APP,
        {"PYTHON_VERSION": "3.12"},
        target="production",
    ),
    "go with vendored modules": Case(
        """
        FROM --platform=$BUILDPLATFORM BASE AS build
        ARG TARGETOS TARGETARCH
        WORKDIR /src
        COPY go.mod go.sum* ./
        COPY . .
        RUN echo "$TARGETOS" > /out-os && cat main.go > /bin-app && chmod 0755 /bin-app
        FROM scratch AS final
        COPY --from=build /bin-app /app
        COPY --from=build /etc/passwd /etc/group /etc/
        USER 65532:65532
        ENTRYPOINT ["/app"]
        CMD ["--help"]
        """,
        {"go.mod": "module x", "main.go": "package main"},
    ),
    "distroless style with labels": Case(
        'FROM scratch\nLABEL org.opencontainers.image.title="a b" version=1 \\\n  multi.line="x y"\nCOPY app /\n'
        'ENV A=b\nVOLUME ["/data", "/cache"]\nWORKDIR /data\nENTRYPOINT ["/app"]',
        {"app": "#!x"},
    ),
    "packages with clean-up in one layer": Case(
        "FROM BASE\nRUN mkdir -p /var/lib/apt/lists /usr/share/doc && echo l > /var/lib/apt/lists/l \\\n"
        "    && echo pkg > /usr/bin/pkg && chmod 4755 /usr/bin/pkg \\\n    # comment inside\n"
        "    && rm -rf /var/lib/apt/lists/*\nRUN rm -rf /usr/share/doc"
    ),
    "alpine style users": Case(
        "FROM BASE\nRUN echo 'web:x:101:' >> /etc/group && echo 'web:x:100:101::/home/web:/bin/sh' >> /etc/passwd "
        "&& mkdir -p /home/web && chown web:web /home/web\nUSER web\nWORKDIR /home/web\n"
        "RUN touch mine && id -un > who\n"
        "COPY --chown=web a.txt sub/a.txt\nUSER root\nRUN echo r > root-file",
        {"a.txt": "x"},
    ),
    "workdir of another user": Case("FROM BASE\nUSER app\nWORKDIR /made/by/app\nWORKDIR relative\nRUN pwd > /tmp/pwd"),
    "copies of folders, files and globs": Case(
        "FROM BASE\nCOPY a.txt /one\nCOPY a.txt b.txt /many/\nCOPY dir /dir1\nCOPY dir /dir2/\n"
        "COPY dir/ /dir3/sub/deep/\nCOPY *.txt /globs/\nCOPY dir/*/c.? /deep/\nCOPY a.txt /etc/\n"
        "COPY [\"sp ace.txt\", \"/with space/\"]\nCOPY dir/. /dot",
        {"a.txt": "a", "b.txt": "b", "dir/x": "x", "dir/sub/c.1": "1", "dir/sub/c.2": "2", "sp ace.txt": "s"},
    ),
    "copies over existing files and folders": Case(
        "FROM BASE\nRUN mkdir -p /t/dir && echo old > /t/dir/x && echo keep > /t/dir/keep && chmod 700 /t/dir "
        "&& chown app /t/dir\nCOPY dir /t/dir\nCOPY a.txt /t/dir/x\nRUN chmod 600 /t/dir/x\nCOPY a.txt /t/dir/x",
        {"a.txt": "a", "dir/x": "x", "dir/y": "y"},
    ),
    "copies through links of the image": Case(
        "FROM BASE\nRUN mkdir /real && ln -s /real /alias && ln -s ../../../real /rel && ln -s target /dangling\n"
        "COPY a.txt /alias/a\nCOPY a.txt /rel/\nCOPY a.txt /alias/sub/b",
        {"a.txt": "a"},
    ),
    "links of the context": Case(
        "FROM BASE\nCOPY link.txt /direct\nCOPY tree /tree\nCOPY dirlink /dl/",
        {"a.txt": "a", "link.txt": "-> a.txt", "tree/l": "-> ../a.txt", "tree/abs": "-> /etc/passwd",
         "tree/f": "f", "dirlink": "-> tree"},
    ),
    "links and hard links of a stage": Case(
        "FROM BASE AS s\nRUN mkdir /d && echo 1 > /d/a && ln /d/a /d/b && ln -s a /d/c && ln -s /d /e\nFROM BASE\n"
        "COPY --from=s /d /d\nCOPY --from=s /e /f\nCOPY --from=s /d/c /single",
    ),
    "owners of a stage": Case(
        "FROM BASE AS s\nRUN mkdir -p /d/sub && echo 1 > /d/a && chown -R 7:8 /d && chmod 711 /d/sub\nFROM BASE\n"
        "COPY --from=s /d /kept\nCOPY --from=s --chown=9:10 /d /given\nCOPY --from=s /d/a /file",
    ),
    "owners by name and number": Case(
        "FROM BASE\nCOPY --chown=app:staff a.txt /a/b/c\nCOPY --chown=12 a.txt /n/\nCOPY --chown=app dir /dir",
        {"a.txt": "a", "dir/x": "x"},
    ),
    "modes by number": Case(
        "FROM BASE\nCOPY --chmod=0700 a.txt /a\nCOPY --chmod=755 dir /dir", {"a.txt": "a", "dir/x/y": "y"}
    ),
    "archives": Case(
        "FROM BASE\nADD a.tgz /un/\nADD a.tgz /plain.d\nCOPY a.tgz /kept.tgz\nADD a.txt /text",
        {"a.tgz": archive(a__b="x", c="y"), "a.txt": "a"},
    ),
    "arguments in every place": Case(
        """
        ARG TAG=one
        ARG STAGE=final
        FROM BASE AS build
        ARG TAG
        ARG DIR=/opt/$TAG
        ARG UNSET
        ENV D=${DIR:-none} E=${UNSET:-fallback} F=${TAG:+yes} G='$TAG' H="\\$TAG"
        WORKDIR $D/work
        RUN echo "$TAG $D $E $F $G $H $UNSET" > out
        LABEL tag=$TAG
        EXPOSE ${PORT:-9000}/udp
        FROM build AS ${STAGE}
        USER ${USERNAME:-app}
        COPY ${FILE:-a.txt} ${DEST:-/d/}
        """.replace("AS ${STAGE}", "AS final"),
        {"a.txt": "a"},
        {"TAG": "two"},
    ),
    "environment forms": Case(
        "FROM BASE\nENV one 1 and more\nENV two=2 three=\"3 3\" four=4\\ 4\nENV five=$one six=${two}x\n"
        "ENV one=changed seven=$one\nENV empty=\nRUN env | sort | grep -v -e HOSTNAME -e PWD -e SHLVL -e _= > /env",
    ),
    "shell and exec forms": Case(
        'FROM BASE\nRUN ["/bin/sh", "-c", "echo exec > /exec"]\nSHELL ["/bin/sh", "-ec"]\nRUN echo shell > /shell\n'
        'CMD echo from the shell form\nENTRYPOINT ["/bin/sh"]',
    ),
    "entry point resets the command": Case('FROM BASE\nCMD ["a"]\nFROM BASE\nENTRYPOINT top -b'),
    "onbuild triggers in a stage": Case(
        "FROM BASE AS parent\nONBUILD COPY a.txt /on\nONBUILD RUN cat /on > /built\nFROM parent\nRUN echo own > /own",
        {"a.txt": "a"},
    ),
    "health checks": Case(
        'FROM BASE AS a\nHEALTHCHECK NONE\nFROM a\nHEALTHCHECK --interval=1m30s --timeout=10s CMD ["cat", "/etc/motd"]'
    ),
    "replaced folders and files": Case(
        "FROM BASE\nRUN mkdir /d && echo 1 > /d/a && echo 2 > /f\nRUN rm -r /d && mkdir /d && echo 3 > /d/b\n"
        "RUN rm /f && mkdir /f && echo 4 > /f/g\nRUN rm -r /f && echo 5 > /f && mv /d /moved",
    ),
    "special files and modes": Case(
        "FROM BASE\nRUN mkdir -p /s/t && chmod 1777 /s && chmod 2755 /s/t && touch /s/x && chmod 000 /s/x "
        "&& chown 100:200 /s/x && chown 3:4 /s/t\nRUN chmod 4711 /s/x",
    ),
    "bind mounts of stages": Case(
        "FROM BASE AS tools\nRUN mkdir /tools && echo 't' > /tools/t\nFROM BASE\n"
        "RUN mkdir -p /mnt/tools /scratch\n"
        "RUN --mount=type=bind,from=tools,source=/tools,target=/mnt/tools --mount=type=tmpfs,target=/scratch "
        "cp /mnt/tools/t /t && echo x > /scratch/x",
    ),
    "stages by number and by image": Case(
        "FROM BASE\nRUN echo zero > /zero\nFROM BASE\nCOPY --from=0 /zero /from-zero\nCOPY --from=BASE /etc/motd /motd"
    ),
    "unused stages": Case("FROM BASE AS broken\nRUN exit 1\nFROM BASE AS used\nRUN echo u > /u\nFROM used"),
    "heredocs": Case(
        "FROM BASE\nRUN <<EOF\nset -e\necho one > /one\necho two > /two\nEOF\n"
        "COPY <<EOF /etc/app.conf\nkey=value\nEOF\n",
        docker="FROM BASE\nRUN set -e; echo one > /one; echo two > /two\nCOPY app.conf /etc/app.conf\n",
        files={"app.conf": "key=value\n"},
    ),
    "links of copies and excluded files": Case(
        "FROM BASE\nCOPY --link a.txt /linked/a\nCOPY --exclude=*.md . /all/",
        docker="FROM BASE\nCOPY a.txt /linked/a\nCOPY a.txt /all/\nCOPY sub /all/sub\n",
        files={"a.txt": "a", "x.md": "x", "sub/b.txt": "b"},
    ),
    "escape directive": Case("# escape=`\nFROM BASE\nRUN echo one `\n  two > /out\nCOPY a.txt `\n  /a", {"a.txt": "a"}),
}  # fmt: skip
