/** The pages of platform operators; others are told whose they are. */

import { ShieldAlert } from "lucide-preact";
import type { AnyComponent } from "preact";
import { lazy } from "preact-iso";
import { useResource } from "../../api/resource";
import { NotFound } from "../../frame/notfound";
import { PageHead } from "../../frame/page";
import { text } from "../../text";
import { CodeBlock } from "../../ui/copy";
import { Empty, Loaded } from "../../ui/feedback";
import { Tabs } from "../../ui/tabs";

const t = text.operator;
const TABS: { key: string; label: string; component: AnyComponent }[] = [
  { key: "", label: t.tabs.overview, component: lazy(() => import("./platform")) },
  { key: "machines", label: t.tabs.machines, component: lazy(() => import("./machines")) },
  { key: "jobs", label: t.tabs.jobs, component: lazy(() => import("./jobs")) },
  { key: "organizations", label: t.tabs.organizations, component: lazy(() => import("./organizations")) },
  { key: "users", label: t.tabs.users, component: lazy(() => import("./users")) },
  { key: "activity", label: t.tabs.activity, component: lazy(() => import("./activity")) },
];

export default function OperatorPage({ tab = "" }: { tab?: string }) {
  const me = useResource("/v1/me", {}, { pollMs: 120_000 });
  const open = TABS.find((each) => each.key === tab);
  if (!open) return <NotFound />;
  const Open = open.component;
  return (
    <>
      <PageHead title={t.title} subtitle={<p class="soft small">{t.subtitle}</p>} />
      <Loaded of={me}>
        {({ isOperator, email }) =>
          isOperator ? (
            <>
              <Tabs label={t.title} tabs={TABS.map(({ key, label }) => ({ href: `/operator${key && `/${key}`}`, label }))} />
              <Open />
            </>
          ) : (
            <Empty icon={<ShieldAlert size={20} />} snippet={<CodeBlock code={`moorage admin grant-operator ${email}`} />}>
              {t.notYours} {t.notYoursHint}
            </Empty>
          )
        }
      </Loaded>
    </>
  );
}
