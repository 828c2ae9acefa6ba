/** Writes of variables and secrets: the API replaces all of them, so each write starts from what is stored now. */

import { api } from "../../../api/client";
import { ApiError } from "../../../api/errors";
import { showToast } from "../../../ui/toast";
import { changed } from "../../../api/resource";
import { text } from "../../../text";
import type { Project } from "../state";

export interface Pair {
  name: string;
  value: string;
}

export interface Changes {
  env?: Pair[]; // added or replaced
  secrets?: Pair[];
  removedEnv?: string[];
  removedSecrets?: string[];
}

/** Add, replace and remove variables and secrets of a project; names that become secrets stop being variables. */
export async function saveEnvironment(name: string, changes: Changes): Promise<Project> {
  const path = { name };
  const [project, stored] = await Promise.all([
    api.get("/v1/projects/{name}", { path }),
    api.get("/v1/projects/{name}/secrets", { path }),
  ]);
  const goneEnv = new Set([...(changes.removedEnv ?? []), ...(changes.secrets ?? []).map((each) => each.name)]);
  const goneSecrets = new Set([...(changes.removedSecrets ?? []), ...(changes.env ?? []).map((each) => each.name)]);
  const env = merged(project.env, changes.env ?? [], goneEnv);
  const secrets = merged<{ name: string; value?: string }>(stored, changes.secrets ?? [], goneSecrets);
  const hasEnv = JSON.stringify(env) !== JSON.stringify(project.env);
  const hasSecrets = secrets.some((each) => each.value !== undefined) || secrets.length !== stored.length;
  try {
    const saved = await api.patch("/v1/projects/{name}", { path, body: { ...(hasEnv && { env }), ...(hasSecrets && { secrets }) } });
    tell(saved);
    changed("/v1/projects");
    return saved;
  } catch (error) {
    throw error instanceof ApiError ? atPair(error) : error;
  }
}

function merged<T extends { name: string }>(stored: T[], put: T[], gone: Set<string>): T[] {
  const next = new Map(put.map((each) => [each.name, each]));
  const kept = stored.filter((each) => !gone.has(each.name)).map((each) => next.get(each.name) ?? ({ ...each } as T));
  const names = new Set(kept.map((each) => each.name));
  return [...kept, ...put.filter((each) => !names.has(each.name))];
}

/** Say where the change takes effect. */
export function tell(saved: Project): void {
  const uuid = saved.triggeredDeploymentUuid;
  showToast({
    kind: "ok",
    title: uuid ? text.environment.savedDeploying : text.environment.saved,
    href: uuid ? `/projects/${saved.name}/deployments/${uuid}` : undefined,
    linkText: text.projects.log,
  });
}

/** The API names `env[3].value`; a dialog for one variable shows that at its field `value`. */
function atPair(error: ApiError): ApiError {
  const fields = Object.fromEntries(Object.entries(error.fields).map(([name, problem]) => [/\.(name|value)$/.exec(name)?.[1] ?? "name", problem]));
  return new ApiError(error.status, error.code, error.message, fields, error.traceId, error.retryAfterS);
}
