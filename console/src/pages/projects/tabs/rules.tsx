/** Redirects and headers: editors with an order, and a box that says what happens to a path. */

import { ArrowDown, ArrowUp, CornerDownRight, Heading, Plus, Trash2 } from "lucide-preact";
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { useAction } from "../../../api/actions";
import { api } from "../../../api/client";
import type { ApiError } from "../../../api/errors";
import { useResource, type Resource } from "../../../api/resource";
import { whyNot } from "../../../lib/roles";
import { text } from "../../../text";
import { Button } from "../../../ui/button";
import { Card, Empty, ErrorBox, Loaded } from "../../../ui/feedback";
import { Select } from "../../../ui/form";
import type { TabProps } from "../project";
import { TestBox } from "./testbox";

export interface Redirect {
  source: string;
  destination: string;
  status: number;
}

export interface HeaderRule {
  source: string;
  name: string;
  value: string;
}

const bareRedirect = ({ source, destination, status }: Redirect): Redirect => ({ source, destination, status });
const bareHeader = ({ source, name, value }: HeaderRule): HeaderRule => ({ source, name, value });

export default function Rules({ project }: TabProps) {
  const path = { name: project.name };
  const redirects = useResource("/v1/projects/{name}/redirects", { path }, { pollMs: 30_000 });
  const headers = useResource("/v1/projects/{name}/headers", { path }, { pollMs: 30_000 });
  const [newRedirects, setRedirects] = useState<Redirect[]>();
  const [newHeaders, setHeaders] = useState<HeaderRule[]>();
  const t = text.rules;
  return (
    <div class="stack wide">
      <TestBox project={project.name} redirects={newRedirects?.map(bareRedirect)} headers={newHeaders?.map(bareHeader)} />
      <RuleList
        title={t.redirects}
        hint={t.redirectsHint}
        empty={t.noRedirects}
        icon={<CornerDownRight size={20} />}
        add={t.addRedirect}
        stored={redirects}
        draft={newRedirects}
        onChange={setRedirects}
        blank={{ source: "", destination: "", status: 301 }}
        strip={bareRedirect}
        save={async (rules) => void (await api.put("/v1/projects/{name}/redirects", { path, body: { redirects: rules } }))}
        field="redirects"
        cells={(rule, at, set, problem) => (
          <>
            <Cell label={t.ruleField(t.source, at + 1)} value={rule.source} placeholder="/old/*" problem={problem("source")} onInput={(source) => set({ ...rule, source })} />
            <Cell label={t.ruleField(t.destination, at + 1)} value={rule.destination} placeholder="/new/*" problem={problem("destination")} onInput={(destination) => set({ ...rule, destination })} />
            <Select
              label={t.ruleField(t.status, at + 1)}
              value={String(rule.status)}
              options={Object.entries(t.statuses).map(([value, label]) => ({ value, label }))}
              onChange={(status) => set({ ...rule, status: Number(status) })}
            />
          </>
        )}
      />
      <RuleList
        title={t.headers}
        hint={t.headersHint}
        empty={t.noHeaders}
        icon={<Heading size={20} />}
        add={t.addHeader}
        stored={headers}
        draft={newHeaders}
        onChange={setHeaders}
        blank={{ source: "/*", name: "", value: "" }}
        strip={bareHeader}
        save={async (rules) => void (await api.put("/v1/projects/{name}/headers", { path, body: { headers: rules } }))}
        field="headers"
        cells={(rule, at, set, problem) => (
          <>
            <Cell label={t.headerField(t.source, at + 1)} value={rule.source} placeholder="/assets/*" problem={problem("source")} onInput={(source) => set({ ...rule, source })} />
            <Cell label={t.headerField(t.header, at + 1)} value={rule.name} placeholder="Cache-Control" problem={problem("name")} onInput={(name) => set({ ...rule, name })} />
            <Cell label={t.headerField(t.value, at + 1)} value={rule.value} placeholder="max-age=3600" problem={problem("value")} onInput={(value) => set({ ...rule, value })} />
          </>
        )}
      />
      <Card title={t.patterns}>
        <dl class="patterns">
          {t.patternsText.map(([pattern, meaning]) => (
            <div key={pattern}>
              <dt>
                <code>{pattern}</code>
              </dt>
              <dd class="soft">{meaning}</dd>
            </div>
          ))}
        </dl>
      </Card>
    </div>
  );
}

interface CellProps {
  label: string;
  value: string;
  placeholder: string;
  problem: string | undefined;
  onInput: (value: string) => void;
}

