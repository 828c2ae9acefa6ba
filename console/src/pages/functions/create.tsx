/** Create a function: written in the page from a template, or by ZIP. */

import { useLocation } from "preact-iso";
import { useState } from "preact/hooks";
import { api } from "../../api/client";
import { ApiError } from "../../api/errors";
import { PageHead } from "../../frame/page";
import { whyNot } from "../../lib/roles";
import type { Dropped } from "../../lib/zip";
import { text } from "../../text";
import { ApiCall } from "../../ui/apicall";
import { Editor, type Files } from "../../ui/editor/editor";
import { Card } from "../../ui/feedback";
import { Choices, Field, Form, TextField, useForm, type FormState } from "../../ui/form";
import { keepParams } from "./drafts";
import { packFiles, PickArchive } from "./archive";
import { cleanName, isName, LANGUAGES, MAIN_FILE, NAME_MAX, NAME_MIN, randomSuffix, TEMPLATES, type Language } from "./templates";

interface Values {
  name: string; // as typed; the ending is added at the request
  runtime: Language;
  description: string;
  memory: string;
  timeout: string; // seconds
  network: string;
  code: string; // only for errors of the API about the archive
}

const INITIAL: Values = { name: "", runtime: "python", description: "", memory: "256", timeout: "30", network: "internet", code: "" };
const t = text.fn;

function fieldsOf(values: Values, name: string): Record<string, string> {
  const fields: Record<string, string> = {
    name,
    runtime: values.runtime,
    memory: values.memory,
    timeout: String(Math.round(Number(values.timeout) * 1_000) || values.timeout),
    network: values.network,
  };
  return values.description ? { ...fields, description: values.description } : fields;
}

function nameProblem(name: string): string | undefined {
  if (name === "") return t.nameHint;
  if (name.length < NAME_MIN) return t.nameTooShort(name.length);
  return isName(name) ? undefined : t.nameForm;
}

export default function CreateFunction() {
  const { route, query } = useLocation();
  const [source, setSource] = useState(query["from"] === "zip" ? "zip" : "editor");
  const [template, setTemplate] = useState(TEMPLATES[0]!);
  const [edited, setEdited] = useState<Files>();
  const [archive, setArchive] = useState<Dropped>();
  const [suffix, setSuffix] = useState(randomSuffix);
  const send = async (values: Values) => {
    const problem = nameProblem(values.name);
    if (problem) throw new ApiError(400, "bad_request", problem, { name: problem });
    if (source === "zip" && !archive) throw new ApiError(400, "bad_request", t.zipMissing, { code: t.zipMissing });
    const name = `${values.name}-${suffix}`;
    const body = new FormData();
    for (const [field, value] of Object.entries(fieldsOf(values, name))) body.set(field, value);
    const packed = source === "zip" ? archive!.archive : await packFiles(edited ?? template.files[values.runtime]);
    body.set("code", packed, `${name}.zip`);
    try {
      return await api.post("/v1/functions", { body });
    } catch (error) {
      if (error instanceof ApiError && error.status === 409) setSuffix(randomSuffix());
      throw error;
    }
  };
  const form = useForm(INITIAL, send, {
    done: (made) => t.created(made.name),
    refreshes: ["/v1/functions", "/v1/usage"],
    onDone: (made) => {
      if (source === "editor") keepParams(made.name, template.sample);
      route(`/functions/${made.name}/test`);
    },
  });
  const values = form.values.value;
  return (
    <>
      <PageHead title={t.createTitle} crumbs={[{ label: text.functions.title, href: "/functions" }]} />
      <Form form={form} submit={t.submit} why={whyNot("member")} extra={form.action.isBusy && <span class="soft small">{t.creating}</span>}>
        <Card>
          <div class="stack wide pick">
            <div class="fields">
              <NameField form={form} suffix={suffix} />
              <Choices label={t.runtimeLabel} value={values.runtime} options={LANGUAGES} onChange={(runtime) => (form.set("runtime", runtime as Language), setEdited(undefined))} />
            </div>
            <Choices
              label={t.source}
              value={source}
              onChange={setSource}
              options={[
                { value: "editor", label: t.fromEditor, hint: t.fromEditorHint },
                { value: "zip", label: t.fromZip, hint: t.fromZipHint },
              ]}
            />
            {source === "editor" && (
              <Choices
                label={t.templateLabel}
                value={template.key}
                options={TEMPLATES.map(({ key, label, hint }) => ({ value: key, label, hint }))}
                onChange={(key) => (setTemplate(TEMPLATES.find((each) => each.key === key)!), setEdited(undefined))}
              />
            )}
            {source === "editor" ? (
              <div class="stack tight">
                <Editor key={`${template.key} ${values.runtime}`} label={text.fnCode.editor} files={edited ?? template.files[values.runtime]} onChange={setEdited} />
                <p class="soft small">{t.main(MAIN_FILE[values.runtime])}</p>
              </div>
            ) : (
              <PickArchive chosen={archive} onChoose={(chosen) => (setArchive(chosen), form.set("code", ""))} />
            )}
            {form.problem("code") && <p class="problem-line">{form.problem("code")}</p>}
            <Advanced form={form} />
          </div>
        </Card>
        <ApiCall method="POST" path="/v1/functions" form={{ ...fieldsOf(values, `${values.name || "hello"}-${suffix}`), code: "@code.zip" }} />
      </Form>
    </>
  );
}

function NameField<T>({ form, suffix }: { form: FormState<Values, T>; suffix: string }) {
  const { name } = form.values.value;
  const hint = name === "" ? t.nameHint : (nameProblem(name) ?? (
    <>
      {t.nameBecomes} <code>{`${name}-${suffix}`}</code>
    </>
  ));
  return (
    <Field label={t.nameLabel} hint={hint} problem={form.problem("name")}>
      {(ids) => (
        <span class="with-suffix">
          <input {...ids} class="input mono" name="name" value={name} maxLength={NAME_MAX} autofocus autocomplete="off" spellcheck={false} onInput={(event) => form.set("name", cleanName(event.currentTarget.value))} />
          <span class="mono soft">{`-${suffix}`}</span>
        </span>
      )}
    </Field>
  );
}

function Advanced<T>({ form }: { form: FormState<Values, T> }) {
  return (
    <details class="fold">
      <summary>{text.common.advanced}</summary>
      <div class="stack wide">
        <div class="fields">
          <TextField form={form} name="memory" label={t.memory} hint={t.memoryHint} type="number" />
          <TextField form={form} name="timeout" label={t.timeout} hint={t.timeoutHint} type="number" />
        </div>
        <TextField form={form} name="description" label={t.description} isOptional />
        <Choices
          label={t.network}
          value={form.values.value.network}
          onChange={(network) => form.set("network", network)}
          options={[
            { value: "internet", label: t.networkInternet, hint: t.networkInternetHint },
            { value: "none", label: t.networkNone, hint: t.networkNoneHint },
          ]}
        />
      </div>
    </details>
  );
}
