// Bundles the console into a folder that the Python package serves:
//
//   index.html            names the files below; written last, so that a running server never names a missing file
//   assets/NAME-HASH.EXT  never changes, so that browsers keep it; with .br and .gz beside it where that is smaller
//   assets/licenses.txt   licenses of the packages in the bundle
//
// node build.mjs [--watch] [--out=FOLDER]

import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, watch, writeFileSync } from "node:fs";
import { basename, dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const OPTIONS = process.argv.slice(2);
const IS_WATCH = OPTIONS.includes("--watch");
const OUT = resolve(
  OPTIONS.find((each) => each.startsWith("--out="))?.slice(6) ?? join(HERE, "../src/moorage/console/static"),
);
const ASSETS = join(OUT, "assets");
const COMPRESSED = /\.(js|css|svg|txt|html)$/;
const QUALITY = IS_WATCH ? 1 : constants.BROTLI_MAX_QUALITY;

const COMMON = {
  absWorkingDir: HERE,
  bundle: true,
  minify: !IS_WATCH,
  target: "es2022",
  legalComments: "none",
  metafile: true,
  write: false,
  outdir: ASSETS,
  publicPath: "/assets/",
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  loader: { ".woff2": "file", ".svg": "file" },
  logLevel: "warning",
};

// Without this, esbuild puts each module that several pages share into a file of its own: the first load was 33 files.
// Every page imports the core, so that its modules are needed by all entries, and become one file.
const coreFiles = () => [
  ...["api", "frame", "lib", "ui", "ui/log"].flatMap((folder) => sourcesOf(join("src", folder), false)),
  ...["src/text/index.ts", "src/pages/lists/create.tsx", "src/pages/projects/state.ts", "src/ui/chart/sparkline.tsx"],
];

const oneCore = {
  name: "one-core",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^core:/ }, () => ({ path: "core", namespace: "core" }));
    onLoad({ filter: /.*/, namespace: "core" }, () => ({
      contents: [...coreFiles().map((path) => join(HERE, path)), ...iconFiles()].map((path) => `import ${JSON.stringify(path)};`).join("\n"),
      resolveDir: HERE,
    }));
    onLoad({ filter: /[\\/]src[\\/](pages[\\/].*\.tsx|main\.tsx|ui[\\/]editor[\\/]codemirror\.ts)$/ }, ({ path }) => ({
      contents: `${readFileSync(path, "utf8")}\nimport "core:";\n`,
      loader: path.endsWith("x") ? "tsx" : "ts",
    }));
    onResolve({ filter: /^\.\/prerender\.js$/ }, ({ path }) => ({ path, external: true })); // for servers, never called
  },
};

function sourcesOf(folder, isDeep = true) {
  return readdirSync(join(HERE, folder), { withFileTypes: true }).flatMap((each) => {
    const path = join(folder, each.name);
    if (each.isDirectory()) return isDeep ? sourcesOf(path) : [];
    return /\.tsx?$/.test(each.name) && !each.name.endsWith(".d.ts") ? [path] : [];
  });
}

// Files of all icons that the console uses.
function iconFiles() {
  const folder = join(HERE, "node_modules/lucide-preact/dist/esm");
  const files = new Map();
  for (const [, names, file] of readFileSync(join(folder, "lucide-preact.mjs"), "utf8").matchAll(/export \{([^}]*)\} from '([^']*)'/g)) {
    for (const [, name] of names.matchAll(/default as (\w+)/g)) files.set(name, join(folder, file));
  }
  const used = sourcesOf("src").flatMap((path) =>
    [...readFileSync(join(HERE, path), "utf8").matchAll(/import \{([^}]*)\} from "lucide-preact"/g)].flatMap(([, names]) =>
      names.split(",").map((name) => name.trim().split(/\s+/)[0]),
    ),
  );
  return [...new Set(used.map((name) => files.get(name)).filter(Boolean))].sort();
}

async function bundle() {
  const app = await build({
    ...COMMON,
    plugins: [oneCore],
    entryPoints: { app: "src/main.tsx" },
    format: "esm",
    splitting: true,
    jsx: "automatic",
    jsxImportSource: "preact",
    sourcemap: IS_WATCH ? "inline" : false,
    // Some packages import React; Preact speaks the same interface.
    alias: { react: "preact/compat", "react-dom": "preact/compat" },
    logOverride: { "ignored-bare-import": "silent" }, // of icons: the import only decides in which file they are
  });
  // Runs before all modules, so that a pinned theme does not flash, and the code of the opened page comes with the rest.
  const define = { FILES_OF_PAGES: JSON.stringify(filesOfPages(app.metafile)) };
  const boot = await build({ ...COMMON, define, entryPoints: { boot: "src/boot.ts" }, format: "iife" });
  const icon = await build({ ...COMMON, entryPoints: ["src/icon.svg"] });
  return [app, boot, icon];
}

// Paths of pages, and the files that a page needs besides those of the first load.
function filesOfPages({ outputs }) {
  const named = Object.entries(outputs).map(([path, output]) => [basename(path), output]);
  const byName = new Map(named);
  const closure = (name, seen = new Set()) => {
    if (seen.has(name) || !byName.has(name)) return seen;
    seen.add(name);
    for (const each of byName.get(name).imports) if (each.kind === "import-statement") closure(basename(each.path), seen);
    return seen;
  };
  const first = closure(named.find(([, output]) => output.entryPoint === "src/main.tsx")[0]);
  const pages = readFileSync(join(HERE, "src/pages.ts"), "utf8").matchAll(/path: "([^"]+)", load: \(\) => import\("\.\/([^"]+)"\)/g);
  return [...pages].map(([, path, source]) => {
    const entry = named.find(([, output]) => output.entryPoint === `src/${source}.tsx`)[0];
    return [path, [...closure(entry)].filter((name) => !first.has(name))];
  });
}

