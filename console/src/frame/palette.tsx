/** The command palette (⌘K): pages, resources and actions. */

import { signal } from "@preact/signals";
import { Boxes, Clock, Activity as Pulse, Database, Keyboard, Plus, Search, SquareFunction, SunMoon, type LucideIcon } from "lucide-preact";
import { useLocation } from "preact-iso";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useResource } from "../api/resource";
import { hostOf } from "../lib/format";
import { isDark, theme } from "../lib/theme";
import { NAV } from "../pages";
import { text } from "../text";
import { isHelpOpen } from "./help";

export const isPaletteOpen = signal(false);

interface Command {
  label: string;
  note: string;
  icon: LucideIcon;
  href?: string;
  run?: () => void;
}

const close = () => (isPaletteOpen.value = false);

/** Actions that are always there. Pages of other areas add theirs to this list. */
export const ACTIONS: Command[] = [
  { label: text.projects.create, note: text.palette.actions, icon: Plus, href: "/projects/new" },
  { label: text.functions.create, note: text.palette.actions, icon: Plus, href: "/functions/new" },
  { label: text.schedules.create, note: text.palette.actions, icon: Plus, href: "/schedules/new" },
  { label: text.cronjobs.create, note: text.palette.actions, icon: Plus, href: "/cronjobs/new" },
  { label: text.databases.create, note: text.palette.actions, icon: Plus, href: "/databases/new" },
  { label: text.monitors.create, note: text.palette.actions, icon: Plus, href: "/monitors/new" },
  { label: text.help.toggleTheme, note: text.palette.actions, icon: SunMoon, run: () => (theme.value = isDark.peek() ? "light" : "dark") },
  { label: text.help.title, note: text.palette.actions, icon: Keyboard, run: () => (isHelpOpen.value = true) },
];

function useCommands(): Command[] {
  const projects = useResource("/v1/projects", { query: { limit: 100 } });
  const functions = useResource("/v1/functions", { query: { pageSize: 100 } });
  const databases = useResource("/v1/databases", { query: { pageSize: 100 } });
  const cronjobs = useResource("/v1/cronjobs", { query: { pageSize: 100 } });
  const monitors = useResource("/v1/monitors", {});
  const me = useResource("/v1/me", {});
  return useMemo(
    () => [
      ...NAV.filter((each) => !each.isForOperators || me.data?.isOperator).map(({ label, icon, href }) => ({ label, icon, href, note: text.palette.pages })),
      ...(projects.data?.items ?? []).map((each) => ({ label: each.name, icon: Boxes, href: `/projects/${each.name}`, note: hostOf(each.projectUrl) })),
      ...(functions.data?.items ?? []).map((each) => ({ label: each.name, icon: SquareFunction, href: `/functions/${each.name}`, note: text.nav.functions })),
      ...(databases.data?.items ?? []).map((each) => ({ label: each.name ?? "", icon: Database, href: `/databases/${each.name}`, note: each.type })),
      ...(cronjobs.data?.items ?? []).map((each) => ({ label: each.name ?? "", icon: Clock, href: `/cronjobs/${each.name}`, note: each.cronSchedule ?? "" })),
      ...(monitors.data ?? []).map((each) => ({ label: each.name ?? "", icon: Pulse, href: `/monitors/${each.id}`, note: hostOf(each.url ?? "") })),
      ...ACTIONS,
    ],
    [projects.data, functions.data, databases.data, cronjobs.data, monitors.data, me.data],
  );
}

export function Palette() {
  const { route } = useLocation();
  const commands = useCommands();
  const [wanted, setWanted] = useState("");
  const [at, setAt] = useState(0);
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current!.showModal();
  }, []);
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  const found = commands.filter(({ label, note }) => words.every((word) => `${label} ${note}`.toLowerCase().includes(word))).slice(0, 40);
  const current = Math.min(at, Math.max(0, found.length - 1));
  const choose = (command: Command | undefined) => {
    if (!command) return;
    close();
    if (command.href) route(command.href);
    else command.run?.();
  };
  const press = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      setAt((current + step + found.length) % Math.max(1, found.length));
    } else if (event.key === "Enter") {
      event.preventDefault();
      choose(found[current]);
    }
  };
  useEffect(() => document.getElementById(`command-${current}`)?.scrollIntoView({ block: "nearest" }), [current]);
  return (
    <dialog ref={dialog} class="palette" aria-label={text.palette.title} onCancel={close} onClose={close} onMouseDown={(event) => event.target === dialog.current && close()}>
      <div class="input-row">
        <Search size={17} aria-hidden="true" />
        <input
          autofocus
          role="combobox"
          aria-expanded="true"
          aria-controls="commands"
          aria-activedescendant={`command-${current}`}
          aria-label={text.palette.placeholder}
          placeholder={text.palette.placeholder}
          value={wanted}
          onInput={(event) => (setWanted(event.currentTarget.value), setAt(0))}
          onKeyDown={press}
        />
      </div>
      <div class="results" role="listbox" id="commands" aria-label={text.palette.title}>
        {found.map((command, index) => {
          const Icon = command.icon;
          return (
            <div key={`${command.href} ${command.label}`} id={`command-${index}`} class="result" role="option" aria-selected={index === current} onMouseMove={() => setAt(index)} onClick={() => choose(command)}>
              <Icon size={16} aria-hidden="true" />
              <span class="cut">{command.label}</span>
              <span class="note cut">{command.note}</span>
            </div>
          );
        })}
        {found.length === 0 && <p class="soft small nothing">{text.palette.nothing}</p>}
      </div>
      <div class="foot not-phone">{text.palette.hint}</div>
    </dialog>
  );
}
