/** Short messages in the corner: what was done, or what failed. */

import { signal } from "@preact/signals";
import { CircleAlert, CircleCheck, LoaderCircle, X } from "lucide-preact";
import { text } from "../text";
import { Button } from "./button";

export interface ToastInput {
  kind: "ok" | "bad" | "busy";
  title: string;
  traceId?: string | undefined;
  href?: string | undefined; // where to look
  linkText?: string | undefined;
}

interface Toast extends ToastInput {
  id: number;
}

const SHOWN_MS = { ok: 5_000, bad: 12_000, busy: 60_000 };
const ICONS = { ok: CircleCheck, bad: CircleAlert, busy: LoaderCircle };
const toasts = signal<Toast[]>([]);
let lastId = 0;

/** Show a message; the returned function replaces it, or removes it without an argument. */
export function showToast(given: ToastInput): (next?: ToastInput) => void {
  const id = (lastId += 1);
  const remove = () => (toasts.value = toasts.peek().filter((each) => each.id !== id));
  const others = toasts.peek().filter((each) => each.title !== given.title);
  toasts.value = [...others.slice(-3), { ...given, id }];
  setTimeout(remove, SHOWN_MS[given.kind]);
  return (next) => {
    remove();
    if (next) showToast(next);
  };
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((toast) => {
        const Icon = ICONS[toast.kind];
        return (
          <div key={toast.id} class={`toast ${toast.kind}`}>
            <Icon size={16} class={toast.kind === "busy" ? "spin" : ""} aria-hidden="true" />
            <div class="grow">
              <p>{toast.title}</p>
              {toast.href && <a href={toast.href}>{toast.linkText ?? text.common.open}</a>}
              {toast.traceId && (
                <p class="soft small">
                  {text.common.trace} <span class="mono">{toast.traceId}</span>
                </p>
              )}
            </div>
            <Button
              kind="quiet"
              size="small"
              label={text.common.close}
              icon={<X size={14} aria-hidden="true" />}
              onClick={() => (toasts.value = toasts.peek().filter((each) => each !== toast))}
            />
          </div>
        );
      })}
    </div>
  );
}
