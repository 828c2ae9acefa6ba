"""Projects that are set up for another host, themes, and servers with a bundler for their assets."""

from __future__ import annotations

from tests.e2e.starters.shapes import Starter, package

STARTERS = (
    Starter(
        "astro-vercel",
        "Astro for another host",
        {
            "package.json": package(
                type="module",
                scripts={"dev": "astro dev", "start": "astro dev", "build": "astro build"},
                dependencies={"astro": "5.1.7", "@astrojs/vercel": "8.0.4"},
            ),
            "astro.config.mjs": """
                import { defineConfig } from 'astro/config';
                import vercel from '@astrojs/vercel';

                export default defineConfig({
                  output: 'server',
                  adapter: vercel({ isr: { expiration: 60 }, webAnalytics: { enabled: true } }),
                });
            """,
            "src/pages/index.astro": """
                ---
                const host = Astro.request.headers.get('host');
                ---
                <html lang="en"><body><h1>Rendered for {host}</h1></body></html>
            """,
        },
        {"/": "Rendered for"},
    ),
    Starter(
        # Without @react-router/serve, which other hosts do not need.
        "react-router-without-server",
        "React Router",
        {
            "package.json": package(
                type="module",
                scripts={"build": "react-router build", "dev": "react-router dev"},
                dependencies={
                    "@react-router/node": "7.1.3",
                    "isbot": "5.1.17",
                    "react": "19.0.0",
                    "react-dom": "19.0.0",
                    "react-router": "7.1.3",
                },
                devDependencies={"@react-router/dev": "7.1.3", "vite": "5.4.14", "typescript": "5.7.3"},
            ),
            "vite.config.ts": """
                import { reactRouter } from '@react-router/dev/vite';
                import { defineConfig } from 'vite';

                export default defineConfig({ plugins: [reactRouter()] });
            """,
            "app/root.tsx": """
                import { Outlet, Scripts } from 'react-router';

                export default function App() {
                  return <html lang="en"><body><Outlet /><Scripts /></body></html>;
                }
            """,
            "app/routes.ts": """
                import { index, type RouteConfig } from '@react-router/dev/routes';

                export default [index('routes/home.tsx')] satisfies RouteConfig;
            """,
            "app/routes/home.tsx": """
                export default function Home() { return <h1>Served without a start script</h1>; }
            """,
        },
        {"/": "Served without a start script"},
    ),
    Starter(
        "umi",
        "Umi",
        {
            "package.json": package(
                scripts={"dev": "umi dev", "build": "umi build", "postinstall": "umi setup", "start": "npm run dev"},
                dependencies={"umi": "4.4.4"},
                devDependencies={"@types/react": "18.3.12", "@types/react-dom": "18.3.1", "typescript": "5.6.3"},
            ),
            ".umirc.ts": """
                import { defineConfig } from 'umi';

                export default defineConfig({ title: 'Harbor of Umi', routes: [{ path: '/', component: 'index' }] });
            """,
            "tsconfig.json": '{"extends": "./src/.umi/tsconfig.json"}\n',
            "src/pages/index.tsx": """
                export default function HomePage() { return <h1>Berths</h1>; }
            """,
        },
        {"/": "Harbor of Umi"},
        kind="static",
    ),
    Starter(
        "hugo-theme",
        "Hugo theme",
        {
            "theme.toml": 'name = "Quay"\nlicense = "MIT"\nmin_version = "0.124.0"\n',
            "go.mod": "module example.com/quay\n\ngo 1.21\n",
            "layouts/index.html": "<!doctype html><title>{{ .Site.Title }}</title>{{ .Content }}\n",
            "exampleSite/hugo.toml": 'baseURL = "https://example.org/"\ntitle = "Example of Quay"\ntheme = "quay"\n',
            "exampleSite/content/_index.md": "Shown by the theme.\n",
        },
        {"/": "Shown by the theme."},
        kind="static",
    ),
    Starter(
        "flask-with-vite",
        "Flask",
        {
            "requirements.txt": "flask==3.0.3\ngunicorn==23.0.0\n",
            "run.py": """
                from flask import Flask, render_template

                app = Flask(__name__)


                @app.get("/")
                def index():
                    return render_template("index.html")
            """,
            "templates/index.html": "<h1>Rendered by Flask</h1>\n",
            "static/assets/app.scss": "h1 { color: navy }\n",
            "package.json": package(
                scripts={"dev": "vite build --watch", "build": "vite build"},
                devDependencies={"vite": "6.0.7", "sass": "1.83.4"},
            ),
            "vite.config.js": """
                export default { build: { outDir: 'static', rollupOptions: { input: ['static/assets/app.scss'] } } };
            """,
        },
        {"/": "Rendered by Flask"},
    ),
    Starter(
        "hono-exported",
        "server as an export",
        {
            "package.json": package(type="module", dependencies={"hono": "^4.8.9"}),
            "src/index.ts": """
                import { Hono } from 'hono'
                import { title } from './pages'

                const app = new Hono()

                app.get('/', (context) => context.text(title as string))

                export default app
            """,
            "src/pages.ts": "export const title: string = 'Served by fetch'\n",
        },
        {"/": "Served by fetch"},
    ),
    Starter(
        "express-exported",
        "server as an export",
        {
            "package.json": package(dependencies={"express": "^4.21.2"}),
            "api/index.js": """
                const express = require('express')

                const app = express()

                app.get('/', (request, response) => response.send('Served by listen'))

                module.exports = app
            """,
        },
        {"/": "Served by listen"},
    ),
)
