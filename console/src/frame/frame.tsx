/** The frame around all pages: side bar, top bar, connection, palette, help. */

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLocation } from "preact-iso";
import { useEffect, useRef } from "preact/hooks";
import { isOnline } from "../api/client";
import { useResource } from "../api/resource";
import { chooseOrganization, organizationId } from "../api/session";
import { useShortcut } from "../lib/keyboard";
import { role, toRole } from "../lib/roles";
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
  useEffect(() => {
    // The first organization is the usual one; one that the person has left is not asked for any more.
    if (organizations && !known) chooseOrganization(organizations[0]?.organizationId ?? "");
  }, [organizations, known]);
  const who = useResource("/v1/whoami", {}, { pollMs: 120_000, isOn: known !== undefined });
  useEffect(() => {
    role.value = toRole(who.data?.role || known?.role);
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
          {me.error && !me.data ? <ErrorBox error={me.error} onRetry={() => void me.reload()} /> : known && <Crash key={`${organizationId.value} ${path}`}>{children}</Crash>}
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
