"""Workspaces, of which one package is deployed (`baseDir`), and apps in Go."""

from __future__ import annotations

from tests.e2e.starters.shapes import Starter, package, page

SHARED = {
    "packages/shared/package.json": package("@harbor/shared", main="index.js"),
    "packages/shared/index.js": "module.exports = { name: 'shared by the workspace' };\n",
}
SERVER = """
    const { name } = require('@harbor/shared');
    const app = require('express')();
    app.get('/', (req, res) => res.send(name));
    app.listen(process.env.PORT || 3000);
"""
IN_API = {"baseDir": "apps/api"}


def api(shared: str) -> dict[str, str]:
    dependencies = {"express": "4.21.2", "@harbor/shared": shared}
    return {
        "apps/api/package.json": package("api", scripts={"start": "node index.js"}, dependencies=dependencies),
        "apps/api/index.js": SERVER,
        **SHARED,
    }


STARTERS = (
    Starter(
        "npm-workspace",
        "Express",
        {"package.json": package("root", workspaces=["apps/*", "packages/*"]), **api("*")},
        {"/": "shared by the workspace"},
        lock="package-lock.json",
        settings=IN_API,
    ),
    Starter(
        "pnpm-workspace",
        "Express",
        {
            "package.json": package("root", packageManager="pnpm@9.15.4"),
            "pnpm-workspace.yaml": 'packages:\n  - "apps/*"\n  - "packages/*"\n',
            **api("workspace:*"),
        },
        {"/": "shared by the workspace"},
        lock="pnpm-lock.yaml",
        settings=IN_API,
    ),
    Starter(
        "yarn-workspace",
        "Express",
        {"package.json": package("root", workspaces=["apps/*", "packages/*"]), **api("1.0.0")},
        {"/": "shared by the workspace"},
        lock="yarn.lock",
        settings=IN_API,
    ),
    Starter(
        # The package's `start` runs code that only the workspace's build makes.
        "turbo",
        "Node.js",
        {
            "package.json": package(
                "root",
                packageManager="npm@10.9.2",
                workspaces=["apps/*", "packages/*"],
                scripts={"build": "turbo run build", "dev": "turbo run dev"},
                devDependencies={"turbo": "2.3.3"},
            ),
            "turbo.json": '{"tasks": {"build": {"dependsOn": ["^build"], "outputs": ["dist/**"]}}}\n',
            "packages/ui/package.json": package(
                "@harbor/ui", main="dist/index.js", scripts={"build": "mkdir -p dist && cp index.js dist/index.js"}
            ),
            "packages/ui/index.js": "module.exports = (title) => `<h1>${title}</h1>`;\n",
            "apps/web/package.json": package(
                "web",
                scripts={"build": "mkdir -p dist && cp server.js dist/server.js", "start": "node dist/server.js"},
                dependencies={"@harbor/ui": "*"},
            ),
            "apps/web/server.js": """
                const heading = require('@harbor/ui');
                require('http').createServer((req, res) => res.end(heading('Turbo'))).listen(process.env.PORT || 3000);
            """,
        },
        {"/": "<h1>Turbo</h1>"},
        lock="package-lock.json",
        settings={"baseDir": "apps/web"},
    ),
    Starter(
        "site-of-a-workspace",
        "Vite",
        {
            "package.json": package("root", workspaces=["apps/*", "packages/*"]),
            "apps/site/package.json": package(
                "site",
                type="module",
                scripts={"build": "vite build"},
                dependencies={"@harbor/shared": "*"},
                devDependencies={"vite": "6.0.11"},
            ),
            "apps/site/index.html": page("Workspace", body='<script type="module" src="/main.js"></script>'),
            "apps/site/main.js": "import shared from '@harbor/shared';\ndocument.title = shared.name;\n",
            "packages/shared/package.json": package("@harbor/shared", type="module", main="index.js"),
            "packages/shared/index.js": "export default { name: 'shared' };\n",
        },
        {"/": "<title>Workspace</title>"},
        kind="static",
        lock="package-lock.json",
        settings={"baseDir": "apps/site"},
    ),
    Starter(
        "go",
        "Go",
        {
            "go.mod": "module example.test/harbor\n\ngo 1.22\n",
            "main.go": """
                package main

                import (
                    "fmt"
                    "log"
                    "net/http"
                    "os"
                )

                func main() {
                    http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
                        fmt.Fprintf(w, "Hello from Go, you asked for %s", r.URL.Path)
                    })
                    port := os.Getenv("PORT")
                    if port == "" {
                        port = "8080"
                    }
                    log.Fatal(http.ListenAndServe(":"+port, nil))
                }
            """,
        },
        {"/": "Hello from Go", "/quay": "you asked for /quay"},
    ),
    Starter(
        # The usual layout of larger programs, and a port of its own.
        "go-cmd-folder",
        "Go",
        {
            "go.mod": "module example.test/server\n\ngo 1.21\n",
            "cmd/server/main.go": """
                package main

                import (
                    "net/http"

                    "example.test/server/internal/greeting"
                )

                func main() {
                    http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
                        w.Write([]byte(greeting.Text))
                    })
                    http.ListenAndServe(":8080", nil)
                }
            """,
            "internal/greeting/greeting.go": 'package greeting\n\nconst Text = "Hello from cmd"\n',
        },
        {"/": "Hello from cmd"},
    ),
    Starter(
        "go-file",
        "Go file",
        {
            "main.go": """
                package main

                import "net/http"

                func main() {
                    http.Handle("/", http.FileServer(http.Dir("static")))
                    http.ListenAndServe(":3000", nil)
                }
            """,
            "static/index.html": page("One file of Go"),
        },
        {"/": "<title>One file of Go</title>"},
    ),
    Starter(
        "go-without-modules",
        "Go file",
        {
            "main.go": """
                package main

                import (
                    "net/http"
                    "os"

                    "code.test/harbor/berths/pages"
                )

                func main() {
                    http.HandleFunc("/", pages.Show)
                    http.ListenAndServe(":"+os.Getenv("PORT"), nil)
                }
            """,
            "pages/show.go": """
                package pages

                import (
                    "fmt"
                    "net/http"

                    "code.test/harbor/words"
                )

                func Show(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, words.Title) }
            """,
            "vendor/code.test/harbor/words/words.go": """
                package words

                const Title = "<title>vendored</title>"
            """,
        },
        {"/": "<title>vendored</title>"},
    ),
)
