/** What several tabs of a database need. */

import type { Data } from "../../api/types";

export type Database = Data<"/v1/databases/{name}">;
export type Tier = Data<"/v1/tiers">[number];

export interface TabProps {
  database: Database;
  name: string;
  schema?: string | undefined;
  table?: string | undefined;
}

export const isPostgres = (database: Database): boolean => database.type.toLowerCase().startsWith("postgres");
export const isBusy = (database: Database): boolean => !["running", "failed", "stopped"].includes((database.status ?? "").toLowerCase());

export const VERSIONS: Record<string, string[]> = { postgresql: ["16.4.0", "14.8.0"], mysql: ["8.4.2", "5.7.44"] };

export function paths(name: string, tab = ""): string {
  return `/databases/${name}${tab && `/${tab}`}`;
}

/** Servers describe themselves at length: "PostgreSQL 16.4 on x86_64, compiled by …" is 16.4 here. */
export function versionOf(database: Database): string {
  return /\d+(\.\d+)+/.exec(database.engineVersion ?? database.version ?? "")?.[0] ?? database.version ?? "";
}
