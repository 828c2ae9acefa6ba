"""Frameworks that render pages on a server or in advance and that fewer people use, as their starters create them."""

from __future__ import annotations

from tests.e2e.starters.shapes import Starter, package

ANGULAR = "20.3.31"
ANGULAR_PARTS = ("common", "compiler", "core", "platform-browser", "platform-server", "router")

STARTERS = (
    Starter(
        # `ng new --ssr`: one page is rendered in advance, the other for each request.
        "angular-ssr",
        "Angular server",
        {
            "package.json": package(
                scripts={
                    "ng": "ng",
                    "start": "ng serve",
                    "build": "ng build",
                    "watch": "ng build --watch --configuration development",
                    "serve:ssr:harbor": "node dist/harbor/server/server.mjs",
                },
                dependencies={
                    **{f"@angular/{each}": ANGULAR for each in ANGULAR_PARTS},
                    "@angular/ssr": "20.3.37",
                    "express": "5.1.0",
                    "rxjs": "7.8.2",
                    "tslib": "2.8.1",
                    "zone.js": "0.15.1",
                },
                devDependencies={
                    "@angular/build": "20.3.37",
                    "@angular/cli": "20.3.37",
                    "@angular/compiler-cli": ANGULAR,
                    "@types/express": "5.0.3",
                    "@types/node": "20.19.0",
                    "typescript": "5.9.3",
                },
            ),
            "angular.json": """
                {"version": 1, "newProjectRoot": "projects", "projects": {"harbor": {"projectType": "application",
                  "root": "", "sourceRoot": "src", "prefix": "app", "architect": {"build": {
                    "builder": "@angular/build:application",
                    "options": {"browser": "src/main.ts", "polyfills": ["zone.js"], "tsConfig": "tsconfig.app.json",
                      "server": "src/main.server.ts", "outputMode": "server", "ssr": {"entry": "src/server.ts"}},
                    "configurations": {"production": {"outputHashing": "all"},
                      "development": {"optimization": false, "sourceMap": true}},
                    "defaultConfiguration": "production"}}}}}
            """,
            "tsconfig.json": """
                {"compileOnSave": false, "compilerOptions": {"strict": true, "skipLibCheck": true, "target": "ES2022",
                  "isolatedModules": true, "experimentalDecorators": true, "importHelpers": true, "module": "preserve"},
                  "files": [], "references": [{"path": "./tsconfig.app.json"}]}
            """,
            "tsconfig.app.json": """
                {"extends": "./tsconfig.json", "compilerOptions": {"outDir": "./out-tsc/app", "types": ["node"]},
                  "include": ["src/**/*.ts"]}
            """,
            "src/index.html": """
                <!doctype html>
                <html lang="en">
                <head><meta charset="utf-8"><title>Harbor</title><base href="/"></head>
                <body><app-root></app-root></body>
                </html>
            """,
            "src/main.ts": """
                import { bootstrapApplication } from '@angular/platform-browser';
                import { appConfig } from './app/app.config';
                import { App } from './app/app';

                bootstrapApplication(App, appConfig).catch((error) => console.error(error));
            """,
            "src/main.server.ts": """
                import { BootstrapContext, bootstrapApplication } from '@angular/platform-browser';
                import { App } from './app/app';
                import { config } from './app/app.config.server';

                export default (context: BootstrapContext) => bootstrapApplication(App, config, context);
            """,
            "src/server.ts": """
                import {
                  AngularNodeAppEngine,
                  createNodeRequestHandler,
                  isMainModule,
                  writeResponseToNodeResponse,
                } from '@angular/ssr/node';
                import express from 'express';
                import { join } from 'node:path';

                const app = express();
                const engine = new AngularNodeAppEngine();

                app.use(express.static(join(import.meta.dirname, '../browser'), { index: false, redirect: false }));
                app.use((request, response, next) => {
                  engine
                    .handle(request)
                    .then((rendered) => (rendered ? writeResponseToNodeResponse(rendered, response) : next()))
                    .catch(next);
                });

                if (isMainModule(import.meta.url)) {
                  app.listen(process.env['PORT'] || 4000);
                }

                export const reqHandler = createNodeRequestHandler(app);
            """,
            "src/app/app.ts": """
                import { Component } from '@angular/core';
                import { RouterOutlet } from '@angular/router';

                @Component({ selector: 'app-root', imports: [RouterOutlet], template: '<router-outlet />' })
                export class App {}
            """,
            "src/app/pages.ts": """
                import { Component, REQUEST, inject } from '@angular/core';

                @Component({ template: '<p>Welcome aboard</p>' })
                export class Home {}

                @Component({ template: '<p>Rendered for {{ method }}</p>' })
                export class Now {
                  method = inject(REQUEST, { optional: true })?.method ?? 'the browser';
                }
            """,
            "src/app/app.routes.ts": """
                import { Routes } from '@angular/router';
                import { Home, Now } from './pages';

                export const routes: Routes = [{ path: '', component: Home }, { path: 'now', component: Now }];
            """,
            "src/app/app.routes.server.ts": """
                import { RenderMode, ServerRoute } from '@angular/ssr';

                export const serverRoutes: ServerRoute[] = [
                  { path: 'now', renderMode: RenderMode.Server },
                  { path: '**', renderMode: RenderMode.Prerender },
                ];
            """,
            "src/app/app.config.ts": """
                import { ApplicationConfig, provideZoneChangeDetection } from '@angular/core';
                import { provideClientHydration, withEventReplay } from '@angular/platform-browser';
                import { provideRouter } from '@angular/router';
                import { routes } from './app.routes';

                export const appConfig: ApplicationConfig = {
                  providers: [
                    provideZoneChangeDetection({ eventCoalescing: true }),
                    provideRouter(routes),
                    provideClientHydration(withEventReplay()),
                  ],
                };
            """,
            "src/app/app.config.server.ts": """
                import { ApplicationConfig, mergeApplicationConfig } from '@angular/core';
                import { provideServerRendering, withRoutes } from '@angular/ssr';
                import { appConfig } from './app.config';
                import { serverRoutes } from './app.routes.server';

                const serverConfig: ApplicationConfig = {
                  providers: [provideServerRendering(withRoutes(serverRoutes))],
                };
                export const config = mergeApplicationConfig(appConfig, serverConfig);
            """,
        },
        {"/": "Welcome aboard", "/now": "Rendered for GET"},
        lock="package-lock.json",
    ),
    Starter(
        # `vite build` writes a handler of requests; the row adds the server.
        "tanstack-start",
        "TanStack Start",
        {
            "package.json": package(
                type="module",
                scripts={"dev": "vite dev --port 3000", "build": "vite build", "serve": "vite preview"},
                dependencies={
                    "@tanstack/react-router": "1.170.46",
                    "@tanstack/react-start": "1.169.5",
                    "react": "19.2.7",
                    "react-dom": "19.2.7",
                },
                devDependencies={
                    "@types/react": "19.2.2",
                    "@types/react-dom": "19.2.2",
                    "@vitejs/plugin-react": "6.0.1",
                    "typescript": "5.9.3",
                    "vite": "8.2.6",
                },
            ),
            "tsconfig.json": """
                {"include": ["**/*.ts", "**/*.tsx"], "compilerOptions": {"target": "ES2022", "jsx": "react-jsx",
                  "module": "ESNext", "moduleResolution": "bundler", "strict": true, "noEmit": true,
                  "skipLibCheck": true, "lib": ["ES2022", "DOM", "DOM.Iterable"]}}
            """,
            "vite.config.ts": """
                import { tanstackStart } from '@tanstack/react-start/plugin/vite'
                import viteReact from '@vitejs/plugin-react'
                import { defineConfig } from 'vite'

                export default defineConfig({ plugins: [tanstackStart(), viteReact()] })
            """,
            "src/router.tsx": """
                import { createRouter } from '@tanstack/react-router'
                import { routeTree } from './routeTree.gen'

                export const getRouter = () => createRouter({ routeTree, scrollRestoration: true })
            """,
            "src/routes/__root.tsx": """
                import { HeadContent, Scripts, createRootRoute } from '@tanstack/react-router'
                import type { ReactNode } from 'react'

                export const Route = createRootRoute({
                  head: () => ({ meta: [{ charSet: 'utf-8' }, { title: 'Harbor' }] }),
                  shellComponent: RootDocument,
                })

                function RootDocument({ children }: { children: ReactNode }) {
                  return (
                    <html lang="en">
                      <head><HeadContent /></head>
                      <body>{children}<Scripts /></body>
                    </html>
                  )
                }
            """,
            "src/routes/index.tsx": """
                import { createFileRoute } from '@tanstack/react-router'
                import { createServerFn } from '@tanstack/react-start'

                const countBerths = createServerFn({ method: 'GET' }).handler(async () => 6 * 7)

                export const Route = createFileRoute('/')({ loader: () => countBerths(), component: Home })

                function Home() {
                  return <p>{`${Route.useLoaderData()} berths are free`}</p>
                }
            """,
        },
        {"/": "42 berths are free", "/nothing": 404},
    ),
    Starter(
        "remix-single-page",
        "Remix (single page)",
        {
            "package.json": package(
                type="module",
                sideEffects=False,
                scripts={
                    "build": "remix vite:build",
                    "dev": "remix vite:dev",
                    "preview": "vite preview",
                    "typecheck": "tsc",
                },
                dependencies={
                    "@remix-run/node": "2.17.5",
                    "@remix-run/react": "2.17.5",
                    "isbot": "4.4.0",
                    "react": "18.3.1",
                    "react-dom": "18.3.1",
                },
                devDependencies={"@remix-run/dev": "2.17.5", "typescript": "5.7.3", "vite": "5.4.14"},
                engines={"node": ">=20.0.0"},
            ),
            "vite.config.ts": """
                import { vitePlugin as remix } from '@remix-run/dev';
                import { defineConfig } from 'vite';

                export default defineConfig({ plugins: [remix({ ssr: false, future: { v3_singleFetch: true } })] });
            """,
            "app/root.tsx": """
                import { Links, Meta, Outlet, Scripts } from '@remix-run/react';
                import type { ReactNode } from 'react';

                export function Layout({ children }: { children: ReactNode }) {
                  return (
                    <html lang="en">
                      <head><meta charSet="utf-8" /><Meta /><Links /></head>
                      <body>{children}<Scripts /></body>
                    </html>
                  );
                }

                export default function App() { return <Outlet />; }

                export function HydrateFallback() { return <p>The harbor opens</p>; }
            """,
            "app/routes/_index.tsx": "export default function Index() { return <h1>A single page</h1>; }\n",
        },
        {"/": "The harbor opens", "/deep/link": "The harbor opens"},
        kind="static",
    ),
)
