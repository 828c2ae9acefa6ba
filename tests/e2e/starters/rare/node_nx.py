"""Nx: a standalone app for Node.js, and a workspace with one app."""

from __future__ import annotations

from tests.e2e.starters.shapes import Starter, package, page

NX = "22.7.9"

STARTERS = (
    Starter(
        # `create-nx-workspace --preset=node-standalone`
        "nx",
        "Nx",
        {
            "package.json": package(
                "@harbor/source",
                license="MIT",
                scripts={"build": "nx build", "start": "nx serve", "test": "nx test"},
                dependencies={"express": "4.21.2"},
                devDependencies={
                    "@nx/esbuild": NX,
                    "@nx/js": NX,
                    "@nx/node": NX,
                    "@types/express": "4.17.21",
                    "@types/node": "20.19.9",
                    "esbuild": "0.25.12",
                    "nx": NX,
                    "tslib": "2.8.1",
                    "typescript": "5.9.3",
                },
            ),
            "nx.json": """
                {
                  "$schema": "./node_modules/nx/schemas/nx-schema.json",
                  "defaultProject": "harbor",
                  "namedInputs": {"default": ["{projectRoot}/**/*"], "production": ["default"]},
                  "targetDefaults": {
                    "@nx/esbuild:esbuild": {"cache": true, "dependsOn": ["^build"], "inputs": ["production"]}
                  },
                  "nxCloudId": ""
                }
            """,
            "project.json": """
                {
                  "name": "harbor",
                  "$schema": "node_modules/nx/schemas/project-schema.json",
                  "sourceRoot": "./src",
                  "projectType": "application",
                  "targets": {
                    "build": {
                      "executor": "@nx/esbuild:esbuild",
                      "outputs": ["{options.outputPath}"],
                      "defaultConfiguration": "production",
                      "options": {
                        "platform": "node",
                        "outputPath": "dist/harbor",
                        "format": ["cjs"],
                        "bundle": false,
                        "main": "src/main.ts",
                        "tsConfig": "tsconfig.app.json",
                        "assets": ["src/assets"],
                        "generatePackageJson": true,
                        "esbuildOptions": {"sourcemap": true, "outExtension": {".js": ".js"}}
                      },
                      "configurations": {"development": {}, "production": {}}
                    },
                    "serve": {
                      "executor": "@nx/js:node",
                      "options": {"buildTarget": "harbor:build", "runBuildTargetDependencies": false}
                    }
                  }
                }
            """,
            "tsconfig.json": """
                {"compilerOptions": {"esModuleInterop": true, "target": "es2021", "module": "commonjs",
                  "moduleResolution": "node", "skipLibCheck": true, "strict": true},
                  "files": [], "include": [], "references": [{"path": "./tsconfig.app.json"}]}
            """,
            "tsconfig.app.json": """
                {"extends": "./tsconfig.json", "compilerOptions": {"outDir": "dist/out-tsc", "types": ["node"]},
                  "include": ["src/**/*.ts"]}
            """,
            "src/main.ts": """
                import express from 'express';
                import { greeting } from './app/greeting';

                const host = process.env.HOST ?? 'localhost';
                const port = process.env.PORT ? Number(process.env.PORT) : 3000;
                const app = express();

                app.get('/', (request, response) => {
                  response.send({ message: greeting('harbor') });
                });
                app.listen(port, host, () => console.log(`[ ready ] http://${host}:${port}`));
            """,
            "src/app/greeting.ts": "export const greeting = (name: string): string => `Nx in the ${name}`;\n",
            "src/assets/.gitkeep": "",
        },
        {"/": '{"message":"Nx in the harbor"}', "/nothing": 404},
        lock="package-lock.json",
    ),
    Starter(
        # `create-nx-workspace --preset=react-monorepo`, without React: only the root has a package.json.
        "nx-monorepo",
        "Nx (static)",
        {
            "package.json": package(
                "@harbor/source",
                scripts={},
                devDependencies={
                    "@nx/js": NX,
                    "@nx/vite": NX,
                    "nx": NX,
                    "typescript": "5.9.3",
                    "vite": "7.3.1",
                },
            ),
            "nx.json": '{"targetDefaults": {"@nx/vite:build": {"cache": true, "dependsOn": ["^build"]}}}\n',
            "tsconfig.base.json": """
                {"compilerOptions": {"target": "es2022", "module": "esnext", "moduleResolution": "bundler",
                  "skipLibCheck": true, "baseUrl": ".", "paths": {"@harbor/tides": ["libs/tides/src/index.ts"]}}}
            """,
            "apps/web/project.json": """
                {
                  "name": "web",
                  "$schema": "../../node_modules/nx/schemas/project-schema.json",
                  "sourceRoot": "apps/web/src",
                  "projectType": "application",
                  "targets": {
                    "build": {
                      "executor": "@nx/vite:build",
                      "outputs": ["{options.outputPath}"],
                      "options": {"outputPath": "dist/apps/web"}
                    }
                  }
                }
            """,
            "apps/web/vite.config.ts": """
                import { nxViteTsPaths } from '@nx/vite/plugins/nx-tsconfig-paths.plugin';
                import { defineConfig } from 'vite';

                export default defineConfig({
                  root: __dirname,
                  plugins: [nxViteTsPaths()],
                  build: { outDir: '../../dist/apps/web', emptyOutDir: true },
                });
            """,
            "apps/web/tsconfig.json": '{"extends": "../../tsconfig.base.json", "include": ["src"]}\n',
            "apps/web/index.html": page("Nx pages", body='<script type="module" src="/src/main.ts"></script>'),
            "apps/web/src/main.ts": """
                import { highWater } from '@harbor/tides';

                document.body.textContent = highWater();
            """,
            "libs/tides/project.json": '{"name": "tides", "sourceRoot": "libs/tides/src", "projectType": "library"}\n',
            "libs/tides/src/index.ts": "export const highWater = (): string => 'High water at noon';\n",
        },
        {"/": "<title>Nx pages</title>"},
        kind="static",
        lock="package-lock.json",
    ),
)
