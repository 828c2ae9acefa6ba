"""Servers in Python and Go whose pages npm builds, and a Hugo site with npm packages."""

from __future__ import annotations

from tests.e2e.starters.shapes import Starter, package, page

VITE = {"scripts": {"build": "vite build"}, "devDependencies": {"vite": "6.0.7"}}

STARTERS = (
    Starter(
        "flask-built-by-vite",
        "Flask",
        {
            "requirements.txt": "flask==3.1.0\n",
            "app.py": """
                import json
                from pathlib import Path

                from flask import Flask

                app = Flask(__name__)


                @app.get("/")
                def index():
                    manifest = json.loads(Path("static/.vite/manifest.json").read_text())
                    return f'<script src="/static/{manifest["src/main.js"]["file"]}"></script>'
            """,
            "package.json": package(**VITE),
            "vite.config.js": """
                export default {
                  build: { outDir: "static", manifest: true, rollupOptions: { input: "src/main.js" } },
                };
            """,
            "src/main.js": 'document.body.append("high tide");\n',
        },
        {"/": '<script src="/static/assets/main-'},
    ),
    Starter(
        "go-embeds-vite",
        "Go",
        {
            "go.mod": "module example.test/harbor\n\ngo 1.22\n",
            "main.go": """
                package main

                import (
                    "embed"
                    "io/fs"
                    "net/http"
                    "os"
                )

                //go:embed all:web/dist
                var pages embed.FS

                func main() {
                    dist, _ := fs.Sub(pages, "web/dist")
                    http.ListenAndServe(":"+os.Getenv("PORT"), http.FileServer(http.FS(dist)))
                }
            """,
            "web/package.json": package("web", **VITE),
            "web/index.html": page("Tides", body='<script type="module" src="/main.js"></script>'),
            "web/main.js": 'document.body.append("high tide");\n',
        },
        {"/": 'src="/assets/index-'},
    ),
    Starter(
        "hugo-with-postcss",
        "Hugo",
        {
            "hugo.toml": 'baseURL = "/"\ntitle = "Tides"\n',
            "content/_index.md": "---\ntitle: Home\n---\nHello from Hugo.\n",
            "layouts/index.html": """
                {{ with resources.Get "main.css" | css.PostCSS }}<style>{{ .Content | safeCSS }}</style>{{ end }}
                {{ .Content }}
            """,
            "assets/main.css": "a { b { color: teal; } }\n",
            "postcss.config.js": "module.exports = { plugins: [require('postcss-nested')] };\n",
            "package.json": package(
                devDependencies={"postcss": "8.4.49", "postcss-cli": "11.0.0", "postcss-nested": "7.0.2"}
            ),
        },
        {"/": "a b{color:teal}"},
        kind="static",
    ),
)
