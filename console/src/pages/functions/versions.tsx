/** The versions of a function: compare two, or make an earlier one current. */

import { ArrowLeft, GitCompare, History } from "lucide-preact";
import { useLocation } from "preact-iso";
import { useMemo, useState } from "preact/hooks";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { Data, Item } from "../../api/types";
import { parseAnsi } from "../../lib/ansi";
import { diffLines, hunksOf, type DiffLine } from "../../lib/diff";
import { can, whyNot } from "../../lib/roles";
import { text } from "../../text";
import { Button, ButtonLink } from "../../ui/button";
import { Confirm } from "../../ui/dialog";
import { Card, Empty, Loaded, Notice } from "../../ui/feedback";
import { Select } from "../../ui/form";
import { Table } from "../../ui/table";
import { Time } from "../../ui/time";
import type { VersionFiles } from "./code";
import type { Fn, TabProps } from "./function";

type Version = Item<Data<"/v1/functions/{name}/versions">>;
const t = text.versions;

export default function Versions({ fn, id }: TabProps) {
  const list = useResource("/v1/functions/{name}/versions", { path: { name: fn.name } });
  const pair = /^(\d+)\.\.(\d+)$/.exec(id ?? "");
  return (
    <Loaded of={list}>
      {(items) =>
        pair ? <Compared fn={fn} items={items} from={Number(pair[1])} to={Number(pair[2])} /> : <VersionList fn={fn} items={items} />
      }
    </Loaded>
  );
}

function VersionList({ fn, items }: { fn: Fn; items: Version[] }) {
  const [asked, setAsked] = useState<number>();
  const before = (version: number) => items.find((each) => each.version < version)?.version;
  return (
    <div class="stack">
      <Table
        label={t.title}
        rows={items}
        keyOf={(each) => each.id}
        columns={[
          {
            name: t.version,
            of: (each) => (
              <span class="row">
                <a class="strong" href={`/functions/${fn.name}/code${each.current ? "" : `/${each.version}`}`}>{`v${each.version}`}</a>
                {each.current && <span class="tag accent">{t.current}</span>}
              </span>
            ),
          },
          { name: t.deployed, of: (each) => <Time at={each.createdAt} /> },
          {
            name: "",
            of: (each) => (
              <span class="row end grow">
                {before(each.version) !== undefined && (
                  <ButtonLink size="small" kind="quiet" href={`/functions/${fn.name}/versions/${before(each.version)}..${each.version}`} icon={<GitCompare size={14} aria-hidden="true" />}>
                    {t.compare}
                  </ButtonLink>
                )}
                {!each.current && (
                  <Button size="small" why={whyNot("member")} onClick={() => setAsked(each.version)} icon={<History size={14} aria-hidden="true" />}>
                    {t.rollback}
                  </Button>
                )}
              </span>
            ),
          },
        ]}
      />
      {asked !== undefined && <RollBack fn={fn} version={asked} onClose={() => setAsked(undefined)} />}
    </div>
  );
}

function RollBack({ fn, version, onClose }: { fn: Fn; version: number; onClose: () => void }) {
  return (
    <Confirm
      title={t.rollbackTitle(version)}
      button={t.rollback}
      act={() => api.post("/v1/functions/{name}/rollback", { path: { name: fn.name }, body: { version } })}
      onClose={onClose}
      done={t.rolledBack(version)}
      refreshes={["/v1/functions"]}
    >
      <p>{t.rollbackText(version)}</p>
    </Confirm>
  );
}

interface ComparedProps {
  fn: Fn;
  items: Version[];
  from: number;
  to: number;
}