function Cell({ label, value, placeholder, problem, onInput }: CellProps) {
  return (
    <div class="stack tight">
      <input
        class="input mono"
        aria-label={label}
        aria-invalid={problem ? true : undefined}
        title={problem}
        placeholder={placeholder}
        value={value}
        spellcheck={false}
        autocomplete="off"
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      {problem && <span class="rule-problem small">{problem}</span>}
    </div>
  );
}

interface RuleListProps<T extends object> {
  title: string;
  hint: string;
  empty: string;
  icon: ComponentChildren;
  add: string;
  stored: Omit<Resource<T[]>, "set">;
  draft: T[] | undefined; // undefined: nothing was changed
  onChange: (draft: T[] | undefined) => void;
  blank: T;
  strip: (rule: T) => T;
  save: (rules: T[]) => Promise<void>;
  field: string; // name in the errors of the API
  cells: (rule: T, at: number, set: (rule: T) => void, problem: (name: string) => string | undefined) => ComponentChildren;
}

function RuleList<T extends object>(props: RuleListProps<T>) {
  const { title, hint, empty, icon, add, stored, draft, onChange, blank, strip, save, field, cells } = props;
  const t = text.rules;
  const why = whyNot("member");
  const action = useAction(async (rules: T[]) => save(rules.map(strip)), {
    done: t.saved,
    isQuiet: true,
    onDone: () => void stored.reload().then(() => onChange(undefined)),
  });
  const rules = draft ?? stored.data ?? [];
  const change = (next: T[]) => (action.clear(), onChange(next));
  const addRule = () => change([...rules, blank]);
  const addButton = (
    <Button size="small" why={why} onClick={addRule} icon={<Plus size={14} aria-hidden="true" />}>
      {add}
    </Button>
  );
  return (
    <Card
      title={title}
      isFlush
      actions={addButton}
      foot={
        draft ? (
          <>
            <span class="grow">{t.unsaved}</span>
            <Button size="small" onClick={() => (action.clear(), onChange(undefined))}>
              {t.discard}
            </Button>
            <Button size="small" kind="primary" why={why} isBusy={action.isBusy} onClick={() => action.run(rules)}>
              {t.save}
            </Button>
          </>
        ) : (
          hint
        )
      }
    >
      <Loaded of={stored as Resource<T[]>}>
        {() =>
          rules.length === 0 ? (
            <Empty icon={icon}>{empty}</Empty>
          ) : (
            <ol class="rule-rows">
              {rules.map((rule, at) => (
                <li key={at} class="rule-row">
                  <span class="soft small figures">{at + 1}</span>
                  <fieldset class="rule-cells" disabled={why !== undefined} title={why}>
                    {cells(rule, at, (next) => change(rules.with(at, next)), (name) => problemAt(action.error, field, at, name))}
                  </fieldset>
                  <span class="row-tools">
                    <Button kind="quiet" size="small" label={t.moveUp(at + 1)} why={why} isDisabled={at === 0} onClick={() => change(swapped(rules, at, at - 1))} icon={<ArrowUp size={14} aria-hidden="true" />} />
                    <Button kind="quiet" size="small" label={t.moveDown(at + 1)} why={why} isDisabled={at === rules.length - 1} onClick={() => change(swapped(rules, at, at + 1))} icon={<ArrowDown size={14} aria-hidden="true" />} />
                    <Button kind="quiet" size="small" label={t.remove(at + 1)} why={why} onClick={() => change(rules.toSpliced(at, 1))} icon={<Trash2 size={14} aria-hidden="true" />} />
                  </span>
                </li>
              ))}
            </ol>
          )
        }
      </Loaded>
      {action.error && (
        <div class="rule-error">
          <ErrorBox error={action.error} details={unplaced(action.error, field)} />
        </div>
      )}
    </Card>
  );
}

function swapped<T>(rules: T[], one: number, other: number): T[] {
  return rules.with(one, rules[other]!).with(other, rules[one]!);
}

function problemAt(error: ApiError | undefined, field: string, at: number, name: string): string | undefined {
  return error?.fields[`${field}[${at}].${name}`];
}

/** Problems that belong to no cell. */
function unplaced(error: ApiError, field: string): string[] {
  const cell = new RegExp(`^${field}\\[\\d+\\]\\.(source|destination|name|value)$`);
  return Object.entries(error.fields).flatMap(([name, problem]) => (cell.test(name) ? [] : [`${name}: ${problem}`]));
}
