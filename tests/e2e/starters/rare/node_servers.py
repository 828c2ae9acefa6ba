"""Back ends of Node.js that fewer people use, as their own starters create them. None has a `.env`: it is ignored."""

from __future__ import annotations

from tests.e2e.starters.shapes import Starter, package

STRAPI = "5.54.0"

STARTERS = (
    Starter(
        # The slim starter: variables are validated at the start, and only .env.example has their values.
        "adonis",
        "AdonisJS",
        {
            "package.json": package(
                type="module",
                license="UNLICENSED",
                scripts={
                    "start": "node bin/server.js",
                    "build": "node ace build",
                    "dev": "node ace serve --hmr",
                    "test": "node ace test",
                },
                imports={"#exceptions/*": "./app/exceptions/*.js", "#start/*": "./start/*.js"},
                dependencies={"@adonisjs/core": "6.21.0", "reflect-metadata": "0.2.2"},
                devDependencies={
                    "@adonisjs/assembler": "7.8.2",
                    "@adonisjs/tsconfig": "1.4.1",
                    "@swc/core": "1.11.24",
                    "@types/node": "22.15.18",
                    "pino-pretty": "13.0.0",
                    "ts-node-maintained": "10.9.6",
                    "typescript": "5.8.3",
                },
            ),
            ".env.example": """
                TZ=UTC
                PORT=3333
                HOST=localhost
                LOG_LEVEL=info
                APP_KEY=
                NODE_ENV=development
            """,
            ".gitignore": "node_modules\nbuild\ntmp\n.env\n",
            "tsconfig.json": """
                {"extends": "@adonisjs/tsconfig/tsconfig.app.json",
                  "compilerOptions": {"rootDir": "./", "outDir": "./build"}}
            """,
            "ace.js": """
                import 'ts-node-maintained/register/esm'

                await import('./bin/console.js')
            """,
            "adonisrc.ts": """
                import { defineConfig } from '@adonisjs/core/app'

                export default defineConfig({
                  commands: [() => import('@adonisjs/core/commands')],
                  providers: [() => import('@adonisjs/core/providers/app_provider')],
                  preloads: [() => import('#start/routes'), () => import('#start/kernel')],
                })
            """,
            "bin/console.ts": """
                import 'reflect-metadata'
                import { Ignitor, prettyPrintError } from '@adonisjs/core'

                const root = new URL('../', import.meta.url)
                const importer = (path: string) => import(path.startsWith('.') ? new URL(path, root).href : path)

                new Ignitor(root, { importer })
                  .tap((app) => app.booting(async () => { await import('#start/env') }))
                  .ace()
                  .handle(process.argv.splice(2))
                  .catch((error) => {
                    process.exitCode = 1
                    prettyPrintError(error)
                  })
            """,
            "bin/server.ts": """
                import 'reflect-metadata'
                import { Ignitor, prettyPrintError } from '@adonisjs/core'

                const root = new URL('../', import.meta.url)
                const importer = (path: string) => import(path.startsWith('.') ? new URL(path, root).href : path)

                new Ignitor(root, { importer })
                  .tap((app) => {
                    app.booting(async () => { await import('#start/env') })
                    app.listen('SIGTERM', () => app.terminate())
                  })
                  .httpServer()
                  .start()
                  .catch((error) => {
                    process.exitCode = 1
                    prettyPrintError(error)
                  })
            """,
            "start/env.ts": """
                import { Env } from '@adonisjs/core/env'

                export default await Env.create(new URL('../', import.meta.url), {
                  NODE_ENV: Env.schema.enum(['development', 'production', 'test'] as const),
                  PORT: Env.schema.number(),
                  APP_KEY: Env.schema.string(),
                  HOST: Env.schema.string({ format: 'host' }),
                  LOG_LEVEL: Env.schema.string(),
                })
            """,
            "start/kernel.ts": """
                import router from '@adonisjs/core/services/router'
                import server from '@adonisjs/core/services/server'

                server.errorHandler(() => import('#exceptions/handler'))
                router.use([() => import('@adonisjs/core/bodyparser_middleware')])
            """,
            "start/routes.ts": """
                import router from '@adonisjs/core/services/router'

                router.get('/', async () => ({ hello: 'harbor' }))
                router.get('/sign', async ({ response }) => {
                  response.cookie('berth', '7')
                  return 'signed'
                })
            """,
            "app/exceptions/handler.ts": """
                import { ExceptionHandler } from '@adonisjs/core/http'
                import app from '@adonisjs/core/services/app'

                export default class HttpExceptionHandler extends ExceptionHandler {
                  protected debug = !app.inProduction
                }
            """,
            "config/app.ts": """
                import env from '#start/env'
                import { Secret } from '@adonisjs/core/helpers'
                import { defineConfig } from '@adonisjs/core/http'

                export const appKey = new Secret(env.get('APP_KEY'))
                export const http = defineConfig({ generateRequestId: true, cookie: { httpOnly: true, secure: true } })
            """,
            "config/bodyparser.ts": """
                import { defineConfig } from '@adonisjs/core/bodyparser'

                export default defineConfig({ allowedMethods: ['POST', 'PUT', 'PATCH', 'DELETE'] })
            """,
            "config/logger.ts": """
                import env from '#start/env'
                import { defineConfig } from '@adonisjs/core/logger'

                export default defineConfig({
                  default: 'app',
                  loggers: { app: { enabled: true, name: 'harbor', level: env.get('LOG_LEVEL') } },
                })
            """,
        },
        {"/": '{"hello":"harbor"}', "/sign": "signed", "/nothing": 404},
    ),
    Starter(
        # `lb4 app`: `prestart` compiles again.
        "loopback",
        "LoopBack",
        {
            "package.json": package(
                main="dist/index.js",
                types="dist/index.d.ts",
                engines={"node": "20 || 22 || 24"},
                scripts={
                    "build": "lb-tsc",
                    "build:watch": "lb-tsc --watch",
                    "rebuild": "npm run clean && npm run build",
                    "clean": "lb-clean dist *.tsbuildinfo .eslintcache",
                    "prestart": "npm run rebuild",
                    "start": "node -r source-map-support/register .",
                },
                dependencies={
                    "@loopback/boot": "8.0.16",
                    "@loopback/core": "7.0.15",
                    "@loopback/rest": "15.0.16",
                    "tslib": "2.8.1",
                },
                devDependencies={
                    "@loopback/build": "12.0.15",
                    "@types/node": "20.19.0",
                    "source-map-support": "0.5.21",
                    "typescript": "5.2.2",
                },
            ),
            "tsconfig.json": """
                {"extends": "@loopback/build/config/tsconfig.common.json",
                  "compilerOptions": {"outDir": "dist", "rootDir": "src"}, "include": ["src"]}
            """,
            "src/index.ts": """
                import {ApplicationConfig, HarborApplication} from './application';

                export * from './application';

                export async function main(options: ApplicationConfig = {}) {
                  const app = new HarborApplication(options);
                  await app.boot();
                  await app.start();
                  console.log(`Server is running at ${app.restServer.url}`);
                  return app;
                }

                if (require.main === module) {
                  const rest = {
                    port: +(process.env.PORT ?? 3000),
                    host: process.env.HOST,
                    gracePeriodForClose: 5000,
                    openApiSpec: {setServersFromRequest: true},
                  };
                  main({rest}).catch(error => {
                    console.error('Cannot start the application.', error);
                    process.exit(1);
                  });
                }
            """,
            "src/application.ts": """
                import {BootMixin} from '@loopback/boot';
                import {ApplicationConfig} from '@loopback/core';
                import {RestApplication} from '@loopback/rest';

                export {ApplicationConfig};

                export class HarborApplication extends BootMixin(RestApplication) {
                  constructor(options: ApplicationConfig = {}) {
                    super(options);
                    this.projectRoot = __dirname;
                    this.bootOptions = {
                      controllers: {dirs: ['controllers'], extensions: ['.controller.js'], nested: true},
                    };
                  }
                }
            """,
            "src/controllers/ping.controller.ts": """
                import {get} from '@loopback/rest';

                export class PingController {
                  @get('/ping')
                  ping(): object {
                    return {greeting: 'Hello from LoopBack'};
                  }
                }
            """,
        },
        {"/ping": "Hello from LoopBack", "/openapi.json": "PingController"},
    ),
    Starter(
        # `sails new --without=grunt`, with the origins of sockets, without which Sails does not start in production.
        "sails",
        "Sails",
        {
            "package.json": package(
                main="app.js",
                scripts={"start": "NODE_ENV=production node app.js", "test": "npm run lint", "lint": "eslint ."},
                dependencies={
                    "@sailshq/lodash": "^3.10.6",
                    "sails": "1.5.18",
                    "sails-hook-orm": "4.0.3",
                    "sails-hook-sockets": "3.0.2",
                },
                engines={"node": ">=18"},
            ),
            ".sailsrc": '{"generators": {"modules": {}}, "hooks": {"grunt": false}}\n',
            "app.js": """
                process.chdir(__dirname);

                const sails = require('sails');
                const rc = require('sails/accessible/rc');

                sails.lift(rc('sails'));
            """,
            "api/controllers/view-homepage.js": """
                module.exports = {
                  friendlyName: 'View homepage',
                  exits: { success: { viewTemplatePath: 'pages/homepage' } },
                  fn: async function () { return { boats: await Boat.count() }; },
                };
            """,
            "api/models/Boat.js": "module.exports = { attributes: { name: { type: 'string', required: true } } };\n",
            "config/globals.js": """
                module.exports.globals = { _: require('@sailshq/lodash'), async: false, models: true, sails: true };
            """,
            "config/models.js": """
                module.exports.models = {
                  schema: true,
                  migrate: 'alter',
                  attributes: {
                    createdAt: { type: 'number', autoCreatedAt: true },
                    updatedAt: { type: 'number', autoUpdatedAt: true },
                    id: { type: 'number', autoIncrement: true },
                  },
                  dataEncryptionKeys: { default: 'aGFyYm9yIGhhcmJvciBoYXJib3IgaGFyYm9yIDEyMzQ=' },
                };
            """,
            "config/datastores.js": "module.exports.datastores = { default: {} };\n",
            "config/session.js": "module.exports.session = { secret: '6f1d0a1c5b8e4f7a9c3d2e1b' };\n",
            "config/views.js": "module.exports.views = { layout: 'layouts/layout' };\n",
            "config/routes.js": """
                module.exports.routes = {
                  'GET /': { action: 'view-homepage' },
                  'GET /boats': 'BoatController.list',
                };
            """,
            "api/controllers/BoatController.js": """
                module.exports = { list: async (req, res) => res.json(await Boat.find()) };
            """,
            "config/env/production.js": """
                module.exports = {
                  models: { migrate: 'safe' },
                  security: { cors: {} },
                  session: { cookie: { maxAge: 24 * 60 * 60 * 1000 } },
                  sockets: { onlyAllowOrigins: ['https://harbor.example'] },
                  log: { level: 'debug' },
                  http: { trustProxy: true },
                };
            """,
            "views/layouts/layout.ejs": "<!doctype html><html><body><%- body %></body></html>\n",
            "views/pages/homepage.ejs": "<h1>A new Sails app with <%= boats %> boats</h1>\n",
        },
        {"/": "A new Sails app with 0 boats", "/boats": "[]", "/nothing": 404},
    ),
)