function writeAll(results) {
  mkdirSync(ASSETS, { recursive: true });
  const before = readKept();
  const files = new Map();
  for (const result of results) {
    for (const file of result.outputFiles) {
      if (!file.path.endsWith(".js") || file.text.length > 0) files.set(basename(file.path), file.contents);
    }
  }
  files.set(`licenses-${hashOf(licenses(results[0].metafile))}.txt`, Buffer.from(licenses(results[0].metafile)));
  for (const [name, contents] of files) writeAsset(name, contents);
  const needed = firstLoad(files).filter((name) => name.endsWith(".js") && !/^(app|boot)-/.test(name));
  const preloads = needed.map((name) => `<link rel="modulepreload" href="/assets/${name}">\n`).join("");
  const template = readFileSync(join(HERE, "src/index.html"), "utf8").replace("<!-- preloads -->\n", preloads);
  const page = template.replace(/\{(\w+\.\w+)\}/g, (_, wanted) => {
    const [stem, extension] = wanted.split(".");
    const found = [...files.keys()].find((name) => name.startsWith(`${stem}-`) && name.endsWith(`.${extension}`));
    if (!found) throw new Error(`index.html names ${wanted}, and the bundle has no such file`);
    return `/assets/${found}`;
  });
  replaceFile(join(OUT, "files.json"), JSON.stringify([...files.keys()].sort()));
  replaceFile(join(OUT, "index.html"), page);
  // Tabs that were opened before this build still load the files of the build before.
  for (const name of readdirSync(ASSETS)) {
    const plain = name.replace(/\.(br|gz)$/, "");
    if (!files.has(plain) && !before.includes(plain)) rmSync(join(ASSETS, name));
  }
  return files;
}

function readKept() {
  const list = join(OUT, "files.json");
  return existsSync(list) ? JSON.parse(readFileSync(list, "utf8")) : [];
}

function writeAsset(name, contents) {
  const path = join(ASSETS, name);
  if (existsSync(path)) return;
  if (COMPRESSED.test(name)) {
    const params = { [constants.BROTLI_PARAM_QUALITY]: QUALITY, [constants.BROTLI_PARAM_SIZE_HINT]: contents.length };
    const variants = { br: brotliCompressSync(contents, { params }), gz: gzipSync(contents, { level: 9 }) };
    for (const [ending, bytes] of Object.entries(variants)) {
      if (bytes.length < contents.length) replaceFile(`${path}.${ending}`, bytes);
    }
  }
  replaceFile(path, contents);
}

function replaceFile(path, contents) {
  writeFileSync(`${path}.new`, contents);
  renameSync(`${path}.new`, path);
}

function hashOf(text) {
  return createHash("sha256").update(text).digest("hex").slice(0, 8).toUpperCase();
}

function licenses(metafile) {
  const names = new Set();
  for (const input of Object.keys(metafile.inputs)) {
    const match = input.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//);
    if (match) names.add(match[1]);
  }
  const texts = [...names].sort().map((name) => {
    const folder = join(HERE, "node_modules", name);
    const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((each) => /^licen[sc]e/i.test(each));
    const text = file ? readFileSync(join(folder, file), "utf8").trim() : `License: ${about.license}`;
    return `${name} ${about.version}\n\n${text}\n`;
  });
  return texts.join(`\n${"-".repeat(72)}\n\n`);
}

function report(files, startedAt) {
  const sizeOf = (name) => {
    const packed = join(ASSETS, `${name}.br`);
    return existsSync(packed) ? readFileSync(packed).length : files.get(name).length;
  };
  const first = firstLoad(files);
  const scripts = first.filter((name) => name.endsWith(".js")).reduce((sum, name) => sum + sizeOf(name), 0);
  console.log(
    `console: ${files.size} files in ${relative(process.cwd(), OUT) || OUT}, first load ` +
      `${(scripts / 1024).toFixed(1)} KB of script compressed, after ${((Date.now() - startedAt) / 1000).toFixed(1)} s`,
  );
}

// Files that the browser needs before the first page shows: the entries, and what they import at once.
function firstLoad(files) {
  const decoder = new TextDecoder();
  const seen = new Set();
  const visit = (name) => {
    if (seen.has(name) || !files.has(name)) return;
    seen.add(name);
    if (!name.endsWith(".js")) return;
    for (const match of decoder.decode(files.get(name)).matchAll(/(?:from|import)\s*"\.?\/(?:assets\/)?([^"]+)"/g)) {
      visit(match[1]);
    }
  };
  for (const name of files.keys()) if (/^(app|boot)-/.test(name)) visit(name);
  return [...seen];
}

async function run() {
  const startedAt = Date.now();
  report(writeAll(await bundle()), startedAt);
}

await run();
if (IS_WATCH) {
  let timer;
  watch(join(HERE, "src"), { recursive: true }, () => {
    clearTimeout(timer);
    timer = setTimeout(() => run().catch((error) => console.error(String(error.message ?? error))), 80);
  });
  console.log("console: watching src/; reload the page after a change");
}
