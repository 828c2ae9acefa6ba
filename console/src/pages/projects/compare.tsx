/** Two deployments side by side: their facts, and the lines of their build logs that differ. */

import { ArrowLeft, GitCompareArrows } from "lucide-preact";
import type { ComponentChildren } from "preact";
import { useLocation } from "preact-iso";
import { useEffect, useMemo, useState } from "preact/hooks";
import { follow } from "../../api/stream";
import { plain } from "../../lib/ansi";
import { compact, duration, relative } from "../../lib/format";
import { text } from "../../text";
import { ButtonLink } from "../../ui/button";
import { Card, Empty, SkeletonRows } from "../../ui/feedback";
import { Field, Select } from "../../ui/form";
import { lineOf } from "../../ui/log/deployment";
import { Status } from "../../ui/status";
import { Time } from "../../ui/time";
import { deploymentState, shortCommit, type Deployment, type Project } from "./state";

export function Compare({ project, items }: { project: Project; items: Deployment[] }) {
  const { query, path, route } = useLocation();
  const live = items.find((each) => each.enable);
  const to = items.find((each) => each.deploymentUuid === query["to"]) ?? items[0];
  const from = items.find((each) => each.deploymentUuid === query["from"]) ?? (live !== to ? live : undefined) ?? items.find((each) => each !== to);
  const t = text.compare;
  const pick = (change: Record<string, string>) => {
    const next = new URLSearchParams({ from: from?.deploymentUuid ?? "", to: to?.deploymentUuid ?? "", ...change });
    route(`${path}?${next}`, true);
  };
  const options = items.map((each) => ({ value: each.deploymentUuid, label: `${nameOf(each)} · ${relative(each.createdAt)}${each.enable ? ` · ${text.projects.live}` : ""}` }));
  return (
    <div class="stack wide">
      <div class="row">
        <ButtonLink size="small" kind="quiet" href={`/projects/${project.name}/deployments`} icon={<ArrowLeft size={14} aria-hidden="true" />}>
          {text.projects.deployments}
        </ButtonLink>
      </div>
      {from && to ? (
        <>
          <div class="compare-pick">
            <Field label={t.from}>{(ids) => <Select {...ids} value={from.deploymentUuid} options={options} onChange={(value) => pick({ from: value })} />}</Field>
            <Field label={t.to}>{(ids) => <Select {...ids} value={to.deploymentUuid} options={options} onChange={(value) => pick({ to: value })} />}</Field>
          </div>
          <FactTable from={from} to={to} project={project} />
          <LogDifference from={from} to={to} key={`${from.deploymentUuid} ${to.deploymentUuid}`} />
        </>
      ) : (
        <Card>
          <Empty icon={<GitCompareArrows size={20} />}>{t.needsTwo(items.length)}</Empty>
        </Card>
      )}
    </div>
  );
}

function nameOf(deployment: Deployment): string {
  return shortCommit(deployment.commitId) || deployment.kind;
}

type Fact = [name: string, text: (each: Deployment) => string, shown?: (each: Deployment) => ComponentChildren];

const FACTS: Fact[] = [
  [text.common.status, (each) => each.status, (each) => <Status of={deploymentState(each.status)} />],
  [text.projects.commit, (each) => shortCommit(each.commitId) || "–", (each) => <code>{shortCommit(each.commitId) || "–"}</code>],
  [text.projects.branch, (each) => each.branch ?? "–"],
  [text.projects.kind, (each) => each.kind],
  [text.projects.by, (each) => each.actor.name ?? each.actor.username ?? "–"],
  [text.common.created, (each) => each.createdAt, (each) => <Time at={each.createdAt} />],
  [text.projects.builtIn, (each) => (each.durationMs === null ? "–" : duration(each.durationMs))],
  [text.compare.files, (each) => (each.fileCount === null ? "–" : compact(each.fileCount))],
  [text.projects.swap, (each) => (each.swap ? text.projects.swapText(each.swap.requests, each.swap.failed) : "–")],
  [text.compare.swapGap, (each) => (each.swap ? duration(each.swap.longestGapMs) : "–")],
  [text.compare.reason, (each) => each.reason ?? "–"],
];

/** Facts that are never quite the same twice. */
const VARYING = new Set([text.common.created, text.projects.builtIn, text.projects.swap, text.compare.swapGap]);

