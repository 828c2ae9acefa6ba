"""Repositories that cannot run. Each deployment ends in one sentence that names the file and the fix."""

from __future__ import annotations

from tests.e2e.starters.shapes import Broken, package, page

NODE = "require('http').createServer((req, res) => res.end('ok')).listen(process.env.PORT);\n"
BUILD = {"build": "vite build"}

BROKEN = (
    Broken("empty", {}, ("no files", "commit")),
    Broken("only-a-readme", {"README.md": "# Ideas\n"}, ("README.md", "index.html", "Dockerfile")),
    Broken(
        "unknown-language",
        {"main.zig": "pub fn main() void {}\n", "build.zig": "// build\n"},
        ("build.zig", "Dockerfile"),
    ),
    Broken(
        "rails",
        {
            "Gemfile": "source 'https://rubygems.test'\ngem 'rails', '~> 8.0'\n",
            "config.ru": "run Rails.application\n",
            "config/application.rb": "module Harbor; class Application < Rails::Application; end; end\n",
            "public/404.html": page("Not found"),
        },
        ("config/application.rb", "Ruby on Rails", "Dockerfile"),
    ),
    Broken(
        "laravel",
        {
            "composer.json": '{"require": {"php": "^8.2", "laravel/framework": "^11.0"}}\n',
            "artisan": "#!/usr/bin/env php\n<?php\n",
            "public/index.php": "<?php echo 'hello';\n",
            "package.json": package(scripts=BUILD, devDependencies={"vite": "6.0.11"}),
        },
        ("artisan", "Laravel", "Dockerfile"),
    ),
    Broken("plain-php", {"index.php": "<?php phpinfo();\n"}, ("index.php", "PHP", "Dockerfile")),
    Broken(
        "java",
        {"pom.xml": "<project></project>\n", "src/main/java/App.java": "class App {}\n"},
        ("pom.xml", "Java", "Dockerfile"),
    ),
    Broken(
        "rust",
        {"Cargo.toml": '[package]\nname = "harbor"\nversion = "0.1.0"\n', "src/main.rs": "fn main() {}\n"},
        ("Cargo.toml", "Rust", "Dockerfile"),
    ),
    Broken(
        "dotnet",
        {"Harbor.csproj": '<Project Sdk="Microsoft.NET.Sdk.Web"></Project>\n', "Program.cs": "var a = 1;\n"},
        ("Harbor.csproj", ".NET", "Dockerfile"),
    ),
    Broken(
        "dockerfile-that-copies-a-missing-file",
        {"Dockerfile": "FROM scratch\nCOPY app /app\n"},
        ("Dockerfile", "line 2", "app"),
    ),
    Broken(
        "package-json-with-a-comma-too-many",
        {"package.json": '{\n  "name": "harbor",\n  "scripts": {"start": "node index.js",}\n}\n', "index.js": NODE},
        ("package.json", "line 3", "JSON"),
    ),
    Broken(
        "no-start-command",
        {"package.json": package(dependencies={"express": "4.21.2"}), "lib/util.js": "module.exports = 1;\n"},
        ("package.json", "start", "startCmd"),
    ),
    Broken(
        "start-script-names-a-missing-file",
        {"package.json": package(scripts={"start": "node dist/server.js"}), "server.js": NODE},
        ("dist/server.js", "start"),
    ),
    Broken(
        "start-script-that-starts-itself",
        {"package.json": package(scripts={"start": "npm run serve", "serve": "npm start"}), "index.js": NODE},
        ("package.json", "start", "serve"),
    ),
    Broken(
        "failing-build-script",
        {
            "package.json": package(scripts={"build": "node build.js", "start": "node index.js"}),
            "build.js": "throw new Error('the template is missing');\n",
            "index.js": NODE,
        },
        ("npm run build", "exit code 1", "the template is missing"),
    ),
    Broken(
        "build-tool-that-is-not-installed",
        {"package.json": package(scripts=BUILD), "index.html": page("x")},
        ("package.json", "vite", "devDependencies"),
    ),
    Broken(
        "module-that-package-json-does-not-name",
        {
            "package.json": package(scripts={"start": "node index.js"}),
            "index.js": "require('express')().listen(process.env.PORT);\n",
        },
        ("express", "package.json", "npm install express"),
    ),
    Broken(
        "module-that-requirements-do-not-name",
        {"requirements.txt": "bottle==0.13.2\n", "app.py": "import harbor_tools\nimport bottle\n"},
        ("harbor_tools", "requirements.txt"),
    ),
    Broken(
        "crash-at-start",
        {
            "package.json": package(scripts={"start": "node index.js"}),
            "index.js": "throw new Error('DATABASE_URL is not set');\n",
        },
        ("exit code 1", "DATABASE_URL is not set"),
    ),
    Broken(
        "site-without-an-index",
        {"pages/about.html": page("About"), "css/style.css": "a {}\n"},
        ("index.html", "buildDir"),
    ),
    Broken(
        "build-into-another-folder",
        {
            "package.json": package(scripts={"build": "node build.js"}),
            "build.js": """
                const fs = require('fs');
                fs.mkdirSync('target/html', { recursive: true });
                fs.writeFileSync('target/html/home.htm', '<h1>home</h1>');
            """,
        },
        ("index.html", "target", "buildDir"),
    ),
    Broken(
        "requirement-that-does-not-exist",
        {"requirements.txt": "bottle==0.13.2\nno-such-harbor-package==1.0\n", "app.py": "import bottle\n"},
        ("requirements.txt", "no-such-harbor-package"),
    ),
    Broken(
        "invalid-line-in-requirements",
        {"requirements.txt": "bottle==0.13.2\nflask=>3\n", "app.py": "import bottle\n"},
        ("requirements.txt", "flask=>3"),
    ),
    Broken(
        "python-that-does-not-exist",
        {".python-version": "3.99\n", "requirements.txt": "bottle==0.13.2\n", "app.py": "import bottle\n"},
        (".python-version", "3.99"),
    ),
    Broken(
        "native-module-without-its-library",
        {
            "requirements.txt": "setuptools\n./chart\n",
            "chart/setup.py": """
                from setuptools import Extension, setup

                setup(name="chart", version="1.0", ext_modules=[Extension("chart", ["chart.c"])])
            """,
            "chart/chart.c": "#include <Python.h>\n#include <libpq-fe.h>\n",
            "app.py": "import chart\n",
        },
        ("libpq-fe.h", "libpq-dev"),
    ),
    Broken(
        "listens-on-nothing",
        {
            "package.json": package(scripts={"start": "node index.js"}),
            "index.js": "setInterval(() => console.log('working'), 1000);\n",
        },
        ("PORT", "listen"),
    ),
    Broken(
        "answers-500",
        {
            "package.json": package(scripts={"start": "node index.js"}),
            "index.js": """
                require('http').createServer((req, res) => {
                  console.error('TypeError: cannot read the tide');
                  res.writeHead(500).end();
                }).listen(process.env.PORT);
            """,
        },
        ("500", "/", "healthCheckPath"),
    ),
    Broken(
        "health-check-at-a-wrong-path",
        {
            "package.json": package(scripts={"start": "node index.js"}),
            "index.js": """
                require('http').createServer((req, res) => {
                  res.writeHead(req.url === '/' ? 200 : 404).end();
                }).listen(process.env.PORT);
            """,
        },
        ("/healthz", "404", "healthCheckPath"),
        {"slug": "container", "language": "auto", "healthCheckPath": "/healthz"},
    ),
    Broken(
        "build-without-enough-memory",
        {
            "package.json": package(scripts={"build": "node --max-old-space-size=8000 build.js", "start": "node x.js"}),
            "build.js": "const kept = []; for (;;) kept.push(Buffer.alloc(16 << 20, 1));\n",
            "x.js": NODE,
        },
        ("memory", "MOORAGE_BUILD_MEMORY_MB"),
    ),
    Broken(
        "workspace-with-several-apps",
        {
            "package.json": package("root", workspaces=["apps/*"]),
            "apps/orders/package.json": package("orders", scripts={"start": "node index.js"}),
            "apps/orders/index.js": NODE,
            "apps/billing/package.json": package("billing", scripts={"start": "node index.js"}),
            "apps/billing/index.js": NODE,
        },
        ("apps/billing", "apps/orders", "baseDir"),
    ),
    Broken(
        "base-folder-that-is-not-there",
        {"web/index.html": page("Web"), "api/main.py": "print(1)\n"},
        ("baseDir", "frontend", "api, web"),
        {"baseDir": "frontend"},
    ),
    Broken(
        "app-for-phones",
        {
            "package.json": package(
                main="index.js",
                scripts={"start": "expo start", "android": "expo start --android"},
                dependencies={"expo": "53.0.27", "react": "19.0.0", "react-native": "0.79.6"},
            ),
            "index.js": "import { registerRootComponent } from 'expo';\n",
        },
        ("package.json", "react-native-web"),
    ),
    Broken(
        "site-of-gridsome",
        {
            "package.json": package(scripts={"build": "gridsome build"}, dependencies={"gridsome": "0.7.23"}),
            "src/pages/Index.vue": "<template><h1>Harbor</h1></template>\n",
        },
        ("package.json", "gridsome build", "dist"),
    ),
    Broken(
        "pyproject-with-an-open-quote",
        {"pyproject.toml": '[project]\nname = "harbor\n', "main.py": "print(1)\n"},
        ("pyproject.toml", "line 2"),
    ),
    Broken(
        "python-with-a-syntax-error",
        {"requirements.txt": "bottle==0.13.2\n", "app.py": "import bottle\ndef index(:\n    pass\n"},
        ("app.py", "line 2"),
    ),
)
