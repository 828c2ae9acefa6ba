/** Parameters of the runs of a schedule: a JSON object. */

import { ApiError } from "../../api/errors";
import { text } from "../../text";
import { Editor } from "../../ui/editor/editor";
import { jsonProblem } from "../functions/run";

const FILE = "params.json";
const t = text.schedules;

export function paramsProblem(given: string): string | undefined {
  const problem = jsonProblem(given);
  if (problem) return problem;
  const value: unknown = JSON.parse(given || "{}");
  return typeof value === "object" && value !== null && !Array.isArray(value) ? undefined : t.paramsObject;
}

/** The object, or an error at the field. */
export function toParams(given: string): Record<string, never> {
  const problem = paramsProblem(given);
  if (problem) throw new ApiError(400, "bad_request", problem, { params: problem });
  return JSON.parse(given || "{}") as Record<string, never>;
}

export function ParamsField({ value, onChange, problem }: { value: string; onChange: (value: string) => void; problem?: string | undefined }) {
  const wrong = paramsProblem(value) ?? problem;
  return (
    <div class="field params-field">
      <span class="field-label">{t.params}</span>
      <Editor label={t.params} files={{ [FILE]: value }} isSingle onChange={(files) => onChange(files[FILE] ?? "")} />
      <p class={wrong ? "problem" : "hint"}>{wrong ?? t.paramsHint}</p>
    </div>
  );
}
