/** Keyboard shortcuts of the whole console: single keys, and two keys after another such as `g p`. */

import { useEffect } from "preact/hooks";

export interface Shortcut {
  keys: string; // "?", "/", "g p", "mod+k"
  label: string;
  run: (event: KeyboardEvent) => void;
  isFallback?: boolean | undefined; // another shortcut with the same keys replaces it
}

const shortcuts = new Map<string, Shortcut>();
const fallbacks = new Map<string, Shortcut>();
let before = "";
let timer: ReturnType<typeof setTimeout> | undefined;

export const isMac = /Mac|iPhone|iPad/.test(navigator.platform);

export function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName) || target.closest(".cm-editor") !== null)
  );
}

export function addShortcut(shortcut: Shortcut): () => void {
  const added = shortcut.isFallback ? fallbacks : shortcuts;
  added.set(shortcut.keys, shortcut);
  return () => {
    if (added.get(shortcut.keys) === shortcut) added.delete(shortcut.keys);
  };
}

export function allShortcuts(): Shortcut[] {
  return [...new Map([...fallbacks, ...shortcuts]).values()];
}

export function useShortcut(keys: string, label: string, run: (event: KeyboardEvent) => void, isFallback = false): void {
  useEffect(() => addShortcut({ keys, label, run, isFallback }), [keys, label, run]);
}

export function keysToShow(keys: string): string[] {
  return keys.split(/[ +]/).map((key) => (key === "mod" ? (isMac ? "⌘" : "Ctrl") : key.length === 1 ? key.toUpperCase() : key));
}

addEventListener("keydown", (event) => {
  const name = `${event.metaKey || event.ctrlKey ? "mod+" : ""}${event.key}`;
  if (event.altKey || event.isComposing) return;
  if (name.startsWith("mod+")) {
    const found = shortcuts.get(name.toLowerCase());
    if (found) {
      event.preventDefault();
      found.run(event);
    }
    return;
  }
  if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
  const keys = before ? `${before} ${name}` : name;
  const found = shortcuts.get(keys) ?? fallbacks.get(keys);
  clearTimeout(timer);
  before = before || name.length > 1 ? "" : name;
  timer = setTimeout(() => (before = ""), 900);
  if (found) {
    before = "";
    event.preventDefault();
    found.run(event);
  }
});
