/** The result of a statement: a table with the types of its columns, or the error at its place. */

import { Download } from "lucide-preact";
import { useState } from "preact/hooks";
import type { ApiError } from "../../api/errors";
import type { Data } from "../../api/types";
import { duration } from "../../lib/format";
import { saveAs } from "../../lib/save";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { ErrorBox, Notice } from "../../ui/feedback";

export type QueryResult = Data<"/v1/databases/{name}/query", "post">;

const t = text.database.query;
const PAGE = 100;

function shown(value: unknown): string {
  return typeof value === "object" && value !== null ? JSON.stringify(value) : String(value);
}

/** Whether values stand at the right; exact numbers come as text. */
function isNumber({ format, type }: QueryResult["columns"][number]): boolean {
  return format === "number" || /^(numeric|decimal|money|bigint)/i.test(type ?? "");
}

function toCsv({ columns, rows }: QueryResult): string {
  const cell = (value: unknown) => (value === null ? "" : `"${shown(value).replaceAll('"', '""')}"`);
  return [columns.map(({ name }) => cell(name)), ...rows.map((row) => row.map(cell))].map((line) => line.join(",")).join("\r\n");
}

export function Result({ result, name }: { result: QueryResult; name: string }) {
  const [most, setMost] = useState(PAGE);
  const { columns, rows, rowCount, truncated, durationMs } = result;
  const took = duration(durationMs);
  return (
    <div class="stack">
      <div class="row between wrap">
        <span class="soft small figures" role="status">
          {columns.length > 0 ? t.rows(rowCount, took) : t.changed(rowCount, took)}
        </span>
        {rows.length > 0 && (
          <Button kind="quiet" size="small" icon={<Download size={14} aria-hidden="true" />} onClick={() => saveAs(`${name}.csv`, toCsv(result), "text/csv")}>
            {t.csv}
          </Button>
        )}
      </div>
      {truncated && <Notice kind="warn">{t.truncated}</Notice>}
      {columns.length > 0 && <Grid result={result} most={most} />}
      {columns.length > 0 && rows.length === 0 && <p class="soft small">{t.noRows}</p>}
      {rows.length > most && (
        <div class="row">
          <Button size="small" onClick={() => setMost(most + 5 * PAGE)}>
            {t.more(Math.min(5 * PAGE, rows.length - most))}
          </Button>
        </div>
      )}
    </div>
  );
}

function Grid({ result: { columns, rows }, most }: { result: QueryResult; most: number }) {
  return (
    <div class="sheet" tabIndex={0} role="region" aria-label={t.result}>
      <table>
        <thead>
          <tr>
            <th class="at" scope="col">
              #
            </th>
            {columns.map((column, at) => (
              <th key={at} scope="col" class={isNumber(column) ? "num" : ""}>
                {column.name} <span class="type">{column.type}</span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, most).map((row, number) => (
            <tr key={number}>
              <td class="at">{number + 1}</td>
              {row.map((value, at) => (
                <td key={at} class={columns[at] && isNumber(columns[at]) ? "num" : ""} title={value === null ? t.null : shown(value).slice(0, 2_000)}>
                  {value === null ? <i>{t.null}</i> : shown(value).slice(0, 300)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The server counts characters from 1. */
export function placeOf(sql: string, position: number): { line: number; column: number; source: string } {
  const before = sql.slice(0, Math.max(0, position - 1));
  const start = before.lastIndexOf("\n") + 1;
  const end = sql.indexOf("\n", start);
  return { line: before.split("\n").length, column: before.length - start + 1, source: sql.slice(start, end < 0 ? undefined : end) };
}

export function QueryError({ error, sql }: { error: ApiError; sql: string }) {
  const message = error.fields["sql"];
  if (!message) return <ErrorBox error={error} />;
  const position = Number(error.fields["position"] ?? 0);
  const place = position > 0 ? placeOf(sql, position) : undefined;
  return (
    <Notice kind="bad">
      <p class="strong breaks">{message}</p>
      {place && (
        <div class="sql-place">
          <span class="soft small">{t.at(place.line, place.column)}</span>
          <pre>
            {place.source}
            {"\n"}
            {" ".repeat(place.column - 1)}^
          </pre>
        </div>
      )}
    </Notice>
  );
}
