"""Rows for projects with a package.json: frameworks first, then servers, then any script."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from typing import Any

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.table import exported
from moorage.runtime.builds.detection.table.mixed import other_server, started_server
from moorage.runtime.builds.detection.table.node_starts import (
    NODE_FILES,
    find_start,
    has_server,
    has_start_script,
    inner_install,
    listens,
    missing_tools,
    script_or,
    server_build,
    server_files,
)
from moorage.runtime.builds.detection.table.row import Row, Sign, contains, file, npm, script, subfolder

BUILD = ("build",)
SERVER_BUILD = ("heroku-postbuild", "build")  # the first builds the pages that a server serves, in its own folder
LOCKS = ("package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb")
CONFIG_ENDINGS = ("js", "mjs", "cjs", "ts", "mts")
STRAPI_KEYS = (
    *("APP_KEYS", "API_TOKEN_SALT", "ADMIN_JWT_SECRET", "TRANSFER_TOKEN_SALT", "JWT_SECRET", "ENCRYPTION_KEY"),
)
UMI_FILES = (".umirc.ts", ".umirc.js", "config/config.ts", "config/config.js")
MAX_PAGE_FOLDERS = 50  # of Astro that are searched
NITRO = "node .output/server/index.mjs"
# Behind the gateway the app does not know its address: without it form posts are refused as cross-site.
SVELTE = "PROTOCOL_HEADER=x-forwarded-proto HOST_HEADER=x-forwarded-host node build"


def configs(*stems: str) -> tuple[str, ...]:
    return tuple(f"{stem}.config.{ending}" for stem in stems for ending in CONFIG_ENDINGS)


def site(name: str, sign: Sign, output: str | Callable[[Folder], str] = "dist", **more: Any) -> Row:
    return Row(name, "static", "nodejs", sign, **{"scripts": BUILD, "output": output, **more})


def app(name: str, sign: Sign, start: str | Callable[[Folder], str] = find_start, **more: Any) -> Row:
    def tools(folder: Folder) -> str:
        return missing_tools(folder, start if isinstance(start, str) else start(folder))

    given = {"scripts": BUILD, "start": start, "build": server_build, "server": tools, "after": inner_install, **more}
    return Row(name, "container", "nodejs", sign, **given)


def _configured(default: str, pattern: str, *files: str) -> Callable[[Folder], str]:
    """Return the output folder that a configuration names, else the default."""

    def output(folder: Folder) -> str:
        for name in files:
            if match := re.search(pattern, folder.find_text(name) or ""):
                return match[1].removeprefix("./").strip("/") or default
        return default

    return output


def _svelte_adapter(folder: Folder) -> str:
    """Return the Node adapter, in the version that belongs to the project's SvelteKit, unless the project lists it."""
    if "@sveltejs/adapter-node" in folder.node_packages:
        return ""
    major = re.search(r"\d+", folder.node_packages.get("@sveltejs/kit", ""))
    version = {"1": "@1", "2": "@5"}.get(major[0] if major else "", "")
    return f"@sveltejs/adapter-node{version}"


def _svelte_tool(folder: Folder) -> str:
    return "svelte-kit build" if "svelte-kit build" in folder.scripts.get("build", "") else "vite build"


def _svelte_build(folder: Folder) -> str:
    """Return the build with the Node adapter in place of adapter-auto.

    Versions of adapter-auto since 2.1 choose it by the variable, also where another file has the settings.
    """
    is_named = contains(r"@sveltejs/adapter-auto", *configs("svelte"), words="").find(folder)
    rename = "sed -i 's#@sveltejs/adapter-auto#@sveltejs/adapter-node#' svelte.config.* && " if is_named else ""
    return f"{rename}GCP_BUILDPACKS=1 {_svelte_tool(folder)}"


def _astro_adapter(folder: Folder) -> str:
    """Return the Node adapter, in the version that belongs to the project's Astro."""
    version = {2: "@5", 3: "@6", 4: "@8", 5: "@9.0", 6: "@10.0", 7: "@11.0"}.get(_major(folder, "astro"), "")
    return f"@astrojs/node{version}"


