"""Detect front-end frameworks and Node servers by their packages and settings."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from moorage.runtime.builds.detection.reading import Folder

# Usual output folders, in the order of the search.
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
    is_site: bool = True  # builds a static site, not a server
    script: str = "build"  # of package.json


# By npm package. The first match counts, so packages that other frameworks are built on come last.
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
    """Return the front-end framework of a package.json, or None."""
    for package, framework in _BY_PACKAGE.items():
        if package in folder.node_packages:
            return _as_configured(folder, package, framework)
    return None


def _as_configured(folder: Folder, package: str, framework: Framework) -> Framework:
    """Return the framework as configured: some build a static site or a server."""
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
    """Return Angular's output folder; newer versions append `/browser`."""
    try:
        projects = json.loads(folder.find_text("angular.json") or "{}")["projects"]
        name = next(iter(projects))
        builder = str(projects[name]["architect"]["build"]["builder"])
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError):
        return "dist"
    return f"dist/{name}/browser" if builder.endswith(":application") else f"dist/{name}"


def is_node_server(folder: Folder) -> bool:
    """Return whether a package.json depends on a known server."""
    dependencies = (folder.package or {}).get("dependencies")
    return isinstance(dependencies, dict) and not SERVERS.isdisjoint(dependencies)
