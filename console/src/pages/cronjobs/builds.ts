/** The newest build of a cronjob that this browser started: the API names it once, in the answer to the change. */

import { organizationId } from "../../api/session";

function keyOf(name: string): string {
  return `moorage.build.${organizationId.peek()}.${name}`;
}

export function keepBuild(name: string, uuid: string): void {
  try {
    localStorage.setItem(keyOf(name), uuid);
  } catch {
    // The storage is full: the address of the page has the build too.
  }
}

export function readBuild(name: string): string | undefined {
  return localStorage.getItem(keyOf(name)) ?? undefined;
}

export function forgetBuild(name: string): void {
  localStorage.removeItem(keyOf(name));
}
