/** Settings of a function: limits, network, addresses, schedules, deletion. */

import { CalendarClock } from "lucide-preact";
import { useLocation } from "preact-iso";
import { useState } from "preact/hooks";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { Button, ButtonLink } from "../../ui/button";
import { CodeBlock, Copy } from "../../ui/copy";
import { ConfirmDanger } from "../../ui/dialog";
import { Card, Facts, Loaded } from "../../ui/feedback";
import { Choices, Form, SwitchField, TextField, useForm } from "../../ui/form";
import { Status } from "../../ui/status";
import { Time } from "../../ui/time";
import { forget } from "./drafts";
import type { Fn, TabProps } from "./function";

const t = text.fnSettings;

export default function Settings({ fn }: TabProps) {
  return (
    <div class="grid-2">
      <div class="stack wide">
        <Limits fn={fn} />
        <Danger fn={fn} />
      </div>
      <div class="stack side-cards">
        <Addresses fn={fn} />
        <FunctionSchedules fn={fn} />
        <Card title={t.details}>
          <Facts
            items={[
              [text.functions.runtime, <code>{fn.runtime}</code>],
              [t.namespace, <code>{fn.namespace}</code>],
              [t.sandbox, fn.sandbox],
              [text.common.created, <Time at={fn.createdAt} />],
              [text.common.updated, <Time at={fn.updatedAt} />],
            ]}
          />
        </Card>
      </div>
    </div>
  );
}

function Limits({ fn }: { fn: Fn }) {
  const initial = {
    memory: String(fn.memory),
    timeout: String(fn.timeout / 1_000),
    description: fn.description ?? "",
    network: fn.network as string,
    rawHttp: fn.rawHttp,
    handleOptions: fn.handleOptions,
  };
  const form = useForm(
    initial,
    ({ memory, timeout, network, description, ...rest }) =>
      api.patch("/v1/functions/{name}", {
        path: { name: fn.name },
        body: { ...rest, description: description || null, network: network as Fn["network"], memory: Number(memory), timeout: Math.round(Number(timeout) * 1_000) },
      }),
    { done: t.saved, refreshes: ["/v1/functions"] },
  );
  return (
    <Card title={t.limits}>
      <Form form={form} submit={text.common.save} why={whyNot("member")}>
        <div class="fields">
          <TextField form={form} name="memory" label={text.fn.memory} hint={text.fn.memoryHint} type="number" />
          <TextField form={form} name="timeout" label={text.fn.timeout} hint={text.fn.timeoutHint} type="number" />
        </div>
        <TextField form={form} name="description" label={text.fn.description} isOptional />
        <Choices
          label={text.fn.network}
          value={form.values.value.network}
          onChange={(network) => form.set("network", network)}
          options={[
            { value: "internet", label: text.fn.networkInternet, hint: text.fn.networkInternetHint },
            { value: "none", label: text.fn.networkNone, hint: text.fn.networkNoneHint },
          ]}
        />
        <SwitchField form={form} name="rawHttp" label={t.rawHttp} hint={t.rawHttpHint} />
        <SwitchField form={form} name="handleOptions" label={t.handleOptions} hint={t.handleOptionsHint} />
      </Form>
    </Card>
  );
}

function Addresses({ fn }: { fn: Fn }) {
  const addresses = [
    [t.publicAddress, fn.url, t.publicAddressHint],
    [t.apiAddress, location.origin + fn.endpoint, t.apiAddressHint],
  ];
  return (
    <Card title={t.addresses}>
      <div class="stack">
        {addresses.map(([label, url, hint]) => (
          <div key={label} class="stack tight">
            <span class="soft small">{label}</span>
            <Copy value={url!} isMono />
            <span class="soft small">{hint}</span>
          </div>
        ))}
        <CodeBlock code={`curl '${fn.url}?name=Ada'`} label={t.call} wraps />
      </div>
    </Card>
  );
}

function FunctionSchedules({ fn }: { fn: Fn }) {
  const list = useResource("/v1/scheduled-functions", {});
  return (
    <Card
      title={t.schedules}
      isFlush
      actions={
        <ButtonLink size="small" kind="quiet" href={`/schedules/new?function=${fn.name}`} icon={<CalendarClock size={14} aria-hidden="true" />}>
          {t.addSchedule}
        </ButtonLink>
      }
    >
      <Loaded of={list}>
        {(items) => {
          const own = items.filter((each) => each.functionId === fn.id);
          if (own.length === 0) return <p class="well soft small">{t.noSchedules}</p>;
          return (
            <ul class="lines">
              {own.map((each) => (
                <li key={each.id}>
                  <a href={`/schedules/${each.id}`}>
                    <strong class="cut grow">{each.name}</strong>
                    <code>{each.cronSchedule}</code>
                    <Status of={each.enabled ? "ready" : "disabled"} word={each.enabled ? text.schedules.enabled : undefined} />
                  </a>
                </li>
              ))}
            </ul>
          );
        }}
      </Loaded>
    </Card>
  );
}

function Danger({ fn }: { fn: Fn }) {
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
          button={`${t.delete} ${fn.name}`}
          name={fn.name}
          act={() => api.delete("/v1/functions/{name}", { path: { name: fn.name } })}
          onClose={() => setAsking(false)}
          done={t.deleted(fn.name)}
          refreshes={["/v1/functions?", "/v1/scheduled-functions", "/v1/usage"]}
          onDone={() => (forget(fn.name), route("/functions"))}
        >
          <p>{t.deleteText}</p>
        </ConfirmDanger>
      )}
    </Card>
  );
}
