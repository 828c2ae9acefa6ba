/** The command palette (⌘K): pages, resources and actions. */

import { signal } from "@preact/signals";
import {
  BookOpen, Boxes, CalendarClock, Clock, Activity as Pulse, Database, ExternalLink, Keyboard, Plus, Rocket, Search, Settings, SquareFunction, SunMoon,
  UserRound, type LucideIcon,
} from "lucide-preact";
import { useLocation } from "preact-iso";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api } from "../api/client";
import { toApiError } from "../api/errors";
import { changed, useResource } from "../api/resource";
import type { Data, Item } from "../api/types";
import { hostOf } from "../lib/format";
import { whyNot, type Role } from "../lib/roles";
import { isDark, theme } from "../lib/theme";
import { NAV } from "../pages";
import { text } from "../text";
import { showToast } from "../ui/toast";
import { isHelpOpen } from "./help";

export const isPaletteOpen = signal(false);

interface Command {
  label: string;
  note: string;
  icon: LucideIcon;
  href?: string;
  run?: () => void;
  role?: Role; // that it needs; without it the reason is shown
}

const MOST_PAGES = 10; // of projects, 100 each
const { general: _, ...TABS } = text.organization.tabs;
const SETTINGS = Object.entries(TABS);

const close = () => (isPaletteOpen.value = false);

/** Actions that are always there. Pages of other areas add theirs to this list. */
export const ACTIONS: Command[] = [
  { label: text.projects.create, note: text.palette.actions, icon: Plus, href: "/projects/new", role: "member" },
  { label: text.functions.create, note: text.palette.actions, icon: Plus, href: "/functions/new", role: "member" },
  { label: text.schedules.create, note: text.palette.actions, icon: Plus, href: "/schedules/new", role: "member" },
  { label: text.cronjobs.create, note: text.palette.actions, icon: Plus, href: "/cronjobs/new", role: "member" },
  { label: text.databases.create, note: text.palette.actions, icon: Plus, href: "/databases/new", role: "member" },
  { label: text.monitors.create, note: text.palette.actions, icon: Plus, href: "/monitors/new", role: "member" },
  ...SETTINGS.map(([tab, label]) => ({ label, note: text.nav.settings, icon: Settings, href: `/settings/${tab}` })),
  { label: text.account.settings, note: text.palette.actions, icon: UserRound, href: "/account" },
  { label: text.frame.apiPage, note: text.palette.actions, icon: BookOpen, run: () => void open("/docs", "_blank", "noopener") },
  { label: text.help.toggleTheme, note: text.palette.actions, icon: SunMoon, run: () => (theme.value = isDark.peek() ? "light" : "dark") },
  { label: text.help.title, note: text.palette.actions, icon: Keyboard, run: () => (isHelpOpen.value = true) },
];

type Project = Item<Data<"/v1/projects">>;

/** All projects: the first page is shared with the lists, the others are read while the palette is open. */
function useAllProjects(): Project[] {
  const first = useResource("/v1/projects", { query: { limit: 100 } });
  const [more, setMore] = useState<Project[]>([]);
  const next = first.data?.nextCursor ?? null;
  useEffect(() => {
    const abort = new AbortController();
    const read = async () => {
      const found: Project[] = [];
      for (let cursor = next, page = 1; cursor && page < MOST_PAGES && !abort.signal.aborted; page += 1) {
        const { items, nextCursor } = await api.get("/v1/projects", { query: { limit: 100, cursor }, signal: abort.signal });
        setMore([...found, ...items]);
        found.push(...items);
        cursor = nextCursor;
      }
    };
    void read().catch(() => undefined);
    return () => abort.abort();
  }, [next]);
  return useMemo(() => [...(first.data?.items ?? []), ...more], [first.data, more]);
}

