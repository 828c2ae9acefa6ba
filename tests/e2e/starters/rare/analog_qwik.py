"""Analog and Qwik City, each as a server and as a static site."""

from __future__ import annotations

from tests.e2e.starters.shapes import Starter, package

ANALOG, ANGULAR = "2.7.2", "20.3.31"
ANGULAR_PARTS = ("common", "compiler", "core", "forms", "platform-browser", "platform-server", "router")
QWIK = "1.20.1"


def analog(options: str = "") -> dict[str, str]:
    """Return what `create-analog` writes, with these options of its plugin."""
    return {
        "package.json": package(
            type="module",
            scripts={"ng": "ng", "dev": "vite", "start": "npm run dev", "build": "vite build"},
            dependencies={
                "@analogjs/content": ANALOG,
                "@analogjs/router": ANALOG,
                **{f"@angular/{each}": ANGULAR for each in ANGULAR_PARTS},
                "marked": "15.0.12",
                "marked-gfm-heading-id": "4.1.3",
                "marked-highlight": "2.2.3",
                "marked-mangle": "1.1.12",
                "prismjs": "1.30.0",
                "rxjs": "7.8.2",
                "tslib": "2.8.1",
                "zone.js": "0.15.1",
            },
            devDependencies={
                "@analogjs/platform": ANALOG,
                "@analogjs/vite-plugin-angular": ANALOG,
                "@angular/build": "20.3.37",
                "@angular/cli": "20.3.37",
                "@angular/compiler-cli": ANGULAR,
                "typescript": "5.9.3",
                "vite": "7.3.1",
            },
        ),
        "vite.config.ts": f"""
            /// <reference types="vitest" />
            import analog from '@analogjs/platform';
            import {{ defineConfig }} from 'vite';

            export default defineConfig(() => ({{
              build: {{ target: ['es2020'] }},
              resolve: {{ mainFields: ['module'] }},
              plugins: [analog({options})],
            }}));
        """,
        "tsconfig.json": """
            {"compilerOptions": {"strict": true, "skipLibCheck": true, "target": "ES2022", "module": "ES2022",
              "moduleResolution": "bundler", "experimentalDecorators": true, "importHelpers": true,
              "isolatedModules": true, "lib": ["ES2022", "dom"]},
              "angularCompilerOptions": {"strictTemplates": true}}
        """,
        "tsconfig.app.json": """
            {"extends": "./tsconfig.json", "compilerOptions": {"outDir": "./dist/out-tsc", "types": []},
              "files": ["src/main.ts", "src/main.server.ts"], "include": ["src/app/pages/**/*.page.ts"]}
        """,
        "index.html": """
            <!doctype html>
            <html lang="en">
              <head><meta charset="UTF-8" /><base href="/" /><title>Harbor</title></head>
              <body><app-root></app-root><script type="module" src="/src/main.ts"></script></body>
            </html>
        """,
        "src/main.ts": """
            import 'zone.js';
            import { bootstrapApplication } from '@angular/platform-browser';
            import { App } from './app/app';
            import { appConfig } from './app/app.config';

            bootstrapApplication(App, appConfig);
        """,
        "src/main.server.ts": """
            import 'zone.js/node';
            import '@angular/platform-server/init';
            import { render } from '@analogjs/router/server';
            import { App } from './app/app';
            import { config } from './app/app.config.server';

            export default render(App, config);
        """,
        "src/app/app.ts": """
            import { Component } from '@angular/core';
            import { RouterOutlet } from '@angular/router';

            @Component({ selector: 'app-root', imports: [RouterOutlet], template: '<router-outlet />' })
            export class App {}
        """,
        "src/app/app.config.ts": """
            import { provideFileRouter } from '@analogjs/router';
            import { provideHttpClient, withFetch } from '@angular/common/http';
            import { ApplicationConfig, provideZoneChangeDetection } from '@angular/core';
            import { provideClientHydration } from '@angular/platform-browser';

            export const appConfig: ApplicationConfig = {
              providers: [
                provideZoneChangeDetection({ eventCoalescing: true }),
                provideFileRouter(),
                provideHttpClient(withFetch()),
                provideClientHydration(),
              ],
            };
        """,
        "src/app/app.config.server.ts": """
            import { ApplicationConfig, mergeApplicationConfig } from '@angular/core';
            import { provideServerRendering } from '@angular/platform-server';
            import { appConfig } from './app.config';

            const serverConfig: ApplicationConfig = { providers: [provideServerRendering()] };
            export const config = mergeApplicationConfig(appConfig, serverConfig);
        """,
        "src/app/pages/index.page.ts": """
            import { Component } from '@angular/core';

            @Component({ selector: 'app-home', template: '<h1>Analog in the harbor</h1>' })
            export default class HomePage {}
        """,
    }


