"""What front ends and Node servers are made with: how each is told, where it puts a site, and whether it is one."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from moorage.runtime.builds.detection.reading import Folder

# Where the usual tools put a site, in the order in which they are looked for.
OUTPUTS = ("dist", "build", "out", "_site", "public")
SERVERS = frozenset(
    {
        *("express", "fastify", "koa", "@hapi/hapi", "hapi", "@nestjs/core", "restify", "polka", "h3", "hono"),
        *(
            "@hono/node-server",
            "socket.io",
            "ws",
            "micro",
            "@sveltejs/adapter-node",
            "@astrojs/node",
            "@remix-run/serve",
        ),
        *("@react-router/serve", "@feathersjs/feathers", "sails", "strapi", "@strapi/strapi", "apollo-server"),
        *("@remix-run/serve", "@apollo/server", "json-server", "http-server", "serve"),
    }
)


@dataclass(frozen=True, slots=True)
class Framework:
    name: str
    output: str = "dist"
    is_site: bool = True  # it gives files, not a server
    script: str = "build"  # of package.json


# Named by the package that gives it away. The first that is found counts, so what others are built on comes last.
_BY_PACKAGE = {
    "next": Framework("Next.js", "out"),
    "nuxt": Framework("Nuxt", ".output/public"),
    "@sveltejs/kit": Framework("SvelteKit", "build"),
    "astro": Framework("Astro"),
    "gatsby": Framework("Gatsby", "public"),
    "@11ty/eleventy": Framework("Eleventy", "_site"),
    "@docusaurus/core": Framework("Docusaurus", "build"),
    "vitepress": Framework("VitePress", ".vitepress/dist"),
    "hexo": Framework("Hexo", "public"),
    "react-scripts": Framework("Create React App", "build"),
    "preact-cli": Framework("Preact CLI", "build"),
    "@angular/core": Framework("Angular"),
    "@vue/cli-service": Framework("Vue CLI"),
    "ember-cli": Framework("Ember"),
    "parcel": Framework("Parcel"),
    "vite": Framework("Vite"),
}


def find_framework(folder: Folder) -> Framework | None:
    """Return what a package.json says the front end is made with."""
    for package, framework in _BY_PACKAGE.items():
        if package in folder.node_packages:
            return _as_configured(folder, package, framework)
    return None


def _as_configured(folder: Folder, package: str, framework: Framework) -> Framework:
    """Some frameworks give a site or a server, as their settings say."""
    if package == "next":
        return Framework("Next.js", "out", is_site=_exports(folder))
    if package == "nuxt":
        is_old = re.match(r"[^0-9]*2\b", folder.node_packages["nuxt"]) is not None
        return Framework("Nuxt", "dist" if is_old else ".output/public", "generate" in folder.scripts, "generate")
    if package == "@sveltejs/kit":
        return Framework("SvelteKit", "build", is_site="@sveltejs/adapter-static" in folder.node_packages)
    if package == "astro":
        return Framework("Astro", is_site="@astrojs/node" not in folder.node_packages)
    if package == "@angular/core":
        return Framework("Angular", _angular_output(folder), is_site="@angular/ssr" not in folder.node_packages)
    if package == "vitepress" and folder.has_folder("docs/.vitepress"):
        return Framework("VitePress", "docs/.vitepress/dist")
    return framework


def _exports(folder: Folder) -> bool:
    texts = (folder.find_text(f"next.config.{ending}") or "" for ending in ("js", "mjs", "cjs", "ts", "mts"))
    return any(re.search(r"""output\s*:\s*['"`]export['"`]""", text) for text in texts)


def _angular_output(folder: Folder) -> str:
    """Angular names its output after the project; newer versions add a folder for the browser's part."""
    try:
        projects = json.loads(folder.find_text("angular.json") or "{}")["projects"]
        name = next(iter(projects))
        builder = str(projects[name]["architect"]["build"]["builder"])
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError):
        return "dist"
    return f"dist/{name}/browser" if builder.endswith(":application") else f"dist/{name}"


def is_node_server(folder: Folder) -> bool:
    """Tell whether a package.json has a server in it that its `start` script runs."""
    needed = (folder.package or {}).get("dependencies")
    return isinstance(needed, dict) and not SERVERS.isdisjoint(needed)
