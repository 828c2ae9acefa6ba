/** The top bar: crumbs, search, notifications, account. */

import { Bell, BookOpen, LogOut, Menu as MenuIcon, Monitor, Moon, Search, Sun, UserRound } from "lucide-preact";
import { useLocation } from "preact-iso";
import { api } from "../api/client";
import { changed, useResource } from "../api/resource";
import { session, signOut } from "../api/session";
import { isMac } from "../lib/keyboard";
import { theme, type Theme } from "../lib/theme";
import { text } from "../text";
import { Button } from "../ui/button";
import { MenuGap, MenuItem, Popover } from "../ui/menu";
import { Time } from "../ui/time";
import { isDrawerOpen } from "./frame";
import { crumbs } from "./page";
import { isPaletteOpen } from "./palette";

export function TopBar() {
  return (
    <header class="bar">
      <span class="only-phone">
        <Button kind="quiet" label={text.frame.menu} onClick={() => (isDrawerOpen.value = true)} icon={<MenuIcon size={18} aria-hidden="true" />} />
      </span>
      <nav class="grow" aria-label={text.frame.breadcrumbs}>
        <ol class="crumbs">
          {crumbs.value.map((crumb, at) => (
            <li key={crumb.label}>
              {at > 0 && (
                <span class="slash" aria-hidden="true">
                  /
                </span>
              )}
              {crumb.href ? (
                <a class="cut" href={crumb.href}>
                  {crumb.label}
                </a>
              ) : (
                <span class="cut" aria-current="page">
                  {crumb.label}
                </span>
              )}
            </li>
          ))}
        </ol>
      </nav>
      <button type="button" class="search-button" onClick={() => (isPaletteOpen.value = true)}>
        <Search size={15} aria-hidden="true" />
        <span>{text.frame.search}</span>
        <kbd aria-hidden="true">{isMac ? "⌘K" : "Ctrl K"}</kbd>
      </button>
      <Notifications />
      <Account />
    </header>
  );
}

function Notifications() {
  const me = useResource("/v1/me", {});
  const list = useResource("/v1/notifications", {}, { pollMs: 60_000, isOn: me.data !== undefined }); // after the page
  const unread = list.data?.filter((each) => !each.read).length ?? 0;
  const readAll = async () => {
    list.set((items) => items.map((each) => ({ ...each, read: true })));
    await api.post("/v1/notifications/read").catch(() => undefined);
    changed("/v1/notifications");
  };
  return (
    <Popover
      label={text.frame.notifications}
      isMenu={false}
      trigger={(props) => (
        <button type="button" class="button quiet icon bell" aria-label={unread ? `${text.frame.notifications}: ${unread}` : text.frame.notifications} {...props}>
          <Bell size={17} aria-hidden="true" />
          {unread > 0 && <i aria-hidden="true">{unread > 9 ? "9+" : unread}</i>}
        </button>
      )}
    >
      {(close) => (
        <div class="notes">
          <div class="row between">
            <strong class="menu-title">{text.frame.notifications}</strong>
            {unread > 0 && (
              <Button kind="quiet" size="small" onClick={readAll}>
                {text.frame.markAllRead}
              </Button>
            )}
          </div>
          {list.data?.length ? (
            <ul>
              {list.data.slice(0, 30).map((note) => (
                <li key={note.id} class={note.read ? "note read" : "note"}>
                  <div class="row between">
                    <strong class="cut">{note.title}</strong>
                    <span class="soft small">
                      <Time at={note.createdAt} />
                    </span>
                  </div>
                  <p class="soft small">{note.body}</p>
                </li>
              ))}
            </ul>
          ) : (
            <p class="soft small nothing">{text.frame.noNotifications}</p>
          )}
          <a class="menu-item" href="/account/notifications" onClick={close}>
            {text.account.allNotifications}
          </a>
        </div>
      )}
    </Popover>
  );
}

const THEMES: [Theme, typeof Sun][] = [
  ["system", Monitor],
  ["light", Sun],
  ["dark", Moon],
];

function Account() {
  const { route } = useLocation();
  const me = useResource("/v1/me", {}, { pollMs: 120_000 });
  const name = [me.data?.firstName, me.data?.lastName].filter(Boolean).join(" ") || me.data?.username || "";
  const leave = async () => {
    const current = session.peek();
    if (current?.kind === "session") {
      // Ends the session on the server too; if that fails, the token ends by itself within a day.
      const mine = await api.get("/v1/sessions").then((all) => all.find((each) => each.current), () => undefined);
      if (mine) await api.delete("/v1/sessions/{session_id}", { path: { session_id: mine.id } }).catch(() => undefined);
    }
    signOut();
    route("/", true);
  };
  return (
    <Popover
      label={text.frame.account}
      trigger={(props) => (
        <button type="button" class="avatar" aria-label={text.frame.account} {...props}>
          {(name || me.data?.email || "·").charAt(0).toUpperCase()}
        </button>
      )}
    >
      {(close) => (
        <>
          <div class="menu-title">
            {name && <div class="cut who">{name}</div>}
            <div class="cut">{me.data?.email}</div>
          </div>
          <MenuGap />
          <div class="menu-title">{text.frame.theme}</div>
          {THEMES.map(([value, Icon]) => (
            <MenuItem key={value} icon={<Icon size={15} aria-hidden="true" />} isChecked={theme.value === value} note={theme.value === value ? "✓" : ""} onClick={() => (theme.value = value)}>
              {text.frame.themes[value]}
            </MenuItem>
          ))}
          <MenuGap />
          <MenuItem icon={<UserRound size={15} aria-hidden="true" />} href="/account" onClick={close}>
            {text.account.settings}
          </MenuItem>
          <MenuItem icon={<BookOpen size={15} aria-hidden="true" />} href="/docs" isExternal onClick={close}>
            {text.frame.apiPage}
          </MenuItem>
          <MenuItem icon={<LogOut size={15} aria-hidden="true" />} onClick={() => void leave()}>
            {text.frame.signOut}
          </MenuItem>
        </>
      )}
    </Popover>
  );
}
