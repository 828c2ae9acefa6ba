/** Entries of the audit log as a list: who did what to which resource, from where and when. */

import { Activity as ActivityIcon, Bot, Clock, Database, GitBranch, Globe, KeyRound, ShieldAlert, SquareFunction, User, type LucideIcon } from "lucide-preact";
import type { Data, Item } from "../../api/types";
import { hasPage } from "../../pages";
import { text } from "../../text";
import { Time } from "../../ui/time";

export type Happening = Item<Data<"/v1/activity">>;

const ICONS: Record<string, LucideIcon> = {
  project: GitBranch, repository: GitBranch, function: SquareFunction, database: Database, cronjob: Clock, schedule: Clock,
  monitor: ActivityIcon, alert: ShieldAlert, domain: Globe, token: KeyRound, member: User, invitation: User,
};
const PLACES: Record<string, string> = { project: "/projects/", function: "/functions/", database: "/databases/", cronjob: "/cronjobs/" };

/** "project.created" as a verb: "created". */
function wordsOf(action: string): string {
  return text.activity.acts[action] ?? action.slice(action.indexOf(".") + 1).replaceAll("_", " ");
}

/** Entries without duplicates, newest first. */
export function unique(items: Happening[]): Happening[] {
  const seen = new Set<number>();
  return items.filter((each) => !seen.has(each.id) && seen.add(each.id)).sort((a, b) => b.id - a.id);
}

export function Feed({ items, fresh, label }: { items: Happening[]; fresh?: Set<number>; label: string }) {
  return (
    <ol class="feed" aria-live="polite" aria-label={label}>
      {items.map((each) => (
        <Entry key={each.id} happening={each} isFresh={fresh?.has(each.id) ?? false} />
      ))}
    </ol>
  );
}

function Entry({ happening, isFresh }: { happening: Happening; isFresh: boolean }) {
  const { action, actor, target, details, createdAt } = happening;
  const Icon = actor.userId === null ? Bot : (ICONS[target.kind] ?? ActivityIcon);
  const href = PLACES[target.kind] ? `${PLACES[target.kind]}${target.name}` : undefined;
  const facts = Object.entries(details as Record<string, unknown>).filter(([, value]) => value !== null && value !== "" && !(Array.isArray(value) && value.length === 0));
  const t = text.activity;
  return (
    <li class={isFresh ? "fresh" : ""}>
      <Icon size={16} aria-hidden="true" />
      <div class="what">
        <p>
          <strong>{actor.name}</strong> {wordsOf(action)} <span class="soft">{t.kinds[target.kind] ?? target.kind.replaceAll("_", " ")}</span>{" "}
          {href && hasPage(href) && !action.endsWith(".deleted") ? <a href={href}>{target.name}</a> : <span class="strong">{target.name}</span>}
        </p>
        <p class="soft small">
          {[actor.token && t.byToken(actor.token.name), actor.address && t.from(actor.address), ...facts.map(([name, value]) => `${name}: ${shortOf(value)}`)].filter(Boolean).join(" · ")}
        </p>
      </div>
      <span class="soft small">
        <Time at={createdAt} />
      </span>
    </li>
  );
}

const COMMIT = /^[0-9a-f]{40}([0-9a-f]{24})?$/;

function shortOf(value: unknown): string {
  const words = wordOf(value);
  return words.length > 160 ? `${words.slice(0, 160)}…` : words;
}

/** A value as text: lists and pairs with commas, commits by their first characters. */
function wordOf(value: unknown): string {
  if (Array.isArray(value)) return value.map(wordOf).join(", ");
  if (typeof value === "object" && value !== null) return Object.entries(value).map(([name, each]) => `${name} ${wordOf(each)}`).join(", ");
  return typeof value === "string" && COMMIT.test(value) ? value.slice(0, 7) : String(value);
}
