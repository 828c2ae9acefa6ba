"""The web console: serves the files that `console/build.mjs` bundles from the TypeScript source in `/console`."""