def _rendered_page(folder: Folder) -> str | None:
    """Return a page of Astro that the server renders for each request, though the others are static."""
    places = ["src/pages"]
    for place in places:  # grows
        for name in folder.glob(f"{place}/*"):
            if re.search(r"^export const prerender\s*=\s*false\b", folder.find_text(name) or "", re.MULTILINE):
                return name
        places += folder.folders(place) if len(places) < MAX_PAGE_FOLDERS else []
    return None


def _docs_output(tool: str) -> Callable[[Folder], str]:
    """Return the output folder of a documentation tool, which has its settings beside the pages."""

    def output(folder: Folder) -> str:
        texts = "\n".join(folder.scripts.get(name, "") for name in ("docs:build", "build"))
        named = re.search(rf"\b{tool} build ([\w./-]+)", texts)
        if named and not named[1].startswith("-") and folder.has_folder(named[1]):
            return f"{named[1].removeprefix('./').strip('/')}/.{tool}/dist".removeprefix("./")
        places = ("", *folder.folders(), "docs")
        place = next((each for each in places if folder.has_folder(f"{each}/.{tool}".lstrip("/"))), "docs")
        return f"{place}/.{tool}/dist".lstrip("/")

    return output


def _docs_build(tool: str) -> Callable[[Folder], str]:
    return lambda folder: f"{tool} build {shlex.quote(_docs_output(tool)(folder).removesuffix(f'.{tool}/dist') or '.')}"


def _angular(folder: Folder) -> tuple[str, dict[str, Any]]:
    """Return the name and the build target of the first project."""
    try:
        projects = json.loads(folder.find_text("angular.json") or "{}")["projects"]
        name = next(iter(projects))
        target = (projects[name].get("architect") or projects[name]["targets"])["build"]
        return str(name), target if isinstance(target, dict) else {}
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError):
        return "", {}


def _angular_base(folder: Folder) -> str:
    name, target = _angular(folder)
    options = target.get("options")
    path = options.get("outputPath") if isinstance(options, dict) else None
    path = path.get("base") if isinstance(path, dict) else path
    return (path.strip("/") if isinstance(path, str) else "") or f"dist/{name}".rstrip("/")


def _angular_output(folder: Folder) -> str:
    """Return Angular's output folder; the builder `application` appends `/browser`."""
    builder = str(_angular(folder)[1].get("builder", ""))
    options = _angular(folder)[1].get("options")
    path = options.get("outputPath") if isinstance(options, dict) else None
    inner = path.get("browser", "browser") if isinstance(path, dict) else "browser"
    is_inner = builder.endswith(":application") and isinstance(inner, str) and inner
    return _angular_base(folder) + (f"/{inner}" if is_inner else "")


def _angular_start(folder: Folder) -> str:
    name = next((name for name in folder.scripts if name.startswith("serve:ssr")), "")
    return f"npm run {name}" if name else f"node {shlex.quote(_angular_base(folder))}/server/server.mjs"


def _polymer_output(folder: Folder) -> str:
    """Return the output of the first build, which newer browsers need; without a list of builds there is one."""
    match = re.search(
        r'"builds"\s*:\s*\[\s*\{\s*"(?:name|preset)"\s*:\s*"([\w-]+)"', folder.find_text("polymer.json") or ""
    )
    return f"build/{match[1] if match else 'default'}"


def _remix_start(folder: Folder) -> str:
    is_classic = folder.has("remix.config.js", "remix.config.mjs", "remix.config.cjs")
    fallback = "remix-serve build/index.js" if is_classic else f"remix-serve {_server_bundle(folder)}"
    return script_or(fallback)(folder) if "@remix-run/serve" in folder.node_packages else find_start(folder) or fallback


