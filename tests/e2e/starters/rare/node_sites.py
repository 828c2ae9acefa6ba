"""Static sites of tools that fewer people use, as their own starters create them."""

from __future__ import annotations

from tests.e2e.starters.shapes import Starter, package

STARTERS = (
    Starter(
        # `create-expo-app` with the packages for the web: no `build` script.
        "expo",
        "Expo",
        {
            "package.json": package(
                main="index.js",
                scripts={
                    "start": "expo start",
                    "android": "expo start --android",
                    "ios": "expo start --ios",
                    "web": "expo start --web",
                },
                dependencies={
                    "@expo/metro-runtime": "5.0.5",
                    "expo": "53.0.27",
                    "expo-status-bar": "2.2.3",
                    "react": "19.0.0",
                    "react-dom": "19.0.0",
                    "react-native": "0.79.6",
                    "react-native-web": "0.20.0",
                },
                devDependencies={"@babel/core": "7.28.5"},
            ),
            "app.json": '{"expo": {"name": "Harbor app", "slug": "harbor", "version": "1.0.0"}}\n',
            "index.js": """
                import { registerRootComponent } from 'expo';
                import App from './App';

                registerRootComponent(App);
            """,
            "App.js": """
                import { StatusBar } from 'expo-status-bar';
                import { StyleSheet, Text, View } from 'react-native';

                export default function App() {
                  return (
                    <View style={styles.container}>
                      <Text>Open up App.js to start</Text>
                      <StatusBar style="auto" />
                    </View>
                  );
                }

                const styles = StyleSheet.create({
                  container: { flex: 1, alignItems: 'center', justifyContent: 'center' },
                });
            """,
        },
        {"/": "<title>Harbor app</title>", "/some/screen": "<title>Harbor app</title>"},
        kind="static",
    ),
    Starter(
        # `create-vuepress`
        "vuepress",
        "VuePress",
        {
            "package.json": package(
                type="module",
                scripts={
                    "docs:build": "vuepress build docs",
                    "docs:clean-dev": "vuepress dev docs --clean-cache",
                    "docs:dev": "vuepress dev docs",
                },
                devDependencies={
                    "@vuepress/bundler-vite": "2.0.0-rc.30",
                    "@vuepress/theme-default": "2.0.0-rc.132",
                    "sass-embedded": "1.100.0",
                    "vue": "3.5.40",
                    "vuepress": "2.0.0-rc.30",
                },
            ),
            "docs/.vuepress/config.js": """
                import { viteBundler } from '@vuepress/bundler-vite'
                import { defaultTheme } from '@vuepress/theme-default'
                import { defineUserConfig } from 'vuepress'

                export default defineUserConfig({
                  lang: 'en-US',
                  title: 'Harbor',
                  description: 'A handbook',
                  bundler: viteBundler(),
                  theme: defaultTheme({ navbar: ['/', '/tides.md'] }),
                })
            """,
            "docs/README.md": "---\nhome: true\ntitle: Home\nheroText: Harbor handbook\n---\n\nWelcome.\n",
            "docs/tides.md": "# Tides\n\nHigh water at noon.\n",
        },
        {"/": "Harbor handbook", "/tides.html": "High water"},
        kind="static",
    ),
    Starter(
        # `npm init slidev`
        "slidev",
        "Slidev",
        {
            "package.json": package(
                type="module",
                scripts={
                    "build": "slidev build",
                    "dev": "slidev --open",
                    "export": "slidev export",
                },
                dependencies={
                    "@slidev/cli": "0.49.29",
                    "@slidev/theme-default": "0.25.0",
                    "vue": "3.5.40",
                },
            ),
            "slides.md": """
                ---
                theme: default
                title: Harbor slides
                ---

                # Harbor slides

                The first slide

                ---

                # Berths

                - north
                - south
            """,
        },
        # Its build writes 404.html, the same page, which shows the slide of the address.
        {"/": "<title>Harbor slides", "/2": 404},
        kind="static",
        lock="package-lock.json",
    ),
    Starter(
        # The blueprint of `ember new` with Webpack.
        "ember",
        "Ember",
        {
            "package.json": package(
                scripts={
                    "build": "ember build --environment=production",
                    "start": "ember serve",
                    "test:ember": "ember test",
                },
                devDependencies={
                    "@babel/core": "7.28.5",
                    "@ember/optional-features": "2.1.0",
                    "@glimmer/component": "1.1.2",
                    "@glimmer/syntax": "0.95.0",
                    "@glimmer/tracking": "1.1.2",
                    "broccoli-asset-rev": "3.0.0",
                    "ember-auto-import": "2.8.1",
                    "ember-cli": "5.12.0",
                    "ember-cli-babel": "8.2.0",
                    "ember-cli-htmlbars": "6.3.0",
                    "ember-load-initializers": "3.0.1",
                    "ember-resolver": "13.0.2",
                    "ember-source": "5.12.0",
                    "loader.js": "4.7.0",
                    "webpack": "5.95.0",
                },
                engines={"node": ">= 18"},
                ember={"edition": "octane"},
            ),
            "ember-cli-build.js": """
                'use strict';

                const EmberApp = require('ember-cli/lib/broccoli/ember-app');

                module.exports = (defaults) => new EmberApp(defaults, {}).toTree();
            """,
            "config/environment.js": """
                'use strict';

                module.exports = (environment) => ({
                  modulePrefix: 'harbor',
                  environment,
                  rootURL: '/',
                  locationType: 'history',
                  EmberENV: { EXTEND_PROTOTYPES: false, FEATURES: {} },
                  APP: {},
                });
            """,
            "config/optional-features.json": """
                {"application-template-wrapper": false, "default-async-observers": true,
                  "jquery-integration": false, "template-only-glimmer-components": true}
            """,
            "config/targets.js": "module.exports = { browsers: ['last 1 Chrome versions'] };\n",
            "app/index.html": """
                <!DOCTYPE html>
                <html>
                  <head><meta charset="utf-8"><title>Harbor of Ember</title>{{content-for "head"}}
                    <link integrity="" rel="stylesheet" href="{{rootURL}}assets/vendor.css"></head>
                  <body>
                    {{content-for "body"}}
                    <script src="{{rootURL}}assets/vendor.js"></script>
                    <script src="{{rootURL}}assets/harbor.js"></script>
                  </body>
                </html>
            """,
            "app/app.js": """
                import Application from '@ember/application';
                import config from 'harbor/config/environment';
                import loadInitializers from 'ember-load-initializers';
                import Resolver from 'ember-resolver';

                export default class App extends Application {
                  modulePrefix = config.modulePrefix;
                  podModulePrefix = config.podModulePrefix;
                  Resolver = Resolver;
                }

                loadInitializers(App, config.modulePrefix);
            """,
            "app/router.js": """
                import EmberRouter from '@ember/routing/router';
                import config from 'harbor/config/environment';

                export default class Router extends EmberRouter {
                  location = config.locationType;
                  rootURL = config.rootURL;
                }

                Router.map(function () { this.route('tides'); });
            """,
            "app/styles/app.css": "h1 { color: navy; }\n",
            "app/templates/application.hbs": "<h1>Welcome to Ember</h1>\n{{outlet}}\n",
            "app/templates/tides.hbs": "<p>High water at noon</p>\n",
        },
        {"/": "Harbor of Ember", "/tides": "Harbor of Ember"},
        kind="static",
        lock="package-lock.json",
    ),
)
