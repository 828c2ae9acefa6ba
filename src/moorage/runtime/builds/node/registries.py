"""Replace registries that do not exist any more in the lock files of npm, Yarn and pnpm.

A lock file has the address of each archive. Public repositories name mirrors that were closed and registries inside a
company, whose archives are those of the package registry; the digests in the lock file prove it at the installation.
"""

from __future__ import annotations

import re

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.environment import Layout, Step

LOCKS = ("package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml")
SETTINGS = (".npmrc", ".yarnrc")
_ADDRESS = re.compile(r"https?://[\w.-]+")
# It has to run on old versions of Node.js too. Behind a proxy, names need not be known here.
_PROGRAM = r"""
const fs = require("fs"), dns = require("dns"), os = require("os"), { execFileSync } = require("child_process");
const [locks, settings] = process.argv.slice(1).map((names) => names.split(",").filter((name) => fs.existsSync(name)));
const has_proxy = Object.keys(process.env).some((name) => /^(https?_|npm_config_(https_?)?)proxy$/i.test(name));
const texts = {}, hosts = new Set(), dead = new Set();
for (const name of [...locks, ...settings]) {
  texts[name] = fs.readFileSync(name, "utf8");
  const pattern = /(?:resolved"?:? "|tarball: ['"]?|registry["']?[ =]+["']?)https?:\/\/([\w.-]+)/g;
  for (let match; !has_proxy && (match = pattern.exec(texts[name])); ) hosts.add(match[1]);
}
const look = (host) => new Promise((done) => dns.lookup(host, (error) => done(error && dead.add(host))));
Promise.all([...hosts].slice(0, 20).map(look)).then(() => {
  if (!dead.size) return;
  const registry = execFileSync("npm", ["config", "get", "registry"], { cwd: os.tmpdir() }).toString().trim();
  const archive = new RegExp("https?://([\\w.-]+)(?::\\d+)?/(?:[^\\s\"'/]+/)*?" +
    "((?:@[\\w.-]+(?:/|%2[fF]))?[\\w.-]+)/(?:-|download)/(?:@[\\w.-]+(?:/|%2[fF]))?([\\w.-]+\\.tgz)" +
    "(?:\\?[^\\s\"'#]*)?", "g");
  for (const name of locks) {
    const changed = texts[name].replace(archive, (all, host, name, file) =>
      dead.has(host) ? `${registry.replace(/\/?$/, "/")}${name.replace(/%2f/i, "/")}/-/${file}` : all);
    if (changed !== texts[name]) fs.writeFileSync(name, changed);
  }
  for (const name of settings) {
    const is_dead = (line) => [...dead].some((host) => line.includes(`//${host}`));
    fs.writeFileSync(name, texts[name].split("\n").filter((line) => !is_dead(line)).join("\n"));
  }
  for (const host of dead)
    console.log(`the registry ${host} does not exist any more: its packages come from the package registry`);
});
"""


def repair(folder: Folder, layout: Layout) -> Step | None:
    """Return the step that replaces missing registries in the lock file of a folder; None where it names no address."""
    names = [name for name in (*LOCKS, *SETTINGS) if _ADDRESS.search(folder.find_text(name) or "")]
    if not names:
        return None
    argv = [layout.node, "-e", _PROGRAM, ",".join(LOCKS), ",".join(SETTINGS)]
    return Step("the check of registries", argv, is_optional=True, is_quiet=True, folder=folder.base)
