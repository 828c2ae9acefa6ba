/** "Show as API call": the request that a form sends, as a command to paste. */

import { Terminal } from "lucide-preact";
import { useState } from "preact/hooks";
import { text } from "../text";
import { Button } from "./button";
import { CodeBlock } from "./copy";

interface ApiCallProps {
  method: "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  body?: unknown;
  form?: Record<string, string> | undefined; // fields of a form; a value that begins with @ is a file
}

function quote(value: string): string {
  return `'${value.replaceAll("'", "'\\''")}'`;
}

export function curlOf({ method, path, body, form }: ApiCallProps): string {
  const lines = [`curl -X ${method} ${quote(location.origin + path)}`, '-H "Authorization: Bearer $TOKEN"'];
  if (body !== undefined) lines.push("-H 'Content-Type: application/json'", `-d ${quote(JSON.stringify(body, null, 2))}`);
  for (const [name, value] of Object.entries(form ?? {})) lines.push(`-F ${quote(`${name}=${value}`)}`);
  return lines.join(" \\\n  ");
}

export function ApiCall(props: ApiCallProps) {
  const [isShown, setShown] = useState(false);
  return (
    <div class="stack">
      <div class="outdent">
        <Button kind="quiet" size="small" isPressed={isShown} onClick={() => setShown(!isShown)} icon={<Terminal size={14} aria-hidden="true" />}>
          {text.common.showApiCall}
        </Button>
      </div>
      {isShown && <CodeBlock code={curlOf(props)} label={text.common.showApiCall} />}
    </div>
  );
}