def _react_router_start(folder: Folder) -> str:
    fallback = f"react-router-serve {_server_bundle(folder)}"
    if "*" in fallback and "build/server/index.js" in folder.scripts.get("start", ""):
        return fallback  # The script names the file of a build without the preset.
    if "@react-router/serve" in folder.node_packages:
        return script_or(fallback)(folder)
    return find_start(folder) or fallback


def _server_bundle(folder: Folder) -> str:
    """Return the file of the built server; the preset of Vercel puts it into a folder named after its settings."""
    is_preset = contains(r"\bvercelPreset\(", *configs("vite"), *configs("react-router"), words="").find(folder)
    return "build/server/nodejs*/index.js" if is_preset else "build/server/index.js"


def _serve_package(name: str, tool: str, start: Callable[[Folder], str]) -> Callable[[Folder], str]:
    """Return the server package where the start command needs it, in the version of the framework's tool."""

    def server(folder: Folder) -> str:
        version = re.sub(r"[^\w.-]", "", folder.node_packages.get(tool, ""))
        is_needed = re.match(r"(?:remix|react-router)-serve ", start(folder)) is not None
        package = f"{name}@{version}" if version[:1].isdigit() else name
        return package if is_needed and name not in folder.node_packages else missing_tools(folder, start(folder))

    return server


def _tanstack_start(folder: Folder) -> str:
    return script_or(NITRO if _has_nitro(folder) else "srvx --prod -s ../client dist/server/server.js")(folder)


def _has_nitro(folder: Folder) -> bool:
    return not {"nitro", "nitropack", "vinxi", "@tanstack/nitro-v2-vite-plugin"}.isdisjoint(folder.node_packages)


def _qwik_entry(folder: Folder) -> str:
    for name in ("express", "fastify", "node-server", "bun"):
        if folder.has(f"src/entry.{name}.tsx", f"src/entry.{name}.ts"):
            return f"node server/entry.{name}.js"
    return ""


def _adonis_variables(folder: Folder) -> str:
    """Give the built app the values of .env.example, as the starter says: it checks that the variables have values."""
    return "cp .env.example build/.env" if folder.has(".env.example") and not folder.has(".env") else ""


def _next_export(folder: Folder) -> str:
    """Return the command that old versions need after the build, unless the build has it."""
    is_done = "next export" in folder.scripts.get("build", "") or _EXPORT_SETTING.find(folder) is not None
    return "" if is_done else "next export"


def _next_standalone(folder: Folder) -> str:
    """Return the copies that a standalone server of Next.js needs, where the `start` script runs it.

    The build leaves its scripts, styles and images out, for a CDN.
    """
    match = re.search(r"(\.next/standalone(?:/[\w-]+)*)/server\.js", folder.scripts.get("start", ""))
    if not match or "standalone" in folder.scripts.get("build", "") or "postbuild" in folder.scripts:
        return ""
    place = match[1]
    public = f"cp -r public {place}/ && " if folder.has_folder("public") else ""
    return f"{public}mkdir -p {place}/.next && cp -r .next/static {place}/.next/"


def _nuxt_server(folder: Folder) -> str:
    """Return the start of a Nuxt server, whose files are below the folder that the build script names."""
    named = re.search(r"\bnux(?:t|i) build ([\w./-]+)", folder.scripts.get("build", ""))
    place = named[1].removeprefix("./").strip("/") if named and not named[1].startswith("-") else ""
    inner = place if place and folder.has_folder(place) else ""
    return f"node {shlex.quote(inner)}/{NITRO.removeprefix('node ')}" if inner else NITRO


def _nuxt_start(folder: Folder) -> str:
    return script_or(_nuxt_server(folder))(folder)


def _nuxt_webpack(folder: Folder) -> str:
    """Return the webpack of Nuxt 2 without a lock: npm installs webpack 5 for the peer dependencies of its plugins."""
    is_free = not folder.has(*LOCKS) and "webpack" not in folder.node_packages
    return "webpack@4" if _major(folder, "nuxt") == 2 and is_free else ""


