/** The fields of a monitor, for creating and for changing one. */

import { Plus, X } from "lucide-preact";
import type { Body } from "../../api/types";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { SelectField, SwitchField, TextField, type FormState } from "../../ui/form";

export interface MonitorValues {
  name: string;
  url: string;
  interval: string;
  timeout: string;
  retries: string;
  httpMethod: string;
  statusCodes: string;
  keyword: string;
  headers: { name: string; value: string }[];
  httpBody: string;
  expireCertNotify: boolean;
  ignoreTlsError: boolean;
  public: boolean;
}

export const NEW: MonitorValues = {
  name: "", url: "", interval: "60", timeout: "10000", retries: "1", httpMethod: "GET", statusCodes: "", keyword: "", headers: [], httpBody: "",
  expireCertNotify: true, ignoreTlsError: false, public: false,
};

const t = text.monitor;

/** A field that is empty is left out of a new monitor, and removed from one that exists. */
export function bodyOf(values: MonitorValues, isNew: boolean): Body<"/v1/monitors", "post"> {
  const { interval, timeout, retries, statusCodes, keyword, httpBody, headers, ...rest } = values;
  const codes = statusCodes.split(/[\s,]+/).filter(Boolean);
  const optional = isNew ? { ...(keyword && { keyword }), ...(httpBody && { httpBody }) } : { keyword: keyword || null, httpBody: httpBody || null };
  const named = headers.filter(({ name }) => name.trim());
  const body = { ...rest, interval: Number(interval), timeout: Number(timeout), retries: Number(retries), statusCodes: codes, headers: named, ...optional };
  return body as Body<"/v1/monitors", "post">;
}

export function MonitorFields<T>({ form, isNew }: { form: FormState<MonitorValues, T>; isNew: boolean }) {
  const values = form.values.value;
  const intervals = [...new Set([...Object.keys(t.intervals), values.interval])].sort((a, b) => Number(a) - Number(b));
  return (
    <>
      <TextField form={form} name="url" label={t.url} hint={t.urlHint} type="url" placeholder="https://example.com/health" isFocused={isNew} isCode />
      <div class="fields">
        <TextField form={form} name="name" label={text.common.name} hint={t.nameHint} />
        <SelectField form={form} name="interval" label={t.interval} options={intervals.map((value) => ({ value, label: t.intervals[value] ?? t.seconds(Number(value)) }))} />
      </div>
      {isNew && <SwitchField form={form} name="public" label={t.isPublic} hint={t.isPublicHint} />}
      <SwitchField form={form} name="expireCertNotify" label={t.certNotify} />
      <details class="fold">
        <summary>{text.common.advanced}</summary>
        <div class="stack wide">
          <div class="fields">
            <SelectField form={form} name="httpMethod" label={t.method} options={["GET", "HEAD", "POST"].map((value) => ({ value, label: value }))} />
            <TextField form={form} name="statusCodes" label={t.codes} hint={t.codesHint} placeholder="200-299" isCode isOptional />
            <TextField form={form} name="timeout" label={t.timeout} hint={t.timeoutHint} type="number" />
            <TextField form={form} name="retries" label={t.retries} type="number" />
            <TextField form={form} name="keyword" label={t.keyword} isOptional />
          </div>
          {values.httpMethod === "POST" && <TextField form={form} name="httpBody" label={t.body} rows={4} isCode isOptional />}
          <Headers headers={values.headers} onChange={(headers) => form.set("headers", headers)} problem={form.problem("headers")} />
          <SwitchField form={form} name="ignoreTlsError" label={t.ignoreTls} />
        </div>
      </details>
    </>
  );
}

type Header = MonitorValues["headers"][number];

function Headers({ headers, onChange, problem }: { headers: Header[]; onChange: (headers: Header[]) => void; problem: string | undefined }) {
  const change = (at: number, part: Partial<Header>) => onChange(headers.map((each, index) => (index === at ? { ...each, ...part } : each)));
  return (
    <div class="field">
      <span class="field-label">{t.headers}</span>
      <div class="headers">
        {headers.map(({ name, value }, at) => (
          <div key={at} class="row">
            <input class="input mono" aria-label={t.headerName} placeholder="Authorization" value={name} onInput={(event) => change(at, { name: event.currentTarget.value })} />
            <input class="input mono" aria-label={t.headerValue} value={value} onInput={(event) => change(at, { value: event.currentTarget.value })} />
            <Button kind="quiet" size="small" label={t.removeHeader} onClick={() => onChange(headers.filter((_, index) => index !== at))} icon={<X size={14} aria-hidden="true" />} />
          </div>
        ))}
        <div>
          <Button size="small" onClick={() => onChange([...headers, { name: "", value: "" }])} icon={<Plus size={14} aria-hidden="true" />}>
            {t.addHeader}
          </Button>
        </div>
      </div>
      {problem && <p class="problem">{problem}</p>}
    </div>
  );
}
