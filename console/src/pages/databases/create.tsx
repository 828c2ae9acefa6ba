/** Create a database: engine, tier, and who may reach it; the rest has defaults. */

import { useLocation } from "preact-iso";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { Body } from "../../api/types";
import { PageHead } from "../../frame/page";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { ApiCall } from "../../ui/apicall";
import { Card, Loaded } from "../../ui/feedback";
import { Choices, Form, SelectField, Switch, TextField, useForm } from "../../ui/form";
import { VERSIONS, type Tier } from "./state";
import { tierOptions } from "./tiers";

const t = text.database;

interface Values {
  name: string;
  type: string;
  version: string;
  instanceType: string;
  visibility: string;
  backup: boolean;
  architecture: string;
  projectId: string;
  username: string;
  dbName: string;
  password: string;
}

/** The fields that have a value; the server has defaults for all others. */
function bodyOf(values: Values): Body<"/v1/databases", "post"> {
  const { backup, projectId, username, dbName, password, ...given } = values;
  const chosen = Object.fromEntries(Object.entries({ username, dbName, password }).filter(([, value]) => value !== ""));
  const body = { ...given, backup: backup ? "enabled" : "disabled", ...chosen, ...(projectId && { projectId: Number(projectId) }) };
  return body as Body<"/v1/databases", "post">;
}

export default function CreateDatabase() {
  const tiers = useResource("/v1/tiers", {});
  return (
    <>
      <PageHead title={text.databases.create} crumbs={[{ label: text.databases.title, href: "/databases" }]} />
      <div class="narrow">
        <Loaded of={tiers}>{(data) => <CreateForm tiers={data} />}</Loaded>
      </div>
    </>
  );
}

function CreateForm({ tiers }: { tiers: Tier[] }) {
  const { route, query } = useLocation();
  const projects = useResource("/v1/projects", { query: { limit: 100, slug: "container" } });
  const initial: Values = {
    name: "", type: "postgresql", version: VERSIONS["postgresql"]![0]!, instanceType: tiers[0]?.key ?? "free", visibility: "public", backup: false,
    architecture: "standalone", projectId: query["project"] ?? "", username: "", dbName: "", password: "",
  };
  const form = useForm(initial, (values) => api.post("/v1/databases", { body: bodyOf(values) }), {
    done: (made) => t.created(made.name ?? ""),
    refreshes: ["/v1/databases", "/v1/usage"],
    onDone: (made) => route(`/databases/${made.name}`),
  });
  const values = form.values.value;
  const isPaid = tiers.find(({ key }) => key === values.instanceType)?.paid ?? false;
  const choose = (type: string) => (form.set("type", type), form.set("version", VERSIONS[type]![0]!));
  const shown = { ...bodyOf(values), ...(values.password && { password: "********" }) };
  return (
    <Card>
      <Form form={form} submit={text.databases.create} why={whyNot("member")}>
        <TextField form={form} name="name" label={text.common.name} hint={t.nameHint} clean={(given) => given.toLowerCase()} isFocused />
        <Choices
          label={t.engine}
          value={values.type}
          onChange={choose}
          options={[
            { value: "postgresql", label: "PostgreSQL", hint: t.engineHint["postgresql"] },
            { value: "mysql", label: "MySQL", hint: t.engineHint["mysql"] },
          ]}
        />
        <Choices label={t.tier} value={values.instanceType} onChange={(key) => (form.set("instanceType", key), form.set("backup", tiers.find((each) => each.key === key)?.paid ?? false))} options={tierOptions(tiers)} />
        <Choices
          label={t.visibility}
          value={values.visibility}
          onChange={(value) => form.set("visibility", value)}
          options={Object.entries(t.visibilities).map(([value, [label, hint]]) => ({ value, label, hint }))}
        />
        <Switch label={t.backup} hint={t.backupHint} why={isPaid ? undefined : t.needsPaid} isOn={isPaid && values.backup} onChange={(isOn) => form.set("backup", isOn)} />
        <details class="fold">
          <summary>{text.common.advanced}</summary>
          <div class="stack wide">
            <div class="fields">
              <SelectField form={form} name="version" label={t.version} options={VERSIONS[values.type]!.map((value) => ({ value, label: value }))} />
              <SelectField form={form} name="architecture" label={t.architecture} options={Object.entries(t.architectures).map(([value, label]) => ({ value, label }))} />
              <TextField form={form} name="username" label={t.user} isCode isOptional />
              <TextField form={form} name="dbName" label={t.dbName} isCode isOptional />
              <TextField form={form} name="password" label={t.password} hint={t.passwordHint} type="password" isOptional />
              <SelectField
                form={form}
                name="projectId"
                label={t.project}
                hint={t.projectHint}
                options={[{ value: "", label: t.noProject }, ...(projects.data?.items ?? []).map((each) => ({ value: String(each.id), label: each.name }))]}
              />
            </div>
          </div>
        </details>
        <ApiCall method="POST" path="/v1/databases" body={shown} />
      </Form>
    </Card>
  );
}