def _docusaurus_webpack(folder: Folder) -> str:
    """Return the webpack for a Docusaurus without a lock whose progress bar newer versions refuse: up to 3.9."""
    version = re.match(r"[^0-9]*(\d{1,4})(?:\.(\d{1,4}))?", folder.node_packages.get("@docusaurus/core", ""))
    is_old = version is not None and (int(version[1]), int(version[2] or 99)) < (3, 10)
    is_free = not folder.has(*LOCKS) and "webpack" not in folder.node_packages
    return "webpack@5.97.1" if is_old and is_free else ""


def _adapter(*names: str) -> Sign:
    """Return the sign of an adapter of SvelteKit that package.json lists, unless svelte.config names only others."""
    listed = npm(*names)

    def find(folder: Folder) -> str | None:
        text = "\n".join(folder.find_text(name) or "" for name in configs("svelte"))
        named = set(re.findall(r"@sveltejs/adapter-[a-z-]+|svelte-adapter-[a-z-]+", text))
        return None if named and named.isdisjoint(names) else listed.find(folder)

    return Sign(listed.words, find)


NEXT, NUXT, KIT, ASTRO = npm("next"), npm("nuxt", "nuxt3", "nuxt-edge"), npm("@sveltejs/kit"), npm("astro")
SERVER = Sign("a server package that the `start` script runs", has_server)
NUXT_2 = Sign("version 2", lambda folder: (_major(folder, "nuxt") == 2 and "Nuxt 2") or None)
ASTRO_SERVER = contains(r"output\s*:\s*['\"`](?:server|hybrid)", *configs("astro"), words="`output: 'server'`") | Sign(
    "`prerender = false` below src/pages", _rendered_page
)
GENERATES = script(r"\bgenerate\b", "build", words="`nuxt generate` as the `build` script") | (
    ~script(".", "build", words="`build` script") & script(".", "generate", words="`generate` script")
)
_NUXT_STATIC = contains(
    r"preset\s*:\s*['\"`](?:static|github[-_]pages|gitlab[-_]pages)|target\s*:\s*['\"`]static",
    *configs("nuxt"),
    words="a static preset or target",
)
_EXPORT_SETTING = contains(r"output\s*:\s*['\"`]export['\"`]", *configs("next"), words="`output: 'export'`")
# Version 14 removed the command.
_OLD_NEXT = Sign(
    "version 13 or older", lambda folder: (0 < _major(folder, "next") < 14 and "Next.js 13 or older") or None
)
_EXPORTS = _EXPORT_SETTING | (
    script(r"\bnext\s+export\b", "build", "export", words="`next export` in a script") & _OLD_NEXT
)
_SSR_OFF = contains(r"\bssr\s*:\s*false\b", *configs("react-router"), *configs("vite"), words="`ssr: false`")


def _major(folder: Folder, package: str) -> int:
    match = re.match(r"[^0-9]*(\d+)", folder.node_packages.get(package, ""))
    return int(match[1][:6]) if match else 0


