"""One small repository for each row of the table of detectors, and the plan that it should get.

A row without a case fails `test_every_row_of_the_table_has_a_case`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DENO = "DENO_DIR=.deno DENO_NO_PROMPT=1 DENO_NO_UPDATE_CHECK=1 DENO_TLS_CA_STORE=mozilla,system"
HOST_PORT = "--bind ${HOST:-0.0.0.0}:${PORT:-8080}"


@dataclass(frozen=True)
class Case:
    row: str
    files: dict[str, Any]
    build: str = ""
    output: str = ""
    start: str = ""  # the beginning of the start command
    server: str = ""
    refusal: str = ""  # part of the sentence
    wanted: str = "auto"
    more: dict[str, Any] = field(default_factory=dict)


def js(*names: str, **more: Any) -> dict[str, Any]:
    """Return a repository with a package.json that has a build script."""
    scripts = more.pop("scripts", {"build": "make"})
    return {"package.json": {"dependencies": dict.fromkeys(names, "^9.0.0"), "scripts": scripts}, **more}


def py(*names: str, **files: Any) -> dict[str, Any]:
    return {"requirements.txt": "\n".join(names), **files}


def nx_repository(files: dict[str, Any]) -> dict[str, Any]:
    """Return an Nx workspace whose package.json lists the frameworks of its apps."""
    return {**js("nx", "@nestjs/core", "@angular/core", "next", "vite"), "nx.json": {}, **files}


RUN = "npm run build"
ADD = "npm install --no-save --no-audit --no-fund"
START = {"start": "node server.js"}
SERVER = {"scripts": START, "server.js": "http.createServer().listen(process.env.PORT)"}
MANAGE = "import django\nos.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')"
ANGULAR = {"projects": {"shop": {"architect": {"build": {"builder": "@angular/build:application"}}}}}
NITRO = "node .output/server/index.mjs"
HUGO = {"content/a.md": "x", "layouts/index.html": "x"}

CASES = (
    # Refused before Node.js: these have a package.json for their assets.
    Case("Ruby on Rails", {**js("vite"), "Gemfile": "gem 'rails'", "config/application.rb": "x"}, refusal="Rails"),
    Case("Laravel", {**js("vite"), "composer.json": "{}", "artisan": "x"}, refusal="artisan"),
    Case("WordPress", {"wp-config-sample.php": "x", "index.php": "x"}, refusal="WordPress"),
    Case("PHP", {"index.php": "x", "style.css": "x"}, refusal="index.php"),
    Case("PHP", {"composer.json": "{}", "web/index.php": "x", "Procfile": "web: heroku-php-apache2 web/"},
         refusal="web/index.php"),
    Case("Java", {"pom.xml": "x", "Procfile": "web: java -jar target/shop.jar"}, refusal="pom.xml"),
    Case("Phoenix", {"mix.exs": "x"}, refusal="mix.exs"),
    Case("Java", {"pom.xml": "x", "src/main/resources/index.html": "x"}, refusal="pom.xml"),
    Case(".NET", {"shop.csproj": "x"}, refusal="shop.csproj"),
    Case("Meteor", {**js("react"), ".meteor/release": "x"}, refusal="Meteor"),
    # Django.
    Case("Django", py("django", **{"manage.py": MANAGE, "shop/wsgi.py": "", "shop/settings.py": ""}),
         start=f"gunicorn shop.wsgi {HOST_PORT}", server="gunicorn"),
    Case("Django", py("django", **{"site/manage.py": MANAGE, "site/shop/wsgi.py": ""}),
         start="cd site && gunicorn shop.wsgi", server="gunicorn"),
    Case("Django", py("django", "dj-database-url", **{"manage.py": MANAGE, "shop/wsgi.py": "", "shop/settings.py":
         "DATABASES = {'default': dj_database_url.config()}"}),
         start="test \"${DATABASE_URL#sqlite}\" != \"$DATABASE_URL\" && python manage.py migrate --noinput; gunicorn",
         server="gunicorn"),
    Case("Django", py("django", **{"manage.py": MANAGE.replace("settings'", "settings.local'"),
         "shop/settings/local.py": "", "shop/settings/__init__.py": "", "shop/wsgi.py":
         "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')"}),
         start="DJANGO_SETTINGS_MODULE=${DJANGO_SETTINGS_MODULE:-shop.settings.local} gunicorn shop.wsgi",
         server="gunicorn"),
    Case("Django", py("django", **{"manage.py": MANAGE.replace("shop.", ""), "settings.py": "", "wsgi.py":
         "application = get_wsgi_application()"}), start="gunicorn wsgi --bind", server="gunicorn"),
    Case("Django", {"site/manage.py": MANAGE, "site/shop/wsgi.py": "", "README.md": ""},
         start="gunicorn shop.wsgi", server="django gunicorn"),
    Case("Django", py("django", "channels", **{"manage.py": MANAGE, "shop/asgi.py": "", "shop/settings.py":
         "ENGINE = 'django.db.backends.sqlite3'", "package.json": {"scripts": {"build": "tailwindcss"}}}),
         start="python manage.py migrate --noinput; daphne -b", server="daphne"),
    Case("Django", py("django", "channels", **{"manage.py": MANAGE, "shop/asgi.py": "import chat.routing\n"
         "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')\nhttp = get_asgi_application()"}),
         start="DJANGO_SETTINGS_MODULE=${DJANGO_SETTINGS_MODULE:-shop.settings} python -c 'import django; django.setup",
         server="daphne"),
    # Full-stack frameworks.
    Case("Next.js export", {**js("next"), "next.config.mjs": "export default { output: 'export' }"}, RUN, "out"),
    Case("Next.js export", js("next", scripts={"build": "next build && next export"}), RUN, "out"),
    Case("Next.js export", js("next", scripts={"build": "next build", "export": "next build && next export"}),
         "npm run build && next export", "out"),
    Case("Next.js", {"package.json": {"dependencies": {"next": "^15.0.0"}, "scripts": {"build": "next build",
         "start": "next start", "export": "next build && next export"}}}, RUN, start="npm start"),
    Case("Next.js", js("next", scripts={"build": "next build", "start": "next start"}), RUN, start="npm start"),
    Case("Next.js", js("next", scripts={"dev": "next dev", "start": "next dev"}), "next build", start="next start"),
    Case("Nuxt (static)", {**js("nuxt"), "nuxt.config.js": "({ target: 'static' })"}, RUN, ".output/public"),
    Case("Nuxt (static)", js("nuxt", scripts={"build": "nuxt generate"}), RUN, ".output/public"),
    Case("Nuxt (static)", js("nuxt", scripts={"build": "nuxt build", "generate": "nuxt generate"}),
         "npm run generate", ".output/public", wanted="static"),
    Case("Nuxt 2", {"package.json": {"dependencies": {"nuxt": "^2.15.0"}, "scripts": {"start": "nuxt start"}}},
         "npm install --no-save --no-audit --no-fund webpack@4 && nuxt build", start="npm start"),
    Case("Nuxt 2", {"package.json": {"dependencies": {"nuxt": "^2.15.0"}, "scripts": {"start": "nuxt start"}},
         "yarn.lock": ""}, "nuxt build", start="npm start"),
    Case("Nuxt", js("nuxt", scripts={"build": "nuxt build", "generate": "nuxt generate", "preview": "nuxt preview"}),
         RUN, start=NITRO),
    Case("SvelteKit (static)", js("@sveltejs/kit", "@sveltejs/adapter-static", "vite"), RUN, "build"),
    Case("SvelteKit", js("@sveltejs/kit", "@sveltejs/adapter-node", "vite"), RUN,
         start="PROTOCOL_HEADER=x-forwarded-proto HOST_HEADER=x-forwarded-host node build"),
    Case("SvelteKit for another host", {**js("@sveltejs/kit", "@sveltejs/adapter-static", "@sveltejs/adapter-netlify"),
         "svelte.config.js": "import adapter from '@sveltejs/adapter-netlify'"},
         "npm install --no-save --no-audit --no-fund @sveltejs/adapter-node && "
         "sed -i 's#@sveltejs/adapter-[a-z-]*#@sveltejs/adapter-node#' svelte.config.* && vite build",
         start="PROTOCOL_HEADER="),
    Case("SvelteKit for another host", js("@sveltejs/kit", "@sveltejs/adapter-vercel"),
         "npm install --no-save --no-audit --no-fund @sveltejs/adapter-node && "
         "sed -i 's#@sveltejs/adapter-[a-z-]*#@sveltejs/adapter-node#' svelte.config.* && vite build",
         start="PROTOCOL_HEADER="),
    Case("SvelteKit (adapter-auto)", js("@sveltejs/kit", "@sveltejs/adapter-auto", "vite"),
         "npm install --no-save --no-audit --no-fund @sveltejs/adapter-node && GCP_BUILDPACKS=1 vite build",
         start="PROTOCOL_HEADER=x-forwarded-proto"),
    Case("Astro for another host", {**js("astro", "@astrojs/vercel"), "astro.config.mjs": "({ output: 'server' })"},
         f"{ADD} @astrojs/node && sed -i -E 's#@astrojs/(vercel|netlify|cloudflare|deno)(/[a-z]+)?#@astrojs/node#; "
         r"s#adapter:\s*(\w+)\(#adapter: (() => \1({ mode: `standalone` }))(#' astro.config.* && astro build",
         start="node dist/server/entry.mjs"),
    Case("Astro for another host", {**js("astro", "@astrojs/netlify"), "src/pages/api/tides.ts":
         "export const prerender = false;\n"},
         f"{ADD} @astrojs/node && sed -i -E 's#@astrojs/(vercel|netlify|cloudflare|deno)(/[a-z]+)?#@astrojs/node#; "
         r"s#adapter:\s*(\w+)\(#adapter: (() => \1({ mode: `standalone` }))(#' astro.config.* && astro build",
         start="node dist/server/entry.mjs"),
    Case("Astro", {**js("astro", "@astrojs/netlify"), "src/pages/index.astro": "<h1>Tides</h1>"}, RUN, "dist"),
    Case("Astro server", {**js("astro", "@astrojs/node", scripts={"build": "astro build", "start": "astro dev"})},
         RUN, start="node dist/server/entry.mjs"),
    Case("Astro", js("astro", "vite"), RUN, "dist"),
    Case("Remix (single page)", {**js("@remix-run/dev", "vite"), "vite.config.ts": "remix({ ssr: false })"}, RUN,
         "build/client"),
    Case("Remix", js("@remix-run/dev", "@remix-run/serve", "vite"), RUN, start="remix-serve build/server/index.js"),
    Case("Remix", {**js("@remix-run/dev", "@remix-run/node", "@vercel/remix", "vite"),
                   "vite.config.ts": "remix({ presets: [vercelPreset()] })"},
         f"{ADD} @remix-run/serve@9.0.0 && {RUN}", start="remix-serve build/server/nodejs*/index.js"),
    Case("Remix or React Router for Cloudflare", js("@react-router/dev", "@cloudflare/vite-plugin", "vite"),
         refusal="@react-router/serve"),
    Case("React Router", js("@react-router/dev", "@react-router/node", "vite"),
         f"{ADD} @react-router/serve@9.0.0 && {RUN}", start="react-router-serve build/server/index.js"),
    Case("React Router (single page)", {**js("@react-router/dev", "vite"), "react-router.config.ts": "{ ssr: false }"},
         RUN, "build/client"),
    Case("React Router", js("@react-router/dev", "@react-router/serve", "vite",
         scripts={"build": "x", "start": "react-router-serve ./build/server/index.js"}), RUN, start="npm start"),
    Case("React Router", {**js("@react-router/dev", "@react-router/serve", scripts={"build": "x", "start":
         "react-router-serve ./build/server/index.js"}), "react-router.config.ts": "{ presets: [vercelPreset()] }"},
         RUN, start="react-router-serve build/server/nodejs*/index.js"),
    Case("SolidStart", js("@solidjs/start", "vinxi", scripts={"build": "vinxi build", "start": "vinxi start"}), RUN,
         start=NITRO),
    Case("TanStack Start", js("@tanstack/react-start", "vite"),
         "npm install --no-save --no-audit --no-fund srvx && npm run build", start="srvx --prod -s ../client"),
    Case("Analog (static)", {**js("@analogjs/platform", "vite"), "vite.config.ts": "analog({ static: true })"}, RUN,
         "dist/analog/public"),
    Case("Analog", js("@analogjs/platform", "@angular/core", "vite"), RUN, start="node dist/analog/server/index.mjs"),
    Case("Qwik City", {**js("@builder.io/qwik-city", "express"), "src/entry.express.tsx": "x"}, RUN,
         start="node server/entry.express.js"),
    Case("Qwik City (static)", {**js("@builder.io/qwik-city"), "adapters/static/vite.config.ts": "x"}, RUN, "dist"),
    Case("Qwik City without an adapter", js("@builder.io/qwik-city", "vite"), refusal="qwik add express"),
    Case("Nitro", js("nitropack", "h3"), RUN, start=NITRO),
    Case("Angular server", {**js("@angular/core", "@angular/ssr", "express", scripts={"build": "ng build", "start":
         "ng serve", "serve:ssr:shop": "node x"}), "angular.json": ANGULAR}, RUN, start="npm run serve:ssr:shop"),
    # Generators of static sites.
    Case("Gatsby", js("gatsby", scripts={"build": "gatsby build", "start": "gatsby develop"}), RUN, "public"),
    Case("Eleventy", {**js("@11ty/eleventy", scripts={}), ".eleventy.js": "({ dir: { output: 'www' } })"}, "eleventy",
         "www"),
    Case("Docusaurus", {"package.json": {"dependencies": {"@docusaurus/core": "^3.9.2"}}},
         "npm install --no-save --no-audit --no-fund webpack@5.97.1 && docusaurus build", "build"),
    Case("Docusaurus", {"package.json": {"dependencies": {"@docusaurus/core": "3.9.2"}}, "package-lock.json": "{}"},
         "docusaurus build", "build"),
    Case("Docusaurus", js("@docusaurus/core", scripts={"build": "x", "start": "docusaurus start"}), RUN, "build"),
    Case("VitePress", {**js("vitepress", "vite", scripts={"docs:build": "x"}), "docs/.vitepress/config.ts": "x"},
         "npm run docs:build", "docs/.vitepress/dist"),
    Case("VuePress", {**js("vuepress", scripts={}), "docs/.vuepress/config.js": "x"}, "vuepress build docs/",
         "docs/.vuepress/dist"),
    Case("Hexo", {**js("hexo", scripts={"build": "hexo generate"}), "_config.yml": "theme: x"}, RUN, "public"),
    Case("VuePress", {**js("vuepress", scripts={"build": "vuepress build src"}), "src/README.md": "x"}, RUN,
         "src/.vuepress/dist"),
    Case("Sanity Studio", js("sanity", scripts={"build": "sanity build", "start": "sanity start"}), RUN, "dist"),
    Case("Slidev", js("@slidev/cli", scripts={"dev": "slidev"}), "slidev build", "dist"),
    Case("Umi", js("umi", scripts={"start": "umi dev"}), "umi build", "dist"),
    Case("Umi", {**js("@umijs/max", scripts={"start": "max dev"}), "config/config.ts": "({ outputPath: './www' })"},
         "max build", "www"),
    Case("Gridsome", js("gridsome"), refusal="gridsome build"),
    Case("Hugo theme", {"theme.toml": "x", "layouts/index.html": "x", "exampleSite/hugo.toml": "theme = 'a'",
                        **js("tailwindcss"), "go.mod": "module a"},
         "hugo --gc --minify --source exampleSite --themesDir ../.. --theme $(basename $PWD) --baseURL /",
         "exampleSite/public", server="hugo"),
    Case("Hugo theme without a site", {"theme.toml": "x", "layouts/index.html": "x", "go.mod": "module a"},
         refusal="exampleSite"),
    Case("Hugo", {"hugo.toml": "", **HUGO, "netlify.toml": '[build.environment]\nHUGO_VERSION = "0.131.0"'},
         "hugo --gc --minify --baseURL /", "public", server="hugo<0.132"),
    # The theme has a package.json of its own.
    Case("Hugo", {"config.toml": "baseURL = 'https://x'\ntheme = 'a'", "archetypes/default.md": "x",
                  "content/a.md": "x", "themes/a/package.json": {}, "themes/a/src/package.json": {}},
         "hugo --gc --minify --baseURL /", "public", server="hugo"),
    Case("Hugo with a theme in a submodule", {"hugo.toml": "theme = 'a'", **HUGO, ".gitmodules": "path = themes/a"},
         refusal="themes/a"),
    Case("Hugo", {"hugo.toml": "", **HUGO}, "hugo --gc --minify --baseURL /", "public", server="hugo"),
    Case("Hugo", {"config.toml": "baseURL = 'https://x'", **HUGO}, "hugo --gc --minify --baseURL /", "public",
         server="hugo"),
    # Bundlers.
    Case("Create React App", js("react-scripts", scripts={"start": "react-scripts start", "build": "x"}), RUN, "build"),
    Case("Preact CLI", js("preact-cli"), f"npm install --no-save --no-audit --no-fund webpack@4 && {RUN}", "build"),
    Case("Preact CLI", js("preact-cli", "webpack"), RUN, "build"),
    Case("Angular", {**js("@angular/core", scripts={"build": "x", "start": "ng serve"}), "angular.json": ANGULAR}, RUN,
         "dist/shop/browser"),
    Case("Vue CLI", js("@vue/cli-service"), RUN, "dist"),
    Case("Ember", js("ember-cli"), RUN, "dist"),
    Case("Brunch", js("brunch", scripts={"start": "brunch watch --server"}), "brunch build --production", "public"),
    Case("Polymer", js("polymer-cli", scripts={"start": "polymer serve"}), "polymer build", "build/default"),
    Case("Polymer", {**js("polymer-cli"), "polymer.json": '{"builds": [{"name": "esm-bundled"}, {"name": "es5"}]}'},
         RUN, "build/esm-bundled"),
    Case("Expo", js("expo", "react-native-web", scripts={"start": "expo start"}), "expo export --platform web", "dist"),
    Case("Parcel", js("parcel"), RUN, "dist"),
    Case("Rsbuild", js("@rsbuild/core"), RUN, "dist"),
    # A page for the bundler: the server in the same folder is only its API.
    Case("Vite", {**js("vite"), **py("flask", **{"app.py": "app = Flask('x')"}), "index.html": "x"}, RUN, "dist"),
    Case("Vite", {**js("vite", "express", scripts={"start": "vite", "build": "vite build"}), "index.html": "x",
         "vite.config.js": "({ build: { outDir: './www' } })"}, RUN, "www"),
    # Servers.
    Case("NestJS", js("@nestjs/core", scripts={"build": "nest build", "start": "nest start",
         "start:prod": "node dist/main"}), RUN, start="npm run start:prod"),
    Case("NestJS", js("@nestjs/core", scripts={"build": "nest build", "start": "nest start"}), RUN,
         start="node dist/main.js"),
    Case("NestJS", {"package.json": {"dependencies": {"@nestjs/core": "5", "typescript": "3"}}}, "tsc",
         start="node dist/main.js"),
    Case("Nx", {**js("express", "nx", scripts={"build": "nx build", "start": "nx serve"}), "nx.json": "{}",
         "project.json": {"projectType": "application", "targets": {"build": {"executor": "@nx/esbuild:esbuild",
         "options": {"platform": "node", "outputPath": "dist/api"}}}, "name": "api"}}, RUN,
         start="node dist/api/main.js"),
    Case("Nx", nx_repository({"apps/api/project.json": {"projectType": "application", "name": "api", "targets": {
         "build": {"executor": "@nx/webpack:webpack", "options": {"target": "node", "outputPath": "dist/apps/api"}}}},
         "apps/api-e2e/project.json": {"projectType": "application", "name": "api-e2e"}}), "nx build api",
         start="node dist/apps/api/main.js"),
    Case("Nx", nx_repository({"workspace.json": {"projects": {"web": {"root": "apps/web", "projectType": "application",
         "architect": {"build": {"builder": "@nrwl/next:build", "options": {"outputPath": "dist/apps/web"}}}}}}}),
         "nx build web", start="next start dist/apps/web"),
    Case("Nx", nx_repository({"apps/api/project.json": {"projectType": "application", "name": "api"},
         "apps/api/webpack.config.js": "output: { path: join(__dirname, '../../dist/apps/api') }, target: 'node'"}),
         "nx build api", start="node dist/apps/api/main.js"),
    Case("Nx (static)", nx_repository({"apps/web/project.json": {"projectType": "application", "name": "web",
         "targets": {"build": {"executor": "@nx/angular:application", "options": {"outputPath": "dist/apps/web"}}}}}),
         "nx build web", "dist/apps/web/browser"),
    Case("Nx (static)", nx_repository({"apps/web/project.json": {"projectType": "application", "name": "web"},
         "apps/web/vite.config.ts": "build: { outDir: '../../dist/apps/web' }"}), "nx build web", "dist/apps/web"),
    Case("Nx with several apps", nx_repository({f"apps/{name}/project.json": {"projectType": "application",
         "name": name, "targets": {"build": {"executor": executor}}} for name, executor in
         (("api", "@nx/node:build"), ("web", "@nx/vite:build"))}),
         refusal="set buildCmd to `nx build api` and startCmd to `node dist/apps/api/main.js`"),
    Case("Express", {"package.json": {"dependencies": {"express": "4"}, "scripts": {"start": "node server.js",
         "heroku-postbuild": "npm run build --prefix client"}}, "server.js": ""}, "npm run heroku-postbuild",
         start="npm start"),
    Case("AdonisJS", {**js("@adonisjs/core"), "bin/server.ts": "x"}, RUN, start="node build/bin/server.js"),
    Case("AdonisJS", {**js("@adonisjs/core"), "bin/server.ts": "x", ".env.example": "LOG_LEVEL=info\nAPP_KEY="},
         f"{RUN} && cp .env.example build/.env", start="node build/bin/server.js"),
    Case("Strapi", js("@strapi/strapi", scripts={"build": "strapi build", "start": "strapi start"}), RUN,
         start="npm start"),
    Case("KeystoneJS", js("@keystone-6/core", "next", "react"), RUN, start="keystone start"),
    Case("server as an export", {"package.json": {"dependencies": {"hono": "^4"}}, "src/index.ts":
         "import { Hono } from 'hono'\nconst app = new Hono()\nexport default app\n"},
         f"{ADD} tsx @hono/node-server", start="node --import tsx --input-type=module -e "),
    Case("server as an export", {"package.json": {"dependencies": {"express": "^5"}}, "api/index.js":
         "const app = require('express')()\nmodule.exports = app\n"},
         f"{ADD} tsx", start="node --import tsx --input-type=module -e "),
    Case("Fastify", js("fastify", **SERVER), start="npm start"),
    Case("Koa", js("koa", **SERVER), start="npm start"),
    Case("Hapi", js("@hapi/hapi", **SERVER), start="npm start"),
    Case("Hono", js("hono", "@hono/node-server", "tsx", scripts={"dev": "tsx watch src/index.ts"},
         **{"src/index.ts": "x"}), start="tsx src/index.ts"),
    Case("Feathers", js("@feathersjs/feathers", **SERVER), start="npm start"),
    Case("Apollo Server", js("@apollo/server", **SERVER), start="npm start"),
    Case("LoopBack", js("@loopback/core", **SERVER), start="npm start"),
    Case("Sails", js("sails", **SERVER), start="npm start"),
    Case("Express", js("express", "typescript", scripts={"start": "node dist/index.js"}, **{"tsconfig.json": "{}"}),
         "tsc", start="npm start"),
    Case("Express", js("express", scripts={"start": "nodemon app.js"}, **{"app.js": "x"}), start="node app.js"),
    Case("Express", js("express", "vite", scripts={"start": "node server.js", "build": "vite build"}), RUN,
         start="npm start"),
    Case("Express", {"package.json": {"main": "src/web.js", "dependencies": {"express": "4"}}, "src/web.js": "x"},
         start="node src/web.js"),
    Case("Express", js("express", scripts={"dev": "nodemon lib/run.js"}, **{"lib/run.js": "x"}),
         start="node lib/run.js"),
    Case("Restify", js("restify", **SERVER), start="npm start"),
    Case("Polka", js("polka", **SERVER), start="npm start"),
    Case("Socket.IO", js("socket.io", **SERVER), start="npm start"),
    Case("ws", js("ws", **SERVER), start="npm start"),
    Case("JSON Server", js("json-server", scripts={"start": "json-server db.json"}), start="npm start"),
    # Python apps.
    Case("Streamlit", py("streamlit", **{"app_test.py": "import streamlit", "Chat.py": "import streamlit as st"}),
         start="streamlit run Chat.py --server"),
    Case("Streamlit", py("streamlit", **{"Home.py": "import streamlit as st"}), start="streamlit run Home.py --server"),
    Case("Chainlit", py("chainlit", **{"app.py": "import chainlit as cl"}), start="chainlit run app.py --host"),
    Case("Gradio", py("gradio", **{"app.py": "import gradio as gr"}), start="GRADIO_SERVER_NAME=${HOST:-0.0.0.0} "),
    Case("Marimo", py("marimo", **{"app.py": "import marimo"}), start="marimo run app.py --host"),
    Case("Shiny", py("shiny", **{"app.py": "from shiny import App"}), start="shiny run --host"),
    Case("Dash", py("dash", **{"app.py": "from dash import Dash\napp = Dash()\nserver = app.server"}),
         start="gunicorn app:server", server="gunicorn"),
    # The package only creates the app; the module that is served imports its pages.
    Case("Flask", py("flask", "flask-sqlalchemy", **{"app.py": "from flask_sqlalchemy import SQLAlchemy\n"
         "app = Flask('x')\napp.config['SQLALCHEMY_DATABASE_URI'] = 'sqlite:///ships.db'\ndb = SQLAlchemy(app)"}),
         start="case \"${DATABASE_URL:-sqlite}\" in sqlite*) python -c \"import importlib; app = "
         "getattr(importlib.import_module('app'), 'app'); app = app; "
         "app.app_context().push(); db = app.extensions['sqlalchemy']; getattr(db, 'db', db).create_all()\";; esac; "
         "gunicorn app:app", server="gunicorn"),
    Case("Flask", py("flask", "flask-sqlalchemy", **{"shop/__init__.py": "from flask_sqlalchemy import SQLAlchemy\n"
         "def create_app():\n    app = Flask('x')\n    app.config.from_object(Config)\n    return app",
         "shop/config.py": "class Config:\n    SQLALCHEMY_DATABASE_URI = os.environ.get('SHOP_DB')"}),
         start="case \"${DATABASE_URL:-sqlite}\" in sqlite*) python -c \"import importlib; app = "
         "getattr(importlib.import_module('shop'), 'create_app');",
         server="gunicorn"),
    Case("Flask", py("flask", "flask-sqlalchemy", **{"app.py": "from flask_sqlalchemy import SQLAlchemy\n"
         "app = Flask('x')\napp.config['SQLALCHEMY_DATABASE_URI'] = 'mysql+pymysql://localhost/ships'"}),
         start="gunicorn app:app", server="gunicorn"),
    Case("Flask", py("flask", "gunicorn", **{"shop/__init__.py": "app = Flask(__name__)", "shop/web.py":
         "from . import app, views", "startup.py": "from shop.web import app"}),
         start=f"gunicorn startup:app {HOST_PORT}"),
    # A Flask app with a dashboard as one of its parts.
    Case("Flask", py("flask", "dash", **{"shop/dashboard.py": "from dash import Dash", "shop/__init__.py":
         "def init_app():\n    return Flask(__name__)", "main.py": "from shop import init_app\napp = init_app()"}),
         start=f"gunicorn main:app {HOST_PORT}", server="gunicorn"),
    Case("Panel", py("panel", **{"app.py": "import panel as pn"}), start="panel serve app.py --address"),
    Case("FastAPI", py("-r base.txt", **{"base.txt": "fastapi\nuvicorn", "app/main.py": "api: FastAPI = FastAPI()",
         "app/__init__.py": ""}), start="uvicorn app.main:api --host"),
    Case("FastAPI", {"pyproject.toml": "[tool.poetry.dependencies]\nfastapi='1'", "src/shop/__init__.py": "",
         "src/shop/main.py": "from shop.db import x\napp = FastAPI()"},
         start="uvicorn --app-dir src shop.main:app --host", server="uvicorn"),
    Case("FastAPI", py("fastapi", "uvicorn", **{"api/main.py": "from db import x\napp = FastAPI()", "api/db.py": ""}),
         start="cd api && uvicorn main:app --host"),
    Case("FastAPI", py("fastapi", "uvicorn", **{"shop/web.py": "def create_app() -> FastAPI:\n    return FastAPI()"}),
         start="uvicorn --factory shop.web:create_app --host"),
    Case("Shiny", py("shiny", **{"b/c/report.py": "import shiny\nui.run()", "a/x/y/app.py": "import shiny",
         "b/app-core.py": "from shiny import App\napp = App()"}),
         start="shiny run --host ${HOST:-0.0.0.0} --port ${PORT:-8080} b/app-core.py"),
    Case("FastHTML", py("python-fasthtml", **{"main.py": "from fasthtml.common import *"}), start="python main.py"),
    Case("Litestar", py("litestar", **{"manage.py": "# named as in Django\nfrom app import run", "app.py":
         "from litestar import Litestar\napp = Litestar([])"}), start="uvicorn app:app", server="uvicorn"),
    Case("Litestar", py("litestar", **{"app.py": "app = Litestar([])"}), start="uvicorn app:app", server="uvicorn"),
    Case("Starlette", py("starlette", **{"app.py": "app = Starlette()"}), start="uvicorn app:app", server="uvicorn"),
    Case("Quart", py("quart", **{"app.py": "app = Quart('x')"}), start="uvicorn app:app", server="uvicorn"),
    Case("Sanic", py("sanic", **{"server.py": "app = Sanic('x')"}), start="sanic server:app --host"),
    Case("Flask", py("flask", "gunicorn", **{"berths/__init__.py": "def create_app():\n    return Flask(__name__)",
         "berths/db.py": "@click.command('init-db')\ndef init():\n    sqlite3.connect('a')"}),
         start="FLASK_APP='berths:create_app()' python -m flask init-db; gunicorn 'berths:create_app()'"),
    Case("Flask", py("flask", "gunicorn", **{"my-site/tide-app.py": "import flask_sqlalchemy\nimport pages\n"
         "app = Flask('x')\napp.config['X'] = 'sqlite:///a.db'", "my-site/pages.py": "x"}),
         start='cd my-site && case "${DATABASE_URL:-sqlite}" in sqlite*) python -c "import importlib; app = '
               "getattr(importlib.import_module('tide-app'), 'app'); "),
    # The bundler makes the styles of the pages that the server renders.
    Case("Flask", {**js("vite"), **py("flask", "gunicorn", **{"run.py": "app = Flask('x')"}),
                   "templates/index.html": "x"}, start="gunicorn run:app"),
    Case("Flask", {"Pipfile": "[packages]\nflask = '*'", "hello.py": "app = Flask('x')"}, start="gunicorn hello:app",
         server="gunicorn"),
    Case("Flask", py("flask", "gunicorn", **{"wsgi.py": "from shop import create_app\napp = create_app()",
         "shop/__init__.py": "def create_app(test=None):\n    return Flask('x')"}), start="gunicorn wsgi:app --bind"),
    Case("Flask", py("flask", "gunicorn", **{"shop/__init__.py": "def create_app(test=None):\n    return Flask('x')"}),
         start="gunicorn 'shop:create_app()' --bind"),
    Case("Flask", py("flask", "gunicorn", **{".flaskenv": "FLASK_APP=blog.py", "blog.py": "web = Flask('x')",
         "app.py": "app = Flask('y')"}), start="gunicorn blog:web --bind"),
    Case("Flask", {"app.py": "from flask import Flask\napp = Flask('x')"}, start="gunicorn app:app",
         server="flask gunicorn"),
    Case("Falcon", py("falcon", **{"app.py": "app = falcon.App()"}), start="gunicorn app:app", server="gunicorn"),
    Case("aiohttp", py("aiohttp", **{"main.py": "from aiohttp import web"}), start="python main.py"),
    Case("Tornado", py("tornado", **{"server.py": "import tornado.web"}), start="python server.py"),
    Case("Bottle", py("bottle", **{"app.py": "from bottle import run"}), start="python app.py"),
    Case("CherryPy", py("cherrypy", **{"app.py": "import cherrypy"}), start="python app.py"),
    Case("NiceGUI", py("nicegui", **{"main.py": "from nicegui import ui"}), start="python main.py"),
    Case("Voilà", py("voila", **{"chart.ipynb": "{}"}), start="voila --no-browser", server="ipykernel"),
    # Any package.json.
    Case("Cloudflare Workers", js("wrangler", scripts={"deploy": "x"}, **{"wrangler.toml": ""}), refusal="start"),
    Case("React Native", js("expo", "react-native", scripts={"start": "expo start"}, **{"index.js": "x"}),
         refusal="react-native-web"),
    Case("Electron", js("electron", scripts={"start": "electron ."}), refusal="desktop app"),
    Case("Node.js", {"package.json": {"scripts": {"start": "node run.js"}}, "run.js": ""}, start="npm start"),
    Case("Node.js", {"package.json": {"scripts": {"start": "bun run a.ts"}}, "bun.lock": "", "a.ts": ""},
         "npm install --no-save --no-audit --no-fund bun", start="npm start"),
    Case("Node.js server file", {"server.js": "require('http').createServer().listen(3000)", "index.html": "x"},
         start="node server.js"),
    Case("Node.js site", js("browser-sync", scripts={"build": "pug", "start": "npm run build && node start.js"}),
         RUN, "dist"),
    Case("Node.js site", js("webpack"), RUN, "dist"),
    # Sites of other tools.
    Case("WSGI or ASGI module", py("connexion", **{"wsgi.py": "from shop import create\napplication = create()"}),
         start=f"gunicorn wsgi:application {HOST_PORT}", server="gunicorn"),
    Case("WSGI or ASGI module", {"wsgi.py": "from booth import app as application"}, start="gunicorn wsgi:application",
         server="gunicorn"),
    Case("WSGI or ASGI module", py("uvicorn", **{"asgi.py": "async def app(scope, receive, send):\n    pass"}),
         start="uvicorn asgi:app --host"),
    Case("MkDocs", {"mkdocs.yml": "theme:\n  name: material\nplugins:\n  - search\n  - minify\n", "docs/index.md": ""},
         "mkdocs build", "site", server="mkdocs mkdocs-material mkdocs-minify-plugin"),
    Case("Jupyter Book", {"_toc.yml": "x", "_config.yml": "x"}, "jupyter-book build .", "_build/html",
         server="jupyter-book<2"),
    Case("Jupyter Book", py("jupyter-book", "numpy", **{"_toc.yml": "x", "_config.yml": "x"}), "jupyter-book build .",
         "_build/html", server="jupyter-book<2"),
    Case("Pelican", {"pelicanconf.py": "x", "content/a.md": "x"}, "pelican content -s pelicanconf.py -o output",
         "output", server="pelican[markdown]"),
    Case("Sphinx", {"docs/conf.py": "project = 'x'\nhtml_theme = 'furo'", "docs/index.rst": "", "docs/requirements.txt":
         "sphinx"}, "sphinx-build -b html docs docs/_build/html", "docs/_build/html",
         server="-r docs/requirements.txt sphinx furo"),
    Case("Jekyll", {"_config.yml": "theme: minima", "index.html": "---\n---"}, "jekyll build", "_site"),
    Case("Jekyll", {"_config.yml": "theme: x", ".nojekyll": "", "index.html": "---\nlayout: home\n---\n"},
         "jekyll build", "_site"),
    Case("Zola", {"config.toml": "base_url = 'x'", "content/a.md": "x", "themes/a/b": ""}, refusal="zola"),
    Case("mdBook", {"book.toml": "x"}, refusal="book.toml"),
    # Go.
    Case("Go", {"go.mod": "module x", "main.go": "package main"}, "go build -o app .", start="./app"),
    Case("Go", {**js("parcel"), "go.mod": "module x", "main.go": "package main"}, "go build -o app .", start="./app"),
    Case("Go", {**js("sass"), "go.mod": "module x", "main.go": "package main"}, "go build -o app .", start="./app"),
    Case("Go", {"go.mod": "module x", "main.go": "package main", "Procfile": "web: x --port $PORT"},
         "go build -o bin/x .", start="bin/x --port $PORT"),
    Case("Go", {"go.mod": "module x", "main.go": "package main", "Procfile": "web: bin/x"},
         "go build -o bin/x .", start="bin/x"),
    Case("Go", {"go.mod": "module x", "main.go": "package main", "Procfile": "web: go run main.go"},
         "go build -o app .", start="./app"),
    Case("Go", {"go.mod": "module x", "main.go": "package main", "run.sh": "", "Procfile": "web: ./run.sh"},
         "go build -o app .", start="./run.sh"),
    Case("Go", {"go.mod": "module x", "cmd/api/main.go": "package main", "x.go": "package x"},
         "go build -o app ./cmd/api", start="./app"),
    Case("Go with several programs", {"go.mod": "", "cmd/a/a.go": "package main", "cmd/b/b.go": "package main"},
         refusal="./cmd/a, ./cmd/b"),
    Case("Go", {"go.mod": "module x", "cmd/a/a.go": "package main", "cmd/b/b.go": "package main",
                "Dockerfile": "RUN CGO_ENABLED=0 go build -o /bin/b ./cmd/b/"},
         "go build -o app ./cmd/b", start="./app"),
    Case("Go", {"go.mod": "module a.test/x/berths/v2", "cmd/tool/a.go": "package main",
                "cmd/berths/b.go": "package main"}, "go build -o app ./cmd/berths", start="./app"),
    Case("Go", {"go.mod": "module x", "cmd/seed/a.go": "package main", "cmd/berths/b.go":
                "package main\nfunc main() { http.ListenAndServe(a, nil) }"},
         "go build -o app ./cmd/berths", start="./app"),
    Case("Go", {"go.mod": "module x", "services/api/sales/main.go": "package main", "x.go": "package x"},
         "go build -o app ./services/api/sales", start="./app"),
    Case("Dockerfile", {"go.mod": "", "cmd/a/a.go": "package main", "cmd/b/b.go": "package main",
                        "Dockerfile": "FROM a"}),
    Case("Go file", {"main.go": "package main", "page.go": "package main"}, "GO111MODULE=off go build -o app .",
         start="./app"),
    Case("Go file", {"main.go": "package main\nfunc main() {\n}", "old.go": "package main\nfunc main() {\n}"},
         "GO111MODULE=off go build -o app main.go", start="./app"),
    Case("Go file", {"berths.go": 'package main\nimport (\n\t"code.test/a/berths/pages"\n)\nfunc main() {\n}',
                     "seed.go": "// +build ignore\n\npackage main\nfunc main() {\n}", "pages/a.go": "package pages"},
         "go mod init code.test/a/berths && go mod tidy && go build -o app .", start="./app"),
    Case("Go file", {"main.go": 'package main\nimport "code.test/a/berths/pages"', "pages/a.go": "package pages",
                     "vendor/code.test/b/b.go": "package b"},
         "export GO111MODULE=off GOPATH=$(mktemp -d) && mkdir -p $GOPATH/src/code.test/a && "
         "ln -s $PWD $GOPATH/src/code.test/a/berths && cd $GOPATH/src/code.test/a/berths && go build -o app .",
         start="./app"),
    # What else cannot be built.
    Case("PHP", {"composer.json": "{}"}, refusal="composer.json"),
    Case("Ruby", {"Gemfile": "gem 'sinatra'", "app.rb": "x"}, refusal="Gemfile"),
    Case("Rust", {"Cargo.toml": "x", "index.html": "x"}, refusal="Cargo.toml"),
    Case("Elixir", {"rebar.config": "x"}, refusal="rebar.config"),
    Case("Swift", {"Package.swift": "x"}, refusal="Package.swift"),
    Case("Dart", {"pubspec.yaml": "x"}, refusal="pubspec.yaml"),
    Case("Crystal", {"shard.yml": "x"}, refusal="shard.yml"),
    Case("C or C++", {"CMakeLists.txt": "x"}, refusal="CMakeLists.txt"),
    Case("Deno", {"deno.json": '{"tasks": {"start": "deno run -A main.ts", "build": "deno run -A build.ts"}}',
         "main.ts": "Deno.serve(() => new Response('ahoy'));"},
         f"{DENO} deno cache main.ts && {DENO} deno task build",
         start=f"{DENO} DENO_SERVE_ADDRESS=tcp:0.0.0.0:$PORT deno task start", server="deno"),
    Case("Deno", {"deno.jsonc": "{\n  // tasks come later\n}", "server.ts": "Deno.serve(() => new Response());"},
         f"{DENO} deno cache server.ts", start=f"{DENO} DENO_SERVE_ADDRESS=tcp:0.0.0.0:$PORT deno run -A server.ts",
         server="deno"),
    Case("Deno", {"main.ts": "import { serve } from 'https://deno.land/std@0.140.0/http/server.ts';\nserve(answer);"},
         f"{DENO} deno cache main.ts", start=f"{DENO} DENO_SERVE_ADDRESS=tcp:0.0.0.0:$PORT deno run -A main.ts",
         server="deno"),
    Case("Deno", {"deno.json": "{}", "main.ts": "export default { fetch: () => new Response('ahoy') };"},
         f"{DENO} deno cache main.ts", start=f"{DENO} deno serve -A --host 0.0.0.0 --port $PORT main.ts",
         server="deno"),
    Case("Deno", {"deno.json": '{"tasks": {"build": "deno compile --output=app main.ts", "start": "./app"}}',
         "main.ts": "Deno.serve(() => new Response('ahoy'));", "package.json":
         {"scripts": {"dev": "deno run --watch -A main.ts", "start": "./app"}}},
         f"{DENO} deno cache main.ts", start=f"{DENO} DENO_SERVE_ADDRESS=tcp:0.0.0.0:$PORT deno run -A main.ts",
         server="deno"),
    Case("functions in Node.js", {"project.yml": "packages:\n  - name: port\n", "packages/port/tides/tides.js": "x",
         "packages/port/tides/package.json": "{}", "packages/port/ships.js": "x", "packages/port/log/__main__.py": ""},
         "npm install --prefix packages/port/tides --include=dev --no-audit --no-fund && npm run build --if-present "
         "--prefix packages/port/tides", start="node -e"),
    Case("functions in Python", {"project.yml": "packages:\n  - name: port\n", "packages/port/tides/__main__.py": "x",
         "packages/port/tides/requirements.txt": "attrs"},
         start="python -c", server="-r packages/port/tides/requirements.txt"),
    Case("function", {"index.js": "function main(params) { return { body: params }; }\nexports.main = main;",
         "package.json": {"main": "index.js", "dependencies": {"mysql": "*"}}}, refusal="index.js has a function"),
    Case("function", {"__main__.py": "def main(args):\n    return {'body': 'ahoy'}", "requirements.txt": "attrs"},
         refusal="__main__.py has a function `main`"),
    Case("functions in another language", {"packages/port/tides/tides.go": "package main", "project.yml": "packages:"},
         refusal="packages/port/tides/tides.go is a function"),
    Case("functions for Vercel", {"package.json": {"devDependencies": {"typescript": "5"}}, "vercel.json": "{}",
         "api/hello.ts": "export default function handler(req, res) { res.json({}); }"}, refusal="api/hello.ts has a"),
    Case("functions for Vercel", {"api/index.py": "class handler(BaseHTTPRequestHandler):\n    pass"},
         refusal="api/index.py has a handler"),
    Case("Deno without a program", {"deno.json": "{}", "lib.ts": "x"}, refusal="no `start` task"),
    Case("R", {"app.R": "library(shiny)"}, refusal="app.R"),
    # Scripts and plain files.
    Case("Python", py(**{"main.py": ""}), start="python main.py"),
    Case("Python", {"check.py": "", "travis-test.py": "", "runtests.py": ""}, start="python check.py"),
    Case("Python", {"bot/__main__.py": "", "pyproject.toml": ""}, start="python -m bot"),
    Case("plain files", {"index.html": "x", "contact.php": "x"}, output=""),
    Case("plain files", {"public/index.html": "x", "README.md": "x"}, output="public"),
    Case("Express", {"package.json": {"dependencies": {"express": "4"}}, "server/server.js": "app.listen(1)"},
         start="node server/server.js"),
    Case("Node.js file", {"package.json": {"main": "index.js"}, "index.js": "x"}, start="node index.js"),
    Case("Dockerfile", {"Dockerfile": "FROM x"}),
    Case("Compose or Terraform", {"docker-compose.yml": "x", "k8s/app.yaml": "x"}, refusal="docker-compose.yml"),
    Case("Compose or Terraform", {"compose.yaml": "build: a\ncontext: ./b/", "a/Dockerfile": "x", "b/Dockerfile": "x"},
         refusal="compose.yaml names several containers"),
    Case("Compose or Terraform", {"compose.yaml": "image: db", "backend/pom.xml": "x"}, refusal="the folder backend"),
)  # fmt: skip
