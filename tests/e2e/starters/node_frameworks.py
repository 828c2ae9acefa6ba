"""Frameworks that render on a server, as their own starters create them: no settings, and often no start script."""

from __future__ import annotations

from tests.e2e.starters.shapes import Starter, package

NEXT = {"next": "15.5.9", "react": "19.1.0", "react-dom": "19.1.0"}
SVELTE = {
    "@sveltejs/kit": "2.16.0",
    "@sveltejs/vite-plugin-svelte": "5.0.3",
    "svelte": "5.19.0",
    "vite": "6.0.11",
}
SVELTE_SCRIPTS = {"dev": "vite dev", "build": "vite build", "preview": "vite preview"}
SVELTE_VITE = """
    import { sveltekit } from '@sveltejs/kit/vite';
    import { defineConfig } from 'vite';

    export default defineConfig({ plugins: [sveltekit()] });
"""
SVELTE_HTML = """
    <!doctype html>
    <html lang="en">
      <head><meta charset="utf-8" />%sveltekit.head%</head>
      <body><div>%sveltekit.body%</div></body>
    </html>
"""


def svelte_config(adapter: str) -> str:
    return f"import adapter from '{adapter}';\n\nexport default {{ kit: {{ adapter: adapter() }} }};\n"


STARTERS = (
    Starter(
        "next-app-router",
        "Next.js",
        {
            "package.json": package(
                scripts={"dev": "next dev", "build": "next build", "start": "next start"}, dependencies=NEXT
            ),
            "next.config.mjs": """
                /** @type {import('next').NextConfig} */
                const nextConfig = {
                  // output: 'export', for a static site
                };
                export default nextConfig;
            """,
            "app/layout.js": """
                export const metadata = { title: 'Next starter' };
                export default function RootLayout({ children }) {
                  return <html lang="en"><body>{children}</body></html>;
                }
            """,
            "app/page.js": "export default function Home() { return <h1>Hello from the app router</h1>; }\n",
            "app/api/time/route.js": """
                export const dynamic = 'force-dynamic';
                export async function GET() { return Response.json({ harbor: 'north' }); }
            """,
        },
        {"/": "Hello from the app router", "/api/time": '{"harbor":"north"}'},
        lock="package-lock.json",
    ),
    Starter(
        "next-pages-typescript",
        "Next.js",
        {
            "package.json": package(
                scripts={"dev": "next dev", "build": "next build", "start": "next start"},
                dependencies=NEXT,
                devDependencies={
                    "typescript": "5.7.3",
                    "@types/node": "22.10.7",
                    "@types/react": "19.0.7",
                    "@types/react-dom": "19.0.3",
                },
            ),
            "tsconfig.json": """
                {"compilerOptions": {"target": "ES2017", "lib": ["dom", "esnext"], "skipLibCheck": true,
                  "strict": true, "noEmit": true, "esModuleInterop": true, "module": "esnext", "jsx": "preserve",
                  "moduleResolution": "bundler", "resolveJsonModule": true, "isolatedModules": true},
                  "include": ["next-env.d.ts", "**/*.ts", "**/*.tsx"], "exclude": ["node_modules"]}
            """,
            "pages/index.tsx": """
                import type { GetServerSideProps } from 'next';
                type Props = { host: string };
                export const getServerSideProps: GetServerSideProps<Props> = async ({ req }) => (
                  { props: { host: req.headers.host ?? '' } }
                );
                export default function Home({ host }: Props) { return <p>Rendered for {host}</p>; }
            """,
            "pages/api/hello.ts": """
                import type { NextApiRequest, NextApiResponse } from 'next';
                export default function handler(_req: NextApiRequest, res: NextApiResponse) {
                  res.status(200).json({ name: 'Ada' });
                }
            """,
        },
        {"/": "Rendered for", "/api/hello": '{"name":"Ada"}'},
    ),
    Starter(
        "nuxt-with-server-routes",
        "Nuxt",
        {
            "package.json": package(
                type="module",
                scripts={
                    "build": "nuxt build",
                    "dev": "nuxt dev",
                    "generate": "nuxt generate",
                    "preview": "nuxt preview",
                    "postinstall": "nuxt prepare",
                },
                dependencies={"nuxt": "3.21.11", "vue": "^3.5.13", "vue-router": "4.5.0"},
            ),
            "nuxt.config.ts": """
                export default defineNuxtConfig({
                  compatibilityDate: '2024-11-01',
                  devtools: { enabled: false },
                  telemetry: false,
                })
            """,
            "app.vue": "<template><main><h1>Hello Nuxt</h1></main></template>\n",
            "server/api/berths.get.ts": "export default defineEventHandler(() => ({ berths: [1, 2, 3] }))\n",
        },
        {"/": "Hello Nuxt", "/api/berths": '{"berths":[1,2,3]}'},
    ),
    Starter(
        "sveltekit-adapter-node",
        "SvelteKit",
        {
            "package.json": package(
                type="module",
                scripts=SVELTE_SCRIPTS,
                devDependencies={**SVELTE, "@sveltejs/adapter-node": "5.2.12"},
            ),
            "svelte.config.js": svelte_config("@sveltejs/adapter-node"),
            "vite.config.js": SVELTE_VITE,
            "src/app.html": SVELTE_HTML,
            "src/routes/+page.svelte": "<h1>Welcome to SvelteKit</h1>\n",
            "src/routes/api/+server.js": """
                import { json } from '@sveltejs/kit';
                export const GET = () => json({ kit: 'node' });
            """,
        },
        {"/": "Welcome to SvelteKit", "/api": '{"kit":"node"}'},
    ),
    Starter(
        # What `sv create` writes: an adapter that knows only other hosts.
        "sveltekit-adapter-auto",
        "SvelteKit (adapter-auto)",
        {
            "package.json": package(
                type="module",
                scripts=SVELTE_SCRIPTS,
                devDependencies={**SVELTE, "@sveltejs/adapter-auto": "4.0.0"},
            ),
            "svelte.config.js": svelte_config("@sveltejs/adapter-auto"),
            "vite.config.js": SVELTE_VITE,
            "src/app.html": SVELTE_HTML,
            "src/routes/+page.svelte": "<h1>Welcome aboard</h1>\n",
        },
        {"/": "Welcome aboard"},
    ),
    Starter(
        "sveltekit-adapter-vercel",
        "SvelteKit for another host",
        {
            "package.json": package(
                type="module",
                scripts=SVELTE_SCRIPTS,
                devDependencies={**SVELTE, "@sveltejs/adapter-vercel": "^5.0.0"},
            ),
            "svelte.config.js": svelte_config("@sveltejs/adapter-vercel"),
            "vite.config.js": SVELTE_VITE,
            "src/app.html": SVELTE_HTML,
            "src/routes/+page.svelte": "<h1>Welcome from afar</h1>\n",
        },
        {"/": "Welcome from afar"},
    ),
    Starter(
        "astro-node",
        "Astro server",
        {
            "package.json": package(
                type="module",
                scripts={"dev": "astro dev", "build": "astro build", "preview": "astro preview"},
                dependencies={"astro": "5.1.7", "@astrojs/node": "9.0.2"},
            ),
            "astro.config.mjs": """
                import { defineConfig } from 'astro/config';
                import node from '@astrojs/node';
                export default defineConfig({ output: 'server', adapter: node({ mode: 'standalone' }) });
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
        "react-router-7",
        "React Router",
        {
            "package.json": package(
                type="module",
                scripts={
                    "build": "react-router build",
                    "dev": "react-router dev",
                    "start": "react-router-serve ./build/server/index.js",
                },
                dependencies={
                    "@react-router/node": "7.1.3",
                    "@react-router/serve": "7.1.3",
                    "isbot": "5.1.17",
                    "react": "19.0.0",
                    "react-dom": "19.0.0",
                    "react-router": "7.1.3",
                },
                devDependencies={"@react-router/dev": "7.1.3", "vite": "5.4.14", "typescript": "5.7.3"},
            ),
            "vite.config.js": """
                import { reactRouter } from '@react-router/dev/vite';
                import { defineConfig } from 'vite';
                export default defineConfig({ plugins: [reactRouter()] });
            """,
            "app/routes.js": """
                import { index, route } from '@react-router/dev/routes';
                export default [index('routes/home.jsx'), route('about', 'routes/about.jsx')];
            """,
            "app/root.jsx": """
                import { Links, Meta, Outlet, Scripts } from 'react-router';
                export default function App() {
                  return (
                    <html lang="en">
                      <head><meta charSet="utf-8" /><Meta /><Links /></head>
                      <body><Outlet /><Scripts /></body>
                    </html>
                  );
                }
            """,
            "app/routes/home.jsx": """
                export const loader = () => ({ boat: 'Ada' });
                export default function Home({ loaderData }) { return <h1>Ahoy {loaderData.boat}</h1>; }
            """,
            "app/routes/about.jsx": "export default function About() { return <p>About us</p>; }\n",
        },
        {"/": "Ahoy", "/about": "About us"},
    ),
    Starter(
        "remix",
        "Remix",
        {
            "package.json": package(
                type="module",
                sideEffects=False,
                scripts={
                    "build": "remix vite:build",
                    "dev": "remix vite:dev",
                    "start": "remix-serve ./build/server/index.js",
                },
                dependencies={
                    "@remix-run/node": "2.15.2",
                    "@remix-run/react": "2.15.2",
                    "@remix-run/serve": "2.15.2",
                    "isbot": "5.1.17",
                    "react": "18.3.1",
                    "react-dom": "18.3.1",
                },
                devDependencies={"@remix-run/dev": "2.15.2", "vite": "5.4.14"},
                engines={"node": ">=20.0.0"},
            ),
            "vite.config.js": """
                import { vitePlugin as remix } from '@remix-run/dev';
                import { defineConfig } from 'vite';
                export default defineConfig({ plugins: [remix()] });
            """,
            "app/root.jsx": """
                import { Links, Meta, Outlet, Scripts } from '@remix-run/react';
                export default function App() {
                  return (
                    <html lang="en">
                      <head><meta charSet="utf-8" /><Meta /><Links /></head>
                      <body><Outlet /><Scripts /></body>
                    </html>
                  );
                }
            """,
            "app/routes/_index.jsx": "export default function Index() { return <h1>Welcome to Remix</h1>; }\n",
        },
        {"/": "Welcome to Remix"},
    ),
    Starter(
        "nitro",
        "Nitro",
        {
            "package.json": package(
                scripts={"build": "nitro build", "dev": "nitro dev", "prepare": "nitro prepare"},
                devDependencies={"nitropack": "2.10.4"},
            ),
            "nitro.config.ts": "export default defineNitroConfig({ compatibilityDate: '2025-01-01' })\n",
            "routes/index.ts": "export default eventHandler(() => 'Start by editing routes/index.ts')\n",
        },
        {"/": "Start by editing"},
    ),
    Starter(
        # `nest new`: `start` compiles again and writes dist/, `start:prod` does not.
        "nestjs",
        "NestJS",
        {
            "package.json": package(
                scripts={
                    "build": "nest build",
                    "start": "nest start",
                    "start:dev": "nest start --watch",
                    "start:prod": "node dist/main",
                },
                dependencies={
                    "@nestjs/common": "11.0.1",
                    "@nestjs/core": "11.0.1",
                    "@nestjs/platform-express": "11.0.1",
                    "reflect-metadata": "0.2.2",
                    "rxjs": "7.8.1",
                },
                devDependencies={
                    "@nestjs/cli": "11.0.2",
                    "@nestjs/schematics": "11.0.0",
                    "@types/node": "22.10.7",
                    "typescript": "5.7.3",
                },
            ),
            "nest-cli.json": '{"collection": "@nestjs/schematics", "sourceRoot": "src"}\n',
            "tsconfig.json": """
                {"compilerOptions": {"module": "commonjs", "target": "ES2023", "emitDecoratorMetadata": true,
                  "experimentalDecorators": true, "outDir": "./dist", "baseUrl": "./", "skipLibCheck": true}}
            """,
            "tsconfig.build.json": '{"extends": "./tsconfig.json", "exclude": ["node_modules", "test", "dist"]}\n',
            "src/main.ts": """
                import { NestFactory } from '@nestjs/core';
                import { AppModule } from './app.module';

                async function bootstrap() {
                  const app = await NestFactory.create(AppModule);
                  await app.listen(process.env.PORT ?? 3000);
                }
                bootstrap();
            """,
            "src/app.module.ts": """
                import { Controller, Get, Module } from '@nestjs/common';

                @Controller()
                export class AppController {
                  @Get() getHello(): string { return 'Hello Nest!'; }
                }

                @Module({ controllers: [AppController] })
                export class AppModule {}
            """,
        },
        {"/": "Hello Nest!"},
        lock="package-lock.json",
    ),
)
