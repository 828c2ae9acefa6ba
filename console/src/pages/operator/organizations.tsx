/** All organizations of the platform: search, plan, suspension. */

import { useLocation } from "preact-iso";
import { useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { Body, Data, Item } from "../../api/types";
import { compact, tally } from "../../lib/format";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { Confirm, Dialog } from "../../ui/dialog";
import { Facts, Loaded } from "../../ui/feedback";
import { Select, Switch } from "../../ui/form";
import { Status } from "../../ui/status";
import { Table } from "../../ui/table";
import { Time } from "../../ui/time";
import { Pages, SearchBox } from "./pages";

const t = text.operator;
type Organization = Item<Data<"/v1/operator/organizations">>;
const SIZE = 20;

export default function Organizations() {
  const { query, path, route } = useLocation();
  const search = query["search"] ?? "";
  const [page, setPage] = useState(1);
  const [open, setOpen] = useState<Organization>();
  const list = useResource("/v1/operator/organizations", { query: { search, page, pageSize: SIZE } }, { pollMs: 30_000 });
  const find = (wanted: string) => (setPage(1), route(`${path}?search=${encodeURIComponent(wanted)}`, true));
  return (
    <div class="stack">
      <div class="list-tools">
        <SearchBox value={search} hint={t.searchOrganizations} onChange={find} />
      </div>
      <Loaded of={list}>
        {({ items, total }) => (
          <>
            {items.length === 0 && <p class="soft">{t.noMatches}</p>}
            {items.length > 0 && (
              <Table
                label={t.tabs.organizations}
                rows={items}
                keyOf={(each) => each.organizationId}
                columns={[
                  {
                    name: text.common.name,
                    of: (each) => (
                      <span class="stack tight">
                        <span class="strong">{each.name}</span>
                        <span class="soft small">{`${each.slug} · ${each.organizationId}`}</span>
                      </span>
                    ),
                    sort: (each) => each.name,
                  },
                  { name: text.common.status, of: (each) => <Status of={each.suspendedAt ? "failed" : "ready"} word={each.suspendedAt ? t.suspended : t.okay} /> },
                  { name: t.owner, of: (each) => <span class="breaks">{each.ownerEmail ?? "–"}</span>, sort: (each) => each.ownerEmail },
                  { name: t.plan, of: (each) => t.plans[each.plan] ?? each.plan, sort: (each) => each.plan },
                  { name: t.resources, of: (each) => <span class="soft">{tally(each.resources) || "–"}</span>, isHiddenOnPhone: true },
                  { name: text.common.created, of: (each) => <Time at={each.createdAt} />, sort: (each) => each.createdAt },
                  {
                    name: "",
                    of: (each) => (
                      <span class="row-tools">
                        <Button size="small" onClick={() => setOpen(each)}>
                          {t.manage}
                        </Button>
                      </span>
                    ),
                  },
                ]}
              />
            )}
            <Pages page={page} total={total} size={SIZE} onChange={setPage} />
          </>
        )}
      </Loaded>
      {open && <Manage organization={open} onClose={() => setOpen(undefined)} />}
    </div>
  );
}

function Manage({ organization, onClose }: { organization: Organization; onClose: () => void }) {
  const path = { organization_id: Number(organization.organizationId) };
  const details = useResource("/v1/operator/organizations/{organization_id}", { path });
  const [isAsking, setAsking] = useState(false);
  const refreshes = ["/v1/operator/organizations"];
  const patch = (body: Body<"/v1/operator/organizations/{organization_id}", "patch">) => api.patch("/v1/operator/organizations/{organization_id}", { path, body });
  const change = useAction(patch, { done: t.changed, refreshes });
  const { name } = organization;
  if (isAsking) {
    return (
      <Confirm title={t.suspendTitle(name)} button={t.suspend} act={() => patch({ suspended: true })} onClose={() => setAsking(false)} done={t.changed} refreshes={refreshes}>
        <p>{t.suspendOrganizationText}</p>
      </Confirm>
    );
  }
  return (
    <Dialog title={name} onClose={onClose} isLarge>
      <Loaded of={details}>
        {(data) => (
          <div class="stack wide">
            <Facts
              items={[
                [t.owner, data.ownerEmail ?? "–"],
                [t.resources, tally(data.resources) || "–"],
                ...Object.entries(data.metered).map(([key, value]): [string, string] => [text.usage.metered[key] ?? key, compact(value)]),
              ]}
            />
            <div class="row between wrap">
              <span>{t.plan}</span>
              <Select label={t.plan} value={data.plan} options={Object.entries(t.plans).map(([value, label]) => ({ value, label }))} onChange={(plan) => void change.run({ plan: plan as "free" | "pro" })} />
            </div>
            <Switch label={`${t.card} ${t.verified}`} isOn={data.cardVerified} onChange={(cardVerified) => void change.run({ cardVerified })} />
            <div class="row between wrap">
              <p class="soft grow">{t.suspendOrganizationText}</p>
              {data.suspendedAt ? (
                <Button isBusy={change.isBusy} onClick={() => change.run({ suspended: false })}>
                  {t.lift}
                </Button>
              ) : (
                <Button kind="danger" onClick={() => setAsking(true)}>
                  {t.suspend}
                </Button>
              )}
            </div>
          </div>
        )}
      </Loaded>
    </Dialog>
  );
}
