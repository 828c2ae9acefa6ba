/** The code of a version, in the editor. Changes are a draft in the browser until they are deployed. */

import { Rocket, Play } from "lucide-preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { useResource } from "../../api/resource";
import type { Data } from "../../api/types";
import { isMac } from "../../lib/keyboard";
import { can, whyNot } from "../../lib/roles";
import { text } from "../../text";
import { Button, ButtonLink } from "../../ui/button";
import { Confirm } from "../../ui/dialog";
import { Editor, type Files } from "../../ui/editor/editor";
import { ErrorBox, Loaded, Notice, Skeleton } from "../../ui/feedback";
import { showToast } from "../../ui/toast";
import { packFiles } from "./archive";
import { keepDraft, readDraft, type Draft } from "./drafts";
import { deployCode, withReason, type Fn, type TabProps } from "./function";
import { RunPanel } from "./run";

export type VersionFiles = Data<"/v1/functions/{name}/versions/{version}/files">;

const t = text.fnCode;

/** The files in the order that people look for: the main file, then others by name. */
export function filesOfVersion(found: VersionFiles): Files {
  const rank = (path: string) => (path === found.main ? 0 : 1);
  const known = found.files.filter((file) => file.text !== null).sort((a, b) => rank(a.path) - rank(b.path) || a.path.localeCompare(b.path));
  return Object.fromEntries(known.map((file) => [file.path, file.text ?? ""]));
}

function lockedBecause(found: VersionFiles, fn: Fn): string | undefined {
  if (found.version !== fn.currentVersion) return t.older(found.version);
  const other = found.files.filter((file) => file.text === null).map((file) => file.path);
  if (other.length > 0) return t.readOnlyBinary(other.length > 3 ? `${other.slice(0, 3).join(", ")}, …` : other.join(", "));
  return found.truncated ? t.readOnlyMany : undefined;
}

export default function Code({ fn, id }: TabProps) {
  const wanted = Number(id) || undefined;
  const draft = wanted ? undefined : readDraft(fn.name);
  const version = wanted ?? draft?.version ?? fn.currentVersion;
  const files = useResource("/v1/functions/{name}/versions/{version}/files", { path: { name: fn.name, version } }, { isOn: can("member") });
  if (!can("member")) return <Notice>{t.hidden} {whyNot("member")}</Notice>;
  return (
    <Loaded of={files} skeleton={<Skeleton height={320} />}>
      {(found) => (wanted ? <Shown fn={fn} found={found} /> : <Edited key={found.version} fn={fn} found={found} draft={draft} />)}
    </Loaded>
  );
}

function Shown({ fn, found }: { fn: Fn; found: VersionFiles }) {
  return (
    <div class="stack">
      <Notice
        actions={
          <ButtonLink size="small" href={`/functions/${fn.name}`}>
            {t.toCurrent}
          </ButtonLink>
        }
      >
        {t.older(found.version)}
      </Notice>
      <Editor key={found.version} label={t.editor} files={filesOfVersion(found)} onChange={() => undefined} isReadOnly />
    </div>
  );
}

const sameFiles = (one: Files, other: Files) =>
  Object.keys(one).length === Object.keys(other).length && Object.entries(one).every(([path, content]) => other[path] === content);

function Edited({ fn, found, draft }: { fn: Fn; found: VersionFiles; draft: Draft | undefined }) {
  const stored = filesOfVersion(found);
  const locked = draft ? undefined : lockedBecause(found, fn);
  const [files, setFiles] = useState(draft?.files ?? stored);
  const [isRunning, setRunning] = useState(false);
  const [isAsking, setAsking] = useState(false);
  const [resets, setResets] = useState(0);
  const isChanged = !sameFiles(files, stored);
  const isDeployed = useRef(false);
  const deploy = useAction(async () => deployCode(fn.name, await packFiles(files)), {
    isQuiet: true,
    done: (made) => text.fn.deployed(made.currentVersion),
    refreshes: ["/v1/functions"],
    onDone: () => {
      isDeployed.current = true;
      keepDraft(fn.name, undefined);
    },
  });
  useEffect(() => {
    const keep = () => isDeployed.current || keepDraft(fn.name, isChanged ? { version: found.version, files } : undefined);
    const timer = setTimeout(keep, 400);
    return () => clearTimeout(timer);
  }, [files, isChanged]);
  const save = () => {
    keepDraft(fn.name, isChanged ? { version: found.version, files } : undefined);
    showToast({ kind: "ok", title: isChanged ? t.draftSaved : t.unchanged });
  };
  const why = whyNot("member") ?? locked ?? (isChanged ? undefined : t.unchanged);
  return (
    <div class="stack">
      {locked && <Notice>{locked}</Notice>}
      {isChanged && found.version !== fn.currentVersion && <Notice kind="warn">{t.outdated(found.version, fn.currentVersion)}</Notice>}
      <div class="row wrap">
        <span class="soft small">{isChanged ? <span class="tag accent">{t.draft}</span> : t.shown(found.version)}</span>
        {!locked && (
          <span class="soft small not-phone">
            <kbd>{isMac ? "⌘" : "Ctrl"}</kbd> <kbd>S</kbd> {t.saveHint}
          </span>
        )}
        <span class="grow" />
        {isChanged && (
          <Button kind="quiet" size="small" onClick={() => setAsking(true)}>
            {t.discard}
          </Button>
        )}
        <Button size="small" isPressed={isRunning} onClick={() => setRunning(!isRunning)} icon={<Play size={13} aria-hidden="true" />}>
          {text.fn.run}
        </Button>
        <Button size="small" kind="primary" why={why} isBusy={deploy.isBusy} onClick={() => deploy.run()} icon={<Rocket size={13} aria-hidden="true" />}>
          {text.fn.deploy}
        </Button>
      </div>
      {deploy.error && <ErrorBox error={deploy.error} details={withReason(deploy.error)} />}
      <Editor key={`${resets} ${locked ?? ""}`} label={t.editor} files={files} onChange={setFiles} onSave={save} isReadOnly={locked !== undefined} />
      {isRunning && <RunPanel fn={fn} />}
      {isAsking && (
        <Confirm
          title={t.discard}
          button={t.discard}
          act={async () => (keepDraft(fn.name, undefined), setFiles(stored), setResets(resets + 1))}
          onClose={() => setAsking(false)}
          done={t.discarded}
          refreshes={["/v1/functions"]}
        >
          <p>{t.discardText}</p>
        </Confirm>
      )}
    </div>
  );
}
