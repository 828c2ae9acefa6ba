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
/** The server has refused the token. In the middle of work the page stays, under a dialog that asks to sign in again. */
export const hasExpired = signal(false);
let hasWorked = false; // the token was accepted since this page was loaded

export function signIn(next: Session, { keep = next.kind === "session" } = {}): void {
  if (keep) sessionStorage.removeItem(KEY); // Other tabs see the new session in one step.
  const used = adopt(next);
  (keep ? localStorage : sessionStorage).setItem(KEY, JSON.stringify(used));
}

/** Use a session in this tab. After an expired one the organization stays, and the page with all that was typed. */
function adopt(next: Session): Session {
  const before = session.peek();
  const used = before && hasExpired.peek() && next.kind === "session" ? { ...next, organizationId: before.organizationId } : next;
  hasExpired.value = false;
  session.value = used;
  return used;
}

/** Note that the server accepts the token. */
export function markAccepted(): void {
  hasWorked = true;
}

export function chooseOrganization(id: string): void {
  const current = session.peek();
  if (!current || current.organizationId === id) return;
  signIn({ ...current, organizationId: id }, { keep: sessionStorage.getItem(KEY) === null });
}

export function signOut(): void {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
  leave();
}

function leave(): void {
  hasExpired.value = hasWorked = false;
  session.value = null;
}

/**
 * Stop using a token that the server refused: in the middle of work the page stays, otherwise its address is kept, so that
 * signing in leads back to it. Other tabs find out by themselves; a removed session would sign them out.
 */
export function expire(token: string): void {
  if (session.peek()?.token !== token || hasExpired.peek()) return;
  sessionStorage.removeItem(KEY);
  keepPlace();
  hasExpired.value = true;
  if (!hasWorked) session.value = null;
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

// Another tab signed in or out. The organization that another tab has chosen is not this tab's.
addEventListener("storage", (event) => {
  if (event.key !== KEY || sessionStorage.getItem(KEY) !== null) return;
  const next = read();
  if (next === null) leave();
  else if (next.token !== session.peek()?.token) adopt(next);
});
