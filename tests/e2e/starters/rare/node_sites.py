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
)
