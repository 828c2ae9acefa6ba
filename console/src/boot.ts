/**
 * Runs before the modules of the console: sets the theme before the first paint, and asks for the code of the opened
 * page, which the modules would ask for only after they have run.
 */

import { isAt } from "./lib/paths";

declare const FILES_OF_PAGES: [pattern: string, files: string[]][]; // of build.mjs

const pinned = localStorage.getItem("moorage.theme");
const isDark = pinned ? pinned === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
document.documentElement.classList.toggle("dark", isDark);

if (sessionStorage.getItem("moorage.session") ?? localStorage.getItem("moorage.session")) {
  for (const file of FILES_OF_PAGES.find(([pattern]) => isAt(pattern, location.pathname))?.[1] ?? []) {
    const link = document.createElement("link");
    link.rel = "modulepreload";
    link.href = `/assets/${file}`;
    document.head.append(link);
  }
}
