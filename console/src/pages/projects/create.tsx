/** Create a project: from a folder or ZIP, from a git repository, or from a ready image. */

import { useEffect, useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { Body, Data } from "../../api/types";
import { PageHead } from "../../frame/page";
import { fromLines } from "../../lib/args";
import { environmentOf } from "../../lib/dotenv";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { ApiCall } from "../../ui/apicall";
import { Card } from "../../ui/feedback";
import { Choices, Field, Form, SelectField, SwitchField, TextField, useForm } from "../../ui/form";
import { DropSite } from "../home/drop";
import { RepositoryField } from "../repositories/field";
import { Detected } from "./detected";
import { TierChoices } from "./tiers";

export default function CreateProject() {
  const { query, route } = useLocation();
  const source = ["git", "image"].includes(query["from"] ?? "") ? query["from"]! : "upload";
  const t = text.createProject;
  return (
    <>
      <PageHead title={t.title} crumbs={[{ label: text.projects.title, href: "/projects" }]} />
      <div class="stack wide narrow">
        <Choices
          label={t.source}
          value={source}
          onChange={(from) => route(`/projects/new?from=${from}`, true)}
          options={[
            { value: "upload", label: t.fromUpload, hint: text.home.dropHint },
            { value: "git", label: t.fromRepository, hint: t.fromRepositoryHint },
            { value: "image", label: t.fromImage, hint: t.fromImageHint },
          ]}
        />
        {source === "upload" ? <DropSite /> : source === "git" ? <FromRepository /> : <FromImage />}
      </div>
    </>
  );
}

interface Values {
  name: string;
  repositoryName: string;
  branch: string;
  slug: string;
  language: string;
  baseDir: string;
  buildCmd: string;
  buildDir: string;
  startCmd: string;
  healthCheckPath: string;
  tier: string;
  dockerFilePath: string;
  dockerBuildContextDir: string;
  dockerBuildTarget: string;
  dockerBuildArgs: string; // lines
  autoDeploy: boolean;
  prPreview: boolean;
  enableAnalytics: boolean;
  environment: string; // lines of a .env file
}

const INITIAL: Values = {
  name: "", repositoryName: "", branch: "main", slug: "auto", language: "auto", baseDir: "", buildCmd: "", buildDir: "",
  startCmd: "", healthCheckPath: "", tier: "", dockerFilePath: "", dockerBuildContextDir: "", dockerBuildTarget: "", dockerBuildArgs: "", autoDeploy: true, prPreview: false, enableAnalytics: false, environment: "",
};
const OF_KIND: Record<string, (keyof Values)[]> = {
  auto: ["buildCmd", "buildDir", "startCmd", "tier"],
  static: ["buildCmd", "buildDir"],
  container: ["language", "buildCmd", "startCmd", "healthCheckPath", "tier"],
  docker: ["language", "startCmd", "healthCheckPath", "tier", "dockerFilePath", "dockerBuildContextDir", "dockerBuildTarget", "dockerBuildArgs"],
};

const IMAGE = { name: "", publicImage: "", tier: "", startCmd: "", healthCheckPath: "", environment: "" };
const LANGUAGES = Object.entries(text.projects.languages).map(([value, label]) => ({ value, label }));
type Created = Data<"/v1/projects", "post">;

function fieldsOf({ slug, language }: Values): (keyof Values)[] {
  return OF_KIND[slug === "container" && language === "docker" ? "docker" : slug] ?? [];
}

/** The fields of the chosen kind that have a value; the server has defaults for all others. */
function bodyOf(values: Values): Body<"/v1/projects", "post"> {
  const { name, repositoryName, branch, slug, baseDir, autoDeploy, prPreview, enableAnalytics } = values;
  const chosen = fieldsOf(values).filter((field) => values[field] !== "").map((field) => [field, sent(field, values)]);
  const body = { name, repositoryName, branch, slug, autoDeploy, prPreview, enableAnalytics, ...(baseDir && { baseDir }), ...Object.fromEntries(chosen), ...environmentOf(values.environment) };
  return body as Body<"/v1/projects", "post">;
}

function sent(field: keyof Values, values: Values): unknown {
  if (field === "tier") return { key: values.tier };
  return field === "dockerBuildArgs" ? fromLines(values[field]) : values[field];
}

/** What all forms of this page do after the project exists. */
function useCreated() {
  const { route } = useLocation();
  return {
    done: (made: Created) => text.createProject.created(made.name),
    refreshes: ["/v1/projects", "/v1/usage"],
    onDone: (made: Created) => route(`/projects/${made.name}/deployments/${made.deploymentUuid}`),
  };
}

function FromRepository() {
  const t = text.createProject;
  const form = useForm(INITIAL, (values) => api.post("/v1/projects", { body: bodyOf(values) }), useCreated());
  const values = form.values.value;
  const hint = useNameHint(values.name);
  const has = (field: keyof Values) => fieldsOf(values).includes(field);
  return (
    <Card>
      <Form form={form} submit={t.submit} why={whyNot("member")}>
        <TextField form={form} name="name" label={text.common.name} hint={hint} clean={(given) => given.toLowerCase()} isFocused />
        <div class="fields">
          <RepositoryField
            label={t.repository}
            hint={t.repositoryHint}
            placeholder="acme/shop"
            value={form.values.value.repositoryName}
            problem={form.problem("repositoryName")}
            onChange={(name, branch) => (form.set("repositoryName", name), branch && form.set("branch", branch))}
          />
          <TextField form={form} name="branch" label={t.branch} />
        </div>
        <Choices
          label={t.kind}
          value={values.slug}
          onChange={(slug) => form.set("slug", slug)}
          options={[
            { value: "auto", label: text.projects.kinds["auto"]!, hint: t.kindAuto },
            { value: "static", label: text.projects.kinds["static"]!, hint: t.kindStatic },
            { value: "container", label: text.projects.kinds["container"]!, hint: t.kindContainer },
          ]}
        />
        {has("language") && <SelectField form={form} name="language" label={t.language} options={LANGUAGES} />}
        {values.slug === "container" && <TierChoices value={values.tier} onChange={(key) => form.set("tier", key)} />}
        {values.language !== "docker" || values.slug !== "container" ? <Detected {...values} /> : null}
        <SwitchField form={form} name="autoDeploy" label={t.autoDeploy} />
        <details class="fold">
          <summary>{text.common.advanced}</summary>
          <div class="stack wide">
            <div class="fields">
              <TextField form={form} name="baseDir" label={t.baseDir} placeholder="./" isCode isOptional />
              {has("buildCmd") && <TextField form={form} name="buildCmd" label={t.buildCmd} placeholder="npm run build" isCode isOptional />}
              {has("buildDir") && <TextField form={form} name="buildDir" label={t.buildDir} placeholder="dist" isCode isOptional />}
              {has("startCmd") && <TextField form={form} name="startCmd" label={t.startCmd} placeholder="npm start" isCode isOptional />}
              {has("healthCheckPath") && <TextField form={form} name="healthCheckPath" label={t.health} placeholder="/" isCode isOptional />}
              {has("dockerFilePath") && <TextField form={form} name="dockerFilePath" label={t.dockerFilePath} placeholder="./Dockerfile" isCode isOptional />}
              {has("dockerBuildContextDir") && <TextField form={form} name="dockerBuildContextDir" label={t.dockerBuildContextDir} placeholder="./" isCode isOptional />}
              {has("dockerBuildTarget") && <TextField form={form} name="dockerBuildTarget" label={t.dockerBuildTarget} hint={t.dockerBuildTargetHint} isCode isOptional />}
            </div>
            {has("dockerBuildArgs") && <TextField form={form} name="dockerBuildArgs" label={t.dockerBuildArgs} hint={t.dockerBuildArgsHint} placeholder="NODE_ENV=production" rows={3} isCode isOptional />}
            {values.slug === "auto" && <TierChoices value={values.tier} onChange={(key) => form.set("tier", key)} label={t.tierOfApp} />}
            <EnvironmentField value={form.values.value.environment} onChange={(lines) => form.set("environment", lines)} />
            <SwitchField form={form} name="prPreview" label={t.prPreview} />
            <SwitchField form={form} name="enableAnalytics" label={t.analytics} />
          </div>
        </details>
        <ApiCall method="POST" path="/v1/projects" body={masked(bodyOf(values))} />
      </Form>
    </Card>
  );
}

function FromImage() {
  const t = text.createProject;
  const bodyOfImage = ({ name, publicImage, tier, startCmd, healthCheckPath, environment }: typeof IMAGE) =>
    ({ slug: "container", name, publicImage, ...(tier && { tier: { key: tier } }), ...(startCmd && { startCmd }), ...(healthCheckPath && { healthCheckPath }), ...environmentOf(environment) }) as Body<"/v1/projects", "post">;
  const form = useForm(IMAGE, (values) => api.post("/v1/projects", { body: bodyOfImage(values) }), useCreated());
  const hint = useNameHint(form.values.value.name);
  return (
    <Card>
      <Form form={form} submit={t.submit} why={whyNot("member")}>
        <TextField form={form} name="name" label={text.common.name} hint={hint} clean={(given) => given.toLowerCase()} isFocused />
        <TextField form={form} name="publicImage" label={t.image} hint={t.imageHint} placeholder="nginx:1.27" isCode clean={(given) => given.trim()} />
        <TierChoices value={form.values.value.tier} onChange={(key) => form.set("tier", key)} />
        <details class="fold">
          <summary>{text.common.advanced}</summary>
          <div class="stack wide">
            <div class="fields">
              <TextField form={form} name="startCmd" label={t.startCmd} hint={text.jobs.imageCommandHint} isCode isOptional />
              <TextField form={form} name="healthCheckPath" label={t.health} placeholder="/" isCode isOptional />
            </div>
            <EnvironmentField value={form.values.value.environment} onChange={(lines) => form.set("environment", lines)} />
          </div>
        </details>
        <ApiCall method="POST" path="/v1/projects" body={masked(bodyOfImage(form.values.value))} />
      </Form>
    </Card>
  );
}

/** Variables of the first release, so that an app that needs them starts at once. */
function EnvironmentField({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const t = text.createProject;
  const { env = [], secrets = [] } = environmentOf(value);
  return (
    <Field label={t.environment} hint={env.length + secrets.length > 0 ? t.environmentFound(env.length, secrets.length) : t.environmentHint} isOptional>
      {(ids) => <textarea {...ids} class="textarea mono" rows={3} spellcheck={false} placeholder="API_URL=https://api.example.com" value={value} onInput={(event) => onChange(event.currentTarget.value)} />}
    </Field>
  );
}

/** The shown request has no values of secrets. */
function masked(body: Body<"/v1/projects", "post">): unknown {
  const { secrets, ...rest } = body;
  return { ...rest, ...(secrets && { secrets: secrets.map(({ name }) => ({ name, value: "********" })) }) };
}

/** Say whether a name is free while it is typed. */
export function useNameHint(name: string): string {
  const [asked, setAsked] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setAsked(name), 300);
    return () => clearTimeout(timer);
  }, [name]);
  const isName = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/.test(asked);
  const check = useResource("/v1/projects/check-name", { query: { name: asked || "x" } }, { isOn: isName });
  if (!isName || asked !== name || !check.data) return text.createProject.nameHint;
  return check.data.available ? text.createProject.free : text.createProject.taken;
}
