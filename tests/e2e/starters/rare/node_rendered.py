"""Frameworks that render pages on a server or in advance and that fewer people use, as their starters create them."""

from __future__ import annotations

from tests.e2e.starters.shapes import Starter, package

ANGULAR = "20.3.31"
ANGULAR_PARTS = ("common", "compiler", "core", "platform-browser", "platform-server", "router")

STARTERS = (
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
