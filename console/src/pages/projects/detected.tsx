/** How a repository would be built: asked for while the project is being created. */

import { Sparkles } from "lucide-preact";
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { api } from "../../api/client";
import { toApiError, type ApiError } from "../../api/errors";
import type { Data } from "../../api/types";
import { can } from "../../lib/roles";
import { text } from "../../text";
import { Facts, Notice } from "../../ui/feedback";
import { shortCommit } from "./state";

type Plan = Data<"/v1/projects/detect", "post">;
type Asked = { repositoryName: string; branch: string; slug: string; baseDir: string; startCmd: string };
type Found = { plan?: Plan; error?: ApiError; isBusy: boolean };

const t = text.createProject;
const IS_REPOSITORY = /^[A-Za-z0-9_][A-Za-z0-9._-]*\/[A-Za-z0-9_][A-Za-z0-9._-]*$/;
const TYPING_MS = 500;

/** The plan of what is chosen; asked for when the person has stopped typing. */
function usePlan({ repositoryName, branch, slug, baseDir, startCmd }: Asked): Found | undefined {
  const [found, setFound] = useState<Found>();
  useEffect(() => {
    if (!IS_REPOSITORY.test(repositoryName) || !branch || !can("member")) return setFound(undefined);
    const abort = new AbortController();
    const body = { repositoryName, branch, slug: slug as "auto", startCmd, ...(baseDir && { baseDir }) };
    const timer = setTimeout(async () => {
      setFound((before) => ({ ...before, isBusy: true }));
      try {
        const plan = await api.post("/v1/projects/detect", { body, signal: abort.signal });
        setFound({ plan, isBusy: false });
      } catch (error) {
        if (!abort.signal.aborted) setFound({ error: toApiError(error), isBusy: false });
      }
    }, TYPING_MS);
    return () => (clearTimeout(timer), abort.abort());
  }, [repositoryName, branch, slug, baseDir, startCmd]);
  return found;
}

export function Detected(asked: Asked) {
  const found = usePlan(asked);
  return (
    <section class="detected" aria-live="polite" aria-busy={found?.isBusy ?? false}>
      <h3 class="row">
        <Sparkles size={15} aria-hidden="true" /> {t.detected} {found?.isBusy && <span class="soft small">{t.detecting}</span>}
      </h3>
      {found?.plan ? <PlanFacts plan={found.plan} /> : found?.error ? <Notice kind="warn">{`${t.detectUnread}: ${Object.values(found.error.fields)[0] ?? found.error.message}`}</Notice> : <p class="soft small">{t.detectHint}</p>}
    </section>
  );
}

function PlanFacts({ plan }: { plan: Plan }) {
  if (plan.problem) return <Notice kind="warn">{`${t.detectFailed}: ${plan.problem}`}</Notice>;
  const isStatic = plan.kind === "static";
  const what = plan.framework || text.projects.languages[plan.language] || (isStatic ? t.detectPlain : t.detectProgram);
  const command = (label: string, value: string): [string, ComponentChildren][] => (value ? [[label, <code class="breaks">{value}</code>]] : []);
  return (
    <div class="stack">
      <Facts
        items={[
          [t.kind, `${t.detectKind[plan.kind ?? ""] ?? ""}, ${what}`],
          ...command(t.detectFolder, plan.baseDir),
          ...command(t.detectInstall, plan.install),
          ...command(t.detectBuild, plan.build),
          ...(isStatic ? command(t.detectPublish, plan.outputDir || t.detectItself) : command(t.detectStart, plan.start || (plan.language === "docker" ? t.detectImage : ""))),
          [text.projects.commit, <span><code>{shortCommit(plan.commitId)}</code> {plan.commitMessage}</span>],
        ]}
      />
      {plan.notes.map((note) => (
        <p key={note} class="soft small">
          {note}
        </p>
      ))}
      <details class="fold">
        <summary>{t.detectWhy}</summary>
        <pre class="reasons">{plan.reasons.join("\n")}</pre>
      </details>
    </div>
  );
}
