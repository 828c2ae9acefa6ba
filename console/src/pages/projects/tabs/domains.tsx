/** Custom domains: DNS records to copy, verification that runs by itself, certificates. */

import { Globe, RefreshCw, Trash2 } from "lucide-preact";
import { useEffect, useState } from "preact/hooks";
import { useAction } from "../../../api/actions";
import { api } from "../../../api/client";
import { refresh, useResource } from "../../../api/resource";
import type { Data, Item } from "../../../api/types";
import { hostOf } from "../../../lib/format";
import { whyNot } from "../../../lib/roles";
import { text } from "../../../text";
import { Button } from "../../../ui/button";
import { Copy } from "../../../ui/copy";
import { ConfirmDanger } from "../../../ui/dialog";
import { Card, Empty, Loaded, Notice } from "../../../ui/feedback";
import { Form, TextField, useForm } from "../../../ui/form";
import { Status } from "../../../ui/status";
import { Time } from "../../../ui/time";
import type { TabProps } from "../project";

type Domain = Item<Data<"/v1/projects/{name}/domains">>;

const CHECK_MS = 10_000;

export default function Domains({ project }: TabProps) {
  const path = { name: project.name };
  const list = useResource("/v1/projects/{name}/domains", { path }, { pollMs: 5_000 });
  const t = text.domains;
  const form = useForm({ domain: "" }, ({ domain }) => api.post("/v1/projects/{name}/domains", { path, body: { domain: domain.trim() } }), {
    done: (added) => t.added(added.domain),
    refreshes: [`/v1/projects/${project.name}/domains`],
    onDone: () => form.set("domain", ""),
  });
  useChecks(project.name, list.data);
  return (
    <div class="stack wide">
      <Card>
        <div class="inline-form">
          <Form form={form} submit={t.add} why={whyNot("member")}>
            <TextField form={form} name="domain" label={t.domain} hint={t.addHint} placeholder="www.example.com" isCode clean={(given) => given.toLowerCase()} />
          </Form>
        </div>
      </Card>
      <Card>
        <div class="row between wrap">
          <span class="stack tight">
            <Copy value={project.projectUrl} shown={<strong>{hostOf(project.projectUrl)}</strong>} />
            <span class="soft small">
              {t.platformAddress}. {t.always}
            </span>
          </span>
          <Status of={project.enabled ? "live" : "disabled"} />
        </div>
      </Card>
      <Loaded of={list}>
        {(domains) =>
          domains.length === 0 ? (
            <Card>
              <Empty icon={<Globe size={20} />}>{t.empty}</Empty>
            </Card>
          ) : (
            <>
              {domains.map((domain) => (
                <DomainCard key={domain.id} domain={domain} projectName={project.name} />
              ))}
            </>
          )
        }
      </Loaded>
    </div>
  );
}

/** Ask the platform to look at DNS again while a domain waits for its records and the page is in view. */
function useChecks(name: string, domains: Domain[] | undefined): void {
  const waiting = domains?.filter((each) => each.status !== "verified").map((each) => each.id) ?? [];
  useEffect(() => {
    if (waiting.length === 0) return undefined;
    const check = async () => {
      if (document.hidden) return;
      for (const id of waiting) await api.post("/v1/domains/{domain_id}/verify", { path: { domain_id: id } }).catch(() => undefined);
      refresh(`/v1/projects/${name}/domains`);
    };
    const timer = setInterval(() => void check(), CHECK_MS);
    return () => clearInterval(timer);
  }, [waiting.join(",")]);
}

function DomainCard({ domain, projectName }: { domain: Domain; projectName: string }) {
  const [isAsking, setAsking] = useState(false);
  const t = text.domains;
  const path = { domain_id: domain.id };
  const refreshes = [`/v1/projects/${projectName}/domains`];
  const verify = useAction(() => api.post("/v1/domains/{domain_id}/verify", { path }), { refreshes });
  const isVerified = domain.status === "verified";
  return (
    <Card
      title={
        <a href={`https://${domain.domain}`} target="_blank" rel="noopener noreferrer" class="domain-name">
          {domain.domain}
        </a>
      }
      actions={
        <>
          <Status of={domain.status} />
          {isVerified && <Status of={domain.certificateStatus === "none" ? "stopped" : domain.certificateStatus} word={t.certificates[domain.certificateStatus]} />}
          {!isVerified && (
            <Button size="small" isBusy={verify.isBusy} onClick={() => verify.run()} icon={<RefreshCw size={13} aria-hidden="true" />}>
              {t.verify}
            </Button>
          )}
          <Button size="small" kind="quiet" label={`${t.remove}: ${domain.domain}`} why={whyNot("member")} onClick={() => setAsking(true)} icon={<Trash2 size={14} aria-hidden="true" />} />
        </>
      }
      foot={
        isVerified ? (
          <span>
            {t.verifiedAt} <Time at={domain.verifiedAt} />
          </span>
        ) : (
          <span>
            {t.addedAt} <Time at={domain.createdAt} />. {t.watching}
          </span>
        )
      }
    >
      <div class="stack">
        {domain.lastError && <Notice kind={isVerified ? "warn" : "info"}>{domain.lastError}</Notice>}
        {isVerified ? (
          <details class="fold">
            <summary>{t.records}</summary>
            <Records domain={domain} />
          </details>
        ) : (
          <>
            <p class="soft small">{t.recordsHint}</p>
            <Records domain={domain} />
          </>
        )}
      </div>
      {isAsking && (
        <ConfirmDanger
          title={t.removeTitle(domain.domain)}
          button={t.removeTitle(domain.domain)}
          name={domain.domain}
          act={() => api.delete("/v1/domains/{domain_id}", { path })}
          onClose={() => setAsking(false)}
          done={t.removed(domain.domain)}
          refreshes={refreshes}
        >
          <p>{t.removeText(domain.domain)}</p>
        </ConfirmDanger>
      )}
    </Card>
  );
}

function Records({ domain }: { domain: Domain }) {
  const t = text.domains;
  const records = domain.records.length > 0 ? domain.records : [domain.verification];
  return (
    <div class="records" role="table" aria-label={t.records}>
      <div role="row" class="records-head">
        <span role="columnheader">{t.type}</span>
        <span role="columnheader">{t.name}</span>
        <span role="columnheader">{t.value}</span>
      </div>
      {records.map((record) => (
        <div role="row" key={`${record.type} ${record.name} ${record.value}`}>
          <span role="cell" class="mono strong">
            {record.type}
          </span>
          <span role="cell">
            <Copy value={record.name} isMono />
          </span>
          <span role="cell">
            <Copy value={record.value} isMono />
          </span>
        </div>
      ))}
    </div>
  );
}
