"""Frameworks that are no longer developed, in the repositories that people still have."""

from __future__ import annotations

from tests.e2e.starters.shapes import Starter, package, page

VUE_2 = "^2.7.10"

STARTERS = (
    Starter(
        # `create-nuxt-app`
        "nuxt-2",
        "Nuxt 2",
        {
            "package.json": package(
                scripts={"dev": "nuxt", "build": "nuxt build", "start": "nuxt start", "generate": "nuxt generate"},
                dependencies={
                    "core-js": "^3.25.3",
                    "nuxt": "^2.15.8",
                    "vue": VUE_2,
                    "vue-server-renderer": VUE_2,
                    "vue-template-compiler": VUE_2,
                },
            ),
            "nuxt.config.js": """
                export default {
                  head: { title: 'harbor', meta: [{ charset: 'utf-8' }] },
                  components: true,
                  telemetry: false,
                }
            """,
            "components/Berths.vue": "<template><p>{{ count }} berths are free</p></template>\n<script>\n"
            "export default { props: ['count'] }\n</script>\n",
            "pages/index.vue": """
                <template><Berths :count="count" /></template>
                <script>
                export default {
                  asyncData() { return { count: 6 * 7 } },
                }
                </script>
            """,
        },
        {"/": "42 berths are free", "/nothing": 404},
    ),
    Starter(
        # The default template of `preact create`
        "preact-cli",
        "Preact CLI",
        {
            "package.json": package(
                scripts={
                    "build": "preact build",
                    "serve": "sirv build --port 8080 --cors --single",
                    "dev": "preact watch",
                },
                dependencies={"preact": "10.25.4", "preact-render-to-string": "5.2.6", "preact-router": "4.1.2"},
                devDependencies={"preact-cli": "3.5.1", "sirv-cli": "2.0.2"},
            ),
            "src/index.js": """
                import './style';
                import App from './components/app';

                export default App;
            """,
            "src/style/index.css": "h1 { color: navy; }\n",
            "src/components/app.js": """
                import { h } from 'preact';
                import { Router } from 'preact-router';

                const Home = () => <h1>Preact in the harbor</h1>;
                const App = () => <div id="app"><Router><Home path="/" /></Router></div>;

                export default App;
            """,
            "src/manifest.json": '{"name": "harbor", "short_name": "harbor", "start_url": "/", "icons": []}\n',
        },
        {"/": "Preact in the harbor"},
        kind="static",
        lock="package-lock.json",
    ),
    Starter(
        "brunch",
        "Brunch",
        {
            "package.json": package(
                scripts={"start": "brunch watch --server", "build": "brunch build --production"},
                devDependencies={"brunch": "^4.0.2"},
            ),
            "brunch-config.js": "exports.files = { javascripts: { joinTo: 'app.js' } };\n",
            "app/initialize.js": "document.addEventListener('DOMContentLoaded', () => console.log('harbor'));\n",
            "app/assets/index.html": page("Brunch", body='<h1>Brunch</h1><script src="/app.js"></script>'),
        },
        {"/": "<title>Brunch</title>", "/app.js": "harbor"},
        kind="static",
    ),
)
