/** What projects and deployments are doing, in one word for `Status`. */

import type { Data, Item } from "../../api/types";

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