# Full-stack frameworks, each as a static site where it is configured so, else as a server.
FULL_STACK = (
    # Its own pages are made by Next.js, which package.json lists too.
    app("KeystoneJS", npm("@keystone-6/core"), script_or("keystone start"), build="keystone build"),
    site("Next.js export", NEXT & _EXPORTS, _configured("out", r"distDir\s*:\s*['\"`]([\w./-]+)", *configs("next")),
         build="next build", after=_next_export),
    app("Next.js", NEXT, script_or("next start"), build="next build", after=_next_standalone),
    site("Nuxt (static)", NUXT & (GENERATES | _NUXT_STATIC),
         lambda folder: "dist" if _major(folder, "nuxt") == 2 else ".output/public", scripts=("generate", "build"),
         build="nuxt generate", server=_nuxt_webpack),
    site("Nuxt (static)", NUXT, lambda folder: "dist" if _major(folder, "nuxt") == 2 else ".output/public",
         scripts=("generate",), build="nuxt generate", server=_nuxt_webpack, is_asked=True),
    app("Nuxt 2", NUXT & NUXT_2, script_or("nuxt start"), build="nuxt build", server=_nuxt_webpack),
    app("Nuxt", NUXT, _nuxt_start, build="nuxt build"),
    site("SvelteKit (static)", KIT & _adapter("@sveltejs/adapter-static"),
         _configured("build", r"pages\s*:\s*['\"`]([\w./-]+)", *configs("svelte")), build="vite build"),
    app("SvelteKit", KIT & (_adapter("@sveltejs/adapter-node") | _adapter("svelte-adapter-bun")),
        script_or(SVELTE), build="vite build"),
    # The adapters have different options, and each ignores those of others.
    app("SvelteKit for another host",
        KIT & _adapter("@sveltejs/adapter-vercel", "@sveltejs/adapter-netlify", "@sveltejs/adapter-cloudflare",
                       "@sveltejs/adapter-cloudflare-workers"), SVELTE, scripts=(),
        build=lambda folder: "sed -i 's#@sveltejs/adapter-[a-z-]*#@sveltejs/adapter-node#' svelte.config.* && "
                             f"{_svelte_tool(folder)}",
        server=_svelte_adapter,
        note="svelte.config.js names the adapter of another host: @sveltejs/adapter-node is used in its place"),
    app("SvelteKit (adapter-auto)", KIT, SVELTE, scripts=(), build=_svelte_build,
        server=_svelte_adapter,
        note="svelte.config.js names no adapter for a server: @sveltejs/adapter-node is used"),
    # The options of the other adapter become the arguments of a function that ignores them.
    app("Astro for another host",
        ASTRO & ASTRO_SERVER & npm("@astrojs/vercel", "@astrojs/netlify", "@astrojs/cloudflare", "@astrojs/deno")
        & ~npm("@astrojs/node"), "node dist/server/entry.mjs", scripts=(), server=_astro_adapter,
        build="sed -i -E 's#@astrojs/(vercel|netlify|cloudflare|deno)(/[a-z]+)?#@astrojs/node#; "
              r"s#adapter:\s*(\w+)\(#adapter: (() => \1({ mode: `standalone` }))(#' astro.config.* && astro build",
        note="astro.config names the adapter of another host: @astrojs/node is used in its place"),
    app("Astro server", ASTRO & npm("@astrojs/node"), script_or("node dist/server/entry.mjs"), build="astro build"),
    site("Astro", ASTRO, _configured("dist", r"outDir\s*:\s*['\"`]([\w./-]+)", *configs("astro")), build="astro build"),
    site("Remix (single page)", npm("@remix-run/dev") & _SSR_OFF, "build/client", build="remix vite:build"),
    Row("Remix or React Router for Cloudflare", "container", "nodejs",
        npm("@remix-run/cloudflare", "@cloudflare/vite-plugin") & npm("@remix-run/dev", "@react-router/dev")
        & ~script(r"\bnode\b", "start", words="`node` in the `start` script"),
        refusal="package.json builds a server for Cloudflare Workers: use the packages for Node.js instead, "
                "@react-router/node and @react-router/serve (or @remix-run/node and @remix-run/serve), and remove the "
                "plugin of Cloudflare from vite.config"),
    app("Remix", npm("@remix-run/dev", "@remix-run/serve", "@remix-run/node"), _remix_start,
        server=_serve_package("@remix-run/serve", "@remix-run/dev", _remix_start)),
    site("React Router (single page)", npm("@react-router/dev") & _SSR_OFF, "build/client", build="react-router build"),
    app("React Router", npm("@react-router/dev"), _react_router_start, build="react-router build",
        server=_serve_package("@react-router/serve", "@react-router/dev", _react_router_start)),
    app("SolidStart", npm("@solidjs/start", "solid-start"), script_or(NITRO), build="vinxi build"),
    app("TanStack Start", npm("@tanstack/react-start", "@tanstack/solid-start", "@tanstack/start"), _tanstack_start,
        build="vite build", server=lambda folder: "srvx" if "srvx" in _tanstack_start(folder) else ""),
    site("Analog (static)", npm("@analogjs/platform") & contains(r"\bstatic\s*:\s*true", *configs("vite"),
         words="`static: true`"), "dist/analog/public", build="vite build"),
    app("Analog", npm("@analogjs/platform"), "node dist/analog/server/index.mjs", build="vite build"),
    app("Qwik City", npm("@builder.io/qwik-city", "@qwik.dev/router") & file("src/entry.*.tsx"), _qwik_entry),
    site("Qwik City (static)", npm("@builder.io/qwik-city", "@qwik.dev/router") & subfolder("adapters/static")),
    Row("Qwik City without an adapter", "container", "nodejs", npm("@builder.io/qwik-city", "@qwik.dev/router"),
        refusal="package.json has Qwik City without an adapter: add one with `npm run qwik add express` or "
                "`npm run qwik add static`"),
    app("Nitro", npm("nitropack", "nitro"), script_or(NITRO), build="nitro build"),
    app("Angular server", npm("@angular/core") & npm("@angular/ssr", "@nguniversal/express-engine"), _angular_start,
        scripts=("build:ssr", "build"), build="ng build"),
)  # fmt: skip

