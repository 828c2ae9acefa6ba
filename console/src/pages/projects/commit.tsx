/** Deploy a chosen commit: an id that is pasted, or one of the commits that were deployed before. */

import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import { relative } from "../../lib/format";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { ApiCall } from "../../ui/apicall";
import { Dialog } from "../../ui/dialog";
import { Choices, Form, TextField, useForm } from "../../ui/form";
import { shortCommit, type Deployment, type Project } from "./state";

const t = text.deployCommit;
const SHOWN = 4;

interface DeployCommitProps {
  project: Project;
  onClose: () => void;
  onStarted: (deploymentUuid: string) => void;
}

export function DeployCommit({ project, onClose, onStarted }: DeployCommitProps) {
  const path = { name: project.name };
  const list = useResource("/v1/projects/{name}/deployments", { path, query: { limit: 100 } });
  const form = useForm({ commitSha: "" }, ({ commitSha }) => api.post("/v1/projects/{name}/deploy", { path, body: { operation: "deploy", commitSha } }), {
    done: text.projects.deployStarted,
    refreshes: ["/v1/projects"],
    onDone: ({ deploymentUuid }) => (onClose(), onStarted(deploymentUuid)),
  });
  const { commitSha } = form.values.value;
  const earlier = commitsOf(list.data?.items ?? []);
  return (
    <Dialog title={t.title} onClose={onClose}>
      <Form form={form} submit={t.submit} onCancel={onClose} why={whyNot("member") ?? (commitSha ? undefined : t.needsCommit)}>
        <TextField form={form} name="commitSha" label={text.projects.commit} hint={t.hint(project.repositoryName ?? "")} placeholder="a1b2c3d" isCode isFocused clean={(given) => given.trim()} />
        {earlier.length > 0 && <Choices label={t.earlier} value={commitSha} onChange={(sha) => form.set("commitSha", sha)} options={earlier.map(optionOf)} />}
        <ApiCall method="POST" path={`/v1/projects/${project.name}/deploy`} body={{ operation: "deploy", commitSha }} />
      </Form>
    </Dialog>
  );
}

/** The newest deployment of each of the last commits. */
function commitsOf(items: Deployment[]): Deployment[] {
  const newest = new Map<string, Deployment>();
  for (const each of items) if (each.commitSha && !each.preview && !newest.has(each.commitSha)) newest.set(each.commitSha, each);
  return [...newest.values()].slice(0, SHOWN);
}

function optionOf({ commitSha, branch, enable, status, createdAt }: Deployment) {
  const state = enable ? text.projects.live : status === "failed" ? text.status.failed.toLowerCase() : "";
  return { value: commitSha!, label: shortCommit(commitSha), hint: [branch, relative(new Date(createdAt), Date.now()), state].filter(Boolean).join(" · ") };
}
