/** One function: its head, its tabs, and the tab that is open. */

import { ExternalLink, Play, Upload } from "lucide-preact";
import type { AnyComponent } from "preact";
import { lazy } from "preact-iso";
import { useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { ApiError } from "../../api/errors";
import { useResource } from "../../api/resource";
import type { Data } from "../../api/types";
import { NotFound } from "../../frame/notfound";
import { PageHead } from "../../frame/page";
import { hostOf } from "../../lib/format";
import { whyNot } from "../../lib/roles";
import type { Dropped } from "../../lib/zip";
import { text } from "../../text";
import { Button, ButtonLink } from "../../ui/button";
import { Copy } from "../../ui/copy";
import { Dialog } from "../../ui/dialog";
import { ErrorBox, Loaded, Skeleton, SkeletonRows } from "../../ui/feedback";
import { Tabs } from "../../ui/tabs";
import { PickArchive } from "./archive";
import { keepDraft } from "./drafts";

export type Fn = Data<"/v1/functions/{name}">;

export interface TabProps {
  fn: Fn;
  id?: string | undefined; // the rest of the address, for example a version
}

interface TabPage {
  key: string;
  label: string;
  component: AnyComponent<TabProps>;
}

const TABS: TabPage[] = [
  { key: "", label: text.fn.tabs.code, component: lazy(() => import("./code")) },
  { key: "test", label: text.fn.tabs.test, component: lazy(() => import("./test")) },
  { key: "invocations", label: text.fn.tabs.invocations, component: lazy(() => import("./invocations")) },
  { key: "metrics", label: text.fn.tabs.metrics, component: lazy(() => import("./metrics")) },
  { key: "versions", label: text.fn.tabs.versions, component: lazy(() => import("./versions")) },
  { key: "environment", label: text.fn.tabs.environment, component: lazy(() => import("./environment")) },
  { key: "settings", label: text.fn.tabs.settings, component: lazy(() => import("./settings")) },
];

export default function FunctionPage({ name, tab = "", id }: { name: string; tab?: string; id?: string }) {
  const fn = useResource("/v1/functions/{name}", { path: { name } }, { pollMs: 15_000 });
  const open = TABS.find((each) => each.key === (tab === "code" ? "" : tab));
  if (!open || fn.error?.status === 404) return <NotFound />;
  const Open = open.component;
  return (
    <>
      <PageHead
        title={name}
        crumbs={[{ label: text.functions.title, href: "/functions" }]}
        status={fn.data ? <Tags fn={fn.data} /> : <Skeleton width={90} />}
        subtitle={fn.data ? <Copy value={fn.data.url} shown={hostOf(fn.data.url)} isMono /> : <Skeleton width={260} height={20} />}
        actions={fn.data && <Actions fn={fn.data} />}
      />
      <Tabs label={name} tabs={TABS.map(({ key, label }) => ({ href: `/functions/${name}${key && `/${key}`}`, label }))} />
      <Loaded of={fn} skeleton={<SkeletonRows rows={4} />}>
        {(data) => <Open key={`${name} ${open.key}`} fn={data} id={id} />}
      </Loaded>
    </>
  );
}

function Tags({ fn }: { fn: Fn }) {
  return (
    <span class="row">
      <span class="tag">{fn.runtime}</span>
      <span class="tag accent">v{fn.currentVersion}</span>
    </span>
  );
}

function Actions({ fn }: { fn: Fn }) {
  const [isUploading, setUploading] = useState(false);
  return (
    <>
      <ButtonLink href={fn.url} isExternal label={text.fn.openAddress} icon={<ExternalLink size={15} aria-hidden="true" />} />
      <Button why={whyNot("member")} onClick={() => setUploading(true)} icon={<Upload size={15} aria-hidden="true" />}>
        {text.fn.deployZip}
      </Button>
      <ButtonLink href={`/functions/${fn.name}/test`} kind="primary" icon={<Play size={15} aria-hidden="true" />}>
        {text.fn.tabs.test}
      </ButtonLink>
      {isUploading && <DeployZip fn={fn} onClose={() => setUploading(false)} />}
    </>
  );
}

/** Deploy an archive as the next version. */
export function deployCode(name: string, archive: Blob): Promise<Fn> {
  const body = new FormData();
  body.set("code", archive, `${name}.zip`);
  return api.post("/v1/functions/{name}/deploy", { path: { name }, body });
}

/** The reason of the API for a package that it refused: it stands at the field of the archive. */
export function withReason(error: ApiError): string[] {
  return Object.entries(error.fields).map(([field, problem]) => `${field}: ${problem}`);
}

function DeployZip({ fn, onClose }: { fn: Fn; onClose: () => void }) {
  const [archive, setArchive] = useState<Dropped>();
  const deploy = useAction(() => deployCode(fn.name, archive!.archive), {
    isQuiet: true,
    done: (made) => text.fn.deployed(made.currentVersion),
    refreshes: ["/v1/functions"],
    onDone: () => (keepDraft(fn.name, undefined), onClose()),
  });
  return (
    <Dialog
      title={text.fn.deployZip}
      onClose={onClose}
      isLarge
      foot={
        <>
          <Button onClick={onClose}>{text.common.cancel}</Button>
          <Button kind="primary" isDisabled={!archive} isBusy={deploy.isBusy} onClick={() => deploy.run()}>
            {text.fn.deploy}
          </Button>
        </>
      }
    >
      <PickArchive chosen={archive} onChoose={setArchive} />
      {deploy.error && <ErrorBox error={deploy.error} details={withReason(deploy.error)} />}
    </Dialog>
  );
}
