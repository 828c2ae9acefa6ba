/** Previews of pull requests; code of forks waits for an approval. */

import { Check, ExternalLink, GitPullRequest } from "lucide-preact";
import { useState } from "preact/hooks";
import { api } from "../../../api/client";
import { useResource } from "../../../api/resource";
import type { Data, Item } from "../../../api/types";
import { hostOf } from "../../../lib/format";
import { whyNot } from "../../../lib/roles";
import { text } from "../../../text";
import { Button } from "../../../ui/button";
import { Confirm } from "../../../ui/dialog";
import { Card, Empty, Loaded } from "../../../ui/feedback";
import { Status } from "../../../ui/status";
import { Table } from "../../../ui/table";
import { Time } from "../../../ui/time";
import type { TabProps } from "../project";
import { shortCommit } from "../state";

type Preview = Item<Data<"/v1/projects/{name}/previews">>;

const LOOKS: Record<string, string> = { waiting: "attention", active: "live", closed: "stopped" };

export default function Previews({ project }: TabProps) {
  const path = { name: project.name };
  const list = useResource("/v1/projects/{name}/previews", { path }, { pollMs: 8_000 });
  const [asked, setAsked] = useState<Preview>();
  const t = text.previews;
  return (
    <>
      <Loaded of={list}>
        {(items) =>
          items.length === 0 ? (
            <Card>
              <Empty icon={<GitPullRequest size={20} />}>{project.prPreview ? t.empty : `${t.empty} ${t.off}`}</Empty>
            </Card>
          ) : (
            <PreviewTable items={items} onApprove={setAsked} />
          )
        }
      </Loaded>
      {asked && (
        <Confirm
          title={t.approveTitle(asked.number)}
          button={t.approve}
          act={() =>
            api.post("/v1/projects/{name}/previews/{number}/approve", {
              path: { ...path, number: asked.number },
              body: { commitSha: asked.commitSha }, // the commit that this dialog shows
            })
          }
          onClose={() => setAsked(undefined)}
          done={t.approved(asked.number)}
          refreshes={[`/v1/projects/${project.name}`]}
        >
          <p>{t.approveText}</p>
          <p>
            <strong>{asked.title}</strong> <code>{shortCommit(asked.commitId)}</code>
          </p>
        </Confirm>
      )}
    </>
  );
}

function PreviewTable({ items, onApprove }: { items: Preview[]; onApprove: (preview: Preview) => void }) {
  const t = text.previews;
  return (
    <Table
      label={text.projectTabs.previews}
      rows={items}
      keyOf={(each) => each.number}
      columns={[
        {
          name: t.pull,
          of: (each) => (
            <span class="row">
              <span class="soft">#{each.number}</span>
              <strong class="cut">{each.title}</strong>
              {each.fork && <span class="tag">{t.fork}</span>}
            </span>
          ),
        },
        { name: text.common.status, of: (each) => <Status of={LOOKS[each.status] ?? each.status} word={t.states[each.status]} /> },
        {
          name: text.projects.address,
          of: (each) =>
            each.status === "active" ? (
              <a href={each.url} target="_blank" rel="noopener noreferrer" class="row">
                <span class="cut">{hostOf(each.url)}</span> <ExternalLink size={13} aria-hidden="true" />
              </a>
            ) : (
              "–"
            ),
        },
        { name: text.projects.commit, of: (each) => <code>{shortCommit(each.commitId) || "–"}</code>, isHiddenOnPhone: true },
        { name: text.common.updated, of: (each) => <Time at={each.updatedAt} /> },
        {
          name: text.orgCommon.actions,
          of: (each) =>
            each.status === "waiting" && (
              <Button size="small" kind="primary" why={whyNot("member")} onClick={() => onApprove(each)} icon={<Check size={14} aria-hidden="true" />}>
                {t.approve}
              </Button>
            ),
        },
      ]}
    />
  );
}
