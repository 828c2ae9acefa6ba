/** Settings of a project: build, compute, deployments, name, and the acts that stop or delete it. */

import { useLocation } from "preact-iso";
import { useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import type { Body } from "../../api/types";
import { fromLines, toLines } from "../../lib/args";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { ConfirmDanger } from "../../ui/dialog";
import { Card } from "../../ui/feedback";
import { Form, Switch, TextField, useForm } from "../../ui/form";
import { Compute } from "./compute";
import { useNameHint } from "./create";
import type { TabProps } from "./project";
import type { Project } from "./state";
import { tell } from "./tabs/env";

type Changes = Body<"/v1/projects/{name}", "patch">;

export function patch(name: string, body: Changes): Promise<Project> {
  return api.patch("/v1/projects/{name}", { path: { name }, body });
}

export default function Settings({ project }: TabProps) {
  const isApp = project.slug === "container";
  return (
    <div class="settings-grid">
      {(project.repositoryName !== null || project.publicImage !== null) && <Build project={project} />}
      {isApp && <Compute project={project} />}
      <Deploys project={project} />
      <Rename project={project} />
      <Danger project={project} />
    </div>
  );
}

type BuildField = "baseDir" | "buildCmd" | "buildDir" | "startCmd" | "healthCheckPath" | "publicImage" | "dockerFilePath" | "dockerBuildContextDir" | "dockerBuildTarget" | "dockerBuildArgs";

const OF_KIND: Record<string, BuildField[]> = {
  static: ["baseDir", "buildCmd", "buildDir"],
  container: ["baseDir", "buildCmd", "startCmd", "healthCheckPath"],
  docker: ["baseDir", "startCmd", "healthCheckPath", "dockerFilePath", "dockerBuildContextDir", "dockerBuildTarget", "dockerBuildArgs"],
  image: ["publicImage", "startCmd", "healthCheckPath"],
};

/** A repository whose Dockerfile was detected has the fields of both. */
function fieldsOf({ publicImage, slug, language }: Project): BuildField[] {
  if (publicImage !== null) return OF_KIND["image"]!;
  if (slug !== "container") return OF_KIND[slug ?? ""] ?? ["baseDir", "buildCmd", "buildDir", "startCmd"];
  return language === "docker" ? OF_KIND["docker"]! : [...OF_KIND["container"]!, ...(language === "auto" || language === null ? (["dockerFilePath"] as const) : [])];
}

/** Only what was changed is sent, so that what others changed meanwhile stays. */
function Build({ project }: { project: Project }) {
  const t = text.projectSettings;
  const names = fieldsOf(project);
  const stored = (name: BuildField) => (name === "dockerBuildArgs" ? toLines(project[name]) : (project[name] ?? ""));
  const initial = Object.fromEntries(names.map((name) => [name, stored(name)])) as Record<BuildField, string>;
  const form = useForm(
    initial,
    (values) => patch(project.name, Object.fromEntries(names.filter((name) => values[name] !== stored(name)).map((name) => [name, name === "dockerBuildArgs" ? fromLines(values[name]) : values[name]]))),
    { refreshes: ["/v1/projects"], onDone: tell },
  );
  const labels: Record<BuildField, [label: string, placeholder: string]> = {
    baseDir: [t.baseDir, "./"],
    buildCmd: [t.buildCmd, t.detected],
    buildDir: [t.buildDir, "dist"],
    startCmd: [t.startCmd, t.detected],
    healthCheckPath: [t.health, "/"],
    publicImage: [t.image, "nginx:1.27"],
    dockerFilePath: [t.dockerFilePath, "./Dockerfile"],
    dockerBuildContextDir: [t.dockerBuildContextDir, "./"],
    dockerBuildTarget: [t.dockerBuildTarget, ""],
    dockerBuildArgs: [t.dockerBuildArgs, "NODE_ENV=production"],
  };
  const hints: Partial<Record<BuildField, string>> = { healthCheckPath: t.healthHint, publicImage: t.imageHint, dockerBuildArgs: t.dockerBuildArgsHint };
  return (
    <Card title={t.build} foot={t.buildHint}>
      <Form form={form} submit={text.common.save} why={whyNot("member")}>
        <div class="fields">
          {names.map((name) => (
            <TextField key={name} form={form} name={name} label={labels[name][0]} placeholder={labels[name][1]} hint={hints[name]} rows={name === "dockerBuildArgs" ? 3 : undefined} isCode />
          ))}
        </div>
      </Form>
    </Card>
  );
}

function Deploys({ project }: { project: Project }) {
  const t = text.projectSettings;
  const why = whyNot("member");
  const save = useAction((changes: Changes) => patch(project.name, changes), { done: t.saved, refreshes: ["/v1/projects"] });
  return (
    <Card title={t.deploys}>
      <div class="stack wide">
        {project.repositoryName !== null && <Switch label={t.autoDeploy} hint={`${project.repositoryName}, ${project.branch ?? ""}`} isOn={project.autoDeploy} why={why} onChange={(autoDeploy) => void save.run({ autoDeploy })} />}
        {project.slug === "container" && <Switch label={t.deployGuard} hint={t.deployGuardHint} isOn={project.deployGuard} why={why} onChange={(deployGuard) => void save.run({ deployGuard })} />}
        <Switch label={t.analytics} hint={t.analyticsHint} isOn={project.enableAnalytics} why={why} onChange={(enableAnalytics) => void save.run({ enableAnalytics })} />
      </div>
    </Card>
  );
}

function Rename({ project }: { project: Project }) {
  const { route } = useLocation();
  const t = text.projectSettings;
  const form = useForm({ name: project.name }, ({ name }) => api.patch("/v1/projects/{name}/name", { path: { name: project.name }, body: { name } }), {
    done: (renamed) => t.renamed(renamed.name),
    refreshes: ["/v1/projects?"],
    onDone: (renamed) => route(`/projects/${renamed.name}/settings`, true),
  });
  const wanted = form.values.value.name;
  const hint = useNameHint(wanted === project.name ? "" : wanted);
  return (
    <Card title={t.rename} foot={t.renameText}>
      <div class="inline-form">
        <Form form={form} submit={t.rename} why={whyNot("member") ?? (wanted === project.name ? t.sameName : undefined)}>
          <TextField form={form} name="name" label={t.newName} hint={wanted === project.name ? undefined : hint} isCode clean={(given) => given.toLowerCase()} />
        </Form>
      </div>
    </Card>
  );
}

function Danger({ project }: { project: Project }) {
  const { route } = useLocation();
  const [isAsking, setAsking] = useState(false);
  const path = { name: project.name };
  const toggle = useAction(() => api.post("/v1/projects/{name}/toggle", { path, body: { enable: !project.enabled } }), {
    done: (changed) => text.projects.toggled(changed.name, changed.enabled),
    refreshes: ["/v1/projects"],
  });
  return (
    <Card title={text.projects.dangerTitle} isDanger>
      <div class="stack wide">
        <div class="row between wrap">
          <p class="soft grow">{text.projects.disableText}</p>
          <Button kind={project.enabled ? "danger" : undefined} why={whyNot("member")} isBusy={toggle.isBusy} onClick={() => toggle.run()}>
            {project.enabled ? text.projects.disable : text.projects.enable}
          </Button>
        </div>
        <div class="row between wrap">
          <p class="soft grow">{text.projects.deleteText}</p>
          <Button kind="danger" why={whyNot("admin")} onClick={() => setAsking(true)}>
            {text.projects.delete}
          </Button>
        </div>
      </div>
      {isAsking && (
        <ConfirmDanger
          title={text.projects.delete}
          button={`${text.projects.delete} ${project.name}`}
          name={project.name}
          act={() => api.delete("/v1/projects/{name}", { path })}
          onClose={() => setAsking(false)}
          done={text.projects.deleted(project.name)}
          refreshes={["/v1/projects?", "/v1/usage"]}
          onDone={() => route("/projects")}
        >
          <p>{text.projects.deleteText}</p>
        </ConfirmDanger>
      )}
    </Card>
  );
}
