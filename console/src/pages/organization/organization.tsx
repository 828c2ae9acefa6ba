/** Settings of the organization: one page with tabs. */

import type { AnyComponent } from "preact";
import { lazy } from "preact-iso";
import { useResource } from "../../api/resource";
import { organizationId } from "../../api/session";
import type { Data } from "../../api/types";
import { NotFound } from "../../frame/notfound";
import { PageHead } from "../../frame/page";
import { text } from "../../text";
import { Loaded, SkeletonRows } from "../../ui/feedback";
import { Tabs } from "../../ui/tabs";

export type Organization = Data<"/v1/orgs/{org_id}">;

export interface OrganizationTabProps {
  organization: Organization;
}

const TABS: { key: string; label: string; component: AnyComponent<OrganizationTabProps> }[] = [
  { key: "", label: text.organization.tabs.general, component: lazy(() => import("./general")) },
  { key: "members", label: text.organization.tabs.members, component: lazy(() => import("./members")) },
  { key: "tokens", label: text.organization.tabs.tokens, component: lazy(() => import("./tokens")) },
  { key: "usage", label: text.organization.tabs.usage, component: lazy(() => import("./usage")) },
  { key: "registries", label: text.organization.tabs.registries, component: lazy(() => import("./registries")) },
  { key: "github", label: text.organization.tabs.github, component: lazy(() => import("./github")) },
];

export default function OrganizationPage({ tab = "" }: { tab?: string }) {
  const id = Number(organizationId.value);
  const organization = useResource("/v1/orgs/{org_id}", { path: { org_id: id } }, { pollMs: 60_000, isOn: id > 0 });
  const open = TABS.find((each) => each.key === tab);
  if (!open) return <NotFound />;
  const Open = open.component;
  return (
    <>
      <PageHead title={text.organization.title} crumbs={organization.data ? [{ label: organization.data.name }] : []} />
      <Tabs label={text.organization.title} tabs={TABS.map(({ key, label }) => ({ href: `/settings${key && `/${key}`}`, label }))} />
      <Loaded of={organization} skeleton={<SkeletonRows rows={4} />}>
        {(data) => <Open organization={data} key={data.organizationId} />}
      </Loaded>
    </>
  );
}
