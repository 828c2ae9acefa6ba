/** What the browser keeps of a function: code that is not deployed, and parameters of test runs. */

import { organizationId } from "../../api/session";
import type { Files } from "../../ui/editor/editor";

export interface Draft {
  version: number; // that the draft started from
  files: Files;
}

function keyOf(kind: string, name: string): string {
  return `moorage.${kind}.${organizationId.peek()}.${name}`;
}

function write(key: string, value: string | undefined): boolean {
  try {
    if (value === undefined) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
    return true;
  } catch {
    return false; // the storage of the browser is full
  }
}

export function readDraft(name: string): Draft | undefined {
  try {
    const found = JSON.parse(localStorage.getItem(keyOf("draft", name)) ?? "null") as Draft | null;
    return found && typeof found.version === "number" && found.files ? found : undefined;
  } catch {
    return undefined;
  }
}

export function keepDraft(name: string, draft: Draft | undefined): boolean {
  return write(keyOf("draft", name), draft && JSON.stringify(draft));
}

export function readParams(name: string): string {
  return localStorage.getItem(keyOf("params", name)) ?? "{}";
}

export function keepParams(name: string, params: string): boolean {
  return write(keyOf("params", name), params);
}

/** Forget all of a function that was deleted. */
export function forget(name: string): void {
  for (const kind of ["draft", "params"]) write(keyOf(kind, name), undefined);
}
