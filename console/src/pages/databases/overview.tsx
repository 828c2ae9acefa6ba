/** State of a database, how to connect, and its extensions. */

import { Download } from "lucide-preact";
import { useState } from "preact/hooks";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import { saveAs } from "../../lib/save";
import { bytes } from "../../lib/format";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { Meter } from "../../ui/chart/sparkline";
import { CodeBlock, Copy } from "../../ui/copy";
import { Card, Facts, Loaded } from "../../ui/feedback";
import { Reveal } from "../../ui/reveal";
import { Status } from "../../ui/status";
import { Segments } from "../../ui/tabs";
import { Table } from "../../ui/table";
import { Time } from "../../ui/time";
import { engineOf } from "../lists/databases";
import { snippetsOf } from "./snippets";
import { isPostgres, versionOf, type Database, type TabProps } from "./state";

const t = text.database;

export default function Overview({ database, name }: TabProps) {
  return (
    <div class="grid-2">
      <div class="stack side-cards">
        <Connect database={database} name={name} />
        {isPostgres(database) && database.status === "running" && <Extensions name={name} />}
      </div>
      <div class="stack side-cards">
        <State database={database} />
        <Credentials database={database} name={name} />
      </div>
    </div>
  );
}

function State({ database }: { database: Database }) {
  const { serverDetails: size, diskUsedBytes } = database;
  const all = size.disk * 2 ** 30;
  return (
    <Card title={t.state} foot={database.engineNote ?? undefined}>
      <div class="stack wide">
        <Facts
          items={[
            [text.common.status, <Status of={database.status} />],
            [t.engine, <span title={database.engineVersion ?? ""}>{engineOf(database.type, versionOf(database))}</span>],
            [t.tier, `${database.instanceType} · ${size.cpu} CPU · ${size.memory} GB`],
            [t.architecture, t.architectures[database.architecture] ?? database.architecture],
            [t.lastRestore, <Time at={database.lastVerifiedRestore} />],
            [text.common.created, <Time at={database.createdAt} />],
          ]}
        />
        <div class="stack tight">
          <div class="row between small">
            <span class="soft">{t.disk}</span>
            <span class="figures">{t.diskOf(bytes(diskUsedBytes), bytes(all))}</span>
          </div>
          <Meter used={diskUsedBytes} limit={all} label={t.disk} />
        </div>
      </div>
    </Card>
  );
}

function Connect({ database, name }: { database: Database; name: string }) {
  const snippets = snippetsOf(database);
  const [chosen, setChosen] = useState(snippets[0]!.key);
  const urls = useResource("/v1/databases/{name}/connection-strings", { path: { name } }, { isOn: database.status === "running" });
  const snippet = snippets.find(({ key }) => key === chosen) ?? snippets[0]!;
  return (
    <Card title={t.connect} foot={t.connectHint}>
      {database.connectionDetails.host === null ? (
        <p class="soft">{t.notYet}</p>
      ) : (
        <div class="stack wide">
          <div class="stack">
            {([["publicUrl", t.publicUrl], ["privateUrl", t.privateUrl]] as const).map(([key, label]) => {
              const url = urls.data?.[key];
              return (
                url && (
                  <div key={key} class="stack tight">
                    <span class="soft small">{label}</span>
                    <div class="copy-box">
                      <Copy value={url} isMono />
                    </div>
                  </div>
                )
              );
            })}
          </div>
          <div class="stack">
            <div>
              <Segments label={t.connect} value={snippet.key} options={snippets.map(({ key }) => ({ value: key, label: t.snippets[key]! }))} onChange={setChosen} />
            </div>
            <CodeBlock code={snippet.code} label={t.snippets[snippet.key]!} />
          </div>
        </div>
      )}
    </Card>
  );
}

function Credentials({ database, name }: { database: Database; name: string }) {
  const { host, port, username, database: inner } = database.connectionDetails;
  const urls = useResource("/v1/databases/{name}/connection-strings", { path: { name } }, { isOn: database.status === "running" });
  const why = whyNot("admin");
  const read = async (key: "password" | "publicUrl" | "privateUrl") => (await api.get("/v1/databases/{name}/password", { path: { name } }))[key] ?? "";
  const certificate = urls.data?.caCertificate;
  return (
    <Card title={t.password} foot={t.revealHint}>
      <div class="stack wide">
        <Facts
          items={[
            [t.host, host ? <Copy value={host} isMono /> : "–"],
            [t.port, port ? <Copy value={String(port)} isMono /> : "–"],
            [t.user, <Copy value={username} isMono />],
            [t.dbName, <Copy value={inner} isMono />],
          ]}
        />
        <Facts
          items={[
            [t.password, <Reveal name={t.password} why={why} read={() => read("password")} />],
            [t.withPassword, <Reveal name={t.withPassword} why={why} read={() => read(database.publicUrl ? "publicUrl" : "privateUrl")} />],
          ]}
        />
        {certificate && (
          <div class="row between wrap">
            <span class="stack tight grow">
              <span>{t.certificate}</span>
              <span class="soft small">{t.certificateHint}</span>
            </span>
            <Button size="small" icon={<Download size={14} aria-hidden="true" />} onClick={() => saveAs(`${name}-ca.pem`, certificate, "application/x-pem-file")}>
              {t.downloadCertificate}
            </Button>
          </div>
        )}
      </div>
    </Card>
  );
}

function Extensions({ name }: { name: string }) {
  const list = useResource("/v1/databases/{name}/extensions", { path: { name } });
  const [isAll, setAll] = useState(false);
  return (
    <Card title={t.extensions} foot={t.extensionsHint} isFlush>
      <Loaded of={list}>
        {({ items }) => {
          const order = [...items].sort((a, b) => Number(b.installedVersion !== null) - Number(a.installedVersion !== null) || Number(b.available) - Number(a.available));
          return (
            <>
              <Table
                label={t.extensions}
                rows={isAll ? order : order.slice(0, 6)}
                keyOf={(each) => each.name}
                columns={[
                  { name: text.common.name, of: (each) => <code>{each.name}</code> },
                  { name: t.description, of: (each) => <span class="soft">{each.description}</span>, isHiddenOnPhone: true },
                  {
                    name: t.version,
                    of: (each) =>
                      each.installedVersion ? (
                        <span class="tag accent">{`${t.installed} ${each.installedVersion}`}</span>
                      ) : each.available ? (
                        each.defaultVersion
                      ) : (
                        <span class="soft" title={each.reason ?? ""}>
                          {t.notAvailable}
                        </span>
                      ),
                    isNumber: true,
                  },
                ]}
              />
              {!isAll && order.length > 6 && (
                <div class="feed-more">
                  <Button size="small" onClick={() => setAll(true)}>
                    {t.showAll(order.length)}
                  </Button>
                </div>
              )}
            </>
          );
        }}
      </Loaded>
    </Card>
  );
}
