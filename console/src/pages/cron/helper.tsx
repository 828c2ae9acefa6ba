/** A cron expression with its meaning in words and its next five runs. */

import { Check, CircleAlert } from "lucide-preact";
import { useEffect, useState } from "preact/hooks";
import { useResource } from "../../api/resource";
import { text } from "../../text";
import { Field } from "../../ui/form";

const t = text.cron;
export const LOCAL_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const ZONES = [...new Set(["UTC", LOCAL_ZONE, ...Intl.supportedValuesOf("timeZone")])];

/** A value that follows typing with a pause, so that not each letter is a request. */
function useSettled(value: string): string {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), 250);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

interface CronFieldProps {
  expression: string;
  onExpression: (expression: string) => void;
  timezone: string;
  onTimezone?: ((timezone: string) => void) | undefined; // without it the zone is fixed
  problem?: string | undefined;
  zoneProblem?: string | undefined;
}

export function CronField({ expression, onExpression, timezone, onTimezone, problem, zoneProblem }: CronFieldProps) {
  return (
    <div class="stack">
      <div class={onTimezone ? "fields" : ""}>
        <Field label={t.expression} hint={t.expressionHint} problem={problem}>
          {(ids) => <input {...ids} class="input mono" name="cronSchedule" value={expression} placeholder="0 9 * * 1-5" autocomplete="off" spellcheck={false} onInput={(event) => onExpression(event.currentTarget.value)} />}
        </Field>
        {onTimezone && (
          <Field label={t.timezone} hint={t.timezoneHint} problem={zoneProblem}>
            {(ids) => (
              <>
                <input {...ids} class="input" name="timezone" list="time-zones" value={timezone} autocomplete="off" spellcheck={false} onInput={(event) => onTimezone(event.currentTarget.value)} />
                <datalist id="time-zones">
                  {ZONES.map((zone) => (
                    <option key={zone} value={zone} />
                  ))}
                </datalist>
              </>
            )}
          </Field>
        )}
      </div>
      <div class="presets" role="group" aria-label={t.presets}>
        {Object.entries(t.presetNames).map(([preset, label]) => (
          <button key={preset} type="button" aria-pressed={preset === expression.trim()} onClick={() => onExpression(preset)}>
            {label}
          </button>
        ))}
      </div>
      <CronMeaning expression={expression} timezone={timezone} />
    </div>
  );
}

export function CronMeaning({ expression, timezone }: { expression: string; timezone: string }) {
  const asked = useSettled(expression.trim());
  const zone = useSettled(timezone.trim());
  const isOn = asked !== "" && zone !== "";
  const found = useResource("/v1/cron/next", { query: { expression: asked || "@hourly", timezone: zone || "UTC" } }, { isOn, pollMs: 60_000 });
  if (!isOn) return null;
  if (found.error) {
    const why = Object.values(found.error.fields)[0] ?? found.error.message;
    return (
      <p class="cron-help problem-line row" role="alert">
        <CircleAlert size={15} aria-hidden="true" /> {why}
      </p>
    );
  }
  return (
    <div class="cron-help" aria-live="polite">
      <p class="row">
        <Check size={15} aria-hidden="true" /> <strong>{found.data?.description ?? t.checking}</strong>
      </p>
      <span class="soft small">
        {t.next} ({zone})
      </span>
      <ol>{(found.data?.nextRuns ?? []).map((run) => <NextRun key={run.at} run={run} zone={zone} />)}</ol>
    </div>
  );
}

function NextRun({ run, zone }: { run: { at: string; localTime: string }; zone: string }) {
  const date = new Date(run.at);
  const inZone = date.toLocaleString(undefined, { timeZone: zone, weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short" });
  const own = date.toLocaleString(undefined, { weekday: "short", hour: "2-digit", minute: "2-digit" });
  return (
    <li>
      <time dateTime={run.at} title={run.localTime}>
        {inZone}
      </time>
      {zone !== LOCAL_ZONE && <span class="soft">{t.inYourTime(own)}</span>}
    </li>
  );
}

/** An expression and its words, for lists. The words are read once. */
export function CronText({ expression, timezone = "UTC", withWords = true }: { expression: string; timezone?: string; withWords?: boolean }) {
  const found = useResource("/v1/cron/next", { query: { expression, timezone } }, { isOn: withWords });
  return (
    <span class="two-lines">
      <code>{expression}</code>
      {found.data && <span class="soft small cut" title={found.data.description}>{found.data.description}</span>}
    </span>
  );
}
