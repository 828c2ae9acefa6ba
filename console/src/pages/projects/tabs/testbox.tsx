/** "What happens to /old?": the API follows a path through the rules, also through those that are not saved yet. */

import { ArrowRight, CircleCheck, ExternalLink } from "lucide-preact";
import { useLocation } from "preact-iso";
import { useEffect, useState } from "preact/hooks";
import { api } from "../../../api/client";
import { toApiError, type ApiError } from "../../../api/errors";
import type { Data } from "../../../api/types";
import { text } from "../../../text";
import { Card, ErrorBox } from "../../../ui/feedback";
import { Field } from "../../../ui/form";
import type { HeaderRule, Redirect } from "./rules";

type Outcome = Data<"/v1/projects/{name}/redirects/test", "post">;

const TYPING_MS = 200; // A request is sent after a pause of this length.

interface TestBoxProps {
  project: string;
  redirects: Redirect[] | undefined; // changed ones; the stored ones apply without them
  headers: HeaderRule[] | undefined;
}

interface Trial {
  outcome?: Outcome | undefined;
  error?: ApiError | undefined;
}

function useTrial(path: string, { project, redirects, headers }: TestBoxProps): Trial {
  const [trial, setTrial] = useState<Trial>({});
  // Rows that were just added are empty; the others keep their numbers.
  const numbers = redirects?.flatMap(({ source, destination }, at) => (source || destination ? [at] : []));
  const named = headers?.flatMap(({ name }, at) => (name ? [at] : []));
  const body = {
    path,
    ...(redirects && { redirects: numbers!.map((at) => redirects[at]!) }),
    ...(headers && { headers: named!.map((at) => headers[at]!) }),
  };
  useEffect(() => {
    if (!path.startsWith("/")) return setTrial({});
    const aborting = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const outcome = await api.post("/v1/projects/{name}/redirects/test", { path: { name: project }, body, signal: aborting.signal });
        setTrial({ outcome: { ...outcome, redirects: outcome.redirects.map((hop) => ({ ...hop, index: numbers?.[hop.index] ?? hop.index })) } });
      } catch (failure) {
        if (!aborting.signal.aborted) setTrial({ error: toApiError(failure) });
      }
    }, TYPING_MS);
    return () => {
      clearTimeout(timer);
      aborting.abort();
    };
  }, [JSON.stringify(body), project]);
  return trial;
}

export function TestBox(props: TestBoxProps) {
  const { query } = useLocation();
  const [path, setPath] = useState(query["test"] ?? "");
  const { outcome, error } = useTrial(path, props);
  const t = text.rules;
  return (
    <Card title={t.test}>
      <div class="stack">
        <Field label={t.testLabel} hint={t.testHint} problem={path && !path.startsWith("/") ? t.testBadPath : undefined}>
          {(ids) => (
            <input {...ids} class="input mono" placeholder="/old" value={path} spellcheck={false} autocomplete="off" onInput={(event) => setPath(event.currentTarget.value)} />
          )}
        </Field>
        <div role="status">
          {outcome && <Result outcome={outcome} />}
          {error && <ErrorBox error={error} details={Object.entries(error.fields).map(([name, problem]) => `${name}: ${problem}`)} />}
        </div>
      </div>
    </Card>
  );
}

function Result({ outcome }: { outcome: Outcome }) {
  const t = text.rules;
  const { path, redirects, leavesSite, headers } = outcome;
  return (
    <div class="stack">
      <ol class="test-steps">
        <li class="mono breaks">{path}</li>
        {redirects.map((hop, at) => (
          <li key={at}>
            <ArrowRight size={14} aria-hidden="true" />
            <span class="tag accent">{hop.status}</span>
            <span class="mono breaks">{hop.location}</span>
            <span class="soft small">{t.testByRule(hop.index + 1)}</span>
          </li>
        ))}
        {leavesSite ? (
          <li>
            <ExternalLink size={14} aria-hidden="true" /> {t.testLeaves}
          </li>
        ) : (
          <li>
            <CircleCheck size={14} class="ok-mark" aria-hidden="true" />
            <span>{redirects.length === 0 ? t.testServed : t.testServedThere}</span>
          </li>
        )}
      </ol>
      {!leavesSite && (
        <div class="stack tight">
          <span class="soft small">{t.testHeaders}</span>
          {headers.length === 0 && <span class="small">{t.testNoHeaders}</span>}
          {headers.map(({ index, name, value }) => (
            <code key={index} class="breaks">
              {name}: {value}
            </code>
          ))}
        </div>
      )}
    </div>
  );
}
