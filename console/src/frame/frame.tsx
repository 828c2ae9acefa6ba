/** The frame around all pages: side bar, top bar, connection, palette, help. */

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLocation } from "preact-iso";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { isOnline } from "../api/client";
import { useResource } from "../api/resource";
import { chooseOrganization, organizationId } from "../api/session";
import { useShortcut } from "../lib/keyboard";
import { setRole, toRole } from "../lib/roles";
import { isDark, theme } from "../lib/theme";
import { NAV } from "../pages";
import { text } from "../text";
import { relative } from "../lib/format";
import { ErrorBox } from "../ui/feedback";
import { Crash } from "./crash";
import { Help, isHelpOpen } from "./help";
import { isPaletteOpen, Palette } from "./palette";
import { Side } from "./side";
import { TopBar } from "./topbar";

export const isDrawerOpen = signal(false);
const openPalette = () => (isPaletteOpen.value = true);
const openHelp = () => (isHelpOpen.value = true);
const switchTheme = () => (theme.value = isDark.peek() ? "light" : "dark");

export function Frame({ children }: { children: ComponentChildren }) {
  const { path, route } = useLocation();
  const me = useResource("/v1/me", {}, { pollMs: 120_000 });
  const organizations = me.data?.organizations;
  const known = organizations?.find((each) => each.organizationId === organizationId.value);
  const isReady = organizations ? known !== undefined : organizationId.value !== ""; // Pages do not wait for the answer.
  const missed = useRef(""); // an organization that was not in the list
  useEffect(() => {
    if (!organizations || known) return;
    if (missed.current !== organizationId.value) {
      missed.current = organizationId.value; // It may be newer than the list.
      void me.reload();
    } else chooseOrganization(organizations[0]?.organizationId ?? ""); // The person has left it: the first is the usual one.
  }, [organizations, known, me.at]);
  const who = useResource("/v1/whoami", {}, { pollMs: 30_000, isOn: known !== undefined });
  useLayoutEffect(() => {
    const told = who.data?.role || known?.role;
    if (told) setRole(toRole(told));
  }, [who.data?.role, known?.role]);
  const person = useRef(me.data?.email);
  useEffect(() => {
    // Somebody else has signed in after the session ended: nothing of the person before stays.
    if (person.current && me.data && me.data.email !== person.current) location.reload();
    person.current ??= me.data?.email;
  }, [me.data?.email]);
  useEffect(() => {
    isDrawerOpen.value = false;
  }, [path]);
  useShortcut("mod+k", text.help.search, openPalette);
  useShortcut("/", text.help.search, openPalette, true); // where no list has a filter box
  useShortcut("?", text.help.thisHelp, openHelp);
  useShortcut("t", text.help.toggleTheme, switchTheme);
  return (
    <div class={`frame ${isDrawerOpen.value ? "with-drawer" : ""}`}>
      <a class="skip" href="#content">
        {text.frame.skip}
      </a>
      {NAV.map((item) => (
        <GoTo key={item.href} keys={`g ${item.key}`} label={item.label} go={() => route(item.href)} />
      ))}
      <Side />
      {isDrawerOpen.value && <div class="drawer-veil" onClick={() => (isDrawerOpen.value = false)} />}
      <div class="main">
        <TopBar />
        <Connection at={me.at} />
        <main class="content" id="content" tabIndex={-1}>
          {me.error && !me.data ? <ErrorBox error={me.error} onRetry={() => void me.reload()} /> : isReady && <Crash key={`${organizationId.value} ${path}`}>{children}</Crash>}
        </main>
      </div>
      {isPaletteOpen.value && <Palette />}
      {isHelpOpen.value && <Help />}
    </div>
  );
}

function GoTo({ keys, label, go }: { keys: string; label: string; go: () => void }) {
  useShortcut(keys, text.help.goTo(label), go);
  return null;
}

/** A thin bar while the platform does not answer; the data stays visible. */
function Connection({ at }: { at: number }) {
  if (isOnline.value) return null;
  return (
    <div class="connection" role="status">
      {text.frame.offline} {at ? relative(at) : ""}. {text.frame.offlineSoon}
    </div>
  );
}
