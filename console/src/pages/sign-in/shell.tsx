/** The page around the sign-in: the mark, a card, and what the platform is. */

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { Mark } from "../../frame/side";
import { text } from "../../text";

export function SignInShell({ title, subtitle, children }: { title: string; subtitle?: string; children: ComponentChildren }) {
  useEffect(() => {
    document.title = `${title} · ${text.frame.product}`;
  }, [title]);
  return (
    <main class="sign-in">
      <div class="sign-in-box">
        <Mark size={40} />
        <h1>{title}</h1>
        {subtitle && <p class="soft">{subtitle}</p>}
        {children}
      </div>
    </main>
  );
}
