/** All users of the platform: search, approval, suspension. */

import { useLocation } from "preact-iso";
import { useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { Data, Item } from "../../api/types";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { Confirm } from "../../ui/dialog";
import { Loaded } from "../../ui/feedback";
import { Status } from "../../ui/status";
import { Segments } from "../../ui/tabs";
import { Table } from "../../ui/table";
import { Time } from "../../ui/time";
import { Pages, SearchBox } from "./pages";

const t = text.operator;
type User = Item<Data<"/v1/operator/users">>;
type Approval = "" | "pending" | "approved" | "rejected";
const SIZE = 20;
const REFRESHES = ["/v1/operator/users"];

export default function Users() {
  const { query, path, route } = useLocation();
  const search = query["search"] ?? "";
  const status = (query["status"] && query["status"] in t.approvals ? query["status"] : "") as Approval;
  const [page, setPage] = useState(1);
  const [suspended, setSuspended] = useState<User>();
  const list = useResource("/v1/operator/users", { query: { search, status, page, pageSize: SIZE } }, { pollMs: 30_000 });
  const show = (nextSearch: string, nextStatus: string) => (setPage(1), route(`${path}?search=${encodeURIComponent(nextSearch)}&status=${nextStatus}`, true));
  return (
    <div class="stack">
      <div class="list-tools">
        <SearchBox value={search} hint={t.searchUsers} onChange={(wanted) => show(wanted, status)} />
        <Segments label={t.approval} value={status} options={Object.entries(t.approvals).map(([value, label]) => ({ value, label }))} onChange={(next) => show(search, next)} />
      </div>
      <Loaded of={list}>
        {({ items, total }) => (
          <>
            {items.length === 0 ? <p class="soft">{t.noMatches}</p> : <UserTable items={items} onSuspend={setSuspended} />}
            <Pages page={page} total={total} size={SIZE} onChange={setPage} />
          </>
        )}
      </Loaded>
      {suspended && (
        <Confirm
          title={t.suspendTitle(suspended.email)}
          button={t.suspend}
          act={() => api.patch("/v1/operator/users/{user_id}", { path: { user_id: suspended.id }, body: { suspended: true } })}
          onClose={() => setSuspended(undefined)}
          done={t.changed}
          refreshes={REFRESHES}
        >
          <p>{t.suspendUserText}</p>
        </Confirm>
      )}
    </div>
  );
}

function UserTable({ items, onSuspend }: { items: User[]; onSuspend: (user: User) => void }) {
  const approval = ({ approvalStatus }: User) => ({ pending: "pending", rejected: "failed" })[approvalStatus] ?? "ready";
  return (
    <Table
      label={t.tabs.users}
      rows={items}
      keyOf={(each) => each.id}
      columns={[
        {
          name: t.mail,
          of: (each) => (
            <span class="stack tight">
              <span class="row wrap">
                <span class="strong breaks">{each.email}</span> {each.isOperator && <span class="tag accent">{t.isOperator}</span>}
              </span>
              <span class="soft small">{each.name}</span>
            </span>
          ),
          sort: (each) => each.email,
        },
        {
          name: text.common.status,
          of: (each) => (each.suspendedAt ? <Status of="failed" word={t.suspended} /> : <Status of={approval(each)} word={t.approvals[each.approvalStatus] ?? each.approvalStatus} />),
        },
        { name: text.common.created, of: (each) => <Time at={each.createdAt} />, sort: (each) => each.createdAt },
        { name: "", of: (each) => <UserTools user={each} onSuspend={() => onSuspend(each)} /> },
      ]}
    />
  );
}

function UserTools({ user, onSuspend }: { user: User; onSuspend: () => void }) {
  const path = { user_id: user.id };
  const approve = useAction(() => api.patch("/v1/operator/users/{user_id}", { path, body: { approved: true } }), { done: t.changed, refreshes: REFRESHES });
  const lift = useAction(() => api.patch("/v1/operator/users/{user_id}", { path, body: { suspended: false } }), { done: t.changed, refreshes: REFRESHES });
  return (
    <span class="row-tools">
      {user.approvalStatus === "pending" && (
        <Button kind="primary" size="small" isBusy={approve.isBusy} onClick={() => approve.run()}>
          {t.approve}
        </Button>
      )}
      {user.suspendedAt ? (
        <Button size="small" isBusy={lift.isBusy} onClick={() => lift.run()}>
          {t.lift}
        </Button>
      ) : (
        <Button kind="danger" size="small" why={user.isOperator ? t.neverOperator : undefined} onClick={onSuspend}>
          {t.suspend}
        </Button>
      )}
    </span>
  );
}
