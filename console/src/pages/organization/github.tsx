/** GitHub accounts: connect one, list them, disconnect one. */

import { GitFork, Plus, Unplug } from "lucide-preact";
import { useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { ApiError } from "../../api/errors";
import { useResource } from "../../api/resource";
import type { Data, Item } from "../../api/types";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { Button, ButtonLink } from "../../ui/button";
import { Confirm, Dialog } from "../../ui/dialog";
import { Card, Empty, ErrorBox, Loaded } from "../../ui/feedback";
import { Form, TextField, useForm } from "../../ui/form";
import { Table } from "../../ui/table";
import { Time } from "../../ui/time";

type Installation = Item<Data<"/v1/github/installations">>;

export default function Github() {
  const list = useResource("/v1/github/installations", {}, { pollMs: 30_000 });
  const [links, setLinks] = useState<Data<"/v1/github/installations/begin", "post">>();
  const [removed, setRemoved] = useState<Installation>();
  const t = text.github;
  const begin = useAction(() => api.post("/v1/github/installations/begin"), { onDone: setLinks, isQuiet: true });
  const connect = (
    <Button size="small" kind="primary" why={whyNot("admin")} isBusy={begin.isBusy} onClick={() => begin.run()} icon={<Plus size={14} aria-hidden="true" />}>
      {t.connect}
    </Button>
  );
  return (
    <div class="stack wide">
      {begin.error && <ErrorBox error={begin.error} />}
      <Card title={t.title} isFlush actions={connect}>
        <Loaded of={list}>
          {(items) =>
            items.length === 0 ? (
              <Empty icon={<GitFork size={20} />}>{t.empty}</Empty>
            ) : (
              <Table
                label={t.title}
                rows={items}
                keyOf={(each) => each.installationId}
                columns={[
                  { name: t.account, of: (each) => <strong>{each.account}</strong> },
                  { name: t.provedBy, of: (each) => each.provedBy },
                  { name: text.common.created, of: (each) => <Time at={each.createdAt} /> },
                  {
                    name: text.orgCommon.actions,
                    width: "70px",
                    of: (each) => (
                      <span class="row-tools">
                        <Button kind="quiet" size="small" label={t.remove(each.account)} why={whyNot("admin")} onClick={() => setRemoved(each)} icon={<Unplug size={14} aria-hidden="true" />} />
                      </span>
                    ),
                  },
                ]}
              />
            )
          }
        </Loaded>
      </Card>
      {links && <Connect links={links} onClose={() => setLinks(undefined)} />}
      {removed && (
        <Confirm
          title={t.remove(removed.account)}
          button={t.remove(removed.account)}
          act={() => api.delete("/v1/github/installations/{installation_id}", { path: { installation_id: removed.installationId } })}
          onClose={() => setRemoved(undefined)}
          done={t.removed(removed.account)}
          refreshes={["/v1/github"]}
        >
          <p>{t.removeText}</p>
        </Confirm>
      )}
    </div>
  );
}

/** Read what GitHub put into the address of its redirect. */
function partsOf(address: string): { state: string; code: string; installationId: number | null } {
  const query = new URLSearchParams(address.includes("?") ? address.slice(address.indexOf("?")) : address);
  const [state, code] = [query.get("state") ?? "", query.get("code") ?? ""];
  if (!state || !code) throw new ApiError(400, "invalid", text.github.addressBad, { address: text.github.addressBad });
  return { state, code, installationId: Number(query.get("installation_id")) || null };
}

function Connect({ links, onClose }: { links: { url: string; authorizeUrl: string }; onClose: () => void }) {
  const t = text.github;
  const form = useForm({ address: "" }, async ({ address }) => api.post("/v1/github/installations", { body: partsOf(address.trim()) }), {
    done: (made) => t.connected(made.account),
    refreshes: ["/v1/github"],
    onDone: onClose,
  });
  return (
    <Dialog title={t.connectTitle} onClose={onClose} isLarge>
      <div class="stack wide">
        <div class="stack">
          <p>1. {t.step1}</p>
          <div class="row wrap">
            <ButtonLink href={links.url} isExternal>
              {t.install}
            </ButtonLink>
            <ButtonLink href={links.authorizeUrl} isExternal>
              {t.authorize}
            </ButtonLink>
          </div>
        </div>
        <Form form={form} submit={t.finish} onCancel={onClose} why={whyNot("admin")}>
          <p>2. {t.step2}</p>
          <TextField form={form} name="address" label={t.address} isCode placeholder={`${location.origin}/v1/github/callback?code=…&state=…`} />
        </Form>
      </div>
    </Dialog>
  );
}
