/** The build of a cronjob and its log. */

import { Hammer } from "lucide-preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { refresh, useResource } from "../../api/resource";
import { text } from "../../text";
import { Copy } from "../../ui/copy";
import { Card, Empty, Facts, Loaded } from "../../ui/feedback";
import { Lines } from "../../ui/log/lines";
import { LogView } from "../../ui/log/view";
import { Status } from "../../ui/status";
import { forgetBuild, readBuild } from "./builds";
import type { TabProps } from "./cronjob";
import { runLook } from "./runs";

const t = text.jobs;

export default function Build({ job, name, id }: TabProps) {
  const uuid = id ?? readBuild(name);
  if (job.imageSource === "public_image") return <Empty icon={<Hammer size={20} />}>{t.noBuildImage}</Empty>;
  return uuid ? <BuildLog key={uuid} name={name} uuid={uuid} isGiven={id !== undefined} /> : <Empty icon={<Hammer size={20} />}>{t.noBuildKnown}</Empty>;
}

function BuildLog({ name, uuid, isGiven }: { name: string; uuid: string; isGiven: boolean }) {
  const lines = useMemo(() => new Lines(), [uuid]);
  const [isLive, setLive] = useState(true);
  const build = useResource("/v1/cronjobs/{name}/builds/{uuid}/logs", { path: { name, uuid } }, { pollMs: isLive ? 2_000 : 0 });
  useEffect(() => {
    // The log only grows, so that the lines that are here already stay.
    for (const line of build.data?.lines.slice(lines.items.length) ?? []) lines.push(line.message, line.timestamp);
    if (build.data) setLive(["queued", "running"].includes(build.data.status));
  }, [build.data]);
  useEffect(() => {
    if (!isLive) refresh("/v1/cronjobs");
  }, [isLive]);
  if (build.error?.status === 404 && !isGiven) {
    forgetBuild(name);
    return <Empty icon={<Hammer size={20} />}>{t.noBuildKnown}</Empty>;
  }
  return (
    <Loaded of={build}>
      {(data) => (
        <div class="stack wide">
          <Card>
            <Facts
              items={[
                [text.common.status, <Status {...runLook(data.status)} />],
                [t.commit, data.commitSha ? <Copy value={data.commitSha} shown={data.commitSha.slice(0, 7)} isMono /> : "–"],
                [t.buildTitle, <Copy value={uuid} shown={uuid.slice(0, 8)} isMono />],
              ]}
            />
          </Card>
          <LogView lines={lines} name={`${name}-build`} isLive={isLive} isTall note={isLive ? text.log.waiting : text.log.ended} />
        </div>
      )}
    </Loaded>
  );
}