def qwik(build_server: str, **scripts: str) -> dict[str, str]:
    """Return what `npm create qwik` writes, before an adapter is added."""
    return {
        "package.json": package(
            type="module",
            engines={"node": "^18.17.0 || ^20.3.0 || >=21.0.0"},
            scripts={
                "build": "qwik build",
                "build.client": "vite build",
                "build.preview": "vite build --ssr src/entry.preview.tsx",
                "build.server": build_server,
                "build.types": "tsc --incremental --noEmit",
                "dev": "vite --mode ssr",
                "preview": "qwik build preview && vite preview --open",
                "start": "vite --open --mode ssr",
                "qwik": "qwik",
                **scripts,
            },
            **({"dependencies": {"express": "4.20.0"}} if scripts else {}),
            devDependencies={
                "@builder.io/qwik": QWIK,
                "@builder.io/qwik-city": QWIK,
                "@types/express": "4.17.21",
                "@types/node": "20.19.0",
                "eslint": "9.25.1",
                "prettier": "3.6.2",
                "typescript": "5.4.5",
                "vite": "7.3.1",
            },
        ),
        "tsconfig.json": """
            {"compilerOptions": {"allowJs": true, "target": "ES2022", "module": "ES2022", "skipLibCheck": true,
              "lib": ["es2022", "DOM", "WebWorker", "DOM.Iterable"], "jsx": "react-jsx", "strict": true,
              "jsxImportSource": "@builder.io/qwik", "resolveJsonModule": true, "moduleResolution": "Bundler",
              "esModuleInterop": true, "noEmit": true, "isolatedModules": true, "types": ["node", "vite/client"]},
              "include": ["src", "./*.d.ts", "./*.config.ts"]}
        """,
        "vite.config.ts": """
            import { qwikCity } from '@builder.io/qwik-city/vite';
            import { qwikVite } from '@builder.io/qwik/optimizer';
            import { defineConfig, type UserConfig } from 'vite';

            export default defineConfig((): UserConfig => ({ plugins: [qwikCity(), qwikVite()] }));
        """,
        "src/root.tsx": """
            import { component$ } from '@builder.io/qwik';
            import { QwikCityProvider, RouterOutlet } from '@builder.io/qwik-city';

            export default component$(() => (
              <QwikCityProvider>
                <head><meta charset="utf-8" /><title>Harbor</title></head>
                <body lang="en"><RouterOutlet /></body>
              </QwikCityProvider>
            ));
        """,
        "src/entry.ssr.tsx": """
            import { renderToStream, type RenderToStreamOptions } from '@builder.io/qwik/server';
            import Root from './root';

            export default function (options: RenderToStreamOptions) {
              return renderToStream(<Root />, { ...options, containerAttributes: { lang: 'en-us' } });
            }
        """,
        "src/entry.dev.tsx": """
            import { render, type RenderOptions } from '@builder.io/qwik';
            import Root from './root';

            export default function (options: RenderOptions) { return render(document, <Root />, options); }
        """,
        "src/routes/index.tsx": """
            import { component$ } from '@builder.io/qwik';

            export default component$(() => <h1>Qwik in the harbor</h1>);
        """,
    }


STARTERS = (
    Starter(
        "analog",
        "Analog",
        {
            **analog(),
            "src/server/routes/api/v1/berths.ts": """
                import { defineEventHandler } from 'h3';

                export default defineEventHandler(() => ({ berths: [1, 2, 3] }));
            """,
        },
        {"/": "Analog in the harbor", "/api/v1/berths": "[1,2,3]"},
        lock="package-lock.json",
    ),
    Starter(
        "analog-static",
        "Analog (static)",
        analog("{ static: true, prerender: { routes: ['/'] } }"),
        {"/": "Analog in the harbor"},
        kind="static",
        lock="package-lock.json",
    ),
    Starter(
        # After `npm run qwik add express`
        "qwik-express",
        "Qwik City",
        {
            **qwik("vite build -c adapters/express/vite.config.ts", serve="node server/entry.express"),
            "adapters/express/vite.config.ts": """
                import { nodeServerAdapter } from '@builder.io/qwik-city/adapters/node-server/vite';
                import { extendConfig } from '@builder.io/qwik-city/vite';
                import base from '../../vite.config';

                export default extendConfig(base, () => ({
                  build: { ssr: true, rollupOptions: { input: ['src/entry.express.tsx', '@qwik-city-plan'] } },
                  plugins: [nodeServerAdapter({ name: 'express' })],
                }));
            """,
            "src/entry.express.tsx": """
                import { createQwikCity } from '@builder.io/qwik-city/middleware/node';
                import qwikCityPlan from '@qwik-city-plan';
                import express from 'express';
                import { join } from 'node:path';
                import { fileURLToPath } from 'node:url';
                import render from './entry.ssr';

                const files = join(fileURLToPath(import.meta.url), '..', '..', 'dist');
                const { router, notFound } = createQwikCity({ render, qwikCityPlan });
                const app = express();

                app.use('/build', express.static(join(files, 'build'), { immutable: true, maxAge: '1y' }));
                app.use(express.static(files, { redirect: false }));
                app.use(router);
                app.use(notFound);
                app.listen(process.env.PORT ?? 3000);
            """,
        },
        {"/": "Qwik in the harbor", "/nothing/": 404},
        lock="package-lock.json",
    ),
    Starter(
        # After `npm run qwik add static`
        "qwik-static",
        "Qwik City (static)",
        {
            **qwik("vite build -c adapters/static/vite.config.ts"),
            "adapters/static/vite.config.ts": """
                import { staticAdapter } from '@builder.io/qwik-city/adapters/static/vite';
                import { extendConfig } from '@builder.io/qwik-city/vite';
                import base from '../../vite.config';

                export default extendConfig(base, () => ({
                  build: { ssr: true, rollupOptions: { input: ['@qwik-city-plan'] } },
                  plugins: [staticAdapter({ origin: 'https://harbor.example' })],
                }));
            """,
            "src/routes/tides/index.tsx": """
                import { component$ } from '@builder.io/qwik';

                export default component$(() => <p>High water at noon</p>);
            """,
        },
        {"/": "Qwik in the harbor", "/tides/": "High water"},
        kind="static",
        lock="package-lock.json",
    ),
)
