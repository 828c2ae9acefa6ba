"""Other Node.js repositories: sockets, GraphQL, files written beside the code, versions and package managers."""

from __future__ import annotations

from tests.e2e.starters.shapes import Starter, package, page

STARTERS = (
    Starter(
        "socket-io-chat",
        "Express",
        {
            "package.json": package(
                scripts={"start": "node index.js"}, dependencies={"express": "4.21.2", "socket.io": "4.8.1"}
            ),
            "index.js": """
                const express = require('express');
                const app = express();
                const http = require('http').Server(app);
                const io = require('socket.io')(http);
                const port = process.env.PORT || 3000;
                app.get('/', (req, res) => res.sendFile(__dirname + '/index.html'));
                io.on('connection', (socket) => socket.on('chat message', (msg) => io.emit('chat message', msg)));
                http.listen(port, () => console.log(`Socket.IO server running at port ${port}`));
            """,
            "index.html": page("Chat", body='<ul id="messages"></ul><script src="/socket.io/socket.io.js"></script>'),
        },
        {"/": "<title>Chat</title>", "/socket.io/?EIO=4&transport=polling": '"sid"'},
    ),
    Starter(
        "apollo-graphql",
        "Apollo Server",
        {
            "package.json": package(
                type="module",
                scripts={"start": "node index.js"},
                dependencies={"@apollo/server": "4.11.3", "graphql": "16.10.0"},
            ),
            "index.js": """
                import { ApolloServer } from '@apollo/server';
                import { startStandaloneServer } from '@apollo/server/standalone';
                const typeDefs = `#graphql
                  type Book { title: String }
                  type Query { books: [Book] }
                `;
                const resolvers = { Query: { books: () => [{ title: 'Moby-Dick' }] } };
                const server = new ApolloServer({ typeDefs, resolvers, csrfPrevention: false });
                const { url } = await startStandaloneServer(server, { listen: { port: 4000 } });
                console.log(`Server ready at: ${url}`);
            """,
        },
        {"/?query=%7Bbooks%7Btitle%7D%7D": "Moby-Dick"},
    ),
    Starter(
        "json-server",
        "JSON Server",
        {
            "package.json": package(
                scripts={"start": "json-server --watch db.json --port 3000"}, dependencies={"json-server": "0.17.4"}
            ),
            "db.json": '{"posts": [{"id": 1, "title": "json-server"}]}\n',
        },
        {"/posts/1": '"title": "json-server"'},
    ),
    Starter(
        "file-beside-the-code",
        "Node.js",
        {
            "package.json": package(main="server.js", scripts={"start": "node server.js"}),
            "server.js": """
                const fs = require('fs');
                const path = require('path');
                const file = path.join(__dirname, 'data', 'visits.json');
                fs.mkdirSync(path.dirname(file), { recursive: true });
                fs.writeFileSync(file, '[]');
                require('http').createServer((req, res) => {
                  const visits = [...JSON.parse(fs.readFileSync(file)), req.url];
                  fs.writeFileSync(file, JSON.stringify(visits));
                  res.end(`${visits.length > 0} visited`);
                }).listen(process.env.PORT || 3000);
            """,
        },
        {"/": "true visited"},
    ),
    Starter(
        # A native module that is compiled or fetched by its install script, and a database beside the code.
        "sqlite-beside-the-code",
        "Express",
        {
            "package.json": package(
                scripts={"start": "node index.js"}, dependencies={"express": "4.21.2", "better-sqlite3": "12.4.1"}
            ),
            "index.js": """
                const Database = require('better-sqlite3');
                const app = require('express')();
                const db = new Database('app.db');
                db.exec('CREATE TABLE IF NOT EXISTS boats (name TEXT)');
                db.prepare('INSERT INTO boats VALUES (?)').run('Ada');
                app.get('/', (req, res) => res.json(db.prepare('SELECT name FROM boats LIMIT 1').all()));
                app.listen(process.env.PORT || 3000);
            """,
        },
        {"/": '[{"name":"Ada"}]'},
    ),
    Starter(
        "bun-lock",
        "Hono",
        {
            "package.json": package(
                scripts={"start": "bun run src/index.ts", "build": "bun run clean", "clean": "rm -rf dist"},
                dependencies={"hono": "^4.6.0"},
            ),
            "src/index.ts": """
                import { Hono } from 'hono';
                const app = new Hono();
                app.get('/', (context) => context.text(`bun ${Bun.version.split('.')[0]}`));
                export default { port: process.env.PORT || 3000, fetch: app.fetch };
            """,
        },
        {"/": "bun 1"},
        lock="bun.lock",
    ),
    Starter(
        # The base folder has the scripts of a tutorial, and the server is a package of its own.
        "server-in-a-folder",
        "Node.js",
        {
            "package.json": package(scripts={"start": "cd server && npm start", "dev": "cd server && npm run dev"}),
            "server/package.json": package(scripts={"start": "nodemon index.js"}, dependencies={"polka": "0.5.2"}),
            "server/index.js": """
                const polka = require('polka');
                polka().get('/', (req, res) => res.end('server in a folder')).listen(process.env.PORT || 3000);
            """,
        },
        {"/": "server in a folder"},
    ),
    Starter(
        "nvmrc-18",
        "Node.js",
        {
            ".nvmrc": "18\n",
            "package.json": package(scripts={"start": "node index.js"}),
            "index.js": """
                const http = require('http');
                http.createServer((req, res) => res.end('node ' + process.version)).listen(process.env.PORT || 3000);
            """,
        },
        {"/": "node v18."},
    ),
    Starter(
        "engines-20",
        "Node.js",
        {
            "package.json": package(scripts={"start": "node index.js"}, engines={"node": "20.x"}),
            "index.js": """
                const http = require('http');
                http.createServer((req, res) => res.end('node ' + process.version)).listen(process.env.PORT || 3000);
            """,
        },
        {"/": "node v20."},
    ),
    Starter(
        "pnpm",
        "Fastify",
        {
            "package.json": package(
                packageManager="pnpm@9.15.4",
                scripts={"start": "node server.mjs"},
                dependencies={"fastify": "5.2.1"},
            ),
            "server.mjs": """
                import Fastify from 'fastify';
                const app = Fastify();
                app.get('/', async () => 'installed by pnpm');
                app.listen({ port: Number(process.env.PORT ?? 3000), host: '0.0.0.0' });
            """,
        },
        {"/": "installed by pnpm"},
        lock="pnpm-lock.yaml",
    ),
    Starter(
        "yarn-classic",
        "Express",
        {
            "package.json": package(scripts={"start": "node index.js"}, dependencies={"express": "4.21.2"}),
            "index.js": """
                const app = require('express')();
                app.get('/', (req, res) => res.send('installed by Yarn'));
                app.listen(process.env.PORT || 3000);
            """,
        },
        {"/": "installed by Yarn"},
        lock="yarn.lock",
    ),
    Starter(
        "http-without-package-json",
        "Node.js server file",
        {
            "server.js": """
                const http = require('http');
                const hostname = '127.0.0.1';
                const port = 3000;
                const server = http.createServer((req, res) => {
                  res.statusCode = 200;
                  res.setHeader('Content-Type', 'text/plain');
                  res.end('Hello, World!');
                });
                server.listen(port, hostname, () => console.log(`Server running at http://${hostname}:${port}/`));
            """,
        },
        {"/": "Hello, World!"},
    ),
    Starter(
        # A client in a folder of its own that the server's build makes, and that the server hands out.
        "express-and-client-folder",
        "Express",
        {
            "package.json": package(
                scripts={
                    "start": "node server/index.js",
                    "build": "npm install --prefix client && npm run build --prefix client",
                },
                dependencies={"express": "4.21.2"},
            ),
            "server/index.js": """
                const path = require('path');
                const express = require('express');
                const app = express();
                app.use(express.static(path.join(__dirname, '../client/dist')));
                app.get('/api', (req, res) => res.json({ message: 'from the server' }));
                app.get('*', (req, res) => res.sendFile(path.join(__dirname, '../client/dist/index.html')));
                app.listen(process.env.PORT || 3001);
            """,
            "client/package.json": package(
                "client", type="module", scripts={"build": "vite build"}, devDependencies={"vite": "6.0.11"}
            ),
            "client/index.html": page("Client", body='<script type="module" src="/main.js"></script>'),
            "client/main.js": "document.title = 'Client';\n",
        },
        {"/": "<title>Client</title>", "/api": "from the server"},
    ),
)
