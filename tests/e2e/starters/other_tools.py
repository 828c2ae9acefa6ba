"""Starters of tools that come as packages: Deno, Jekyll and repositories of functions."""

from __future__ import annotations

from tests.e2e.starters.shapes import Starter

STARTERS = (
    Starter(
        "deno",
        "Deno",
        {
            "deno.json": '{"tasks": {"start": "deno run --allow-net --allow-env main.ts"}}\n',
            "main.ts": """
                const port = Number(Deno.env.get("PORT") ?? "8000");
                Deno.serve({ port, hostname: "0.0.0.0" }, () => new Response("Hello from Deno"));
            """,
        },
        {"/": "Hello from Deno"},
    ),
    Starter(
        "jekyll",
        "Jekyll",
        {
            "_config.yml": "title: Logbook\nsass:\n  style: :compressed\n",
            "_layouts/default.html": "<!doctype html><title>{{ site.title }}</title>{{ content }}\n",
            "index.md": "---\nlayout: default\n---\n# A calm sea\n",
            "_posts/2024-05-01-departure.md": "---\nlayout: default\ntitle: Departure\n---\nWe left.\n",
        },
        {"/": "<title>Logbook</title>", "/2024/05/01/departure.html": "We left."},
        kind="static",
    ),
    Starter(
        "functions-nodejs",
        "functions in Node.js",
        {
            "project.yml": """
                packages:
                  - name: sample
                    functions:
                      - name: hello
                        runtime: nodejs:default
            """,
            "packages/sample/hello/hello.js": """
                function main(args) {
                  return { body: `Hello ${args.name || "stranger"}!` };
                }
                exports.main = main;
            """,
        },
        {"/": "sample/hello", "/sample/hello?name=Ada": "Hello Ada!", "/sample/none": 404},
    ),
    Starter(
        "functions-python",
        "functions in Python",
        {
            "project.yml": """
                packages:
                  - name: sample
                    functions:
                      - name: hello
                        runtime: python:default
            """,
            "packages/sample/hello/hello.py": """
                def main(args):
                    return {"body": "Hello " + args.get("name", "stranger") + "!"}
            """,
        },
        {"/": "sample/hello", "/sample/hello?name=Ada": "Hello Ada!"},
    ),
)
