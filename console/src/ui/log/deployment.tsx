/** The live log of a deployment. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { refresh } from "../../api/resource";
import { follow } from "../../api/stream";
import { text } from "../../text";
import { Lines } from "./lines";
import { LogView } from "./view";

interface LogEvent {
  line?: string;
  message?: string;
  text?: string;
  at?: string;
  timestamp?: string;
  stream?: string;
  status?: string;
}

export function lineOf(data: string): { text: string; at: string | undefined; isSystem: boolean } {
  try {
    const event = JSON.parse(data) as LogEvent | string;
    if (typeof event === "string") return { text: event, at: undefined, isSystem: false };
    return { text: event.line ?? event.message ?? event.text ?? data, at: event.at ?? event.timestamp, isSystem: event.stream === "system" };
  } catch {
    return { text: data, at: undefined, isSystem: false };
  }
}

/** Follow a stream of `log` events into lines, until `done` comes or the component goes. */
export function useLogStream(path: string, onDone?: () => void): { lines: Lines; isLive: boolean } {
  const lines = useMemo(() => new Lines(), [path]);
  const [isLive, setLive] = useState(true);
  useEffect(() => {
    setLive(true);
    return follow(path, {}, {
      onEvent: (event) => {
        if (event.name === "log") {
          const line = lineOf(event.data);
          if (line.isSystem) lines.pushSystem(line.text, line.at);
          else lines.push(line.text, line.at);
        }
        if (event.name === "status") refresh("/v1/projects", "/v1/deployments");
        if (event.name !== "done") return undefined;
        setLive(false);
        refresh("/v1/projects", "/v1/deployments");
        onDone?.();
        return false;
      },
      onError: (_, isFinal) => isFinal && setLive(false),
    });
  }, [path]);
  return { lines, isLive };
}

export function DeploymentLog({ uuid, isTall = false, onDone }: { uuid: string; isTall?: boolean; onDone?: () => void }) {
  const { lines, isLive } = useLogStream(`/v1/deployments/${uuid}/logs/stream`, onDone);
  return <LogView lines={lines} name={`deployment-${uuid}`} isLive={isLive} isTall={isTall} note={isLive ? text.log.waiting : text.log.ended} />;
}
