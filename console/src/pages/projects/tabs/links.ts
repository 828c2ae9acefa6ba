/** Which secrets of a project come from a database that is linked to it. */

import { useEffect, useState } from "preact/hooks";
import { api } from "../../../api/client";

/** Return the database of each linked secret, by the name of the secret. Databases are asked only if a name fits. */
export function useLinks(projectId: number, secrets: string[]): Record<string, string> {
  const [links, setLinks] = useState<Record<string, string>>({});
  const candidates = secrets.filter((each) => each.startsWith("DATABASE_URL"));
  useEffect(() => {
    if (candidates.length === 0) return setLinks({});
    let isGone = false;
    void linkedDatabases(projectId).then((names) => {
      if (!isGone) setLinks(linksOf(names, candidates));
    }, () => undefined);
    return () => {
      isGone = true;
    };
  }, [projectId, candidates.join(",")]);
  return links;
}

async function linkedDatabases(projectId: number): Promise<string[]> {
  const { items } = await api.get("/v1/databases", { query: { pageSize: 100 } });
  const names = items.flatMap(({ name }) => (name ? [name] : []));
  const found = await Promise.all(names.map((name) => api.get("/v1/databases/{name}", { path: { name } })));
  return found.flatMap((each) => (each.projectId === projectId && each.name ? [each.name] : []));
}

/** The platform takes DATABASE_URL, and DATABASE_URL_NAME where that is taken. */
function linksOf(databases: string[], secrets: string[]): Record<string, string> {
  const links: Record<string, string> = {};
  for (const database of databases) {
    const own = `DATABASE_URL_${database.toUpperCase().replaceAll("-", "_")}`;
    const secret = secrets.find((each) => each === own || each.startsWith(`${own}_`)) ?? secrets.find((each) => each === "DATABASE_URL");
    if (secret) links[secret] = database;
  }
  return links;
}
