/**
 * All pages of the console. Add yours here: its path, its code (loaded when it is opened), and, if it belongs into the
 * side bar, its place there. `console/README.md` tells the rest.
 */

import {
  Activity,
  Boxes,
  CalendarClock,
  Clock,
  Database,
  History,
  House,
  ServerCog,
  Settings,
  SquareFunction,
  type LucideIcon,
} from "lucide-preact";
import type { AnyComponent } from "preact";
import { isAt } from "./lib/paths";
import { text } from "./text";

export interface Page {
  path: string; // as of preact-iso: `:name` is a parameter, `:tab?` may be missing
  load: () => Promise<{ default: AnyComponent<any> }>;
}

export interface NavItem {
  href: string;
  label: string;
  icon: LucideIcon;
  key: string; // of the shortcut `g KEY`
  isBottom?: boolean;
  isForOperators?: boolean;
}

export const PAGES: Page[] = [
  { path: "/", load: () => import("./pages/home/home") },
  { path: "/projects", load: () => import("./pages/projects/list") },
  { path: "/projects/new", load: () => import("./pages/projects/create") },
  { path: "/projects/:name/:tab?/:id?", load: () => import("./pages/projects/project") },
  { path: "/activity", load: () => import("./pages/organization/activity") },
  { path: "/organizations/new", load: () => import("./pages/organization/create") },
  { path: "/settings/:tab?", load: () => import("./pages/organization/organization") },
  { path: "/account/:tab?", load: () => import("./pages/organization/account") },
  { path: "/functions", load: () => import("./pages/lists/functions") },
  { path: "/functions/new", load: () => import("./pages/functions/create") },
  { path: "/functions/:name/:tab?/:id?", load: () => import("./pages/functions/function") },
  { path: "/schedules", load: () => import("./pages/schedules/list") },
  { path: "/schedules/new", load: () => import("./pages/schedules/create") },
  { path: "/schedules/:id", load: () => import("./pages/schedules/schedule") },
  { path: "/databases", load: () => import("./pages/lists/databases") },
  { path: "/cronjobs", load: () => import("./pages/lists/cronjobs") },
  { path: "/cronjobs/new", load: () => import("./pages/cronjobs/create") },
  { path: "/cronjobs/:name/:tab?/:id?", load: () => import("./pages/cronjobs/cronjob") },
  { path: "/monitors", load: () => import("./pages/lists/monitors") },
  { path: "/databases/new", load: () => import("./pages/databases/create") },
  { path: "/databases/:name/:tab?/:schema?/:table?", load: () => import("./pages/databases/database") },
  { path: "/monitors/new", load: () => import("./pages/monitors/create") },
  { path: "/monitors/:id/:tab?", load: () => import("./pages/monitors/monitor") },
  { path: "/operator/:tab?", load: () => import("./pages/operator/operator") },
  { path: "/components", load: () => import("./pages/components/components") },
];

export const NAV: NavItem[] = [
  { href: "/", label: text.nav.home, icon: House, key: "h" },
  { href: "/projects", label: text.nav.projects, icon: Boxes, key: "p" },
  { href: "/functions", label: text.nav.functions, icon: SquareFunction, key: "f" },
  { href: "/schedules", label: text.schedules.title, icon: CalendarClock, key: "e" },
  { href: "/databases", label: text.nav.databases, icon: Database, key: "d" },
  { href: "/cronjobs", label: text.nav.cronjobs, icon: Clock, key: "c" },
  { href: "/monitors", label: text.nav.monitors, icon: Activity, key: "m" },
  { href: "/activity", label: text.nav.activity, icon: History, key: "a" },
  { href: "/operator", label: text.operator.title, icon: ServerCog, key: "o", isBottom: true, isForOperators: true },
  { href: "/settings", label: text.nav.settings, icon: Settings, key: "s", isBottom: true },
];

/** Return the page at a path; lists link to their resources only where one exists. */
export function pageAt(path: string): Page | undefined {
  return PAGES.find((page) => isAt(page.path, path));
}

export function hasPage(path: string): boolean {
  return pageAt(path) !== undefined;
}
