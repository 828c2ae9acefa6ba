/** Values to copy, secrets, and code to paste. */

import { Check, Copy as CopyIcon, Eye, EyeOff } from "lucide-preact";
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { useAction } from "../api/actions";
import { text } from "../text";
import { Button } from "./button";
import { showToast } from "./toast";

const SHOWN_MS = 30_000;

export async function copyText(value: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(value);
    return true;
  } catch {
    // Without https browsers offer no clipboard, except on localhost.
    const area = document.createElement("textarea");
    area.value = value;
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    if (!isDone) showToast({ kind: "bad", title: value });
    return isDone;
  }
}

export function CopyButton({ value, label = text.common.copy }: { value: string | (() => Promise<string | undefined>); label?: string }) {
  const [isCopied, setCopied] = useState(false);
  useEffect(() => {
    if (!isCopied) return undefined;
    const timer = setTimeout(() => setCopied(false), 1_600);
    return () => clearTimeout(timer);
  }, [isCopied]);
  const copy = async () => {
    const found = typeof value === "string" ? value : await value();
    if (found !== undefined && (await copyText(found))) setCopied(true);
  };
  const Icon = isCopied ? Check : CopyIcon;
  return <Button kind="quiet" size="small" label={isCopied ? text.common.copied : label} onClick={copy} icon={<Icon size={14} aria-hidden="true" />} />;
}

/** A value with a button that copies it. */
export function Copy({ value, isMono = false, shown }: { value: string; isMono?: boolean; shown?: ComponentChildren }) {
  return (
    <span class="copy-line">
      <span class={`cut ${isMono ? "mono" : ""}`} title={value}>
        {shown ?? value}
      </span>
      <CopyButton value={value} />
    </span>
  );
}

/** Lines to paste into a terminal or a file. */
export function CodeBlock({ code, wraps = false, label }: { code: string; wraps?: boolean; label?: string }) {
  return (
    <div class={`code ${wraps ? "wraps" : ""}`}>
      <pre tabIndex={0} role="region" aria-label={label ?? text.common.copy}>
        <code>{code}</code>
      </pre>
      <CopyButton value={code} />
    </div>
  );
}

interface SecretProps {
  reveal: () => Promise<string>; // reads the value from the API; the server notes it
  label: string;
  why?: string | undefined; // why it cannot be revealed
}

/** Dots until it is revealed; hidden again after 30 seconds, and when the tab is hidden. */
export function Secret({ reveal, label, why }: SecretProps) {
  const [value, setValue] = useState<string>();
  const read = useAction(reveal);
  useEffect(() => {
    if (value === undefined) return undefined;
    const hide = () => setValue(undefined);
    const timer = setTimeout(hide, SHOWN_MS);
    document.addEventListener("visibilitychange", hide);
    return () => (clearTimeout(timer), document.removeEventListener("visibilitychange", hide));
  }, [value]);
  const isShown = value !== undefined;
  const Icon = isShown ? EyeOff : Eye;
  return (
    <span class="copy-line">
      <span class="cut mono" aria-label={label}>
        {isShown ? value : "••••••••••••"}
      </span>
      <Button
        kind="quiet"
        size="small"
        label={`${isShown ? text.common.hide : text.common.reveal}: ${label}`}
        why={why}
        isBusy={read.isBusy}
        icon={<Icon size={14} aria-hidden="true" />}
        onClick={async () => setValue(isShown ? undefined : await read.run())}
      />
      {!why && <CopyButton value={async () => value ?? (await read.run())} label={`${text.common.copy}: ${label}`} />}
    </span>
  );
}
