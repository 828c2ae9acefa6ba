/** The theme follows the system, or is pinned in this browser. `boot.ts` sets it before the first paint. */

import { computed, effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const KEY = "moorage.theme";
const stored = localStorage.getItem(KEY);
const media = matchMedia("(prefers-color-scheme: dark)");
const isSystemDark = signal(media.matches);
media.addEventListener("change", () => (isSystemDark.value = media.matches));

export const theme = signal<Theme>(stored === "light" || stored === "dark" ? stored : "system");
export const isDark = computed(() => (theme.value === "system" ? isSystemDark.value : theme.value === "dark"));

effect(() => {
  if (theme.value === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, theme.value);
});
effect(() => {
  document.documentElement.classList.toggle("dark", isDark.value);
});
