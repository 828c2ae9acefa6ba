/** Create a cronjob: of a repository or a public image. */

import { useLocation } from "preact-iso";
import { useState } from "preact/hooks";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { Body } from "../../api/types";
import { PageHead } from "../../frame/page";
import { fromLines } from "../../lib/args";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { ApiCall } from "../../ui/apicall";
import { Card } from "../../ui/feedback";
import { Choices, Form, SelectField, SwitchField, TextField, useForm, type FormState, type Option } from "../../ui/form";
import { CronField } from "../cron/helper";
import { filled, Variables, type Variable } from "../functions/variables";
import { RepositoryField } from "../repositories/field";
import { keepBuild } from "./builds";

const t = text.jobs;
export const LANGUAGES = ["nodejs", "python", "go", "docker"].map((value) => ({ value, label: { nodejs: "Node.js", python: "Python", go: "Go", docker: "Dockerfile" }[value]! }));
const TIERS = ["micro", "mini", "large", "xlarge"];

interface Values {
  name: string;
  imageSource: string;
  cronSchedule: string;
  instanceType: string;
  repositoryName: string;
  branch: string;
  language: string;
  baseDir: string;
  buildCmd: string;
  startCmd: string;
  command: string;
  dockerfilePath: string;
  dockerBuildContextDir: string;
  dockerBuildTarget: string;
  dockerBuildArgs: string; // lines
  autoDeploy: boolean;
  publicImage: string;
}

const INITIAL: Values = {
  name: "", imageSource: "codehost", cronSchedule: "0 * * * *", instanceType: "micro", repositoryName: "", branch: "main", language: "nodejs",
  baseDir: "", buildCmd: "", startCmd: "", command: "", dockerfilePath: "", dockerBuildContextDir: "", dockerBuildTarget: "", dockerBuildArgs: "", autoDeploy: true, publicImage: "",
};
const OF_REPOSITORY: (keyof Values)[] = ["repositoryName", "branch", "language", "baseDir", "autoDeploy"];
const OF_LANGUAGE: (keyof Values)[] = ["buildCmd", "startCmd"];
const OF_DOCKER: (keyof Values)[] = ["dockerfilePath", "dockerBuildContextDir", "dockerBuildTarget", "dockerBuildArgs"];

function fieldsOf({ imageSource, language }: Values): (keyof Values)[] {
  const common: (keyof Values)[] = ["name", "imageSource", "cronSchedule", "instanceType", "command"];
  if (imageSource === "public_image") return [...common, "publicImage"];
  return [...common, ...OF_REPOSITORY, ...(language === "docker" ? OF_DOCKER : OF_LANGUAGE)];
}

/** The fields of the chosen source that have a value; the server has defaults for all others. */
function bodyOf(values: Values, env: Variable[], secrets: Variable[]): Body<"/v1/cronjobs", "post"> {
  const always = ["name", "cronSchedule", "repositoryName", "publicImage"];
  const sent = fieldsOf(values).filter((field) => values[field] !== "" || always.includes(field));
  const body: Record<string, unknown> = Object.fromEntries(sent.map((field) => [field, field === "dockerBuildArgs" ? fromLines(values[field]) : values[field]]));
  if (filled(env).length) body["env"] = filled(env);
  if (filled(secrets).length) body["secrets"] = filled(secrets);
  return body as Body<"/v1/cronjobs", "post">;
}

/** The tiers of cronjobs with their size. */
export function useTiers(): Option[] {
  const tiers = useResource("/v1/tiers", {});
  return TIERS.map((key) => {
    const found = tiers.data?.find((each) => each.key === key);
    return { value: key, label: found?.name ?? key, hint: found && t.tierText(found.cpu, found.memory) };
  });
}