# Static sites. A server package whose start script runs it makes the project an app.
GENERATORS = (
    site("Gatsby", npm("gatsby"), "public", build="gatsby build"),
    site("Eleventy", npm("@11ty/eleventy"), _configured("_site", r"\boutput\s*:\s*['\"`]([\w./-]+)", ".eleventy.js",
         *configs("eleventy")), build="eleventy"),
    site("Docusaurus", npm("@docusaurus/core", "docusaurus"), "build", build="docusaurus build",
         server=_docusaurus_webpack),
    site("VitePress", npm("vitepress"), _docs_output("vitepress"), scripts=("docs:build", "build"),
         build=_docs_build("vitepress")),
    site("VuePress", npm("vuepress", "vuepress-vite", "vuepress-webpack"), _docs_output("vuepress"),
         scripts=("docs:build", "build"), build=_docs_build("vuepress")),
    site("Hexo", npm("hexo"), "public", build="hexo generate"),
    site("Slidev", npm("@slidev/cli"), build="slidev build"),
    site("Umi", npm("umi", "@umijs/max"), _configured("dist", r"outputPath\s*:\s*['\"`]([\w./-]+)", *UMI_FILES),
         build=lambda folder: "max build" if "@umijs/max" in folder.node_packages else "umi build"),
    site("Sanity Studio", npm("sanity", "@sanity/core") & script(r"\bsanity\b", "build", "start", "dev",
         words="`sanity` in a script"), build="sanity build"),
    # Its sharp, mozjpeg and pngquant fetch programs from other hosts than npm's, for Node.js 14 at most.
    Row("Gridsome", "static", "nodejs", npm("gridsome"),
        refusal="package.json has gridsome, which is no longer developed and whose image packages cannot be installed "
                "here: run `gridsome build`, and push the folder dist as a repository of its own"),
)  # fmt: skip

# Scripts and styles of a server in another language, which serves its own pages.
_ASSETS = Sign("server in Python or Go", other_server)
_BUNDLED = ~SERVER & ~_ASSETS
BUNDLERS = (
    site("Create React App", npm("react-scripts") & _BUNDLED, "build", build="react-scripts build"),
    # npm installs webpack 5 beside its own webpack 4 for the peer dependencies of its plugins, which then fail.
    site("Preact CLI", npm("preact-cli") & _BUNDLED, "build", build="preact build",
         server=lambda folder: "" if "webpack" in folder.node_packages else "webpack@4"),
    site("Angular", npm("@angular/core") & _BUNDLED, _angular_output, build="ng build"),
    site("Vue CLI", npm("@vue/cli-service") & _BUNDLED,
         _configured("dist", r"outputDir\s*:\s*['\"`]([\w./-]+)", *configs("vue")), build="vue-cli-service build"),
    site("Ember", npm("ember-cli") & _BUNDLED, build="ember build --environment=production"),
    site("Expo", npm("expo") & npm("react-native-web") & _BUNDLED, build="expo export --platform web"),
    site("Parcel", npm("parcel", "parcel-bundler") & _BUNDLED, build="parcel build index.html"),
    site("Brunch", npm("brunch") & _BUNDLED, "public", build="brunch build --production"),
    site("Polymer", npm("polymer-cli") & _BUNDLED, _polymer_output, build="polymer build"),
    site("Rsbuild", npm("@rsbuild/core") & _BUNDLED, build="rsbuild build"),
    site("Vite", npm("vite") & _BUNDLED & ~Sign("`start` script without a page", started_server),
         _configured("dist", r"outDir\s*:\s*['\"`]([\w./-]+)", *configs("vite")),
         build="vite build"),
)  # fmt: skip

