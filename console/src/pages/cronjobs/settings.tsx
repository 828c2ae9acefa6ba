/** Settings of a cronjob: schedule, tier, source, variables, deletion. */

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
import { Card, ErrorBox } from "../../ui/feedback";
import { Choices, Form, SelectField, SwitchField, TextField, useForm } from "../../ui/form";
import { showToast } from "../../ui/toast";
import { CronField } from "../cron/helper";
import { withReason } from "../functions/function";
import { filled, Variables, type Variable } from "../functions/variables";
import { forgetBuild, keepBuild } from "./builds";
import { LANGUAGES, useTiers } from "./create";
import type { TabProps } from "./cronjob";

const t = text.jobs;
type Changes = Body<"/v1/cronjobs/{name}", "patch">;

export default function Settings({ job, name }: TabProps) {
  return (
    <div class="stack wide narrow">
      <Timing job={job} name={name} />
      <Source job={job} name={name} />
      <Env job={job} name={name} />
      <Secrets name={name} />
      <Danger name={name} />
    </div>
  );
}

/** Send changes; one of the source starts a build, which the page then links to. */
function usePatch(name: string): (body: Changes) => Promise<unknown> {
  return async (body) => {
    const changed = await api.patch("/v1/cronjobs/{name}", { path: { name }, body });
    if (changed.deploymentUuid) {
      keepBuild(name, changed.deploymentUuid);
      showToast({ kind: "busy", title: t.buildStarted, href: `/cronjobs/${name}/build/${changed.deploymentUuid}`, linkText: t.openBuild });
    }
    return changed;
  };
}

const OPTIONS = { done: t.saved, refreshes: ["/v1/cronjobs"] };

function Timing({ job, name }: TabProps) {
  const tiers = useTiers();
  const patch = usePatch(name);
  const form = useForm({ cronSchedule: job.cronSchedule ?? "", instanceType: job.instanceType ?? "micro" }, (values) => patch(values as Changes), OPTIONS);
  const values = form.values.value;
  return (
    <Card title={t.scheduleCard}>
      <Form form={form} submit={text.common.save} why={whyNot("member")}>
        <CronField expression={values.cronSchedule} onExpression={(value) => form.set("cronSchedule", value)} timezone="UTC" problem={form.problem("cronSchedule")} />
        <div class="tier-choice">
          <Choices label={t.tier} value={values.instanceType} options={tiers} onChange={(tier) => form.set("instanceType", tier)} />
        </div>
      </Form>
    </Card>
  );
}

/** The fields that differ from the stored ones; build arguments are lines in the form. */
function changesOf(values: Record<string, unknown>, before: Record<string, unknown>): [string, unknown][] {
  return Object.entries(values)
    .filter(([field, value]) => field in before && value !== before[field])
    .map(([field, value]) => [field, field === "dockerBuildArgs" ? fromLines(String(value)) : value]);
}

