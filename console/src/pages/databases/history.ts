/** Statements that were run in this browser, for each database of each organization. */

import { organizationId } from "../../api/session";

const MOST = 20;
const keyOf = (name: string) => `moorage.sql.${organizationId.peek()}.${name}`;

export function historyOf(name: string): string[] {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(keyOf(name)) ?? "[]");
    return Array.isArray(kept) ? kept.filter((each) => typeof each === "string") : [];
  } catch {
    return [];
  }
}

export function remember(name: string, sql: string): string[] {
  const next = [sql, ...historyOf(name).filter((each) => each !== sql)].slice(0, MOST);
  try {
    localStorage.setItem(keyOf(name), JSON.stringify(next));
  } catch {
    // The storage is full or forbidden: the statement still runs.
  }
  return next;
}

export function forget(name: string): string[] {
  localStorage.removeItem(keyOf(name));
  return [];
}