function Compared({ fn, items, from, to }: ComparedProps) {
  const { route } = useLocation();
  const [isAsking, setAsking] = useState(false);
  const options = items.map(({ version, current }) => ({ value: String(version), label: `v${version}${current ? ` (${t.current})` : ""}` }));
  const go = (one: string | number, other: string | number) => route(`/functions/${fn.name}/versions/${one}..${other}`, true);
  const isOlder = from !== fn.currentVersion && items.some((each) => each.version === from);
  return (
    <div class="stack">
      <div class="row wrap">
        <ButtonLink size="small" kind="quiet" href={`/functions/${fn.name}/versions`} icon={<ArrowLeft size={14} aria-hidden="true" />}>
          {t.back}
        </ButtonLink>
        <span class="compare-pair">
          <Select label={t.from} value={String(from)} options={options} onChange={(value) => go(value, to)} />
          <span aria-hidden="true">→</span>
          <Select label={t.to} value={String(to)} options={options} onChange={(value) => go(from, value)} />
        </span>
        <span class="grow" />
        {isOlder && (
          <Button size="small" why={whyNot("member")} onClick={() => setAsking(true)} icon={<History size={14} aria-hidden="true" />}>
            {t.rollbackTitle(from)}
          </Button>
        )}
      </div>
      {can("member") ? <Differences name={fn.name} from={from} to={to} /> : <Notice>{text.fnCode.hidden} {whyNot("member")}</Notice>}
      {isAsking && <RollBack fn={fn} version={from} onClose={() => setAsking(false)} />}
    </div>
  );
}

function Differences({ name, from, to }: { name: string; from: number; to: number }) {
  const one = useResource("/v1/functions/{name}/versions/{version}/files", { path: { name, version: from } });
  const other = useResource("/v1/functions/{name}/versions/{version}/files", { path: { name, version: to } });
  return (
    <Loaded of={one}>
      {(before) => (
        <Loaded of={other}>{(after) => <FileDiffs before={before} after={after} />}</Loaded>
      )}
    </Loaded>
  );
}

type File = VersionFiles["files"][number];
interface Changed {
  path: string;
  before: File | undefined;
  after: File | undefined;
}

function changesOf(before: VersionFiles, after: VersionFiles): Changed[] {
  const [one, other] = [before, after].map(({ files }) => new Map(files.map((file) => [file.path, file]))) as [Map<string, File>, Map<string, File>];
  const paths = [...new Set([...one.keys(), ...other.keys()])].sort();
  return paths
    .map((path) => ({ path, before: one.get(path), after: other.get(path) }))
    .filter((each) => !each.before || !each.after || each.before.text !== each.after.text || each.before.sizeBytes !== each.after.sizeBytes);
}

function FileDiffs({ before, after }: { before: VersionFiles; after: VersionFiles }) {
  const changes = useMemo(() => changesOf(before, after), [before, after]);
  if (changes.length === 0) return <Empty icon={<GitCompare size={20} />}>{t.same}</Empty>;
  return (
    <>
      {changes.map((change) => (
        <FileDiff key={change.path} change={change} />
      ))}
    </>
  );
}

function FileDiff({ change }: { change: Changed }) {
  const isText = change.before?.text !== null && change.after?.text !== null;
  const lines = useMemo(() => (isText ? diffLines(change.before?.text ?? "", change.after?.text ?? "") : []), [change]);
  const word = !change.before ? t.added : !change.after ? t.removed : t.changed;
  const added = lines.filter((line) => line.kind === "added").length;
  const removed = lines.filter((line) => line.kind === "removed").length;
  return (
    <Card
      title={<code>{change.path}</code>}
      isFlush
      actions={
        <span class="row soft small figures">
          {isText && t.lines(added, removed)} <span class="tag">{word}</span>
        </span>
      }
    >
      {isText && lines.length === 0 && <p class="well soft">{t.empty}</p>}
      {isText ? lines.length > 0 && <DiffRows lines={lines} label={`${t.differences}: ${change.path}`} /> : <p class="well soft">{t.binary}</p>}
    </Card>
  );
}

const SIGNS = { same: " ", added: "+", removed: "−" };

function DiffRows({ lines, label }: { lines: DiffLine[]; label: string }) {
  const { hunks, rest } = useMemo(() => hunksOf(lines), [lines]);
  return (
    <div class="diff" tabIndex={0} role="region" aria-label={label}>
      {hunks.map((hunk, index) => (
        <div key={index}>
          {hunk.skipped > 0 && <p class="diff-gap">{t.skipped(hunk.skipped)}</p>}
          {hunk.lines.map((line, at) => (
            <div key={at} class={`diff-line ${line.kind}`}>
              <span class="number">{line.before ?? ""}</span>
              <span class="number">{line.after ?? ""}</span>
              <span class="sign">{SIGNS[line.kind]}</span>
              <span dir="ltr">{parseAnsi(line.text.slice(0, 2_000)).map((piece) => piece.text)}</span>
            </div>
          ))}
        </div>
      ))}
      {rest > 0 && <p class="diff-gap">{t.skipped(rest)}</p>}
    </div>
  );
}
