/** One project: its head, its tabs, and the tab that is open. Others add their tabs to `TABS`. */

import { Ellipsis, ExternalLink, GitCommitHorizontal, History, RefreshCw, RotateCw, Rocket, Upload } from "lucide-preact";
import type { AnyComponent } from "preact";
import { lazy, useLocation } from "preact-iso";
import { useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import { NotFound } from "../../frame/notfound";
import { PageHead } from "../../frame/page";
import { hostOf } from "../../lib/format";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { Button, ButtonLink } from "../../ui/button";
import { Dialog } from "../../ui/dialog";
import { Loaded, Skeleton, SkeletonRows } from "../../ui/feedback";
import { MenuItem, Popover } from "../../ui/menu";
import { Status } from "../../ui/status";
import { Tabs } from "../../ui/tabs";
import { DropSite } from "../home/drop";
import { DeployCommit } from "./commit";
import { projectState, type Project } from "./state";

export interface TabProps {
  project: Project;
  id?: string | undefined; // the rest of the address, for example a deployment
  reload: () => void;
}

interface TabPage {
  key: string; // in the address; "" is the first tab
  label: string;
  component: AnyComponent<TabProps>;
}

const TABS: TabPage[] = [
  { key: "", label: text.projects.tabs.overview, component: lazy(() => import("./overview")) },
  { key: "deployments", label: text.projects.tabs.deployments, component: lazy(() => import("./deployments")) },
  { key: "previews", label: text.projectTabs.previews, component: lazy(() => import("./tabs/previews")) },
  { key: "logs", label: text.projectTabs.logs, component: lazy(() => import("./tabs/logs")) },
  { key: "metrics", label: text.projectTabs.metrics, component: lazy(() => import("./tabs/metrics")) },
  { key: "visitors", label: text.projectTabs.visitors, component: lazy(() => import("./tabs/visitors")) },
  { key: "domains", label: text.projectTabs.domains, component: lazy(() => import("./tabs/domains")) },
  { key: "environment", label: text.projectTabs.environment, component: lazy(() => import("./tabs/environment")) },
  { key: "rules", label: text.projectTabs.rules, component: lazy(() => import("./tabs/rules")) },
  { key: "console", label: text.projectTabs.run, component: lazy(() => import("./tabs/run")) },
  { key: "activity", label: text.activity.title, component: lazy(() => import("./tabs/activity")) },
  { key: "settings", label: text.projects.tabs.settings, component: lazy(() => import("./settings")) },
];

export default function ProjectPage({ name, tab = "", id }: { name: string; tab?: string; id?: string }) {
  const project = useResource("/v1/projects/{name}", { path: { name } }, { pollMs: 6_000 });
  const open = TABS.find((each) => each.key === tab);
  if (!open || project.error?.status === 404) return <NotFound />;
  const Open = open.component;
  return (
    <>
      <PageHead
        title={name}
        crumbs={[{ label: text.projects.title, href: "/projects" }]}
        status={project.data ? <Status of={projectState(project.data)} /> : <Skeleton width={70} />}
        subtitle={project.data ? <Address url={project.data.projectUrl} /> : <Skeleton width={220} height={20} />}
        actions={project.data && <Actions project={project.data} />}
      />
      <Tabs label={name} tabs={TABS.map(({ key, label }) => ({ href: `/projects/${name}${key && `/${key}`}`, label }))} />
      <Loaded of={project} skeleton={<SkeletonRows rows={4} />}>
        {(data) => <Open project={data} id={id} reload={() => void project.reload()} />}
      </Loaded>
    </>
  );
}

function Address({ url }: { url: string }) {
  return (
    <a href={url} target="_blank" rel="noopener noreferrer" class="row">
      <span class="cut">{hostOf(url)}</span> <ExternalLink size={13} aria-hidden="true" />
    </a>
  );
}

function Actions({ project }: { project: Project }) {
  const { route } = useLocation();
  const path = { name: project.name };
  const show = (deploymentUuid: string) => route(`/projects/${project.name}/deployments/${deploymentUuid}`);
  const options = {
    done: text.projects.deployStarted,
    refreshes: ["/v1/projects"],
    onDone: (started: { deploymentUuid: string }) => show(started.deploymentUuid),
  };
  const deploy = useAction((operation: "deploy" | "restart" | "rebuild") => api.post("/v1/projects/{name}/deploy", { path, body: { operation } }), options);
  const redeploy = useAction(() => api.post("/v1/projects/{name}/redeploy", { path }), options);
  const why = whyNot("member");
  const [isUploading, setUploading] = useState(false);
  const [isChoosing, setChoosing] = useState(false);
  const hasSource = project.repositoryName !== null || project.publicImage !== null;
  return (
    <>
      <ButtonLink href={project.projectUrl} isExternal icon={<ExternalLink size={15} aria-hidden="true" />}>
        {text.common.open}
      </ButtonLink>
      {hasSource && (
        <Button kind="primary" why={why} isBusy={deploy.isBusy} onClick={() => deploy.run("deploy")} icon={<Rocket size={15} aria-hidden="true" />}>
          {text.projects.deploy}
        </Button>
      )}
      {!hasSource && (
        <Button kind="primary" why={why} onClick={() => setUploading(true)} icon={<Upload size={15} aria-hidden="true" />}>
          {text.projects.newVersion}
        </Button>
      )}
      {isUploading && (
        <Dialog title={text.projects.newVersion} onClose={() => setUploading(false)} isLarge>
          <DropSite name={project.name} />
        </Dialog>
      )}
      {isChoosing && <DeployCommit project={project} onClose={() => setChoosing(false)} onStarted={show} />}
      <Popover
        label={text.common.more}
        trigger={(props) => (
          <button type="button" class="button icon" aria-label={text.common.more} {...props}>
            <Ellipsis size={16} aria-hidden="true" />
          </button>
        )}
      >
        {(close) => (
          <>
            {project.repositoryName !== null && (
              <MenuItem icon={<GitCommitHorizontal size={15} aria-hidden="true" />} why={why} onClick={() => (close(), setChoosing(true))}>
                {text.deployCommit.title}
              </MenuItem>
            )}
            {hasSource && (
              <MenuItem icon={<RefreshCw size={15} aria-hidden="true" />} why={why} onClick={() => (close(), void redeploy.run())}>
                {text.projects.redeploy}
              </MenuItem>
            )}
            {hasSource && (
              <MenuItem icon={<RotateCw size={15} aria-hidden="true" />} why={why} onClick={() => (close(), void deploy.run("rebuild"))}>
                {text.projects.rebuild}
              </MenuItem>
            )}
            <MenuItem icon={<RotateCw size={15} aria-hidden="true" />} why={why} onClick={() => (close(), void deploy.run("restart"))}>
              {text.projects.restart}
            </MenuItem>
            <MenuItem icon={<History size={15} aria-hidden="true" />} href={`/projects/${project.name}/deployments`} onClick={close}>
              {text.projects.deployments}
            </MenuItem>
          </>
        )}
      </Popover>
    </>
  );
}