function FactTable({ from, to, project }: { from: Deployment; to: Deployment; project: Project }) {
  const link = (each: Deployment) => <a href={`/projects/${project.name}/deployments/${each.deploymentUuid}`}>{nameOf(each)}</a>;
  return (
    <Card isFlush>
      <table class="compare-table">
        <thead>
          <tr>
            <th scope="col">
              <span class="unseen">{text.compare.field}</span>
            </th>
            <th scope="col">{link(from)}</th>
            <th scope="col">{link(to)}</th>
          </tr>
        </thead>
        <tbody>
          {FACTS.map(([name, words, shown]) => (
            <tr key={name} class={words(from) !== words(to) && !VARYING.has(name) ? "differs" : ""}>
              <th scope="row">{name}</th>
              <td>{shown ? shown(from) : words(from)}</td>
              <td>
                {shown ? shown(to) : words(to)}
                {name === text.projects.builtIn && <Faster from={from} to={to} />}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Card>
  );
}

function Faster({ from, to }: { from: Deployment; to: Deployment }) {
  if (from.durationMs === null || to.durationMs === null || from.durationMs === 0) return null;
  const part = (to.durationMs - from.durationMs) / from.durationMs;
  if (Math.abs(part) < 0.05) return null;
  const words = `${Math.round(Math.abs(part) * 100)} %`;
  return <span class="soft"> ({part > 0 ? text.compare.slower(words) : text.compare.faster(words)})</span>;
}

/** Read a build log to its end. */
function useWholeLog(uuid: string): string[] | undefined {
  const [lines, setLines] = useState<string[]>();
  useEffect(() => {
    const read: string[] = [];
    return follow(`/v1/deployments/${uuid}/logs/stream`, {}, {
      onEvent: (event) => {
        if (event.name === "log") read.push(...lineOf(event.data).text.split("\n").map(plain));
        if (event.name !== "done") return undefined;
        setLines(read);
        return false;
      },
      onError: (_, isFinal) => isFinal && setLines(read),
    });
  }, [uuid]);
  return lines;
}

/** Lines are equal if only times, sizes and counts differ. */
function keyOf(line: string): string {
  return line.replace(/\d+(\.\d+)?/g, "0").trim();
}

type Difference = { sign: " " | "-" | "+"; line: string };

/** Return the lines of both logs in order, by their longest common part; long logs are cut. */
export function differenceOf(before: string[], after: string[], most = 1_500): Difference[] {
  const [a, b] = [before.slice(0, most), after.slice(0, most)];
  const [ka, kb] = [a.map(keyOf), b.map(keyOf)];
  const width = b.length + 1;
  const lengths = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      lengths[i * width + j] = ka[i] === kb[j] ? lengths[(i + 1) * width + j + 1]! + 1 : Math.max(lengths[(i + 1) * width + j]!, lengths[i * width + j + 1]!);
    }
  }
  const found: Difference[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && ka[i] === kb[j]) found.push({ sign: " ", line: b[(i += 1, j++)]! });
    else if (j >= b.length || (i < a.length && lengths[(i + 1) * width + j]! >= lengths[i * width + j + 1]!)) found.push({ sign: "-", line: a[i++]! });
    else found.push({ sign: "+", line: b[j++]! });
  }
  return found;
}

function LogDifference({ from, to }: { from: Deployment; to: Deployment }) {
  const before = useWholeLog(from.deploymentUuid);
  const after = useWholeLog(to.deploymentUuid);
  const lines = useMemo(() => (before && after ? differenceOf(before, after).filter((each) => each.sign !== " ") : undefined), [before, after]);
  const t = text.compare;
  return (
    <Card title={t.log} isFlush>
      {!lines && <SkeletonRows rows={3} height={32} />}
      {lines?.length === 0 && <p class="soft well">{t.logSame}</p>}
      {lines && lines.length > 0 && (
        <div class="diff" tabIndex={0} role="region" aria-label={t.log}>
          {lines.slice(0, 500).map((each, at) => (
            <div key={at} class={each.sign === "+" ? "plus" : "minus"}>
              {each.sign} {each.line.slice(0, 2_000)}
            </div>
          ))}
        </div>
      )}
    </Card>
  );
}