function Source({ job, name }: TabProps) {
  const patch = usePatch(name);
  const isImage = job.imageSource === "public_image";
  const image = { publicImage: job.publicImage ?? "", command: job.command ?? "" };
  const repository = {
    branch: job.branch ?? "",
    language: job.language ?? "nodejs",
    command: job.command ?? "",
    baseDir: job.baseDir ?? "",
    buildCmd: job.buildCmd ?? "",
    startCmd: job.startCmd ?? "",
    dockerfilePath: job.dockerfilePath ?? "",
    dockerBuildContextDir: job.dockerBuildContextDir ?? "",
    dockerBuildTarget: job.dockerBuildTarget ?? "",
    dockerBuildArgs: toLines(job.dockerBuildArgs),
    autoDeploy: job.autoDeploy,
  };
  const before: Record<string, unknown> = isImage ? image : repository;
  const form = useForm(
    { ...image, ...repository },
    (values) => patch(Object.fromEntries(changesOf(values, before)) as Changes),
    OPTIONS,
  );
  const isDocker = form.values.value.language === "docker";
  return (
    <Card title={t.sourceCard} foot={isImage ? undefined : t.sourceHint}>
      <Form form={form} submit={text.common.save} why={whyNot("member")}>
        {isImage ? (
          <div class="fields">
            <TextField form={form} name="publicImage" label={t.image} isCode />
            <TextField form={form} name="command" label={t.command} hint={t.imageCommandHint} isCode isOptional />
          </div>
        ) : (
          <>
            <div class="fields">
              <TextField form={form} name="branch" label={t.branch} />
              <SelectField form={form} name="language" label={t.language} options={LANGUAGES} />
              <TextField form={form} name="command" label={t.command} hint={t.commandHint} isCode isOptional />
              <TextField form={form} name="baseDir" label={t.baseDir} isCode isOptional />
              {isDocker ? (
                <>
                  <TextField form={form} name="dockerfilePath" label={t.dockerfilePath} isCode isOptional />
                  <TextField form={form} name="dockerBuildContextDir" label={t.dockerBuildContextDir} isCode isOptional />
                  <TextField form={form} name="dockerBuildTarget" label={t.dockerBuildTarget} isCode isOptional />
                  <TextField form={form} name="dockerBuildArgs" label={t.dockerBuildArgs} hint={t.dockerBuildArgsHint} rows={3} isCode isOptional />
                </>
              ) : (
                <>
                  <TextField form={form} name="buildCmd" label={t.buildCmd} isCode isOptional />
                  <TextField form={form} name="startCmd" label={t.startCmd} isCode isOptional />
                </>
              )}
            </div>
            <SwitchField form={form} name="autoDeploy" label={t.autoDeploy} />
          </>
        )}
      </Form>
    </Card>
  );
}

function Env({ job, name }: TabProps) {
  const [rows, setRows] = useState<Variable[]>(job.env);
  const patch = usePatch(name);
  const save = useAction(() => patch({ env: filled(rows) }), { isQuiet: true, done: text.variables.saved, refreshes: ["/v1/cronjobs"] });
  const why = whyNot("member");
  return (
    <Card
      title={text.variables.title}
      foot={
        <>
          <span class="grow" />
          <Button size="small" kind="primary" why={why} isDisabled={JSON.stringify(filled(rows)) === JSON.stringify(job.env)} isBusy={save.isBusy} onClick={() => save.run()}>
            {text.variables.save}
          </Button>
        </>
      }
    >
      <div class="stack">
        {save.error && <ErrorBox error={save.error} details={withReason(save.error)} />}
        <Variables rows={rows} onChange={setRows} why={why} />
      </div>
    </Card>
  );
}

function Secrets({ name }: { name: string }) {
  const [rows, setRows] = useState<Variable[]>([]);
  const patch = usePatch(name);
  const save = useAction(() => patch({ secrets: filled(rows) }), { isQuiet: true, done: t.secretsSaved, onDone: () => setRows([]) });
  const why = whyNot("member");
  return (
    <Card
      title={text.variables.secrets}
      foot={
        <>
          <span class="grow">{t.replaceSecretsText}</span>
          <Button size="small" kind="danger" why={why} isDisabled={filled(rows).length === 0} isBusy={save.isBusy} onClick={() => save.run()}>
            {t.replaceSecrets}
          </Button>
        </>
      }
    >
      <div class="stack">
        {save.error && <ErrorBox error={save.error} details={withReason(save.error)} />}
        <Variables rows={rows} onChange={setRows} isSecret why={why} />
      </div>
    </Card>
  );
}

function Danger({ name }: { name: string }) {
  const { route } = useLocation();
  const [isAsking, setAsking] = useState(false);
  return (
    <Card title={t.danger} isDanger>
      <div class="row between wrap">
        <p class="soft grow">{t.deleteText}</p>
        <Button kind="danger" why={whyNot("member")} onClick={() => setAsking(true)}>
          {t.delete}
        </Button>
      </div>
      {isAsking && (
        <ConfirmDanger
          title={t.delete}
          button={`${t.delete} ${name}`}
          name={name}
          act={() => api.delete("/v1/cronjobs/{name}", { path: { name }, query: { wait: 20 } })}
          onClose={() => setAsking(false)}
          done={t.deleted(name)}
          refreshes={["/v1/cronjobs?", "/v1/usage"]}
          onDone={() => (forgetBuild(name), route("/cronjobs"))}
        >
          <p>{t.deleteText}</p>
        </ConfirmDanger>
      )}
    </Card>
  );
}
