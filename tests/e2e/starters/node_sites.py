"""Front ends that are built into a static site."""

from __future__ import annotations

from tests.e2e.starters.node_frameworks import NEXT, SVELTE, SVELTE_HTML, SVELTE_SCRIPTS, SVELTE_VITE
from tests.e2e.starters.shapes import Starter, package, page

VITE_SCRIPTS = {"dev": "vite", "build": "vite build", "preview": "vite preview"}
REACT = {"react": "18.3.1", "react-dom": "18.3.1"}


def vite_page(title: str, script: str, mount: str = "root") -> str:
    return page(title, body=f'<div id="{mount}"></div><script type="module" src="{script}"></script>')


STARTERS = (
    Starter(
        "vite-react",
        "Vite",
        {
            "package.json": package(
                type="module",
                scripts={**VITE_SCRIPTS, "lint": "eslint ."},
                dependencies=REACT,
                devDependencies={"vite": "6.0.11", "@vitejs/plugin-react": "4.3.4"},
            ),
            "vite.config.js": """
                import { defineConfig } from 'vite'
                import react from '@vitejs/plugin-react'
                export default defineConfig({ plugins: [react()] })
            """,
            "index.html": vite_page("Vite + React", "/src/main.jsx"),
            "src/main.jsx": """
                import { createRoot } from 'react-dom/client'
                import App from './App.jsx'
                createRoot(document.getElementById('root')).render(<App />)
            """,
            "src/App.jsx": "export default function App() { return <h1>Vite and React</h1> }\n",
            "public/robots.txt": "User-agent: *\n",
        },
        {"/": "<title>Vite + React</title>", "/robots.txt": "User-agent", "/boats/1": "<title>Vite + React</title>"},
        kind="static",
        lock="package-lock.json",
    ),
    Starter(
        "vite-vue-router",
        "Vite",
        {
            "package.json": package(
                type="module",
                scripts=VITE_SCRIPTS,
                dependencies={"vue": "3.5.13", "vue-router": "4.5.0"},
                devDependencies={"vite": "6.0.11", "@vitejs/plugin-vue": "5.2.1"},
            ),
            "vite.config.js": """
                import { defineConfig } from 'vite'
                import vue from '@vitejs/plugin-vue'
                export default defineConfig({ plugins: [vue()] })
            """,
            "index.html": vite_page("Vite + Vue", "/src/main.js", "app"),
            "src/main.js": """
                import { createApp } from 'vue'
                import { createRouter, createWebHistory } from 'vue-router'
                import App from './App.vue'
                import Home from './Home.vue'
                const routes = [{ path: '/', component: Home }, { path: '/about', component: Home }]
                createApp(App).use(createRouter({ history: createWebHistory(), routes })).mount('#app')
            """,
            "src/App.vue": "<template><RouterView /></template>\n",
            "src/Home.vue": "<template><h1>Home</h1></template>\n",
        },
        {"/": "<title>Vite + Vue</title>", "/about": "<title>Vite + Vue</title>", "/assets/missing.js": 404},
        kind="static",
    ),
    Starter(
        "vite-svelte",
        "Vite",
        {
            "package.json": package(
                type="module",
                scripts=VITE_SCRIPTS,
                devDependencies={key: SVELTE[key] for key in ("svelte", "vite", "@sveltejs/vite-plugin-svelte")},
            ),
            "vite.config.js": """
                import { defineConfig } from 'vite'
                import { svelte } from '@sveltejs/vite-plugin-svelte'
                export default defineConfig({ plugins: [svelte()] })
            """,
            "index.html": vite_page("Vite + Svelte", "/src/main.js", "app"),
            "src/main.js": """
                import { mount } from 'svelte'
                import App from './App.svelte'
                export default mount(App, { target: document.getElementById('app') })
            """,
            "src/App.svelte": "<h1>Vite and Svelte</h1>\n",
        },
        {"/": "<title>Vite + Svelte</title>"},
        kind="static",
    ),
    Starter(
        "vite-vanilla-typescript",
        "Vite",
        {
            "package.json": package(
                type="module",
                scripts={"dev": "vite", "build": "tsc && vite build", "preview": "vite preview"},
                devDependencies={"typescript": "5.7.3", "vite": "6.0.11"},
            ),
            "tsconfig.json": """
                {"compilerOptions": {"target": "ES2020", "module": "ESNext", "lib": ["ES2020", "DOM"], "noEmit": true,
                  "moduleResolution": "bundler", "strict": true, "skipLibCheck": true}, "include": ["src"]}
            """,
            "index.html": vite_page("Vite + TS", "/src/main.ts", "app"),
            "src/main.ts": "document.querySelector<HTMLDivElement>('#app')!.innerHTML = '<h1>TypeScript</h1>'\n",
        },
        {"/": "<title>Vite + TS</title>"},
        kind="static",
    ),
    Starter(
        "create-react-app",
        "Create React App",
        {
            "package.json": package(
                dependencies={**REACT, "react-scripts": "5.0.1"},
                scripts={"start": "react-scripts start", "build": "react-scripts build", "test": "react-scripts test"},
                browserslist={"production": [">0.2%", "not dead"], "development": ["last 1 chrome version"]},
            ),
            "public/index.html": page("React App", body='<div id="root"></div>'),
            "src/index.js": """
                import { createRoot } from 'react-dom/client';
                import App from './App';
                createRoot(document.getElementById('root')).render(<App />);
            """,
            # An unused variable is a warning here, and an error with CI=true.
            "src/App.js": "export default function App() { const unused = 1; return <h1>Learn React</h1>; }\n",
        },
        {"/": "<title>React App</title>", "/about": "<title>React App</title>"},
        kind="static",
    ),
    Starter(
        "next-export",
        "Next.js export",
        {
            "package.json": package(
                scripts={"dev": "next dev", "build": "next build", "start": "next start"}, dependencies=NEXT
            ),
            "next.config.js": "module.exports = { output: 'export' };\n",
            "pages/index.js": "export default function Home() { return <h1>Exported</h1>; }\n",
            "pages/about.js": "export default function About() { return <h1>About the harbor</h1>; }\n",
        },
        {"/": "Exported", "/about": "About the harbor"},
        kind="static",
    ),
    Starter(
        "sveltekit-static",
        "SvelteKit (static)",
        {
            "package.json": package(
                type="module", scripts=SVELTE_SCRIPTS, devDependencies={**SVELTE, "@sveltejs/adapter-static": "3.0.8"}
            ),
            "svelte.config.js": """
                import adapter from '@sveltejs/adapter-static';
                export default { kit: { adapter: adapter() } };
            """,
            "vite.config.js": SVELTE_VITE,
            "src/app.html": SVELTE_HTML,
            "src/routes/+layout.js": "export const prerender = true;\n",
            "src/routes/+page.svelte": "<h1>Prerendered</h1>\n",
        },
        {"/": "Prerendered"},
        kind="static",
    ),
    Starter(
        "astro",
        "Astro",
        {
            "package.json": package(
                type="module",
                scripts={"dev": "astro dev", "start": "astro dev", "build": "astro build", "preview": "astro preview"},
                dependencies={"astro": "5.1.7"},
            ),
            "astro.config.mjs": "import { defineConfig } from 'astro/config';\nexport default defineConfig({});\n",
            "src/pages/index.astro": """
                ---
                const title = 'Astro Basics';
                ---
                <html lang="en"><head><title>{title}</title></head><body><h1>{title}</h1></body></html>
            """,
            "src/pages/posts/first.md": "# The first post\n",
        },
        {"/": "<title>Astro Basics</title>", "/posts/first/": "The first post"},
        kind="static",
    ),
    Starter(
        "nuxt-generate",
        "Nuxt (static)",
        {
            "package.json": package(
                type="module",
                scripts={"build": "nuxt generate", "dev": "nuxt dev", "generate": "nuxt generate"},
                dependencies={"nuxt": "3.21.11", "vue": "^3.5.13"},
            ),
            "nuxt.config.ts": "export default defineNuxtConfig({ ssr: true, telemetry: false })\n",
            "app.vue": "<template><h1>Generated by Nuxt</h1></template>\n",
        },
        {"/": "Generated by Nuxt"},
        kind="static",
    ),
    Starter(
        "eleventy",
        "Eleventy",
        {
            "package.json": package(
                scripts={"build": "npx @11ty/eleventy", "start": "npx @11ty/eleventy --serve"},
                devDependencies={"@11ty/eleventy": "3.0.0"},
            ),
            ".eleventy.js": "module.exports = function (config) { config.addPassthroughCopy('css'); };\n",
            "index.md": "---\ntitle: Eleventy\n---\n# Hello from Eleventy\n",
            "posts/one.md": "# Post one\n",
            "css/site.css": "h1 { color: teal }\n",
        },
        {"/": "Hello from Eleventy", "/posts/one/": "Post one", "/css/site.css": "teal"},
        kind="static",
    ),
    Starter(
        "vitepress",
        "VitePress",
        {
            "package.json": package(
                scripts={
                    "docs:dev": "vitepress dev docs",
                    "docs:build": "vitepress build docs",
                    "docs:preview": "vitepress preview docs",
                },
                devDependencies={"vitepress": "1.5.0"},
            ),
            "docs/.vitepress/config.mjs": """
                import { defineConfig } from 'vitepress'
                export default defineConfig({ title: 'Harbor docs' })
            """,
            "docs/index.md": "# Hello VitePress\n",
            "docs/guide/start.md": "# Getting started\n",
        },
        {"/": "Hello VitePress", "/guide/start.html": "Getting started"},
        kind="static",
    ),
    Starter(
        "parcel",
        "Parcel",
        {
            "package.json": package(
                source="src/index.html",
                scripts={"start": "parcel", "build": "parcel build"},
                devDependencies={"parcel": "2.13.3"},
            ),
            "src/index.html": page("Parcel", body='<h1>Parcel</h1><script type="module" src="app.js"></script>'),
            "src/app.js": "document.body.dataset.ready = 'yes';\n",
        },
        {"/": "<title>Parcel</title>"},
        kind="static",
    ),
    Starter(
        "hexo",
        "Hexo",
        {
            "package.json": package(
                scripts={"build": "hexo generate", "clean": "hexo clean", "server": "hexo server"},
                hexo={"version": "7.3.0"},
                dependencies={
                    "hexo": "7.3.0",
                    "hexo-generator-index": "4.0.0",
                    "hexo-renderer-ejs": "2.0.0",
                    "hexo-renderer-marked": "7.0.0",
                },
            ),
            "_config.yml": "title: Hexo\ntheme: plain\npublic_dir: public\n",
            "source/_posts/hello.md": "---\ntitle: Hello Hexo\ndate: 2025-01-01\n---\nWelcome.\n",
            "themes/plain/layout/index.ejs": """
                <!doctype html><title><%= config.title %></title>
                <% page.posts.each(function (post) { %><h2><%= post.title %></h2><% }) %>
            """,
            "themes/plain/layout/post.ejs": "<!doctype html><h1><%= page.title %></h1><%- page.content %>\n",
        },
        {"/": "Hello Hexo"},
        kind="static",
    ),
)