_PRODUCTION = ("start:prod", "start:production", "start")
SERVERS = (
    app("NestJS", npm("@nestjs/core"), script_or("node dist/main.js", *_PRODUCTION),
        build=lambda folder: "nest build" if "@nestjs/cli" in folder.node_packages else "tsc"),
    app("AdonisJS", npm("@adonisjs/core"),
        lambda folder: "node build/bin/server.js" if folder.has("bin/server.ts") else "node build/server.js",
        build="node ace build", after=_adonis_variables, keys=("APP_KEY",)),
    app("Strapi", npm("@strapi/strapi", "strapi"), script_or("strapi start"), build="strapi build", keys=STRAPI_KEYS),
    app("server as an export", Sign("a file that exports an app and does not listen", exported.find), exported.start,
        scripts=(), build="", server=exported.server,
        note="the app is exported for another host: it is served by Node.js, on the port of the variable PORT"),
    *(
        app(name, npm(*packages) & SERVER, scripts=SERVER_BUILD)
        for name, *packages in (
            ("Fastify", "fastify"),
            ("Koa", "koa"),
            ("Hapi", "@hapi/hapi", "hapi"),
            ("Hono", "@hono/node-server", "hono"),
            ("Feathers", "@feathersjs/feathers"),
            ("Apollo Server", "@apollo/server", "apollo-server"),
            ("LoopBack", "@loopback/core"),
            ("Sails", "sails"),
            ("Express", "express"),
            ("Restify", "restify"),
            ("Polka", "polka"),
            ("Socket.IO", "socket.io"),
            ("ws", "ws"),
            ("JSON Server", "json-server"),
        )
    ),
)  # fmt: skip

PACKAGE = file("package.json")
SITE = "Node.js site"  # of any build script
ANY = (
    Row("Cloudflare Workers", "container", "nodejs",
        npm("wrangler") & file("wrangler.toml", "wrangler.json", "wrangler.jsonc")
        & ~script(r"\bnode\b", "start", words="`node` in the `start` script"),
        refusal="the settings of wrangler build for another host: add a `start` script to package.json that starts a "
                "Node.js server, for example with @hono/node-server"),
    Row("React Native", "container", "nodejs", npm("expo", "react-native") & ~SERVER,
        refusal="package.json has an app for phones without a page for browsers: add one with `npx expo install "
                "react-dom react-native-web @expo/metro-runtime`, or set baseDir to the folder of its server"),
    Row("Electron", "container", "nodejs", npm("electron"),
        refusal="package.json has electron, a desktop app: set baseDir to the folder of its web site, or startCmd to "
                "the command of a server"),
    app("Node.js", PACKAGE & Sign("`start` script", has_start_script), scripts=SERVER_BUILD),
    app("Node.js server file", Sign("`server.js`, `index.js` or `main` that starts a server", listens)),
    site(SITE, PACKAGE & script(".", "build", words="`build` script") & ~_ASSETS),
)  # fmt: skip
# After plain files: scripts of a page have the same names.
_FILES = Sign(
    file(*NODE_FILES).words,
    lambda folder: next((name for name in server_files(folder) if folder.has(name)), None),
)
LAST = (app("Node.js file", PACKAGE | _FILES),)
