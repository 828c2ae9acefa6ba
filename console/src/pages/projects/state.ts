/** What projects and deployments are doing, in one word for `Status`. */

import { useResource } from "../../api/resource";
import type { Data, Item } from "../../api/types";
import { text } from "../../text";
import type { Mark } from "../../ui/chart/marks";

export type ProjectItem = Item<Data<"/v1/projects">>;
export type Project = Data<"/v1/projects/{name}">;
export type Deployment = Item<Data<"/v1/projects/{name}/deployments">>;

/** A running deployment is not a running app. */
export function deploymentState(status: string | null | undefined): string {
  return status === "running" ? "deploying" : (status ?? "never");
}

export function projectState(project: Pick<ProjectItem, "enabled" | "latestDeployment">): string {
  if (!project.enabled) return "disabled";
  const status = project.latestDeployment?.status;
  return status === "succeeded" ? "live" : deploymentState(status);
}

export function shortCommit(commit: string | null | undefined): string {
  return commit ? commit.slice(0, 7) : "";
}

/** Return the deployments that went live since a moment, the latest first; a chart marks them. */
export function useLiveDeployments(name: string, since: number): Deployment[] {
  const list = useResource("/v1/projects/{name}/deployments", { path: { name }, query: { limit: 100 } }, { pollMs: 15_000 });
  return (list.data?.items ?? []).filter((each) => each.status === "succeeded" && !each.preview && Date.parse(each.updatedAt) >= since);
}

export function markOf(name: string, { updatedAt, commitId, kind, deploymentUuid }: Deployment): Mark {
  return { at: Date.parse(updatedAt) / 1_000, label: text.metrics.mark(shortCommit(commitId) || kind), href: `/projects/${name}/deployments/${deploymentUuid}` };
}
