/** "What happens to /old?": follows a path through the rules of the editors, also those that are not saved yet. */

import { ArrowRight, CircleCheck, ExternalLink, RotateCw } from "lucide-preact";
import { useLocation } from "preact-iso";
import { useState } from "preact/hooks";
import { evaluate, type HeaderRule, type Outcome, type Redirect } from "../../../lib/rules";
import { text } from "../../../text";
import { Card } from "../../../ui/feedback";
import { Field } from "../../../ui/form";

interface TestBoxProps {
  redirects: Redirect[];
  headers: HeaderRule[];
  origin: string;
}

export function TestBox({ redirects, headers, origin }: TestBoxProps) {
  const { query } = useLocation();
  const [path, setPath] = useState(query["test"] ?? "");
  const t = text.rules;
  const isPath = path.startsWith("/");
  return (
    <Card title={t.test}>
      <div class="stack">
        <Field label={t.testLabel} hint={t.testHint} problem={path && !isPath ? t.testBadPath : undefined}>
          {(ids) => (
            <input {...ids} class="input mono" placeholder="/old" value={path} spellcheck={false} autocomplete="off" onInput={(event) => setPath(event.currentTarget.value)} />
          )}
        </Field>
        <div role="status">{isPath && <Result given={path} outcome={evaluate(path, redirects, headers, origin)} />}</div>
      </div>
    </Card>
  );
}

function Result({ given, outcome }: { given: string; outcome: Outcome }) {
  const t = text.rules;
  return (
    <div class="stack">
      <ol class="test-steps">
        <li class="mono">{given}</li>
        {outcome.steps.map((step, at) => (
          <li key={at}>
            <ArrowRight size={14} aria-hidden="true" />
            <span class="tag accent">{step.status}</span>
            <span class="mono breaks">{step.to}</span>
            <span class="soft small">{t.testByRule(step.rule + 1)}</span>
          </li>
        ))}
        {outcome.end === "served" && (
          <li>
            <CircleCheck size={14} class="ok-mark" aria-hidden="true" />
            <span>{outcome.steps.length === 0 ? t.testServed : <span class="mono">{outcome.path}</span>}</span>
          </li>
        )}
        {outcome.end === "elsewhere" && (
          <li>
            <ExternalLink size={14} aria-hidden="true" /> {t.testLeaves}
          </li>
        )}
        {outcome.end === "loop" && (
          <li class="rule-problem">
            <RotateCw size={14} aria-hidden="true" /> {t.testLoop}
          </li>
        )}
      </ol>
      {outcome.end === "served" && (
        <div class="stack tight">
          <span class="soft small">{t.testHeaders}</span>
          {outcome.headers.length === 0 && <span class="small">{t.testNoHeaders}</span>}
          {outcome.headers.map(([name, value]) => (
            <code key={name} class="breaks">
              {name}: {value}
            </code>
          ))}
        </div>
      )}
    </div>
  );
}
