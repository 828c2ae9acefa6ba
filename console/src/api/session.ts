/**
 * Who is signed in, in this browser.
 *
 * A session token ends by itself within a day, and is kept in `localStorage`, so that tabs share it. A pasted API token
 * may be valid for years: it is kept for the tab only (`sessionStorage`), unless the person wants to keep it. Scripts
 * of other hosts cannot run here (Content-Security-Policy), and sites of tenants have other origins. No cookie is used,
 * so no other site can make a browser send the token. See docs/decisions/0051.
 */

import { computed, signal } from "@preact/signals";

export interface Session {
  token: string;
  kind: "session" | "token";
  organizationId: string; // "" until one is chosen; an API token has only one
}

const KEY = "moorage.session";
const PLACE = "moorage.place";

function read(): Session | null {
  for (const storage of [sessionStorage, localStorage]) {
    try {
      const found = JSON.parse(storage.getItem(KEY) ?? "null") as Session | null;
      if (found?.token) return found;
    } catch {
      storage.removeItem(KEY);
    }
  }
  return null;
}

export const session = signal<Session | null>(read());
export const isSignedIn = computed(() => session.value !== null);
export const organizationId = computed(() => session.value?.organizationId ?? "");
/** Set when the server refused the token in the middle of work. */
export const hasExpired = signal(false);

export function signIn(next: Session, { keep = next.kind === "session" } = {}): void {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
  (keep ? localStorage : sessionStorage).setItem(KEY, JSON.stringify(next));
  hasExpired.value = false;
  session.value = next;
}

export function chooseOrganization(id: string): void {
  const current = session.peek();
  if (!current || current.organizationId === id) return;
  signIn({ ...current, organizationId: id }, { keep: localStorage.getItem(KEY) !== null });
}

export function signOut(): void {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
  session.value = null;
}

/** Forget a token that the server refused, and remember the page, so that signing in leads back to it. */
export function expire(token: string): void {
  if (session.peek()?.token !== token) return;
  keepPlace();
  hasExpired.value = true;
  signOut();
}

export function keepPlace(place = location.pathname + location.search): void {
  if (!place.startsWith("/sign-in")) sessionStorage.setItem(PLACE, place);
}

/** Return the page to open after signing in, once. Only paths of this console. */
export function takePlace(): string {
  const place = sessionStorage.getItem(PLACE) ?? "/";
  sessionStorage.removeItem(PLACE);
  return /^\/(?!\/)/.test(place) ? place : "/";
}

// Another tab signed in or out.
addEventListener("storage", (event) => {
  if (event.key === KEY && sessionStorage.getItem(KEY) === null) session.value = read();
});
