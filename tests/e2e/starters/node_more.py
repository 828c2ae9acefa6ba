"""Rarer front ends and servers of Node.js."""

from __future__ import annotations

from tests.e2e.starters.shapes import Starter, package, page

REACT = {"react": "18.3.1", "react-dom": "18.3.1"}
ANGULAR = "19.2.25"

STARTERS = (
    Starter(
        "angular",
        "Angular",
        {
            "package.json": package(
                scripts={"ng": "ng", "start": "ng serve", "build": "ng build"},
                dependencies={
                    **{f"@angular/{each}": ANGULAR for each in ("common", "compiler", "core", "platform-browser")},
                    "rxjs": "7.8.1",
                    "tslib": "2.8.1",
                    "zone.js": "0.15.0",
                },
                devDependencies={
                    "@angular/build": "19.2.19",
                    "@angular/cli": "19.2.19",
                    "@angular/compiler-cli": ANGULAR,
                    "typescript": "5.7.3",
                },
            ),
            "angular.json": """
                {"version": 1, "newProjectRoot": "projects", "projects": {"harbor": {"projectType": "application",
                  "root": "", "sourceRoot": "src", "architect": {"build": {"builder": "@angular/build:application",
                  "options": {"outputPath": "dist/harbor", "index": "src/index.html", "browser": "src/main.ts",
                  "polyfills": ["zone.js"], "tsConfig": "tsconfig.json"}}}}}, "cli": {"analytics": false}}
            """,
            "tsconfig.json": """
                {"compileOnSave": false, "compilerOptions": {"strict": true, "experimentalDecorators": true,
                  "moduleResolution": "bundler", "target": "ES2022", "module": "ES2022", "skipLibCheck": true},
                  "files": ["src/main.ts"]}
            """,
            "src/index.html": page("Angular starter", head='<base href="/">', body="<app-root></app-root>"),
            "src/main.ts": """
                import { Component } from '@angular/core';
                import { bootstrapApplication } from '@angular/platform-browser';

                @Component({ selector: 'app-root', template: '<h1>Hello, harbor</h1>' })
                class App {}

                bootstrapApplication(App).catch((error) => console.error(error));
            """,
        },
        {"/": "<title>Angular starter</title>", "/boats/1": "<title>Angular starter</title>"},
        kind="static",
    ),
    Starter(
        "docusaurus",
        "Docusaurus",
        {
            "package.json": package(
                scripts={"start": "docusaurus start", "build": "docusaurus build", "serve": "docusaurus serve"},
                dependencies={
                    "@docusaurus/core": "3.9.2",
                    "@docusaurus/preset-classic": "3.9.2",
                    "react": "19.0.0",
                    "react-dom": "19.0.0",
                },
                # A mirror of npm may lack the newest release of one of two packages that fit only each other.
                overrides={"@docsearch/react": "4.6.3"},
            ),
            "docusaurus.config.js": """
                export default {
                  title: 'Dinosaurs at sea',
                  url: 'https://harbor.test',
                  baseUrl: '/',
                  presets: [['classic', { docs: { routeBasePath: '/' }, blog: false }]],
                };
            """,
            "docs/intro.md": "---\nslug: /\n---\n# Welcome to Docusaurus\n",
        },
        {"/": "Welcome to Docusaurus"},
        kind="static",
    ),
    Starter(
        "gatsby",
        "Gatsby",
        {
            "package.json": package(
                scripts={"develop": "gatsby develop", "start": "gatsby develop", "build": "gatsby build"},
                dependencies={"gatsby": "5.14.1", **REACT},
            ),
            "gatsby-config.js": "module.exports = { siteMetadata: { title: 'Gatsby' }, plugins: [] };\n",
            "src/pages/index.js": "import * as React from 'react';\nexport default () => <h1>Hello Gatsby</h1>;\n",
        },
        {"/": "Hello Gatsby"},
        kind="static",
    ),
    Starter(
        "vue-cli",
        "Vue CLI",
        {
            "package.json": package(
                scripts={"serve": "vue-cli-service serve", "build": "vue-cli-service build"},
                dependencies={"vue": "3.5.13"},
                devDependencies={"@vue/cli-service": "5.0.8"},
            ),
            "public/index.html": page("Vue CLI", body='<div id="app"></div>'),
            "src/main.js": """
                import { createApp } from 'vue'
                import App from './App.vue'
                createApp(App).mount('#app')
            """,
            "src/App.vue": "<template><h1>Vue CLI</h1></template>\n",
        },
        {"/": "<title>Vue CLI</title>"},
        kind="static",
    ),
    Starter(
        "rsbuild",
        "Rsbuild",
        {
            "package.json": package(
                type="module",
                scripts={"dev": "rsbuild dev", "build": "rsbuild build"},
                devDependencies={"@rsbuild/core": "1.1.14"},
            ),
            "rsbuild.config.mjs": """
                import { defineConfig } from '@rsbuild/core';
                export default defineConfig({ html: { title: 'Rsbuild' } });
            """,
            "src/index.js": "document.querySelector('#root').textContent = 'Rsbuild';\n",
        },
        {"/": "<title>Rsbuild</title>"},
        kind="static",
    ),
    Starter(
        "react-router-single-page",
        "React Router (single page)",
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
            "react-router.config.js": "export default { ssr: false };\n",
            "vite.config.js": """
                import { reactRouter } from '@react-router/dev/vite';
                import { defineConfig } from 'vite';
                export default defineConfig({ plugins: [reactRouter()] });
            """,
            "app/routes.js": """
                import { index } from '@react-router/dev/routes';
                export default [index('routes/home.jsx')];
            """,
            "app/root.jsx": """
                import { Outlet, Scripts } from 'react-router';
                export default function App() {
                  return <html><head><title>Single page</title></head><body><Outlet /><Scripts /></body></html>;
                }
            """,
            "app/routes/home.jsx": "export default function Home() { return <h1>Home</h1>; }\n",
        },
        {"/": "/assets/entry.client-", "/somewhere": "/assets/entry.client-"},
        kind="static",
    ),
    Starter(
        "solid-start",
        "SolidStart",
        {
            "package.json": package(
                type="module",
                scripts={"dev": "vinxi dev", "build": "vinxi build", "start": "vinxi start"},
                dependencies={"@solidjs/start": "^1.1.0", "solid-js": "^1.9.5", "vinxi": "^0.5.7"},
            ),
            "app.config.js": """
                import { defineConfig } from '@solidjs/start/config';
                export default defineConfig({});
            """,
            "src/app.jsx": "export default function App() { return <h1>Hello SolidStart</h1>; }\n",
            "src/entry-client.jsx": """
                // @refresh reload
                import { mount, StartClient } from '@solidjs/start/client';
                mount(() => <StartClient />, document.getElementById('app'));
            """,
            "src/entry-server.jsx": """
                // @refresh reload
                import { createHandler, StartServer } from '@solidjs/start/server';
                export default createHandler(() => (
                  <StartServer
                    document={({ assets, children, scripts }) => (
                      <html lang="en">
                        <head>{assets}</head>
                        <body><div id="app">{children}</div>{scripts}</body>
                      </html>
                    )}
                  />
                ));
            """,
        },
        {"/": "Hello SolidStart"},
    ),
    Starter(
        "polka",
        "Polka",
        {
            "package.json": package(scripts={"start": "node index.js"}, dependencies={"polka": "0.5.2"}),
            "index.js": """
                const polka = require('polka');
                polka().get('/', (req, res) => res.end('Hello Polka')).listen(3000);
            """,
        },
        {"/": "Hello Polka"},
    ),
    Starter(
        "restify",
        "Restify",
        {
            # Its newest release does not start on the newest Node.js, so its guide asks for another.
            ".node-version": "20\n",
            "package.json": package(scripts={"start": "node server.js"}, dependencies={"restify": "11.1.0"}),
            "server.js": """
                const restify = require('restify');
                const server = restify.createServer();
                server.get('/hello/:name', (req, res, next) => { res.send('hello ' + req.params.name); next(); });
                server.listen(8080, () => console.log('%s listening at %s', server.name, server.url));
            """,
        },
        {"/": 404, "/hello/ada": '"hello ada"'},
    ),
    Starter(
        "ws",
        "ws",
        {
            "package.json": package(scripts={"start": "node server.js"}, dependencies={"ws": "8.18.0"}),
            "server.js": """
                const { createServer } = require('http');
                const { WebSocketServer } = require('ws');
                const server = createServer((req, res) => res.end('open a socket'));
                new WebSocketServer({ server }).on('connection', (socket) => socket.send('ahoy'));
                server.listen(process.env.PORT || 8080);
            """,
        },
        {"/": "open a socket"},
    ),
    Starter(
        "feathers",
        "Feathers",
        {
            "package.json": package(
                type="module",
                scripts={"start": "node app.js"},
                dependencies={"@feathersjs/feathers": "5.0.33", "@feathersjs/koa": "5.0.33"},
            ),
            "app.js": """
                import { feathers } from '@feathersjs/feathers';
                import { koa, rest, bodyParser, errorHandler } from '@feathersjs/koa';
                const app = koa(feathers());
                app.use(errorHandler());
                app.use(bodyParser());
                app.configure(rest());
                app.use('messages', { async find() { return [{ id: 0, text: 'ahoy' }]; } });
                app.listen(3030);
            """,
        },
        {"/messages": '"text":"ahoy"', "/": 404},
    ),
    Starter(
        "socket-io-alone",
        "Socket.IO",
        {
            "package.json": package(scripts={"start": "node server.js"}, dependencies={"socket.io": "4.8.1"}),
            "server.js": """
                const { Server } = require('socket.io');
                const io = new Server(3000, { cors: { origin: '*' } });
                io.on('connection', (socket) => socket.emit('ahoy'));
            """,
        },
        {"/socket.io/?EIO=4&transport=polling": '"sid"', "/": 404},
    ),
    Starter(
        # A build of its own, without a framework.
        "node-build-script",
        "Node.js site",
        {
            "package.json": package(scripts={"build": "node build.mjs"}, devDependencies={"marked": "15.0.6"}),
            "build.mjs": """
                import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
                import { marked } from 'marked';
                mkdirSync('dist', { recursive: true });
                writeFileSync('dist/index.html', marked.parse(readFileSync('page.md', 'utf8')));
            """,
            "page.md": "# Made by a script\n",
        },
        {"/": "Made by a script"},
        kind="static",
    ),
)
