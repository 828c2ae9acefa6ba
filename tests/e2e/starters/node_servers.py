"""Servers in JavaScript and TypeScript, as their guides write them."""

from __future__ import annotations

from tests.e2e.starters.shapes import Starter, package

EXPRESS = {"express": "4.21.2"}
SERVER = """
    const express = require('express');
    const app = express();
    const port = process.env.PORT || 3000;

    app.get('/', (req, res) => res.send('Hello from Express'));
    app.listen(port, () => console.log(`Example app listening on port ${port}`));
"""

STARTERS = (
    Starter(
        "express-start-script",
        "Express",
        {
            "package.json": package(scripts={"start": "node index.js"}, dependencies=EXPRESS),
            "index.js": SERVER,
            "README.md": "# Express\n",
        },
        {"/": "Hello from Express", "/nowhere": 404},
        lock="package-lock.json",
    ),
    Starter(
        # No script and a fixed port, as the first page of Express' documentation has it.
        "express-fixed-port",
        "Express",
        {
            "package.json": package(main="app.js", dependencies=EXPRESS),
            "app.js": """
                const express = require('express')
                const app = express()
                const port = 3000

                app.get('/', (req, res) => {
                  res.send('Hello World!')
                })

                app.listen(port, () => {
                  console.log(`Example app listening on port ${port}`)
                })
            """,
        },
        {"/": "Hello World!"},
    ),
    Starter(
        "express-localhost-only",
        "Express",
        {
            "package.json": package(scripts={"start": "node server.js"}, dependencies=EXPRESS),
            "server.js": """
                const app = require('express')();
                app.get('/', (req, res) => res.send('on loopback'));
                app.listen(process.env.PORT || 8000, '127.0.0.1');
            """,
        },
        {"/": "on loopback"},
    ),
    Starter(
        # The lock file is older than package.json.
        "express-stale-lock",
        "Express",
        {
            "package.json": package(scripts={"start": "node index.js"}, dependencies=EXPRESS),
            "package-lock.json": """
                {"name": "harbor", "version": "1.0.0", "lockfileVersion": 3, "requires": true,
                  "packages": {"": {"name": "harbor", "version": "1.0.0", "dependencies": {"koa": "2.15.3"}}}}
            """,
            "index.js": SERVER,
        },
        {"/": "Hello from Express"},
    ),
    Starter(
        # npm has no such version: the log says so, and the platform's is used.
        "express-node-version-that-does-not-exist",
        "Express",
        {
            ".nvmrc": "99\n",
            "package.json": package(scripts={"start": "node index.js"}, dependencies=EXPRESS),
            "index.js": SERVER,
        },
        {"/": "Hello from Express"},
    ),
    Starter(
        # react-dom 17 has react 17 as its peer.
        "express-conflicting-peers",
        "Express",
        {
            "package.json": package(
                scripts={"start": "node index.js"}, dependencies={**EXPRESS, "react": "18.3.1", "react-dom": "17.0.2"}
            ),
            "index.js": SERVER,
        },
        {"/": "Hello from Express"},
    ),
    Starter(
        # Express' generator: bin/www, views, public/.
        "express-generator",
        "Express",
        {
            "package.json": package(
                scripts={"start": "node ./bin/www"},
                dependencies={**EXPRESS, "ejs": "3.1.10", "morgan": "1.10.0", "cookie-parser": "1.4.7"},
            ),
            "bin/www": """
                #!/usr/bin/env node
                const http = require('http');
                const app = require('../app');
                const port = parseInt(process.env.PORT || '3000', 10);
                app.set('port', port);
                const server = http.createServer(app);
                server.listen(port);
                server.on('listening', () => console.log('Listening on port ' + server.address().port));
            """,
            "app.js": """
                const path = require('path');
                const express = require('express');
                const logger = require('morgan');
                const app = express();
                app.set('views', path.join(__dirname, 'views'));
                app.set('view engine', 'ejs');
                app.use(logger('dev'));
                app.use(require('cookie-parser')());
                app.use(express.static(path.join(__dirname, 'public')));
                app.use('/', require('./routes/index'));
                module.exports = app;
            """,
            "routes/index.js": """
                const router = require('express').Router();
                router.get('/', (req, res) => res.render('index', { title: 'Quay' }));
                module.exports = router;
            """,
            "views/index.ejs": "<!doctype html><h1><%= title %></h1><p>Welcome to <%= title %></p>\n",
            "public/stylesheets/style.css": "body { font-family: sans-serif }\n",
        },
        {"/": "Welcome to Quay", "/stylesheets/style.css": "sans-serif"},
        lock="package-lock.json",
    ),
    Starter(
        "express-typescript",
        "Express",
        {
            "package.json": package(
                main="dist/index.js",
                scripts={"build": "tsc", "start": "node dist/index.js", "dev": "tsx watch src/index.ts"},
                dependencies=EXPRESS,
                devDependencies={
                    "typescript": "5.7.3",
                    "tsx": "4.19.2",
                    "@types/express": "4.17.21",
                    "@types/node": "22.10.7",
                },
            ),
            "tsconfig.json": """
                {"compilerOptions": {"target": "ES2022", "module": "CommonJS", "rootDir": "src", "outDir": "dist",
                  "strict": true, "esModuleInterop": true, "skipLibCheck": true}}
            """,
            "src/index.ts": """
                import express, { Request, Response } from 'express';

                const app = express();
                const port: number = Number(process.env.PORT ?? 3000);

                app.get('/', (_req: Request, res: Response) => { res.json({ message: 'typed' }); });
                app.listen(port, () => console.log(`server on ${port}`));
            """,
        },
        {"/": '{"message":"typed"}'},
    ),
    Starter(
        # Only a `dev` script with a watcher, and TypeScript that nothing compiles.
        "express-typescript-without-build",
        "Express",
        {
            "package.json": package(
                scripts={"start": "ts-node src/server.ts", "dev": "nodemon src/server.ts"},
                dependencies={**EXPRESS, "ts-node": "10.9.2", "typescript": "5.7.3"},
                devDependencies={"@types/express": "4.17.21", "@types/node": "22.10.7", "nodemon": "3.1.9"},
            ),
            "tsconfig.json": '{"compilerOptions": {"module": "CommonJS", "esModuleInterop": true}}\n',
            "src/server.ts": """
                import express from 'express';
                const app = express();
                app.get('/', (_req, res) => { res.send('ts-node answers'); });
                app.listen(process.env.PORT || 3000);
            """,
        },
        {"/": "ts-node answers"},
    ),
    Starter(
        "express-api-without-root",
        "Express",
        {
            "package.json": package(scripts={"start": "node server.js"}, dependencies={**EXPRESS, "cors": "2.8.5"}),
            "server.js": """
                const express = require('express');
                const app = express();
                app.use(require('cors')());
                app.use(express.json());
                const todos = [{ id: 1, title: 'moor', done: false }];
                app.get('/api/todos', (req, res) => res.json(todos));
                app.post('/api/todos', (req, res) => { todos.push(req.body); res.status(201).json(req.body); });
                app.listen(process.env.PORT || 4000);
            """,
        },
        {"/": 404, "/api/todos": '"title":"moor"'},
    ),
    Starter(
        "api-with-basic-authentication",
        "Node.js",
        {
            "package.json": package(scripts={"start": "node index.mjs"}),
            "index.mjs": """
                import { createServer } from 'node:http';
                createServer((request, response) => {
                  if (!request.headers.authorization) {
                    response.writeHead(401, { 'WWW-Authenticate': 'Basic realm="harbor"' }).end('sign in');
                    return;
                  }
                  response.end('welcome');
                }).listen(process.env.PORT ?? 3000);
            """,
        },
        {"/": 401},
    ),
    Starter(
        "fastify",
        "Fastify",
        {
            "package.json": package(
                type="module", scripts={"start": "node server.js"}, dependencies={"fastify": "5.2.1"}
            ),
            "server.js": """
                import Fastify from 'fastify'
                const fastify = Fastify({ logger: true })

                fastify.get('/', async () => ({ hello: 'world' }))

                try {
                  await fastify.listen({ port: 3000 })
                } catch (err) {
                  fastify.log.error(err)
                  process.exit(1)
                }
            """,
        },
        {"/": '{"hello":"world"}'},
    ),
    Starter(
        "fastify-cli",
        "Fastify",
        {
            "package.json": package(
                scripts={"start": "fastify start -l info app.js", "dev": "fastify start -w -l info -P app.js"},
                dependencies={"fastify": "5.2.1", "fastify-cli": "7.3.0", "@fastify/autoload": "6.0.3"},
            ),
            "app.js": """
                const path = require('node:path')
                const AutoLoad = require('@fastify/autoload')
                module.exports = async function (fastify, opts) {
                  fastify.register(AutoLoad, { dir: path.join(__dirname, 'routes'), options: { ...opts } })
                }
                module.exports.options = {}
            """,
            "routes/root.js": """
                module.exports = async function (fastify) {
                  fastify.get('/', async () => ({ root: true }))
                }
            """,
        },
        {"/": '{"root":true}'},
    ),
    Starter(
        "koa",
        "Koa",
        {
            "package.json": package(main="index.js", dependencies={"koa": "2.15.3", "@koa/router": "13.1.0"}),
            "index.js": """
                const Koa = require('koa');
                const Router = require('@koa/router');
                const app = new Koa();
                const router = new Router();
                router.get('/', (ctx) => { ctx.body = 'Hello Koa'; });
                router.get('/boats/:name', (ctx) => { ctx.body = { name: ctx.params.name }; });
                app.use(router.routes()).use(router.allowedMethods());
                app.listen(3000);
            """,
        },
        {"/": "Hello Koa", "/boats/ada": '{"name":"ada"}'},
    ),
    Starter(
        "hapi",
        "Hapi",
        {
            "package.json": package(scripts={"start": "node server.js"}, dependencies={"@hapi/hapi": "21.3.12"}),
            "server.js": """
                'use strict';
                const Hapi = require('@hapi/hapi');

                const init = async () => {
                    const server = Hapi.server({ port: 3000, host: 'localhost' });
                    server.route({ method: 'GET', path: '/', handler: (request, h) => 'Hello Hapi' });
                    await server.start();
                    console.log('Server running on %s', server.info.uri);
                };
                process.on('unhandledRejection', (err) => { console.log(err); process.exit(1); });
                init();
            """,
        },
        {"/": "Hello Hapi"},
    ),
    Starter(
        "hono",
        "Hono",
        {
            "package.json": package(
                type="module",
                scripts={"dev": "tsx watch src/index.ts", "build": "tsc", "start": "node dist/index.js"},
                dependencies={"hono": "4.6.17", "@hono/node-server": "1.13.7"},
                devDependencies={"@types/node": "20.17.14", "tsx": "4.19.2", "typescript": "5.7.3"},
            ),
            "tsconfig.json": """
                {"compilerOptions": {"target": "ESNext", "module": "NodeNext", "strict": true, "skipLibCheck": true,
                  "types": ["node"], "outDir": "./dist"}, "include": ["src"]}
            """,
            "src/index.ts": """
                import { serve } from '@hono/node-server'
                import { Hono } from 'hono'

                const app = new Hono()
                app.get('/', (c) => c.text('Hello Hono!'))

                serve({ fetch: app.fetch, port: 3000 }, (info) => {
                  console.log(`Server is running on http://localhost:${info.port}`)
                })
            """,
        },
        {"/": "Hello Hono!"},
    ),
    Starter(
        # `npm init` and two files: nothing but `main` says how to start it, and the server is in the other file.
        "node-main-file",
        "Node.js file",
        {
            "package.json": package(
                main="index.js", scripts={"test": 'echo "Error: no test specified" && exit 1'}, license="ISC"
            ),
            "index.js": """
                const harbor = require('./lib/harbor');

                harbor.open(process.env.PORT || 3000);
            """,
            "lib/harbor.js": """
                const http = require('http');

                const server = http.createServer((request, response) => response.end('The harbor is open'));

                exports.open = (port) => server.listen(port);
            """,
        },
        {"/": "The harbor is open"},
    ),
)