export default function CreateCronjob() {
  const { route } = useLocation();
  const [env, setEnv] = useState<Variable[]>([]);
  const [secrets, setSecrets] = useState<Variable[]>([]);
  const tiers = useTiers();
  const form = useForm(INITIAL, (values) => api.post("/v1/cronjobs", { body: bodyOf(values, env, secrets) }), {
    done: (made) => t.created(made.name),
    refreshes: ["/v1/cronjobs", "/v1/usage"],
    onDone: (made) => {
      if (made.deploymentUuid) keepBuild(made.name, made.deploymentUuid);
      route(`/cronjobs/${made.name}${made.deploymentUuid ? `/build/${made.deploymentUuid}` : ""}`);
    },
  });
  const values = form.values.value;
  return (
    <>
      <PageHead title={t.createTitle} crumbs={[{ label: text.cronjobs.title, href: "/cronjobs" }]} />
      <div class="narrow">
        <Card>
          <Form form={form} submit={t.submit} why={whyNot("member")}>
            <TextField form={form} name="name" label={text.common.name} hint={t.nameHint} placeholder="nightly-report" clean={(given) => given.toLowerCase()} isFocused />
            <Choices
              label={t.source}
              value={values.imageSource}
              onChange={(source) => form.set("imageSource", source)}
              options={[
                { value: "codehost", label: t.sources["codehost"]!, hint: t.codehostHint },
                { value: "public_image", label: t.sources["public_image"]!, hint: t.imageHint },
              ]}
            />
            {values.imageSource === "public_image" ? <FromImage form={form} /> : <FromRepository form={form} />}
            <CronField expression={values.cronSchedule} onExpression={(value) => form.set("cronSchedule", value)} timezone="UTC" problem={form.problem("cronSchedule")} />
            <div class="tier-choice">
              <Choices label={t.tier} value={values.instanceType} options={tiers} onChange={(tier) => form.set("instanceType", tier)} />
            </div>
            <details class="fold">
              <summary>{`${text.variables.title}, ${text.variables.secrets.toLowerCase()}`}</summary>
              <div class="stack wide">
                <Variables rows={env} onChange={setEnv} />
                <Variables rows={secrets} onChange={setSecrets} isSecret />
              </div>
            </details>
            <ApiCall method="POST" path="/v1/cronjobs" body={bodyOf(values, env, secrets.map((each) => ({ ...each, value: "…" })))} />
          </Form>
        </Card>
      </div>
    </>
  );
}

type Part<T> = { form: FormState<Values, T> };

function FromImage<T>({ form }: Part<T>) {
  return (
    <div class="fields">
      <TextField form={form} name="publicImage" label={t.image} placeholder={t.imageExample} isCode />
      <TextField form={form} name="command" label={t.command} hint={t.imageCommandHint} placeholder="sh -c date" isCode isOptional />
    </div>
  );
}

function FromRepository<T>({ form }: Part<T>) {
  const { language } = form.values.value;
  return (
    <>
      <div class="fields">
        <RepositoryField
          label={t.repository}
          hint={t.repositoryHint}
          placeholder="acme/report"
          value={form.values.value.repositoryName}
          problem={form.problem("repositoryName")}
          onChange={(name, branch) => (form.set("repositoryName", name), branch && form.set("branch", branch))}
        />
        <TextField form={form} name="branch" label={t.branch} />
        <SelectField form={form} name="language" label={t.language} options={LANGUAGES} />
        <TextField form={form} name="command" label={t.command} hint={t.commandHint} placeholder="python report.py" isCode isOptional />
      </div>
      <SwitchField form={form} name="autoDeploy" label={t.autoDeploy} />
      <details class="fold">
        <summary>{text.common.advanced}</summary>
        <div class="fields">
          <TextField form={form} name="baseDir" label={t.baseDir} placeholder="./" isCode isOptional />
          {language !== "docker" && <TextField form={form} name="buildCmd" label={t.buildCmd} isCode isOptional />}
          {language !== "docker" && <TextField form={form} name="startCmd" label={t.startCmd} isCode isOptional />}
          {language === "docker" && <TextField form={form} name="dockerfilePath" label={t.dockerfilePath} placeholder="./Dockerfile" isCode isOptional />}
          {language === "docker" && <TextField form={form} name="dockerBuildContextDir" label={t.dockerBuildContextDir} placeholder="./" isCode isOptional />}
          {language === "docker" && <TextField form={form} name="dockerBuildTarget" label={t.dockerBuildTarget} isCode isOptional />}
          {language === "docker" && <TextField form={form} name="dockerBuildArgs" label={t.dockerBuildArgs} hint={t.dockerBuildArgsHint} rows={3} isCode isOptional />}
        </div>
      </details>
    </>
  );
}