/** What can be done with the project whose page is open. */
function actionsOf(path: string, projects: Project[]): Command[] {
  const [, kind, name] = path.split("/");
  const project = kind === "projects" ? projects.find((each) => each.name === name) : undefined;
  if (!project) return [];
  const { tabs } = text.projects;
  const t = text.projectTabs;
  const pages = { deployments: tabs.deployments, logs: t.logs, metrics: t.metrics, domains: t.domains, environment: t.environment, rules: t.rules, settings: tabs.settings };
  const deploy = async () => {
    try {
      const { deploymentUuid } = await api.post("/v1/projects/{name}/deploy", { path: { name: project.name }, body: { operation: "deploy" } });
      changed("/v1/projects");
      showToast({ kind: "busy", title: text.projects.deployStarted, href: `/projects/${project.name}/deployments/${deploymentUuid}`, linkText: text.projects.log });
    } catch (error) {
      showToast({ kind: "bad", title: toApiError(error).message });
    }
  };
  return [
    ...(project.repositoryName ? [{ label: `${text.projects.deploy} ${project.name}`, note: text.palette.actions, icon: Rocket, run: () => void deploy(), role: "member" as Role }] : []),
    { label: `${text.palette.open} ${hostOf(project.projectUrl)}`, note: text.palette.actions, icon: ExternalLink, run: () => void open(project.projectUrl, "_blank", "noopener") },
    ...Object.entries(pages).map(([tab, label]) => ({ label: `${project.name}: ${label}`, note: text.palette.pages, icon: Boxes, href: `/projects/${project.name}/${tab}` })),
  ];
}

function useCommands(): Command[] {
  const { path } = useLocation();
  const projects = useAllProjects();
  const functions = useResource("/v1/functions", { query: { pageSize: 100 } });
  const databases = useResource("/v1/databases", { query: { pageSize: 100 } });
  const cronjobs = useResource("/v1/cronjobs", { query: { pageSize: 100 } });
  const schedules = useResource("/v1/scheduled-functions", {});
  const monitors = useResource("/v1/monitors", {});
  const me = useResource("/v1/me", {});
  return useMemo(
    () => [
      ...NAV.filter((each) => !each.isForOperators || me.data?.isOperator).map(({ label, icon, href }) => ({ label, icon, href, note: text.palette.pages })),
      ...actionsOf(path, projects),
      ...ACTIONS,
      ...projects.map((each) => ({ label: each.name, icon: Boxes, href: `/projects/${each.name}`, note: hostOf(each.projectUrl) })),
      ...(functions.data?.items ?? []).map((each) => ({ label: each.name, icon: SquareFunction, href: `/functions/${each.name}`, note: text.nav.functions })),
      ...(databases.data?.items ?? []).map((each) => ({ label: each.name ?? "", icon: Database, href: `/databases/${each.name}`, note: each.type })),
      ...(schedules.data ?? []).map((each) => ({ label: each.name, icon: CalendarClock, href: `/schedules/${each.id}`, note: each.cronSchedule })),
      ...(cronjobs.data?.items ?? []).map((each) => ({ label: each.name ?? "", icon: Clock, href: `/cronjobs/${each.name}`, note: each.cronSchedule ?? "" })),
      ...(monitors.data ?? []).map((each) => ({ label: each.name ?? "", icon: Pulse, href: `/monitors/${each.id}`, note: hostOf(each.url ?? "") })),
    ],
    [path, projects, functions.data, databases.data, cronjobs.data, schedules.data, monitors.data, me.data],
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
    if (!command || (command.role && whyNot(command.role))) return;
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
          const why = command.role && whyNot(command.role);
          return (
            <div key={`${command.href} ${command.label}`} id={`command-${index}`} class="result" role="option" aria-disabled={why ? true : undefined} aria-selected={index === current} onMouseMove={() => setAt(index)} onClick={() => choose(command)}>
              <Icon size={16} aria-hidden="true" />
              <span class="cut">{command.label}</span>
              <span class="note cut">{why ?? command.note}</span>
            </div>
          );
        })}
        {found.length === 0 && <p class="soft small nothing">{text.palette.nothing}</p>}
      </div>
      <div class="foot not-phone">{text.palette.hint}</div>
    </dialog>
  );
}
