/** The first-run guide: from nothing to a live address in under a minute. */

import { Code2, FileCode, GitBranch, Server, SquareFunction, type LucideIcon } from "lucide-preact";
import { useLocation } from "preact-iso";
import { useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import { organizationId } from "../../api/session";
import { slugify } from "../../lib/format";
import { whyNot } from "../../lib/roles";
import { zip } from "../../lib/zip";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { CodeBlock } from "../../ui/copy";
import { Dialog } from "../../ui/dialog";
import { Card, Notice } from "../../ui/feedback";
import { Segments } from "../../ui/tabs";
import { DropSite, uploadSite } from "./drop";
import { cliLines, FUNCTION_CODE, gitLines, STATIC_PAGE, type GitTemplate } from "./templates";

export function Guide() {
  return (
    <div class="guide">
      <Card title={text.home.guideTitle}>
        <DropSite />
      </Card>
      <Card title={text.home.templates} isFlush>
        <Templates />
      </Card>
    </div>
  );
}

function ending(): string {
  return Math.random().toString(36).slice(2, 8).padEnd(6, "x");
}

function Templates() {
  const { route } = useLocation();
  const [git, setGit] = useState<GitTemplate>();
  const why = whyNot("member");
  const page = useAction(
    async () => {
      const archive = await zip([{ path: "index.html", file: new Blob([STATIC_PAGE]) }]);
      return uploadSite(`hello-${ending()}`, archive);
    },
    { done: (made) => text.home.created(made.name), refreshes: ["/v1/projects", "/v1/usage"], onDone: (made) => route(`/projects/${made.name}`) },
  );
  const code = useAction(
    async () => {
      const body = new FormData();
      body.set("name", `hello-${ending()}`);
      body.set("runtime", "python");
      body.set("code", await zip([{ path: "main.py", file: new Blob([FUNCTION_CODE]) }]), "code.zip");
      return api.post("/v1/functions", { body });
    },
    { done: (made) => text.home.created(made.name), refreshes: ["/v1/functions", "/v1/usage"], onDone: (made) => route(`/functions/${made.name}`) },
  );
  return (
    <>
      <ul class="templates">
        <Template icon={FileCode} title={text.home.templateStatic} hint={text.home.templateStaticHint} isBusy={page.isBusy} why={why} onClick={() => page.run()} />
        <Template icon={SquareFunction} title={text.home.templateFunction} hint={text.home.templateFunctionHint} isBusy={code.isBusy} why={why} onClick={() => code.run()} />
        <Template icon={Server} title={text.home.templateExpress} hint={text.home.templateExpressHint} onClick={() => setGit("express")} />
        <Template icon={Code2} title={text.home.templateFastapi} hint={text.home.templateFastapiHint} onClick={() => setGit("fastapi")} />
        <Template icon={GitBranch} title={text.home.fromGit} hint={text.home.fromGitHint} onClick={() => setGit("site")} />
      </ul>
      {git && <GitDialog template={git} onClose={() => setGit(undefined)} />}
    </>
  );
}

interface TemplateProps {
  icon: LucideIcon;
  title: string;
  hint: string;
  isBusy?: boolean | undefined;
  why?: string | undefined;
  onClick: () => unknown;
}

function Template({ icon: Icon, title, hint, isBusy, why, onClick }: TemplateProps) {
  return (
    <li>
      <button type="button" class="template" disabled={isBusy || why !== undefined} title={why} aria-busy={isBusy} onClick={onClick}>
        <Icon size={18} aria-hidden="true" />
        <span class="stack tight">
          <strong>{title}</strong>
          <span class="soft small">{hint}</span>
        </span>
      </button>
    </li>
  );
}

/** The lines to paste, with a token of this organization if the person may create one. */
function GitDialog({ template, onClose }: { template: GitTemplate; onClose: () => void }) {
  const orgs = useResource("/v1/orgs", {});
  const [token, setToken] = useState("");
  const [way, setWay] = useState("git");
  const owner = orgs.data?.find((each) => each.organizationId === organizationId.value)?.slug ?? slugify("me");
  const create = useAction(() => api.post("/v1/api-tokens", { body: { name: text.home.tokenName, role: "member", expiresInDays: 90 } }), {
    onDone: (made) => setToken(made.token),
    refreshes: ["/v1/api-tokens"],
  });
  return (
    <Dialog title={text.home.fromGit} onClose={onClose} isLarge>
      <p class="soft">{text.home.fromGitHint}</p>
      {token ? (
        <Notice kind="ok">{text.home.tokenMade}</Notice>
      ) : (
        <div>
          <Button why={whyNot("admin")} isBusy={create.isBusy} onClick={() => create.run()}>
            {text.home.needToken}
          </Button>
        </div>
      )}
      <Segments label={text.home.way} value={way} options={[{ value: "git", label: text.home.wayGit }, { value: "cli", label: text.home.wayCli }]} onChange={setWay} />
      <CodeBlock code={way === "git" ? gitLines(template, owner, token || "$TOKEN") : cliLines(template, token || "$TOKEN")} label={text.home.fromGit} />
    </Dialog>
  );
}
